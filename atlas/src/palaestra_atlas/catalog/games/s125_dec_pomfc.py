"""[125] Dec-POMFC (ICLR 2024): a swarm whose upper level sees its distribution and says all agents' rule.

Oscillators that see their own phase alone, in place of the paper's Kuramoto and Vicsek tasks; the formulas are
reconstructed from the abstract and the reviews. Left out: agents that work the upper policy out by themselves.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import FactoredPolicy, ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.worlds import Kuramoto
from palaestra.envs.worlds.kuramoto import order
from palaestra.play.rollout import rollout
from palaestra.runs.build import resolve
from palaestra.runs.inline import learn
from palaestra.runs.recipe import override
from palaestra.runs.saved_teams import load_run
from palaestra.teams import kernel_features, mean_field
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

SIZES = (10, 200)
"""Sizes of swarms that nobody was trained on; training has 50."""


def plain() -> dict[str, Any]:
    """The recipe of a swarm of 50 with an upper seat."""
    return {
        "name": "swarm",
        "env": {"make": "native/kuramoto", "options": {"number": 50}, "workflow": "mean_field(centres=8)"},
        "policies": {"swarm": {"kind": "factored", "options": {"parts": 8, "levels": 3, "hidden": [32]}}},
        "team": {"*": "swarm"},
        "credit": "standardise(return_to_go(gamma=0.9), over=('turn',))",
        "learn": {"lr": 0.02, "epochs": 4, "minibatch": 160, "terms": ["surrogate(clip=0.2)", "entropy(0.01)"]},
        "train": {"iterations": 40, "groups": 64, "group_size": 1, "evaluate_every": 40, "checkpoint_every": 40},
        "evaluation": {"tasks": 60, "trials": 1, "look_tasks": 4, "look_trials": 1},
    }


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `swarm.yaml`."""
    (folder / "swarm.yaml").write_text(json.dumps(plain()))


def world(number: int = 50, **options: Any) -> EnvFactory:
    """Oscillators without an upper seat."""
    return functools.partial(Kuramoto, number=number, **options)


def final_order(turns: Turns) -> float:
    """Mean order parameter at the end of episodes."""
    ended = turns.frame.filter(pl.col("success").is_not_null())
    return float(ended["order"].mean())  # type: ignore[arg-type]


def other_sizes(sizes: Sequence[int] = SIZES, groups: int = 60) -> Measure:
    """Final order parameter of the trained team in swarms of other sizes, their mean, per seed."""

    def measured(left: Left) -> list[float]:
        made, _ = load_run(left.directory / "run")
        found = []
        for folder in left.seeds():
            (policy,) = set(Team.load(folder / "policies").policies.values())
            orders = []
            for number in sizes:
                setup = resolve(override(made, {"env": {"options": {"number": number}}}))
                team = Team(dict.fromkeys(setup.test().agents, policy))
                orders.append(final_order(rollout(setup.test, team, groups=groups, seed=int(folder.name[5:]))))
            found.append(float(np.mean(orders)))
        return found

    return measured


def histogram(points: np.ndarray, bins: int = 10) -> np.ndarray:
    """Shares of bins of [0, 1], to compare with."""
    return np.asarray(np.histogram(points, bins, (0, 1))[0] / len(points))


@exact
def smooth_where_bins_jump() -> None:
    """One agent across the edge of a bin: kernel features change by .0083, the shares of ten bins by 2."""
    centres = (np.arange(10) + 0.5)[:, None] / 10
    here, there = (kernel_features(np.array([[at]]), centres, 0.1) for at in (0.4995, 0.5005))
    assert round(float(np.abs(here - there).sum()), 4) == 0.0083
    assert np.abs(histogram(np.array([0.4995])) - histogram(np.array([0.5005]))).sum() == 2.0


@exact
def features_of_any_number() -> None:
    """The features are shares: the same for a population and for four copies of it, in any order."""
    centres, points = np.linspace(-1, 1, 8)[:, None], np.random.default_rng(0).uniform(-1, 1, (10, 1))
    found = kernel_features(points, centres, 0.2)
    np.testing.assert_allclose(found.sum(), 1.0)
    np.testing.assert_allclose(kernel_features(np.tile(points[::-1], (4, 1)), centres, 0.2), found)
    empty = kernel_features(np.array([[0.0]]), np.array([[0.0], [5.0]]), 0.2)
    np.testing.assert_allclose(empty, [1.0, 0.0], atol=1e-12, err_msg="nobody is there")


@exact
def the_upper_seat_sees_the_distribution() -> None:
    """Its array is the kernel features of all states on the circle; the control sees zeros."""
    env: Any = mean_field(world(30), centres=8)()
    seen = env.reset(4)["swarm"].array
    expected = kernel_features(env.inner.states(), env.centres, env.bandwidth, 2.0)
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    assert expected.max() > 2 / 8
    assert not np.any(mean_field(world(30), blind=True)().reset(4)["swarm"].array)


