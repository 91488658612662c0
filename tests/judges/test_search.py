"""Search with a scorer: beams beat greed, trees find what pays late, windows rank a list."""

from __future__ import annotations

import functools
import zlib
from typing import Any

import numpy as np
import polars as pl
import pytest

import palaestra as pa
from palaestra.agents import ScriptedPolicy
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Lock, Steps
from palaestra.envs.worlds.native import NativeEnv
from palaestra.errors import EnvError, InputError
from palaestra.judges.search import TreeSearch, listwise, reward_beam


class Named:
    """A scorer of a function of what was shown and done."""

    name = "named"

    def __init__(self, worth: Any) -> None:
        self.worth = worth

    def score(self, rows: pl.DataFrame, *, reference: Any = None, condition: Any = None) -> pl.Series:
        return pl.Series([self.worth(*row) for row in rows.select("prompt", "response").rows()], dtype=pl.Float64)


def anything(request: Any) -> str:
    legal = request.observation.legal
    return str(legal[int(request.rng.integers(len(legal)))])


POLICY = ScriptedPolicy(anything, name="anything")


def noisy(gap: float, lock: Lock, seed: int) -> Named:
    """σ(±gap + N(0, 1)): right numbers are a little more likely to look right; the same candidate looks the same."""

    def worth(prompt: str, response: str) -> float:
        step = int(prompt.split()[-1])
        right = lock.choices.index(response) == lock.right[0][step]
        noise = np.random.default_rng(zlib.crc32(f"{seed} {prompt} {response}".encode())).normal()
        return float(1 / (1 + np.exp(-((gap if right else -gap) + noise))))

    return Named(worth)


def test_a_beam_of_one_is_greedy_and_a_perfect_scorer_opens_the_lock() -> None:
    env = functools.partial(Lock, steps=6, numbers=3)
    found = reward_beam(env, POLICY, noisy(50.0, Lock(steps=6, numbers=3), 0), width=1, candidates=30)
    assert found.success
    assert len(found.actions) == 6
    assert found.score == pytest.approx(6, abs=1e-6)
    assert found.scored <= 6 * 3


def test_what_leads_nowhere_is_left_where_its_cumulative_score_falls_behind() -> None:
    """A first action that looks best and has nothing good behind it: greed follows it, a beam does not."""

    class Fork(Lock):
        def look(self) -> Any:
            seen = super().look()
            return {agent: Observation(f"{each.text} after {self.state.turned}", choices=each.choices)
                    for agent, each in seen.items()}  # fmt: skip

    right = Lock(steps=2, numbers=2).right[0].tolist()
    one, other = (f"turn to {right[0]}", f"turn to {1 - right[0]}")
    good = f"after [{right[0]}]"

    def worth(prompt: str, response: str) -> float:
        if prompt.endswith("after []"):
            return {one: 0.4, other: 0.6}[response]
        return 0.1 if good not in prompt else 0.9 if response == f"turn to {right[1]}" else 0.0

    env = functools.partial(Fork, steps=2, numbers=2)
    greedy = reward_beam(env, POLICY, Named(worth), width=1)
    beam = reward_beam(env, POLICY, Named(worth), width=2)
    assert greedy.success is False
    assert beam.success is True
    assert beam.score == pytest.approx(1.3)


def test_search_needs_one_agent_and_an_env_that_can_be_gone_back_to() -> None:
    with pytest.raises(InputError, match="width=0"):
        reward_beam(Lock, POLICY, Named(lambda p, r: 0.0), width=0)
    with pytest.raises(EnvError, match="agents act at once"):
        reward_beam(pa.envs.worlds.Dilemma, POLICY, Named(lambda p, r: 0.0))


def test_a_tree_finds_the_combination_that_chance_would_not() -> None:
    env = functools.partial(Lock, steps=4, numbers=3, gamma=0.5)  # chance: 1 in 81
    tree = TreeSearch(rollouts=300, c=2.0, gamma=1.0)(env, POLICY, seed=0)
    lock = Lock(steps=4, numbers=3)
    assert [lock.choices.index(action) for action in tree.actions] == lock.right[0].tolist()
    assert tree.value == pytest.approx(1.0)
    assert tree.table.filter(pl.col("prompt").str.ends_with("step 0"))["visits"].sum() == 300


