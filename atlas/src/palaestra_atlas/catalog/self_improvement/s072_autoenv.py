"""[72] AutoEnv (arXiv 2511.19304): worlds from descriptions, and which learning method for which world.

The code of the generation was read by the card; the learning experiments are not public, and their eight methods are
reconstructed. Left out: a language model that writes and repairs worlds, and the paper's thirty-six.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from palaestra.envs.worlds.generated import (
    FLOOR,
    SIGNS,
    Description,
    Level,
    Play,
    draw,
    generate,
    repair,
    validate,
)  # fmt: skip
from palaestra.evaluation.analyses import analyze
from palaestra.teams.method_matrix import METHODS, Episode, GridAgent, gaps, improved, matrix, play, selected
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

WORLDS = (
    Description("plain"), Description("large", side=9, walls=0.1, lava=3, horizon=34),
    Description("inverse", skin="inverse"), Description("gems", gems=3, horizon=24),
    Description("renamed", skin="_xo!*", instruction=("o*", "!x")),
)  # fmt: skip
GAPS = np.array([[0.5, 0.1, 0.2, 0.3], [0.2, 0.6, 0.1, 0.3], [0.1, 0.2, 0.5, 0.4]])
"""Worked scores of three methods in four worlds."""


def row(text: str, horizon: int = 10) -> Level:
    """A level from signs of the plain skin, its rows between slashes; A is the start."""
    cells = [list(each) for each in text.split("/")]
    codes = {sign: code for code, sign in enumerate(SIGNS)} | {"A": FLOOR}
    grid = np.array([[codes[sign] for sign in each] for each in cells])
    start = next((r, c) for r, each in enumerate(cells) for c, sign in enumerate(each) if sign == "A")
    return Level(grid, start, horizon)


@exact
def layers() -> None:
    """Under every skin and radius the same actions bring the same cells and rewards; only what is seen differs."""
    for seed in range(5):
        level, rng = draw(Description("w", gems=2), seed), np.random.default_rng(seed)
        actions = [int(a) for a in rng.integers(4, size=20)]
        runs: list[list[object]] = []
        views: list[str] = []
        for signs, radius in ((SIGNS, None), (Description("w", skin="inverse").signs, None), ("_xo!*", 1)):
            game = Play(level)
            views.append("".join(game.view(signs, radius).ravel()))
            runs.append([])
            for action in actions:
                if not game.over:
                    game.view(signs, radius)
                    runs[-1].append((*game.step(action), game.at))
        assert runs[0] == runs[1] == runs[2]
        assert len(set(views)) == 3


@exact
def inverse() -> None:
    """The inverse skin has the goal's sign on lava and lava's on the goal: who trusts names walks into lava."""
    level, named = row("L.A.G"), GridAgent({"G": 1.0, "L": -1.0}, reach=9)
    rng = np.random.default_rng(0)
    plain = play(named, Description("w"), level, 1.0, rng)
    swapped = play(named, Description("w", skin="inverse"), level, 1.0, rng)
    assert (plain.score, plain.ended) == (1.0, "G")
    assert (swapped.score, swapped.ended) == (0.0, "G")


@exact
def solvable() -> None:
    """Breadth-first search finds what can be reached and the largest return, to the move."""
    found = [validate(row(text, horizon)) for text, horizon in (
        ("A..G", 3), ("A..G", 2), ("A#.G/.#../.#../.#..", 99), ("ALG", 9), ("gAgG", 9), ("gAgG", 3), ("gA.#/...g", 3),
    )]  # fmt: skip
    assert [each.valid for each in found] == [True, False, False, False, True, True, False]
    assert [each.maximum for each in found] == [1.0, 0.0, 0.0, 0.0, 2.0, 1.5, 0.5]
    assert [each.kind for each in found[3:5]] == ["binary", "cumulative"]
    assert found[1].issues == ("the goal cannot be reached within the horizon",)


@exact
def normalised() -> None:
    """Levels with largest returns of 1 and 2 weigh alike: who gets everything scores 1 in both."""
    agent, rng = GridAgent({"G": 0.5, "g": 1.0}, reach=9), np.random.default_rng(0)
    scores = [
        play(agent, Description("w"), level, validate(level).maximum, rng).score
        for level in (row("A.G"), row("gAgG", 9))
    ]
    assert scores == [1.0, 1.0]


@exact
def repaired() -> None:
    """A goal behind walls and a horizon that is too short are repaired, and counted; what stays is solvable."""
    closed = row("A#G", 1)
    assert not validate(closed).valid
    assert validate(repair(closed)).valid
    made = generate(Description("walls", walls=0.5), range(30))
    assert made.repaired > 5
    assert (made.dropped, len(made.levels)) == (0, 30)
    assert all(validate(level).maximum == maximum == 1.0 for level, maximum in made.levels)


@exact
def eight() -> None:
    """Eight methods make different candidates: each of the three choices counts."""
    assert len(set(METHODS)) == 8
    world, episode = Description("w", instruction=("o", "!")), Episode(0.0, [("L", 1.0), ("G", 0.0)], "G")
    agents = {each[1:]: improved(GridAgent({"G": 1.0}), each, world, [episode]) for each in METHODS}
    assert len({(tuple(sorted(each.values.items())), each.reach) for each in agents.values()}) == 4
    assert agents["dynamics", "prompt"].values["L"] == 1.0
    assert agents["dynamics", "prompt"].values["G"] == -1.0
    assert agents["instruction", "prompt"].values["o"] == 1.0
    scores, rng = np.array([[0.9, 0.0], [0.0, 0.5], [0.0, 0.4]]), np.random.default_rng(0)
    assert {selected(scores, "best", rng) for _ in range(20)} == {0}
    assert {selected(scores, "pareto", rng) for _ in range(40)} == {0, 1}


@exact
def worked_gaps() -> None:
    """Of the worked table the best single method has .5, .4, .3, .3, the best of each world .5, .55, .533, .5."""
    single, each = gaps(GAPS)
    assert np.allclose(single, [0.5, 0.4, 0.3, 0.3])
    assert np.allclose(each, [0.5, 0.55, 0.5333, 0.5], atol=1e-4)


@reproduction(
    72,
    claim="No learning method is best in all generated worlds: the gap between the best method of each world and the "
    "best single one opens as worlds are added.",
    baseline="the best single method of all worlds, in hindsight",
    criterion="gap 0 with one world and at least .03 with all, mean over seeds",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Run methods by worlds."""
    singles, bests = [], []
    for seed in seeds:
        found = matrix(WORLDS, seed=seed)
        scores = np.array([each["test"].to_list() for _, each in found.group_by("world", maintain_order=True)]).T
        single, each = gaps(scores)
        singles.append(single)
        bests.append(each)
    single, each = np.mean(singles, axis=0), np.mean(bests, axis=0)
    measured = {
        "worlds": float(len(WORLDS)), "single": float(single[-1]), "each": float(each[-1]),
        "first_gap": float(each[0] - single[0]), "gap": float(each[-1] - single[-1]),
    }  # fmt: skip
    return Outcome(measured, measured["first_gap"] == 0 and measured["gap"] >= 0.03)


