"""Tasks made of failures and old successes: options, envs without variations, checkpoints; the rest is row [179]'s."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Lock, Phrases
from palaestra.errors import InputError
from palaestra.learning.outcome_critic import OutcomeCritic
from palaestra.learning.stages import Context
from palaestra.learning.stages.failure_tasks import failure_tasks
from palaestra.learning.stages.success_replay import new_reference, success_replay
from palaestra.play.executors import Local, Plan


def after_one() -> tuple[failure_tasks, Context]:
    """The stage after an iteration."""
    team = Team(doer=TabularPolicy(6))
    told = Context(np.random.default_rng(0), 1, Phrases, team, Local())
    stage = failure_tasks(every=1, number=8, low=0.0, high=1.0)
    stage(Local().play(Phrases, team, Plan(groups=20, iteration=1)), told)
    return stage, told


def test_phrases_are_seeds_and_back() -> None:
    world, rng = Phrases(longest=4, words=3, dead=1), np.random.default_rng(0)
    for seed in rng.integers(2**31, size=50).tolist():
        words = world.phrase(seed)
        assert world.phrase(world.seed_of(words)) == words
        assert world.feasible(seed) == (2 not in words)
        assert world.seed_of(world.phrase(world.vary(seed, rng))) < 4 * 3**4
    assert {len(Phrases(shortest=6).phrase(seed)) for seed in range(2**29, 2**29 + 50)} == {6, 7, 8}


def test_phases_are_made_of_what_failed_in_every_group_of_the_last() -> None:
    """Seed 3 was solved once, 12 has no score: iterations 4 to 6 play tasks near 9, 7 what the env draws."""
    told = Context(np.random.default_rng(0), 1, Phrases, Team(doer=TabularPolicy(6)), Local())
    stage = failure_tasks(every=3, number=5, draws=4, share=0.5, low=0.0, high=1.0)
    rows = {"group": range(6), "episode": [0] * 6, "turn": [0] * 6, "seed": [3, 3, 9, 9, 12, 15]}
    rows |= {"observation": ["a b"] * 6, "reward": [0.0, 1.0, 0.0, -1.0, None, 0.25]}
    stage(Turns(rows), told)
    assert stage.failed == [9]
    for iteration in (1, 2, 3):
        assert stage.plan(Plan(groups=8, iteration=iteration), told).env_seeds is None
    seen = []
    for iteration in (4, 5, 6):
        seeds = stage.plan(Plan(groups=8, iteration=iteration), told).env_seeds
        assert seeds is not None
        assert len(set(seeds[:4])) == 4, "none twice"
        assert set(seeds[:4]) <= set(stage.parents)
        assert seeds[4:] == [None] * 4, "half of the groups"
        seen.append(dict(stage.parents))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 5
    assert set(seen[0].values()) == {9}
    assert 9 not in seen[0]
    assert stage.failed == []
    assert stage.plan(Plan(groups=8, iteration=7), told).env_seeds is None


def test_one_head_in_the_band_is_enough_and_its_ends_are_in_it() -> None:
    """Of four candidates the second is refused: the heads give it .9 and .02, the others one in the band."""

    class Heads(OutcomeCritic):
        def predict(self, texts: list[str]) -> np.ndarray:  # type: ignore[override]
            return np.resize([[0.9, 0.5], [0.9, 0.02], [0.05, 0.9], [0.9, 0.75]], (len(texts), 2))

    told = Context(np.random.default_rng(0), 1, Phrases, Team(doer=TabularPolicy(6)), Local())
    stage = failure_tasks(every=1, number=50, draws=1, memory=2)
    stage.critic = Heads()
    rows = {"group": range(3), "episode": [0] * 3, "turn": [0] * 3, "seed": [7, 8, 9], "reward": [0.0, 1.0, 0.5]}
    stage(Turns(rows | {"observation": ["x", "y", "z"]}), told)
    assert stage.state_dict()["texts"] == ["y", "z"], "the newest two"
    assert stage.state_dict()["went"].tolist() == [1.0, 0.5]
    stage.plan(Plan(groups=4, iteration=2), told)
    count = int(told.metrics["candidates"])
    assert told.metrics["refused_by_critic"] == (count + 2) // 4
    assert told.metrics["tasks"] == count - (count + 2) // 4


def test_the_ridge_holds_words_and_not_the_intercept() -> None:
    """40 successes of a and 40 failures of b: 40 · (1 - p) = 5 · logit(p); one word alone has its share."""
    plain = SimpleNamespace(integers=lambda high, size: np.arange(size))
    critic = OutcomeCritic(heads=1, ridge=5.0)
    critic.fit(["a", "b"] * 40, np.array([1.0, 0.0] * 40), plain, steps=30)  # type: ignore[arg-type]
    p, q = critic.predict(["a", "b"])[:, 0]
    assert 40 * (1 - p) == pytest.approx(5 * np.log(p / (1 - p)), abs=1e-3)
    assert p + q == pytest.approx(1, abs=1e-6)
    held = OutcomeCritic(heads=1, ridge=100.0)
    held.fit(["a"] * 30, np.full(30, 0.8), plain, steps=30)  # type: ignore[arg-type]
    np.testing.assert_allclose(held.predict(["a", "unknown"])[:, 0], 0.8, atol=0.01)


def test_it_goes_on_from_a_checkpoint() -> None:
    stage, told = after_one()
    twin = failure_tasks(every=1, number=8, low=0.0, high=1.0)
    twin.load_state_dict(stage.state_dict())
    plans = []
    for each in (stage, twin):
        told.rng = np.random.default_rng(1)
        plans.append(each.plan(Plan(groups=8, iteration=2), told).env_seeds)
    assert plans[0] == plans[1]
    assert plans[0] is not None
    assert sum(seed is not None for seed in plans[0]) == 6, "a quarter is fresh"
    assert twin.parents == stage.parents


def test_an_env_without_variations_is_refused() -> None:
    stage, told = after_one()
    told.env = Lock
    with pytest.raises(InputError, match="has no vary"):
        stage.plan(Plan(groups=8, iteration=2), told)


def test_old_successes_survive_a_checkpoint() -> None:
    frame = pl.DataFrame({"task": ["a", "b"], "group": [0, 1], "episode": [0, 0], "reward": [1.0, 0.0], "policy": "p",
                          "observation": "x", "action_ids": [[0], [0]]})  # fmt: skip
    stage = success_replay()
    stage(Turns(frame), Context(np.random.default_rng(0), 1, None, None, None))  # type: ignore[arg-type]
    twin = success_replay()
    twin.load_state_dict(stage.state_dict())
    assert twin.past is not None
    assert twin.past["task"].to_list() == ["a"]


def test_bad_options_are_refused() -> None:
    for make, options, said in (
        (failure_tasks, {"low": 0.8}, "low=0.8"), (failure_tasks, {"share": 0}, "share=0"),
        (success_replay, {"low": 0.95}, "low=0.95"), (new_reference, {"every": 0}, "every=0"),
        (OutcomeCritic, {"ridge": 0}, "ridge=0"), (Phrases, {"shortest": 9}, "shortest=9"),
        (Phrases, {"words": 99}, "phrases; at most"), (Phrases, {"errs": 2}, "errs=2"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            make(**options)  # type: ignore[operator]


@pytest.mark.parametrize("possible", [True, False])
def test_infeasible_are_those_that_the_env_refuses(possible: bool) -> None:
    class Judged(Phrases):
        def feasible(self, seed: int) -> bool:
            return possible

    stage, told = after_one()
    told.env = Judged
    stage.plan(Plan(groups=8, iteration=2), told)
    assert told.metrics["candidates"] > 0
    assert told.metrics["refused_by_critic"] == 0
    assert told.metrics["infeasible"] == (0 if possible else told.metrics["candidates"])
