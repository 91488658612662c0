"""[43] UI-Genie (arXiv 2505.21496): a beam over actions by a reward model, labels of steps, corrupted successes.

A lock of six steps stands for a chain of actions on a device; the reward model of an action is a noisy one, σ(±g +
N(0, 1)). Left out: models that see screens, and the three generations of both models.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Lock
from palaestra.judges.corrupt import corrupt, replayed
from palaestra.judges.search import reward_beam
from palaestra.learning.stages.alternate import alternate
from palaestra.learning.stages.mc_values import mc_values
from palaestra.play.executors import Local, Plan
from palaestra.rewards import hard_negatives, potential_label
from palaestra_atlas.catalog.reward_models.made import Ahead, Fork, stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

STEPS, NUMBERS = 6, 3
LABELLED: dict[str, Any] = {
    "stages": ["mc_values(k=5)"],
    "credit": 'standardise(potential_label(), over=("group", "turn"))',
}
WORLD: dict[str, Any] = {
    "env": {"options": {"steps": 5, "actions": 3, "decisive": 5}},
    "train": {"iterations": 40, "group_size": 24},
}


class Noisy:
    """σ(±gap + N(0, 1)) of whether a number is right and all before it were; a candidate always looks the same."""

    name = "noisy"

    def __init__(self, gap: float, world: Lock, seed: int) -> None:
        self.gap, self.world, self.seed = gap, world, seed

    def score(self, rows: pl.DataFrame, *, reference: Any = None, condition: Any = None) -> pl.Series:
        """A row per candidate."""
        found = []
        for prompt, response in rows.select("prompt", "response").rows():
            turned = [int(word) for word in prompt.split("turned ")[1].split() if word != "nothing"]
            turned.append(self.world.choices.index(response))
            right = turned == self.world.right[0][: len(turned)].tolist()
            noise = np.random.default_rng(zlib.crc32(f"{self.seed} {prompt} {response}".encode())).normal()
            found.append(1 / (1 + np.exp(-((self.gap if right else -self.gap) + noise))))
        return pl.Series(found, dtype=pl.Float64)


def anything(request: Any) -> str:
    """Any number."""
    return str(request.observation.legal[int(request.rng.integers(NUMBERS))])


def opened(env: Any, seed: int) -> Turns:
    """Scripted successes."""
    world = env()

    def opens(request: Any) -> str:
        return str(world.choices[world.right[0][int(request.observation.text.split()[-1])]])

    team = Team(opener=ScriptedPolicy(opens, name="opens"))
    return Local().play(env, team, Plan(groups=8, group_size=2, seed=seed))


def corrupted_fail(seed: int) -> float:
    """Share of corrupted copies of scripted successes that the env itself finds failed."""
    env = functools.partial(Lock, steps=STEPS, numbers=NUMBERS)
    played = opened(env, seed)
    made = corrupt(played, seed=seed, attempts=5, fails=replayed(env))
    check, failed = replayed(env), []
    for _, episode in made.frame.group_by("group", "episode"):
        failed.append(check(episode.row(0, named=True), episode.sort("turn")["action"].to_list()))
    return float(np.mean(failed)) if len(failed) > 4 else 0.0


@exact
def beam() -> None:
    """A way that begins badly and ends best is found by keeping several by their score so far."""
    found = reward_beam(lambda: Fork([0.0, 0.0, 1.0, 0.0]), ScriptedPolicy(anyway, name="anyway"), Ahead(), width=4)
    assert found.success is None
    assert (found.actions, found.score) == (("1", "0"), 4.0), found


def anyway(request: Any) -> str:
    """Either way."""
    return str(request.rng.integers(2))


@exact
def labels_of_steps() -> None:
    """In a failure a step is positive if a continuation of what followed succeeds, its last one never; success: all."""
    keys = {"episode": [0, 0, 0, 1, 1], "turn": [0, 1, 2, 0, 1], "agent": ["a"] * 5}
    turns = Turns(keys | {"value": [0.4, 0.2, 0.0, 0.2, 0.2], "success": [False] * 3 + [True] * 2})
    assert np.asarray(potential_label().evaluate(turns)).tolist() == [1.0, 0.0, 0.0, 1.0, 1.0]


@exact
def continuations() -> None:
    """The lock's state after a right step can still end well, that after a wrong one cannot; of five, by the stage."""
    env = functools.partial(Lock, steps=2, numbers=2)
    team = Team(opener=ScriptedPolicy(lambda request: str(request.observation.legal[0]), name="first"))
    turns = Local().play(env, team, Plan(groups=1, group_size=1, seed=0))
    coin = Team(opener=ScriptedPolicy(lambda request: str(request.rng.choice(request.observation.legal)), name="coin"))
    context = stage_context(env=env)
    valued = mc_values(k=20)(turns, dataclasses.replace(context, team=coin))
    assert 0.05 < valued["value"][0] < 0.6, valued["value"]


