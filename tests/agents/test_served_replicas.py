"""Several servers behind one policy, and play ahead through them: who is asked, who is given weights, what is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tests.agents.test_served import Much, ask, closed, fake_server, move, policy, rows, trainer, within

from palaestra.agents import LMPolicy, ServedPolicy
from palaestra.errors import InputError, PolicyError

FakeServer = fake_server.FakeServer
__all__ = ["closed"]
MANY = [f"{n} + {n + 1} =" for n in range(24)]


@pytest.fixture
def two(model: Path) -> Iterator[list[Any]]:
    made = [FakeServer(model), FakeServer(model)]
    yield made
    for each in made:
        each.close()


def fleet(two: list[Any], **options: Any) -> ServedPolicy:
    return policy(two[0], url=[each.url for each in two], **options)


def said(decisions: list[Any]) -> list[Any]:
    return [(each.error, each.action, each.logprobs.tolist()) for each in decisions]


def test_replicas_share_the_requests_and_say_what_one_server_says(two: list[Any]) -> None:
    served, alone = fleet(two), policy(two[0])
    expected = said(ask(alone, MANY))
    before = [len(each.seen) for each in two]
    assert said(ask(served, MANY)) == expected
    wave = [len(each.seen) - was - 8 for each, was in zip(two, before, strict=True)]  # 8 compare the weights
    assert wave == [12, 12]
    assert two[0].version == two[1].version
    move(served)
    assert [each.error for each in ask(served, MANY)] == [None] * 24
    assert two[0].version == two[1].version == f"?-{served.fingerprint()}"
    assert served.syncs == 4


def test_the_slower_replica_gets_fewer_requests(two: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    served = fleet(two, concurrency=4)
    served.sync(0)
    before = [len(each.seen) for each in two]
    sampled = two[0].sampled

    def later(*how: Any) -> Any:
        fake_server.until(lambda: len(two[1].seen) - before[1] >= 17)
        return sampled(*how)

    monkeypatch.setattr(two[0], "sampled", later)
    assert [each.error for each in ask(served, MANY)] == [None] * 24
    slow, fast = (len(each.seen) - was for each, was in zip(two, before, strict=True))
    assert fast > 2 * slow > 0


def test_a_replica_that_dies_in_a_wave_costs_nothing(two: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    served = fleet(two, concurrency=4, patience=60)
    expected = said(ask(served, MANY))
    reply, asked = two[1].reply, len(two[1].seen)

    def die(path: str, body: Any) -> Any:
        two[1].down = two[1].down or len(two[1].seen) == asked + 3
        return (200, {"fault": "die"}) if two[1].down else reply(path, body)

    monkeypatch.setattr(two[1], "reply", die)
    with pytest.warns(UserWarning, match="no server at .*; waiting for it"):
        assert said(ask(served, MANY)) == expected
    began = time.monotonic()
    assert said(ask(served, MANY)) == expected  # by the one that is left, which nobody waits with
    assert time.monotonic() - began < 30
    move(served)
    ask(served)
    monkeypatch.undo()
    two[1].start()  # as a supervisor would, with the weights of its folder
    two[1].down = False
    fake_server.until(lambda: not served.servers[1].resting)
    found = ask(served, MANY)
    assert two[1].version == two[0].version
    with torch.no_grad():
        here = served.score(table := rows(found))
    assert here.logprobs[here.mask].tolist() == pytest.approx(table["logprobs"].explode().to_list(), abs=1e-5)


def test_a_replica_that_hangs_is_left_out_and_its_requests_are_asked_elsewhere(two: list[Any]) -> None:
    served = fleet(two)
    expected = said(ask(served))
    within(served, 4.0)
    two[0].silent = 30.0
    with pytest.warns(UserWarning, match=r"no whole answer within 4 s; waiting for it"):
        assert said(ask(served)) == expected
    asked = len(two[0].seen)
    assert said(ask(served)) == expected
    assert len(two[0].seen) == asked  # it rests


def test_a_replica_that_is_back_is_asked_again_however_often_the_others_are(two: list[Any]) -> None:
    served = fleet(two)
    ask(served)
    two[1].down = True
    for _ in range(3):
        move(served)
        ask(served)
    two[1].start()
    two[1].down = False
    began = time.monotonic()
    while served.servers[1].digest != served.fingerprint() and time.monotonic() - began < 30:
        ask(served)  # within less than any pause
    assert served.servers[1].digest == served.fingerprint()


def test_all_replicas_gone_is_said_after_patience(two: list[Any]) -> None:
    served = fleet(two)
    served.sync(0)
    for each in two:
        each.down = True
    with (
        pytest.warns(UserWarning, match="waiting for it"),
        pytest.raises(PolicyError, match=r"no server at .*, for 0\.3 s; .*--resume"),
    ):
        served.sync(0)


def test_a_replica_with_another_tokenizer_is_refused(two: list[Any]) -> None:
    two[1].foreign = True
    with pytest.raises(PolicyError, match=f"{two[1].url[:-3]} has another tokenizer"):
        fleet(two).sync(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": []}, "expected an address or a list"),
        ({"url": ["http://127.0.0.1:1", "http://127.0.0.1:1"]}, "names one address twice"),
        ({"url": "http://127.0.0.1:1", "replicas": 2}, "give url= a list instead"),
        ({"server": "vllm", "replicas": 0}, "replicas is 0, must be 1 or more"),
        ({"server": "vllm", "replicas": True}, "replicas is True"),
        ({"url": ["http://127.0.0.1:1", "nowhere"]}, "ServedPolicy: url"),
    ],
)
def test_replicas_that_cannot_work(model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ServedPolicy.from_pretrained(model, **options)


# Play ahead


def turns(folder: Path, iteration: int) -> pl.DataFrame:
    return pl.read_parquet(folder / "turns" / f"iteration-{iteration:06d}.parquet")


def test_play_ahead_through_servers_is_play_ahead_here(two: list[Any], tmp_path: Path) -> None:
    """The same tables, answer by answer, as when the server has only ever this run's weights of that iteration."""
    versions: dict[str, dict[int, list[str]]] = {"one": {}, "two": {}}
    tables: dict[str, list[pl.DataFrame]] = {}
    by_http = {"dialect": "sglang", "transfer": "http"}
    for each in two:
        each.transfers = True
    for name, made in (("one", policy(two[0])), ("two", fleet(two)), ("http", fleet(two, **by_http))):
        here = trainer(made, tmp_path / name, iterations=4, lag=1)
        lines = here.run()
        assert [line["version_lag"] for line in lines] == [0, 1, 1, 1]
        assert [line["policies"]["lm"]["mismatch"] < 1e-5 for line in lines] == [True] * 4
        tables[name] = [turns(tmp_path / name, i) for i in range(1, 5)]
        assert [frame["policy_version"].unique().to_list() for frame in tables[name]] == [[0], [0], [1], [2]]
        versions[name] = {i: each["action"].to_list() for i, each in enumerate(tables[name])}
        weights = [p.detach().clone() for p in made.parameters()]
        if name == "one":
            expected = weights
        assert versions["one"] == versions[name]
        for a, b in zip(tables["one"], tables[name], strict=True):  # rounding: two servers batch in smaller pieces
            assert a["logprobs"].list.len().equals(b["logprobs"].list.len())
            apart = (a["logprobs"].explode() - b["logprobs"].explode()).abs().max()
            assert isinstance(apart, float)
            assert apart < 1e-5
        far = max(float((a - b).abs().max()) for a, b in zip(expected, weights, strict=True))
        moved = max(float((a - b).abs().max()) for a, b in zip(policy(two[0]).parameters(), weights, strict=True))
        assert far < 0.005 * moved  # Adam makes steps of rounding where a gradient is nearly none
    assert [len(each.updates) for each in two] == [3, 3]


