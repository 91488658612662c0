from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.policy import Decision, Request
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import ExpressionError, InputError
from palaestra.play.executors import EXECUTORS, Executor, Local, Plan, Threads
from palaestra.play.rollout import rollout

KUHN = make("openspiel/kuhn_poker")
TALK = make("roles/user")


class Sharded:
    """Shards of the groups, played at the same time by executors of their own: what a cluster would do."""

    def __init__(self, shards: int = 3) -> None:
        self.shards = shards
        self.played: list[range] = []

    def play(self, env: EnvFactory, team: Any, plan: Plan) -> Turns:
        edges = np.linspace(plan.numbers.start, plan.numbers.stop, self.shards + 1).astype(int).tolist()
        parts = [plan.part(range(a, b)) for a, b in pairwise(edges) if b > a]
        self.played += [part.numbers for part in parts]
        with ThreadPoolExecutor(self.shards) as pool:
            return Turns.concat(pool.map(lambda part: Local(concurrency=5).play(env, team, part), parts))

    def starts(self, env: EnvFactory, plan: Plan) -> list[Observation | None]:
        return [Local().starts(env, plan.part(range(group, group + 1)))[0] for group in plan.numbers]

    def close(self) -> None:
        self.played.clear()


def content(turns: Turns) -> pl.DataFrame:
    return turns.frame.drop("duration").with_columns(pl.col("agent", "policy").cast(pl.String))


def players() -> Team:
    return Team(player_0=TabularPolicy(2, name="one"), player_1=TabularPolicy(2, name="two"))


@pytest.mark.parametrize(
    "text", ["local()", "local(concurrency=3)", "threads()", "threads(workers=1)", "threads(workers=5, concurrency=7)",
             "tests.play.test_executors:Sharded(shards=4)"],
)  # fmt: skip
def test_every_executor_plays_the_same_table(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    executor: Executor = EXECUTORS.build(text)
    plan = Plan(groups=9, group_size=[3, 1, 2] * 3, seed=4, iteration=2, run="r", version=7)
    played = content(executor.play(KUHN, players(), plan))
    expected = rollout(
        KUHN, players(), groups=9, group_size=[3, 1, 2] * 3, seed=4, iteration=2, run="r", version=7, timeout=None
    )
    assert played.equals(content(expected))
    assert len(played) > 30
    assert set(played["policy_version"]) == {7}
    assert executor.starts(TALK, Plan(5, seed=1)) == Local().starts(TALK, Plan(5, seed=1))
    executor.close()


def test_a_range_is_played_as_inside_the_whole() -> None:
    whole, some = (content(rollout(KUHN, players(), groups=g, group_size=2)) for g in (8, range(3, 6)))
    assert some.equals(whole.filter(pl.col("group").is_between(3, 5)))
    assert [o.text if o else "" for o in Local().starts(TALK, Plan(range(3, 6)))] == [
        o.text if o else "" for o in Local().starts(TALK, Plan(6))
    ][3:]


def test_reset_seeds_may_be_chosen() -> None:
    drawn = rollout(TALK, Team(helper=TabularPolicy(6)), groups=3)
    given = rollout(TALK, Team(helper=TabularPolicy(6)), groups=3, env_seeds=[None, 11, 2**63])
    seeds = [turns.frame.unique("group", maintain_order=True)["seed"].to_list() for turns in (drawn, given)]
    assert seeds[1] == [seeds[0][0], 11, 2**63]
    assert Local().starts(TALK, Plan(1, env_seeds=[11])) == Local().starts(TALK, Plan(range(1, 2), env_seeds=[11]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": range(3, 3)}, r"groups=range\(3, 3\), expected at least 1"),
        ({"groups": range(0, 6, 2)}, "expected a range of numbers from 0 on"),
        ({"groups": 2, "env_seeds": [1]}, "env_seeds has 1 numbers for groups=2"),
        ({"groups": range(2, 4), "env_seeds": [1, -1]}, "env_seeds has -1 for group 3"),
        ({"groups": range(2, 4), "group_size": [1, 1, 1]}, "group_size has 3 numbers"),
    ],
)
def test_plans_that_do_not_fit_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan(**options)


def test_a_part_must_be_of_the_plan() -> None:
    with pytest.raises(InputError, match=r"range\(3, 6\) is not a part of the groups 0 to 4"):
        Plan(5).part(range(3, 6))
    part = Plan(range(2, 9), env_seeds=list(range(7))).part(range(4, 6))
    assert [part.seed_of(group) for group in part.numbers] == [2, 3]


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ExpressionError, match="worker"):
        EXECUTORS.build("threads(worker=3)")
    with pytest.raises(InputError, match="workers=0"):
        Threads(workers=0)


# -- what waits, waits at the same time -------------------------------------------------------------------------------


class Slow:
    """Waits in every step; remembers the threads that it was called in."""

    agents = ("a", "b")
    task = "slow"

    def __init__(self, steps: int = 6, seconds: float = 0.02) -> None:
        self.steps, self.seconds = steps, seconds
        self.threads = {threading.get_ident()}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.threads.add(threading.get_ident())
        self.seed, self.position = seed, 0
        return self.see()

    def see(self) -> dict[str, Observation]:
        return {agent: Observation(f"{self.seed} {self.position}") for agent in self.agents}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        self.position += 1
        over = self.position == self.steps
        info = {"order": list(actions), "threads": len(self.threads)}
        return StepResult({} if over else self.see(), {"a": 1.0}, terminated=over, info=info)