@exact
def one_row_a_step() -> None:
    """An episode of any size is a row per step, paid the mean over agents, which adds up to the gain in order."""
    idle = Team(swarm=ScriptedPolicy(lambda request: " ".join("1" * 8), name="swarm"))
    for number in (10, 50):
        env: Any = mean_field(world(number))()
        assert list(env.reset(1)) == ["swarm"]
        begun = order(env.inner.states()[:, 0])
        paid = [env.step({"swarm": "0 1 2 1 0 1 2 1"}) for _ in range(5)]
        gained = order(env.inner.states()[:, 0]) - begun
        np.testing.assert_allclose(sum(float(each.rewards["swarm"]) for each in paid), gained)
        turns = rollout(mean_field(world(number)), idle, groups=3, seed=0)
        assert len(turns) == 3 * 5


@exact
def local_and_alike() -> None:
    """Agents at a place follow the numbers of the centres near it, whoever they are; between centres they mix."""
    env: Any = mean_field(world(20, coupling=0.0, drift=0.0, noise=0.0), centres=8)()
    env.reset(2)
    left, right = env.centres[[2, 5]]
    rule = np.array([2] * 4 + [0] * 4)
    chances = env.chances(rule, np.stack([left, right, (env.centres[3] + env.centres[4]) / 2, left]))
    assert chances[0, 2] > 0.98
    assert chances[1, 0] > 0.98
    np.testing.assert_allclose(chances[2, [0, 2]], 0.5)
    np.testing.assert_array_equal(chances[3], chances[0])
    before = env.inner.states()[:, 0]
    result = env.step({"swarm": "2 2 2 2 0 0 0 0"})
    moved = (env.inner.states()[:, 0] - before + 1) % 2 - 1
    away = np.abs(np.abs(before) - 0.5) < 0.25
    assert (np.sign(moved[away]) == -np.sign(before[away])).mean() > 0.9
    assert result.info["obeyed"] > 0.8


@exact
def choices_are_drawn_by_what_is_seen() -> None:
    """An agent follows the rule at the phase that it sees, with its error; halfway between centres it is a toss."""
    env: Any = mean_field(world(2000, coupling=0.0, drift=0.0, noise=0.4, spread=1.0), centres=8)()
    told = env.reset(0)["swarm"].array
    before, seen = env.inner.states()[:, 0], np.array([float(each.array[0]) for each in env._seen.values()])
    assert 0.35 < np.std((seen - before + 1) % 2 - 1) < 0.45
    result = env.step({"swarm": "2 2 2 2 0 0 0 0"})
    turned = np.sign((env.inner.states()[:, 0] - before + 1) % 2 - 1) == -np.sign(seen)
    assert turned[np.abs(np.abs(seen) - 0.5) < 0.25].mean() > 0.95
    assert 0.4 < turned[np.abs(seen) < 0.03].mean() < 0.75
    np.testing.assert_allclose(result.info["population"], told, atol=1e-6)
    assert mean_field(world(), bandwidth=0.5)().bandwidth == 0.5  # type: ignore[attr-defined]


@exact
def numbers_are_one_action() -> None:
    """An action of eight numbers is one row whose log-probabilities are those of the numbers, and are scored alike."""
    policy = FactoredPolicy(8, parts=8, levels=3, name="swarm")
    turns = rollout(mean_field(world(10)), Team(swarm=policy), groups=2, seed=0)
    assert turns.frame["action_ids"].list.len().unique().to_list() == [8]
    assert turns.frame["valid"].all()
    scored = policy.score(turns.frame).logprobs.detach().numpy()
    np.testing.assert_allclose(scored, np.stack(turns.frame["logprobs"].to_list()), atol=1e-5)


@reproduction(
    125,
    claim="Trained on swarms of 50, an upper level that sees the distribution brings swarms of any size into phase.",
    baseline="the same training with an upper level that sees nothing; independent learners (IPPO)",
    criterion="order parameter at the end at least .8 with 10, 50 and 200, and .1 above both on average over sizes",
    seeds=(0,),
    slow=True,
)
def swarms(seeds: Sequence[int]) -> Outcome:
    """Final order parameter by number, of the three."""
    alone = {"env": {"workflow": None}, "policies": {"swarm": {"kind": "mlp", "options": {"hidden": [32]}}},
             "learn": {"minibatch": 2000}, "train": {"iterations": 30}}  # fmt: skip
    arms: dict[str, dict[str, Any]] = {"seen": {"train": {"iterations": 30}},
            "blind": {"env": {"workflow": "mean_field(blind=True)"}, "train": {"iterations": 30}},
            "alone": alone}  # fmt: skip
    rows: dict[str, list[list[float]]] = {name: [] for name in arms}
    for seed in seeds:
        for name, changes in arms.items():
            policy = next(iter(learn(plain(), changes, seed=seed).team.policies.values()))
            of = []
            for number in (10, 50, 200):
                env = world(number) if name == "alone" else mean_field(world(number), blind=name == "blind")
                team = Team(dict.fromkeys(env().agents, policy))
                of.append(final_order(rollout(env, team, groups=40, seed=seed)))
            rows[name].append(of)
    means = {name: np.mean(found, axis=0) for name, found in rows.items()}
    measured = {f"seen_{number}": float(value) for number, value in zip((10, 50, 200), means["seen"], strict=True)}
    measured |= {name: float(value.mean()) for name, value in means.items()}
    rival = max(measured["blind"], measured["alone"])
    return Outcome(measured, min(means["seen"]) >= 0.8 and measured["seen"] >= rival + 0.1)
