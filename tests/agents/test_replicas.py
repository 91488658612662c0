"""Several addresses of one model: who is asked, what happens when one goes away, and when it comes back."""

from __future__ import annotations

import asyncio
import runpy
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from palaestra.agents import ChatPolicy, Request
from palaestra.agents.backends.breaker import TRIP, Breaker, OutageError
from palaestra.agents.backends.replicas import Replica, Replicas
from palaestra.agents.backends.wire import Response
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.runs.recipe import validate
from palaestra.testing.endpoint import StubEndpoint

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "endpoints.py"
WAITS = {"patience": 0.3, "wait": 0.01, "longest_wait": 0.02}


def chat(*urls: str, **options: Any) -> ChatPolicy:
    settings = {"api_key_env": None, "wait": 0.01, "longest_wait": 0.02, "patience": 1.0, "retries": 3} | options
    return ChatPolicy("stub", base_url=list(urls), **settings)


def ask(policy: ChatPolicy, number: int = 1) -> list[Any]:
    return policy.act([Request(Observation(f"{i}"), "a", np.random.default_rng(i)) for i in range(number)])


def test_requests_are_spread_evenly() -> None:
    with (
        StubEndpoint(lambda body: "a", latency=0.05) as one,
        StubEndpoint(lambda body: "b", latency=0.05) as two,
    ):
        assert not any(each.error for each in ask(chat(one.url, two.url, concurrency=12), 12))
        assert (len(one.paid), len(two.paid)) == (6, 6)


def test_a_replica_that_is_gone_costs_nobody_an_attempt() -> None:
    with StubEndpoint(lambda body: "a") as one:
        two = StubEndpoint(lambda body: "b")
        two.kill()
        policy = chat(one.url, two.url, retries=0)
        assert [each.action for each in ask(policy, 20)] == ["a"] * 20
        assert len(one.paid) == 20
        assert policy.totals["lost"] == 0, "nobody can have seen what met no connection"


def test_a_replica_that_breaks_off_is_left_at_once() -> None:
    with StubEndpoint(lambda body: "a") as good, StubEndpoint(lambda body: "b", faults=1.0, seed=1) as bad:
        policy = chat(good.url, bad.url, retries=8, longest_wait=0.01)
        assert [each.action for each in ask(policy, 12)] == ["a"] * 12
        assert len(bad.paid) == 0


def replica(log: list[str], name: str, there: list[bool]) -> Replica:
    """With a client whose list of models comes if `there` says so."""

    async def get(path: str, timeout: float) -> Response:
        log.append(name)
        if not there[0]:
            raise ConnectionError
        return Response(200, {}, b"{}")

    wire: Any = SimpleNamespace(get=get)
    return Replica(wire, name, Breaker(patience=0.3, wait=0.01, longest_wait=0.02))


def test_an_absent_replica_is_asked_for_its_models_until_it_is_back() -> None:
    log: list[str] = []
    there = [False]

    async def scene() -> None:
        one, two = replica(log, "one", [True]), replica(log, "two", there)
        both = Replicas([one, two], **WAITS)
        for _ in range(TRIP):
            both.failed(two, "gone", probe=False)
        two.under_way = -5
        assert (await both.enter())[0] is one, "however little it has to do"
        await asyncio.sleep(0.1)
        assert len(log) > 1
        assert both.least() is one
        there[0] = True
        await asyncio.sleep(0.1)
        assert both.least() is two
        await both.close()

    asyncio.run(scene())
    assert set(log) == {"two"}


def test_when_all_are_gone_callers_wait_and_then_give_up() -> None:
    there = [False]

    async def scene(back: float | None) -> Any:
        both = Replicas([replica([], name, there) for name in "ab"], **WAITS)
        for each in both.all:
            for _ in range(TRIP):
                both.failed(each, f"{each.address} is gone", probe=False)
        if back is not None:
            asyncio.get_running_loop().call_later(back, lambda: there.__setitem__(0, True))
        try:
            return await both.enter()
        finally:
            await both.close()

    began = time.monotonic()
    with pytest.raises(OutageError, match=r"none of 2 replicas has answered for .* the last failure: b is gone"):
        asyncio.run(scene(None))
    assert time.monotonic() - began >= 0.3
    assert asyncio.run(scene(0.1))[0].address in "ab", "as soon as one is back"


def test_a_lone_replica_is_never_asked_for_its_models() -> None:
    async def scene() -> None:
        alone = Replicas([replica([], "one", [False])], **WAITS)
        for _ in range(TRIP):
            alone.failed(alone.all[0], "gone", probe=False)
        assert alone.since is not None
        assert not alone._watches
        await alone.close()

    asyncio.run(scene())


def test_addresses_are_checked_and_a_recipe_may_list_them() -> None:
    with pytest.raises(InputError, match="expected at least one and each once"):
        chat("http://a.example/v1", "http://a.example/v1")
    with pytest.raises(InputError, match="expected at least one"):
        chat()
    with pytest.raises(InputError, match="base_url"):
        chat("http://a.example/v1", "nothing")
    two = {"model": "m", "base_url": ["http://a.example/v1", "http://b.example/v1"], "api_key_env": None}
    recipe = {
        "name": "two", "env": {"make": "native/answers"}, "policies": {"p": {"kind": "chat", "options": two}},
        "team": {"answerer": "p"}, "learn": {"kind": "play"},
    }  # fmt: skip
    assert validate(recipe, "two").policies["p"].options["base_url"] == two["base_url"]


def test_a_team_with_tools_at_a_bad_endpoint_loses_nothing_and_pays_nothing_twice() -> None:
    found = runpy.run_path(str(BENCHMARK))["measure"](episodes=8, latency=0.2, slots=8, wait=0.05)
    assert found.right == 8
    assert found.turns == found.paid == 48
    assert found.twice == 0
    assert found.faulty > 0
    alone = 0.2 * (found.paid + found.faulty)
    assert found.wall < alone / 2, "at the same time; the limit of 1.2 is the benchmark's, machines that test are busy"