@exact
def plausible_wrong_ones() -> None:
    """Of wrong actions only those that the first model scores positive are hard; right and unlabelled ones are not."""
    rows = Turns({"p": [0.9, 0.2, 0.9, 0.9], "label": [0.0, 0.0, 1.0, None]})
    assert np.asarray(hard_negatives("p", "label").evaluate(rows)).tolist() == [1.0, 0.0, 0.0, 0.0]


@exact
def corrupted_and_refitted() -> None:
    """Successes become negatives by corruption, all of which the env finds failed; each iteration refits on its own."""
    assert corrupted_fail(43) == 1.0
    env = functools.partial(Lock, steps=STEPS, numbers=NUMBERS)
    played, weights = opened(env, 43), []
    stage = alternate(
        'verified_vs_corrupted("success")', corrupted=("truncate", "splice"), verified="success", end=True,
        model=f'online_linear("{__name__}:answered", inertia=1.0)',
    )  # fmt: skip
    for iteration in (1, 2):
        context = stage_context(iteration, env=env)
        stage(played, context)
        assert context.metrics.get("pairs", 0.0) >= 4, context.metrics
        weights.append(np.array(stage.model.weights))  # type: ignore[attr-defined]
    assert np.abs(weights[0]).max() > 0.01, weights
    assert np.abs(weights[1] - weights[0]).max() > 0.01, weights


def answered(rows: pl.DataFrame, reference: Any, condition: Any) -> np.ndarray:
    """How far an episode came, and what it did there, float64[rows, 2]."""
    came = rows["turn"].cast(pl.Float64)
    return np.stack([came.to_numpy(), rows["response"].str.len_chars().cast(pl.Float64).to_numpy()], 1)


@reproduction(
    43,
    claim="A beam of partial episodes by cumulative reward finds what greed with the same reward model misses; steps "
    "labelled by five continuations each teach a policy more than the outcome does.",
    baseline="width 1 (greedy) with the same model; the same training with RLOO on the outcome",
    criterion="success of the beam above greedy for each gap .5, 1, 1.5; every corrupted copy fails; labelled steps "
    "solve .05 more over training on average",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Search, corruption, training."""
    measured: dict[str, float] = {}
    policy, better = ScriptedPolicy(anything, name="anything"), True
    for gap in (0.5, 1.0, 1.5):
        for name, width in (("greedy", 1), ("beam", 5)):
            won = []
            for number in range(60 * len(seeds)):
                draw = number + 1000 * seeds[0]
                env = functools.partial(Lock, steps=STEPS, numbers=NUMBERS, draw=draw, shown=True)
                found = reward_beam(env, policy, Noisy(gap, env(), draw), width=width, candidates=10, seed=draw)
                won.append(bool(found.success))
            measured[f"{name}_{gap}"] = float(np.mean(won))
        better &= measured[f"beam_{gap}"] > measured[f"greedy_{gap}"]
    measured["corrupted_fail"] = float(np.mean([corrupted_fail(seed) for seed in seeds]))
    arms = train_arms(
        "steps", {"labels": WORLD | LABELLED, "outcome": WORLD}, seeds,
        lambda learned: {"success": float(np.mean(learned.curve()))},
    )  # fmt: skip
    gain, _ = arms.gain("labels", "outcome", "success")
    holds = better and measured["corrupted_fail"] == 1.0 and gain >= 0.05
    return Outcome(measured | arms.measured() | {"gain": gain}, bool(holds))