def trained(skins: Sequence[str], seed: int) -> GridAgent:
    """An agent whose values are what signs paid to a wanderer under these skins, as far as they differ clearly."""
    rng, wanderer, world = np.random.default_rng(seed), GridAgent({}, reach=0), Description("w", walls=0.1)
    episodes = []
    for number, (level, maximum) in enumerate(generate(world, range(1000 * seed, 1000 * seed + 160)).levels):
        episodes.append(play(wanderer, replace(world, skin=skins[number % len(skins)]), level, maximum, rng))
    worth: dict[str, list[float]] = {}
    for episode in episodes:
        for sign, reward in episode.paid:
            worth.setdefault(sign, []).append(reward - float(sign == episode.ended and reward == 0))
    means = {sign: float(np.mean(each)) for sign, each in worth.items() if sign != SIGNS[0]}
    middle = float(np.mean(list(means.values())))
    return GridAgent({sign: mean - middle for sign, mean in means.items() if abs(mean - middle) > 0.3}, reach=12)


def permuted(seed: int) -> list[str]:
    """Skins with the four signs other than the floor's in every order that a seed draws."""
    rng = np.random.default_rng(seed)
    return [SIGNS[0] + "".join(rng.permutation(list(SIGNS[1:]))) for _ in range(24)]


@reproduction(
    72,
    name="skins",
    claim="Who learned what signs are worth on one skin drops under the inverse one; who learned on permuted skins "
    "relies on no name.",
    baseline="the same agent on the skin it was trained on",
    criterion="a drop of at least .4 after one skin, of at most .1 either way after permuted ones (means over seeds)",
    seeds=range(6),
)
def skins(seeds: Sequence[int]) -> Outcome:
    """Train on plain and on permuted skins; test on levels of their own under both."""
    scores: dict[str, list[float]] = {"plain": [], "inverse": [], "permuted": [], "permuted_inverse": []}
    for seed in seeds:
        held = generate(Description("w", walls=0.1), range(10**6 + 100 * seed, 10**6 + 100 * seed + 40)).levels
        for prefix, agent in (("", trained(["plain"], seed)), ("permuted", trained(permuted(seed), seed))):
            for skin in ("plain", "inverse"):
                name = f"{prefix}_{skin}".strip("_") if skin == "inverse" or not prefix else prefix
                rng = np.random.default_rng(seed)
                world = Description("w", walls=0.1, skin=skin)
                scores[name].append(float(np.mean([play(agent, world, one, most, rng).score for one, most in held])))
    measured = {name: float(np.mean(each)) for name, each in scores.items()}
    alike = abs(measured["permuted"] - measured["permuted_inverse"]) <= 0.1
    return Outcome(measured, measured["plain"] - measured["inverse"] >= 0.4 and alike)


def worlds_file(seed: int, folder: Path) -> None:
    """Five descriptions, their walls and lava drawn by the seed, as `worlds.json`."""
    rng = np.random.default_rng(seed)
    rows = [
        {k: v for k, v in asdict(replace(world, walls=float(rng.uniform(0.05, 0.2)))).items() if v is not None}
        for world in WORLDS
    ]
    (folder / "worlds.json").write_text(json.dumps(rows), encoding="utf-8")


@exact
def command() -> None:
    """The command makes worlds of a file and chooses a method for each, or one for all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "worlds.json"
        path.write_text(json.dumps([{"name": "a", "side": 4}, {"name": "b", "side": 4, "skin": "inverse"}]))
        each, one = (analyze(text, path) for text in ("method_matrix", "method_matrix('one')"))
    assert each["world"].to_list() == one["world"].to_list() == ["a", "b"]
    assert one["method"].n_unique() == 1
    assert each["validation"].mean() >= one["validation"].mean()  # type: ignore[operator]


def tested() -> Measure:
    """Mean score on the test levels over worlds."""

    def measured(left: Left) -> list[float]:
        return [float(np.mean([each["test"] for each in json.loads(left.stdout)]))]

    return measured