def test_an_evaluation_waits_for_the_servers_and_is_played_with_the_weights_of_now(
    two: list[Any], tmp_path: Path
) -> None:
    from palaestra.play.rollout import rollout

    made, seen = fleet(two), []

    def evaluate(team: Any, iteration: int) -> dict[str, Any]:
        frame = rollout(Much, team, groups=2, group_size=2, seed=iteration)
        seen.append(team["a"].mismatch(frame.frame)["mismatch"])
        return {}

    two[0].silent = two[1].silent = 0.05
    trainer(made, tmp_path / "run", iterations=4, lag=1, evaluate=evaluate, evaluate_every=1).run()
    assert len(seen) == 4
    assert max(seen) < 1e-5


def test_a_run_ahead_goes_on_where_it_stopped(two: list[Any], tmp_path: Path) -> None:
    whole = fleet(two)
    trainer(whole, tmp_path / "whole", iterations=4, lag=1).run()

    class Stop(Exception):
        pass

    def stop(iteration: int, _: Any) -> None:
        if iteration == 2:
            raise Stop

    with pytest.raises(Stop):
        trainer(fleet(two), tmp_path / "run", iterations=4, lag=1, on_turns=stop).run()
    again = fleet(two)
    trainer(again, tmp_path / "run", iterations=4, lag=1).run(resume=True)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), whole.parameters(), strict=True))


def test_a_twin_waits_while_the_servers_are_held(two: list[Any]) -> None:
    served = fleet(two)
    twin = served.twin()
    assert isinstance(twin.lm, LMPolicy)
    move(twin)
    order: list[str] = []
    with served.held():

        def wait() -> None:
            ask(twin)
            order.append("twin")

        other = threading.Thread(target=wait)
        other.start()
        for _ in range(3):
            ask(served)
            order.append("held")
        assert served.syncs == 2  # one for each server: nobody changed them meanwhile
    other.join()
    assert order == ["held"] * 3 + ["twin"]
    assert two[0].version.endswith(twin.fingerprint())
    assert twin.servers is served.servers
