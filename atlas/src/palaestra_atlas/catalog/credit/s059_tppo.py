"""[59] T-PPO (arXiv 2506.15050): windows of unfinished answers keep slots busy and still have an advantage.

The executor `windows` plays a few turns of each slot an iteration and goes on with what was cut in the next one; a
synchronous batch waits for its longest episode. A cut window bootstraps with its last value. Left out: language models;
what windows gain in time on them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents import Team, random_legal
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import gae, tppo, value_target
from palaestra.envs import make
from palaestra.learning.stages.critic import critic, token_critic
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local
from palaestra.play.plan import Plan
from palaestra.play.windows import Windows
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

SLOTS, WINDOW, ROUNDS = 16, 4, 20


def tokens(truncated: bool, reward: float, scale: float = 1.0) -> Turns:
    """The card's three tokens."""
    keys = {"group": [0] * 3, "episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3, "truncated": [truncated] * 3}
    return Turns(keys | {"value": scale * np.array([0.2, 0.5, 0.4]), "reward": [0.0, 0.0, reward]})


@exact
def card() -> None:
    """The card's advantages: cut, cut with lambda 1, bootstrapped with 0, finished; none from a critic that says 0.

    With gamma and lambda .5, of which no number is on the card, the errors are .05, -.3 and .6, or -.2 if it was cut.
    """
    cases: list[tuple[Signal, Turns, list[float]]] = [
        (tppo(), tokens(True, 0.0), [0.205, -0.1, 0.0]),
        (tppo(lam=1.0), tokens(True, 0.0), [0.2, -0.1, 0.0]),
        (gae(bootstrap=0.0), tokens(True, 0.0), [-0.156, -0.48, -0.4]),
        (tppo(), tokens(False, 1.0), [0.7465, 0.47, 0.6]),
        (tppo(), tokens(True, 0.0, scale=0.0), [0.0, 0.0, 0.0]),
        (tppo(gamma=0.5, lam=0.5), tokens(False, 1.0), [0.05 - 0.25 * 0.15, -0.3 + 0.25 * 0.6, 0.6]),
        (tppo(gamma=0.5, lam=0.5), tokens(True, 0.0), [0.05 - 0.25 * 0.35, -0.3 - 0.25 * 0.2, -0.2]),
    ]
    for signal, turns, expected in cases:
        np.testing.assert_allclose(signal.evaluate(turns), expected, atol=5e-4)  # type: ignore[arg-type]


def context() -> Context:
    """Of stages that need the table only."""
    env = make("native/corridor")
    return Context(np.random.default_rng(0), 1, env, Team(walker=random_legal()), Local())


@exact
def finished_only() -> None:
    """The critics of turns and of tokens learn what finished episodes earned, and nothing from a cut one."""
    np.testing.assert_allclose(value_target(gamma=0.9).evaluate(tokens(False, 1.0)), [0.81, 0.9, 1.0], atol=1e-9)  # type: ignore[arg-type]
    assert np.isnan(np.asarray(value_target().evaluate(tokens(True, 1.0)))).all()
    ids = {"prompt_ids": [[1]] * 3, "action_ids": [[2, 3]] * 3, "policy": ["a"] * 3, "state": [1, 2, 3]}
    for cut, moves in ((True, False), (False, True)):
        here = context()
        turns = Turns(tokens(cut, 1.0).frame.drop("value").hstack(pl.DataFrame(ids)))
        table, network = critic(finished=True), token_critic(steps=2)
        for stage in (table, network):
            stage(turns, here)
        np.testing.assert_allclose(table(turns, here)["value"], 1.0 if moves else 0.0, atol=1e-9)
        values = [stage(turns, here)["value"].to_list() for stage in (token_critic(), network)]
        assert [len(each) for each in values[0]] == [2, 2, 2]
        assert (values[0] != values[1]) == moves


@exact
def cut_and_continued() -> None:
    """Slots play four turns an iteration; what is cut goes on where it stopped, what is over makes room."""
    env, team, executor = make("native/corridor", cells=3, horizon=10), Team(walker=random_legal()), Windows(WINDOW)
    longest, before = 0, {}  # type: ignore[var-annotated]
    for iteration in range(1, 7):
        frame = executor.play(env, team, Plan(groups=8, iteration=iteration)).frame
        now = frame.filter(~pl.col("past"))
        assert now.group_by("group").len()["len"].max() <= WINDOW  # type: ignore[operator]
        for (group,), rows in frame.partition_by("group", as_dict=True).items():
            if group in before:
                assert (rows["seed"][0], now.filter(pl.col("group") == group)["turn"].min()) == before[group]
            if not rows["truncated"][-1]:
                assert rows["turn"].to_list() == list(range(len(rows))), "the whole episode, for the critic"
                longest = max(longest, len(rows))
        ends = frame.group_by("group").agg(pl.col("seed").last(), pl.col("turn").max() + 1, pl.col("truncated").last())
        before = {row["group"]: (row["seed"], row["turn"]) for row in ends.filter("truncated").iter_rows(named=True)}
    assert longest > 2 * WINDOW


def busy_slots() -> Measure:
    """Share of the slots' time in which turns are played, per seed; an iteration lasts as long as its longest slot."""

    def measured(left: Left) -> list[float]:
        return [_busy(Turns.load(seed / "turns").frame) for seed in left.seeds()]

    return measured


def _busy(frame: pl.DataFrame) -> float:
    played = frame.filter(~pl.col("past")) if "past" in frame.columns else frame
    slots = played.group_by("iteration", "group", "episode").len()
    per = slots.group_by("iteration").agg(pl.col("len").sum(), lasted=pl.col("len").max() * pl.len())
    return float(per["len"].sum() / per["lasted"].sum())  # type: ignore[operator]


@reproduction(
    59,
    claim="Windows with replacement keep slots busier than batches that wait for their longest episode.",
    baseline="a synchronous batch of whole episodes, same slots",
    criterion="share of busy slots at least 1.2 times the synchronous one",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Random workers in the world `sites`, whose episodes are of uneven length."""
    env = make("native/sites", workers=1, sites=4, horizon=40)
    team = Team(worker_0=random_legal())
    found: dict[str, list[float]] = {"synchronous": [], "windows": []}
    for seed in seeds:
        for name, executor in (("synchronous", Local()), ("windows", Windows(WINDOW))):
            plans = [Plan(groups=SLOTS, seed=seed, iteration=iteration) for iteration in range(1, ROUNDS + 1)]
            frames = [executor.play(env, team, plan).frame for plan in plans]
            found[name].append(_busy(pl.concat(frames, how="diagonal_relaxed")))
    at = {f"busy_{name}": float(np.mean(values)) for name, values in found.items()}
    return Outcome(at, at["busy_windows"] >= 1.2 * at["busy_synchronous"])
