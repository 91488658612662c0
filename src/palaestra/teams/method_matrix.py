"""Learning methods by generated worlds: `palaestra analyze 'method_matrix(choose="each")' worlds.json` ([72], AutoEnv).

A method improves an agent by selection (the best candidate, or one of the Pareto front over levels), signal (what play
showed, or what the instruction says) and component (the prompt: what signs are worth; the code: how far it plans): two
each, eight in all. The paper's details of the eight are not public; these are reconstructed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from palaestra.envs.worlds.generated import HIDDEN, MOVES, SELF, SIGNS, Description, Level, Play, generate
from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table

Levels = Sequence[tuple[Level, float]]


class Method(NamedTuple):
    """Data of one of eight learning methods: how to select, which signal to use, and which component to change."""

    selection: Literal["best", "pareto"]
    signal: Literal["dynamics", "instruction"]
    component: Literal["prompt", "code"]


METHODS = tuple(
    Method(*each)  # type: ignore[arg-type]
    for each in itertools.product(("best", "pareto"), ("dynamics", "instruction"), ("prompt", "code"))
)
PRIOR = {SIGNS[2]: 1.0, SIGNS[3]: -1.0, SIGNS[1]: -1.0}
"""What the names of the plain skin suggest: to the goal, away from lava and walls."""


@dataclass(frozen=True)
class GridAgent:
    """Scripted agent of generated grid levels; `act` plans within `reach` moves by the `values` of signs it sees.

    values: of signs, above 0 to be walked to, below 0 to be avoided. reach: how far it plans, in moves.
    """

    values: Mapping[str, float]
    reach: int = 3

    def act(self, seen: np.ndarray, blocked: set[tuple[int, int]], rng: np.random.Generator) -> int:
        """The first move towards the sign of largest value less .01 a move; a random move if there is none."""
        here = tuple(int(each) for each in np.argwhere(seen == SELF)[0])
        first: dict[tuple[int, ...], tuple[int, int]] = {here: (-1, 0)}
        queue, best = deque([here]), (0.0, -1)
        while queue:
            cell = queue.popleft()
            move, far = first[cell]
            worth = self.values.get(str(seen[cell]), 0.0) - 0.01 * far
            if move >= 0 and worth > best[0]:
                best = worth, move
            if far >= self.reach or (move >= 0 and self.values.get(str(seen[cell]), 0.0) > 0):
                continue
            for number, (down, across) in enumerate(MOVES):
                after = (cell[0] + down, cell[1] + across)
                inside = 0 <= after[0] < seen.shape[0] and 0 <= after[1] < seen.shape[1]
                if not inside or after in first or after in blocked:
                    continue
                if self.values.get(str(seen[after]), 0.0) >= 0:
                    first[after] = (number if move < 0 else move, far + 1)
                    queue.append(after)
        if best[1] >= 0:
            return best[1]
        safe = sorted({move for move, far in first.values() if far == 1})
        return int(rng.choice(safe)) if safe else int(rng.integers(len(MOVES)))


class Episode(NamedTuple):
    """Data of an agent's episode in a level: score as share of the best return, rewards by sign, and how it ended.

    score: return by the level's largest. paid: sign and reward of each move. ended: sign that ended it, or empty.
    """

    score: float
    paid: list[tuple[str, float]]
    ended: str


def play(agent: GridAgent, description: Description, level: Level, maximum: float, rng: np.random.Generator) -> Episode:
    """Play an agent in a `Level` of a `Description` to the end; an `Episode`, its score a share of `maximum`."""
    game, total, paid, blocked, sign = Play(level, description.pays), 0.0, [], set[tuple[int, int]](), ""
    while not game.over:
        before = game.at
        action = agent.act(game.view(description.signs, description.radius), blocked, rng)
        reward, thing = game.step(action)
        sign = description.signs[thing]
        if game.at == before:
            blocked.add((before[0] + MOVES[action][0], before[1] + MOVES[action][1]))
        paid.append((sign, reward))
        total += reward
    return Episode(total / maximum, paid, sign if game.moves < level.horizon else "")


def learn(
    method: Method, description: Description, levels: Levels, *, steps: int = 3, seed: int = 0
) -> tuple[GridAgent, float]:
    """Improve an agent on validation levels of a world's `description` by a method: (best candidate, its mean score).

    Args:
        method: how.
        description: of the world.
        levels: validation levels with their largest returns.
        steps: candidates that are made.
        seed: of play and choices.
    """
    rng = np.random.default_rng([seed, METHODS.index(method)])
    pool = [(GridAgent(PRIOR), *_tried(GridAgent(PRIOR), description, levels, rng))]
    for _ in range(steps):
        agent, _, episodes = pool[selected(np.array([scores for _, scores, _ in pool]), method.selection, rng)]
        made = improved(agent, method, description, episodes)
        pool.append((made, *_tried(made, description, levels, rng)))
    means = [float(np.mean(scores)) for _, scores, _ in pool]
    best = int(np.argmax(means))
    return pool[best][0], means[best]


def _tried(
    agent: GridAgent, description: Description, levels: Levels, rng: np.random.Generator
) -> tuple[list[float], list[Episode]]:
    episodes = [play(agent, description, level, maximum, rng) for level, maximum in levels]
    return [each.score for each in episodes], episodes


def selected(scores: np.ndarray, selection: Literal["best", "pareto"], rng: np.random.Generator) -> int:
    """Index of the candidate to improve next, by `selection` from its scores, float64[candidates, levels].

    With "best" it is the one of largest mean, with "pareto" any of the Pareto front is drawn.
    """
    if selection == "best":
        return int(scores.mean(1).argmax())
    above = (scores[:, None] >= scores[None]).all(2) & (scores[:, None] > scores[None]).any(2)
    return int(rng.choice(np.flatnonzero(~above.any(0))))


def improved(agent: GridAgent, method: Method, description: Description, episodes: Sequence[Episode]) -> GridAgent:
    """A new `GridAgent`: values or reach changed by the description's instruction or by `episodes`, by a `Method`."""
    signs = description.instruction or (SIGNS[2] + SIGNS[4], SIGNS[3])
    if method.component == "code":
        wider = 2 * description.side if method.signal == "instruction" else agent.reach + 2
        failed = method.signal == "instruction" or any(each.score < 1 for each in episodes)
        return replace(agent, reach=wider if failed else agent.reach)
    values = dict(agent.values)
    if method.signal == "instruction":
        return replace(agent, values=values | dict.fromkeys(signs[0], 1.0) | dict.fromkeys(signs[1], -1.0))
    seen = pl.DataFrame(
        [(sign, reward - (sign == each.ended and reward == 0)) for each in episodes for sign, reward in each.paid],
        schema={"sign": pl.String, "worth": pl.Float64},
        orient="row",
    )
    found = {sign: worth for sign, worth in seen.group_by("sign").agg(pl.col("worth").mean()).rows() if sign != HIDDEN}
    untried = {sign: 0.1 for sign in description.signs if sign not in found and values.get(sign, 0.0) <= 0}
    return replace(agent, values={**values, **found, **untried})