def test_max_and_mean_are_what_they_say_and_a_scorer_may_stand_for_the_rest() -> None:
    env = functools.partial(Steps, steps=2, actions=2, pay="sum")
    world = Steps(steps=2, actions=2, pay="sum")
    best, rng = world.worth.max(axis=1).sum(), np.random.default_rng(0)
    top = TreeSearch(backup="max", rollouts=60, gamma=1.0, c=2.0)(env, POLICY, rng=rng)
    mean = TreeSearch(backup="mean", rollouts=60, gamma=1.0, c=2.0)(env, POLICY, rng=rng)
    assert top.value == pytest.approx(1.0)
    assert mean.value < 1.0
    first = top.table.filter(pl.col("prompt").str.starts_with("step 0")).sort("response")["q"].to_numpy()
    assert first == pytest.approx((world.worth[0] + world.worth[1].max()) / best)
    liked = TreeSearch(value=Named(lambda prompt, said: float(said == "action 1")), rollouts=2, horizon=1, gamma=1.0)
    rows = liked(env, POLICY).table
    assert dict(rows.select("response", "q").rows()) == {"action 0": 0.0, "action 1": 1.0}


def test_children_that_ended_are_skipped_so_that_every_path_is_met_once() -> None:
    env = functools.partial(Steps, steps=2, actions=2, pay="sum")
    tree = TreeSearch("ucb", "mean", rollouts=4, gamma=1.0)(env, POLICY, rng=np.random.default_rng(0))
    assert len(set(tree.paths)) == 4
    assert {len(path) for path in tree.paths} == {2}
    again = TreeSearch("ucb", "mean", rollouts=8, gamma=1.0)(env, POLICY, rng=np.random.default_rng(0))
    assert again.paths[:4] == tree.paths
    with pytest.raises(InputError, match="p_uct"):
        TreeSearch("best")


def test_windows_bring_the_best_to_the_front_and_a_bad_answer_changes_nothing() -> None:
    order = list(np.random.default_rng(0).permutation(50))
    ranked = listwise(order, sorted, window=10, step=5)
    assert sorted(ranked) == list(range(50))
    assert ranked[:5] == [0, 1, 2, 3, 4]
    assert listwise(order, lambda part: part[:-1], window=10, step=5) == order
    assert listwise([2, 1, 0], sorted, window=20) == [0, 1, 2]
    last = listwise([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], sorted, window=4, step=4, cover_head=False)
    assert last[:2] == [9, 8]  # never seen without a last window at the head
    with pytest.raises(InputError, match="step=5"):
        listwise(order, sorted, window=4, step=5)


class Stop(NativeEnv):
    """Ends when one stops, or after three steps."""

    agents = ("walker",)
    choices = ("stop", "go")

    def begin(self):
        return "stop or go", []

    def look(self):
        over = len(self.state) == 3 or 0 in self.state
        return {} if over else {"walker": Observation(f"at {len(self.state)}", choices=self.choices)}

    def play(self, chosen):
        self.state = [*self.state, chosen["walker"]]
        return {}, {}


@pytest.mark.parametrize(("stop", "go", "limit"), [(2.0, -1.0, 9), (-1.0, 1.0, 1)])
def test_what_ended_keeps_its_place_and_goes_before_what_did_not_end(stop, go, limit):
    class Likes:
        name = "likes"

        def score(self, rows, *, reference=None, condition=None):
            return rows["response"].replace_strict({"stop": stop, "go": go}, return_dtype=pl.Float64)

    either = ScriptedPolicy(lambda request: ("stop", "go")[request.rng.integers(2)], name="either")
    found = reward_beam(Stop, either, Likes(), width=2, candidates=16, limit=limit)
    assert (found.actions, found.score) == (("stop",), stop)