class Endpoint:
    """Answers after some time; knows whether it was asked by two threads at once."""

    def __init__(self, name: str, seconds: float = 0.0) -> None:
        self.name, self.seconds = name, seconds
        self.calls = self.asking = self.most = 0

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        self.calls += 1
        self.asking += 1
        self.most = max(self.most, self.asking)
        time.sleep(self.seconds)
        self.asking -= 1
        return [Decision(str(request.rng.integers(100))) for request in requests]


def timed(call: Callable[[], Turns]) -> tuple[float, Turns]:
    began = time.perf_counter()
    turns = call()
    return time.perf_counter() - began, turns


def test_endpoints_are_asked_beside_each_other() -> None:
    class Together(Endpoint):
        """Answers when the other one has been asked as well."""

        both = threading.Barrier(2, timeout=60)

        def act(self, requests: Sequence[Request]) -> list[Decision]:
            self.both.wait()
            return super().act(requests)

    one, two = Together("one"), Together("two")
    turns = Threads().play(lambda: Slow(5, 0), Team(a=one, b=two), Plan(8))
    assert (one.calls, two.calls, one.most, two.most) == (5, 5, 1, 1)
    alone = rollout(lambda: Slow(5, 0), Team(a=Endpoint("one"), b=Endpoint("two")), groups=8)
    assert content(turns).equals(content(alone))


def test_policies_that_compute_are_asked_one_after_the_other() -> None:
    class Busy(Endpoint):
        waits = False

    asking: list[int] = []

    class Here(Busy):
        def act(self, requests: Sequence[Request]) -> list[Decision]:
            asking.append(threading.get_ident())
            return super().act(requests)

    Threads().play(lambda: Slow(2, 0), Team(a=Here("one"), b=Here("two")), Plan(1))
    assert set(asking) == {threading.get_ident()}
    assert len(asking) == 4


def test_envs_that_wait_step_at_the_same_time() -> None:
    seconds, turns = timed(lambda: Threads().play(Slow, Team(a=Endpoint("p"), b=Endpoint("q")), Plan(64)))
    assert len(turns) == 64 * 6 * 2
    assert seconds < 7.7 / 2  # one after the other it would be 7.7; alone on the machine 0.15
    assert set(turns["metadata"]) == {'{"order": ["a", "b"], "threads": 1}'}, "an env stays in its thread"


@pytest.mark.parametrize("executor", [Local(64), Local(64, timeout=5.0), Threads(concurrency=64)])
def test_envs_that_are_seen_to_wait_step_at_the_same_time(executor: Local) -> None:
    policies = {"a": Endpoint("p"), "b": Endpoint("q")}
    seconds, turns = timed(lambda: executor.play(Slow, Team(**policies), Plan(64)))
    assert seconds < 7.7 / 2  # one after the other it would be 7.7
    alone = Local(64, timeout=None).play(lambda: Slow(seconds=0), Team(**policies), Plan(64))
    drop = ["metadata"]  # where the threads are counted
    assert content(turns).drop(drop).equals(content(alone).drop(drop))


def test_an_env_that_waits_changes_its_thread_once() -> None:
    turns = Local().play(lambda: Slow(12, 0.005), Team(a=Endpoint("p"), b=Endpoint("q")), Plan(40))
    told = [json.loads(text)["threads"] for text in turns["metadata"]]
    assert max(told) == 2  # the one that all began in, its own
    stay = Local(timeout=None).play(lambda: Slow(3, 0.003), Team(a=Endpoint("p"), b=Endpoint("q")), Plan(12))
    assert {json.loads(text)["threads"] for text in stay["metadata"]} == {1}


def test_envs_that_compute_stay_in_one_thread() -> None:
    class Busy(Slow):
        def step(self, actions: Mapping[str, Action]) -> StepResult:
            until = time.thread_time() + 0.003
            while time.thread_time() < until:
                pass
            self.seconds = 0.0
            return super().step(actions)

    turns = Local().play(lambda: Busy(4), Team(a=Endpoint("p"), b=Endpoint("q")), Plan(30))
    assert {json.loads(text)["threads"] for text in turns["metadata"]} == {1}


@pytest.mark.parametrize("executor", [Local(timeout=0.5), Threads(workers=16, timeout=0.5)])
def test_hung_envs_cost_their_own_episodes_only(executor: Local) -> None:
    release = threading.Event()

    class Hanging(Slow):
        def step(self, actions: Mapping[str, Action]) -> StepResult:
            if self.seed in hanging:
                release.wait(30)
            return super().step(actions)

    hanging = set(range(52))
    plan = Plan(60, env_seeds=range(60))
    team = Team(a=Endpoint("p"), b=Endpoint("q"))
    seconds, turns = timed(lambda: executor.play(lambda: Hanging(2, 0), team, plan))
    release.set()
    assert seconds < 26 / 3  # one after the other it would be 26
    failed = turns.frame.filter(pl.col("error").is_not_null())
    assert set(failed["seed"]) == hanging
    assert set(failed["error"]) == {"env-timeout: TimeoutError: no answer within 0.5 s"}
    assert set(turns.frame.filter(pl.col("error").is_null())["group"]) == set(range(52, 60))


def test_an_interrupt_from_a_thread_gets_through() -> None:
    class Stopped(Endpoint):
        def act(self, requests: Sequence[Request]) -> list[Decision]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Threads().play(Slow, Team(a=Stopped("p"), b=Endpoint("q")), Plan(1))