def matrix(worlds: Sequence[Description], *, seed: int = 0, validation: int = 4, test: int = 8) -> pl.DataFrame:
    """DataFrame of eight learning methods' scores in each of `worlds` (`Description`s), on validation and test levels.

    Columns: `world, selection, signal, component, validation, test`.

    Args:
        worlds: descriptions.
        seed: of levels and learning; validation levels and test levels are others.
        validation: levels to learn on.
        test: levels of the score.
    """
    rows = []
    for number, world in enumerate(worlds):
        first = 100_000 * seed + 1000 * number
        levels = generate(world, range(first, first + validation)).levels
        held = generate(world, range(first + 500, first + 500 + test)).levels
        for method in METHODS:
            agent, score = learn(method, world, levels, seed=seed)
            tested, _ = _tried(agent, world, held, np.random.default_rng([seed, number]))
            rows.append({"world": world.name, **method._asdict(), "validation": score, "test": float(np.mean(tested))})
    return pl.DataFrame(rows)


def gaps(scores: np.ndarray) -> tuple[list[float], list[float]]:
    """Lists (single, each) by k of `scores` [methods, worlds]: mean on first k worlds, best method; each world's best.

    The first is of the one method that is best on these worlds.

    From scores [methods, worlds].

    Args:
        scores: float64[methods, worlds].

    >>> single, each = gaps(np.array([[.5, .1, .2, .3], [.2, .6, .1, .3], [.1, .2, .5, .4]]))
    >>> [round(x, 3) for x in single], [round(x, 3) for x in each]
    ([0.5, 0.4, 0.3, 0.3], [0.5, 0.55, 0.533, 0.5])
    """
    sizes = range(1, scores.shape[1] + 1)
    single = [float(scores[:, :size].mean(1).max()) for size in sizes]
    return single, [float(scores[:, :size].max(0).mean()) for size in sizes]


@ANALYSES.register("method_matrix")
def method_matrix(choose: Literal["each", "one"] = "each", *, seed: int = 0) -> Analysis:
    """Makes an analysis (file of worlds -> DataFrame): the best learning method for each world, or the best for all.

    WORLDS has a description per row.

    Methods are chosen by their validation levels; `test` is the score on others, as a share of the largest return.
    """
    if choose not in ("each", "one"):
        raise InputError(f"analysis method_matrix: choose={choose!r} is each or one")

    def answer(worlds: Path) -> pl.DataFrame:
        found = matrix([description_from_dict(row) for row in table(worlds, "name").to_dicts()], seed=seed)
        wide = found.with_columns(method=pl.concat_str("selection", "signal", "component", separator=" "))
        if choose == "each":
            best = wide.sort("validation", descending=True, maintain_order=True).group_by("world", maintain_order=True)
            return best.first().select("world", "method", "validation", "test").sort("world")
        means = wide.group_by("method", maintain_order=True).agg(pl.col("validation").mean())
        one = means.sort("validation", descending=True, maintain_order=True)["method"][0]
        return wide.filter(pl.col("method") == one).select("world", "method", "validation", "test").sort("world")

    return answer


def description_from_dict(row: Mapping[str, Any]) -> Description:
    """Makes a world `Description` from a dict of plain values; missing or None ones are the defaults.

    Raises:
        InputError: a field is not known.
    """
    given = {name: value for name, value in row.items() if value is not None}
    if unknown := sorted(set(given) - set(Description.__dataclass_fields__)):
        raise InputError(f"world {row.get('name')!r}: unknown fields {', '.join(unknown)}")
    if "instruction" in given:
        given["instruction"] = tuple(given["instruction"])
    return Description(**given)
