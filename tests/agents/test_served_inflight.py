"""Weights that change while answers are written: each token has the number of those that said it, and none is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.agents.test_served import Much, ask, closed, fake_server, move, policy, trainer

from palaestra.agents import LMPolicy, ServedPolicy, Team
from palaestra.agents.backends import inflight
from palaestra.agents.backends.answering import Outcome
from palaestra.agents.backends.asking import Asking
from palaestra.agents.backends.server import SampledAnswer
from palaestra.agents.backends.version_gate import VersionGate
from palaestra.agents.policy import Decision
from palaestra.credit import grpo
from palaestra.errors import InputError, PolicyError
from palaestra.learning import PolicyGradient, Trainer
from palaestra.learning.protocol import Inflight
from palaestra.play.executors import Local
from palaestra.play.plan import Plan

FakeServer, until = fake_server.FakeServer, fake_server.until
__all__ = ["closed"]
TOKENS = 16


@pytest.fixture
def servers(model: Path) -> Iterator[list[Any]]:
    made = [FakeServer(model), FakeServer(model)]
    for each in made:
        each.streams = True
    yield made
    for each in made:
        each.close()


def ready(servers: list[Any], **options: Any) -> ServedPolicy:
    """A policy whose servers have its weights, number 0, and take their time for a token."""
    urls = [each.url for each in servers]
    served = policy(servers[0], **{"url": urls, "max_new_tokens": TOKENS, "patience": 10} | options)
    served.inflight = True
    served.sync(0)
    for each in servers:
        each.pace = 0.01
    return served


def other(served: ServedPolicy, seed: int = 0) -> dict[str, torch.Tensor]:
    """State of weights that are not those of now."""
    copy = served.twin()
    move(copy, seed)
    return {name: value.clone() for name, value in copy.state_dict().items()}


def stand(servers: list[Any], answers: int = 1) -> Callable[[], bool]:
    """Whether so many more answers of each server have stopped in their middle."""
    before = [each.stood for each in servers]
    return lambda: all(each.stood - was >= answers for each, was in zip(servers, before, strict=True))


def asked_meanwhile(
    served: ServedPolicy, servers: list[Any], texts: list[str], do: Any, *, answers: int = 1, aborts: int = 1
) -> list[Decision]:
    """Answers to texts, while something is done in another thread once so many of each server are in their middle.

    There they stop until they are aborted for the last time, or until it is done.
    """
    found: list[Decision] = []
    there, thread = stand(servers, answers), threading.Thread(target=lambda: found.extend(ask(served, texts)))
    for each in servers:
        each.holds, each.until = 3, each.aborts + aborts
    try:
        thread.start()
        until(there)
        do()
    finally:
        for each in servers:
            each.until = 0
    thread.join(30)
    assert not thread.is_alive()
    return found


def apart(decisions: list[Decision], states: list[dict[str, torch.Tensor]], lm: LMPolicy) -> float:
    """The largest difference of a token's log-probability from that of the weights whose number it has."""
    lists = [(d.prompt_ids.tolist(), d.action_ids.tolist(), d.logprobs.tolist()) for d in decisions]  # type: ignore[union-attr]
    table = pl.DataFrame({
        "prompt_ids": pl.Series([each[0] for each in lists]), "action_ids": pl.Series([each[1] for each in lists]),
    })  # fmt: skip
    told = np.concatenate([each[2] for each in lists])
    versions = np.concatenate([each.token_versions for each in decisions])  # type: ignore[misc]
    worst = 0.0
    for number, state in enumerate(states):
        lm.load_state_dict(state)
        with torch.no_grad():
            scored = lm.score(table)
        here = scored.logprobs[scored.mask].numpy()
        worst = max(worst, float(np.abs(here - told)[versions == number].max(initial=0.0)))
    return worst


def lengths(decisions: list[Decision]) -> int:
    return sum(len(each.action_ids) for each in decisions)  # type: ignore[arg-type]


TEXTS = [f"{n} + {n + 1} =" for n in range(8)]


@pytest.mark.parametrize(("dialect", "count", "concurrency"), [("vllm", 1, 64), ("vllm", 2, 3), ("sglang", 1, 64)])
def test_answers_go_on_with_other_weights(
    servers: list[Any], dialect: str, count: int, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each token has the log-probability of the weights whose number it has, and is sampled once.

    Three requests at a time: those that wait leave a place to those that compare the new weights.
    """
    monkeypatch.setattr(inflight, "DRAINED", 30.0)  # on busy cores an answer may need more than a second to come back
    used = servers[:count]
    served = ready(used, dialect=dialect, concurrency=concurrency)
    states = [{name: value.clone() for name, value in served.state_dict().items()}, other(served)]
    before = sum(each.tokens for each in used)
    decisions = asked_meanwhile(served, used, TEXTS, lambda: served.renew(states[1], 1))
    assert [each.error for each in decisions] == [None] * 8
    versions = [each.token_versions.tolist() for each in decisions]  # type: ignore[union-attr]
    assert versions == [sorted(each) for each in versions]
    assert {number for each in versions for number in each} == {0, 1}
    assert max(len(set(each)) for each in versions) == 2
    probes = 8 * 12 * count
    assert sum(each.tokens for each in used) - before == lengths(decisions) + probes  # none twice
    assert apart(decisions, states, LMPolicy.load(used[0].folder)) < 1e-5
    assert all(each.version == f"1-{served.fingerprint()}" for each in used)
    assert served.number == 1


def test_several_updates_fall_into_one_answer(servers: list[Any]) -> None:
    served = ready(servers[:1])
    states = [{name: value.clone() for name, value in served.state_dict().items()}, other(served, 1), other(served, 2)]

    def twice() -> None:
        there = stand(servers[:1])
        served.renew(states[1], 1)
        until(there)
        served.renew(states[2], 2)

    decisions = asked_meanwhile(served, servers[:1], TEXTS[:3], twice, answers=3, aborts=3)
    assert max(len(set(each.token_versions.tolist())) for each in decisions) == 3  # type: ignore[union-attr]
    assert apart(decisions, states, LMPolicy.load(servers[0].folder)) < 1e-5


def test_a_request_that_does_not_come_back_is_cut_off(servers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that came to the server when it was paused already and stands in its queue."""
    monkeypatch.setattr(inflight, "DRAINED", 0.1)
    served = ready(servers[:1], max_new_tokens=60)
    servers[0].deaf = True
    states = [{name: value.clone() for name, value in served.state_dict().items()}, other(served)]
    decisions = asked_meanwhile(served, servers[:1], TEXTS[:4], lambda: served.renew(states[1], 1))
    assert [each.error for each in decisions] == [None] * 4
    assert max(len(set(each.token_versions.tolist())) for each in decisions) == 2  # type: ignore[union-attr]
    assert apart(decisions, states, LMPolicy.load(servers[0].folder)) < 1e-5


def test_a_server_that_is_lost_while_it_is_given_weights(servers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one answers for it; alone, it is waited for."""
    for used in (servers[:1], servers):
        served, reply = ready(used, timeout=5.0), used[-1].reply
        states = [{name: value.clone() for name, value in served.state_dict().items()}, other(served)]

        def lose(path: str, body: Any, server: Any = used[-1], reply: Any = reply) -> Any:
            if path == "/collective_rpc" and not server.down:
                monkeypatch.setattr(server, "reply", reply)
                return 200, {"fault": "die"}
            return reply(path, body)

        def renew(server: Any = used[-1], served: ServedPolicy = served, new: Any = states[1]) -> None:
            served.renew(new, 1)
            assert server.down
            server.start()
            server.down = False

        monkeypatch.setattr(used[-1], "reply", lose)
        with pytest.warns(UserWarning, match="waiting for it"):
            decisions = asked_meanwhile(served, used, TEXTS[:4], renew)
        assert [each.error for each in decisions] == [None] * 4
        assert apart(decisions, states, LMPolicy.load(servers[0].folder)) < 1e-5
        assert used[0].version == f"1-{served.fingerprint()}"


def test_an_update_that_changed_nothing_is_a_name(servers: list[Any]) -> None:
    served = ready(servers[:1])
    state = {name: value.clone() for name, value in served.state_dict().items()}
    decisions = asked_meanwhile(served, servers[:1], TEXTS[:3], lambda: served.renew(state, 4))
    assert servers[0].version == f"4-{served.fingerprint()}"
    assert served.syncs == 1
    assert {int(n) for each in decisions for n in each.token_versions} <= {0, 4}  # type: ignore[union-attr]
    assert not any("abort" in path for path in servers[0].paths)


def test_answers_that_nobody_waits_for_any_more_are_given_up(
    servers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, given_up, heard = ready(servers[:1]), threading.Event(), []
    part = served.dialect.part
    monkeypatch.setattr(served.dialect, "part", lambda *event: heard.append(part(*event)) or heard[-1])

    def wait() -> None:
        with pytest.raises(CancelledError):
            ask(served, TEXTS[:1])
        given_up.set()

    servers[0].holds, servers[0].until = 3, 1
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: len(heard) == 3)
    asked = len(servers[0].seen)
    served.close()
    servers[0].until = 0
    thread.join(30)
    assert given_up.is_set()
    assert len(servers[0].seen) == asked


def test_weights_that_are_refused_stop_it(servers: list[Any]) -> None:
    served = ready(servers[:1])
    servers[0].stale_head = True
    said: list[PolicyError] = []

    def renew() -> None:
        with pytest.raises(PolicyError, match="its head may be tied, and stale") as error:
            served.renew(other(served), 1)
        said.append(error.value)

    decisions = asked_meanwhile(served, servers[:1], TEXTS[:2], renew)
    assert said
    assert all("its head may be tied, and stale" in (each.error or "") for each in decisions)


def test_adapters_are_changed_in_the_middle_as_well(model: Path) -> None:
    server = FakeServer(model, lora=True)
    server.streams = True
    try:
        served = ready([server], lora={"r": 4, "target_modules": ["q_proj", "v_proj"]})
        decisions = asked_meanwhile(served, [server], TEXTS[:4], lambda: served.renew(other(served), 1))
        assert [each.error for each in decisions] == [None] * 4
        assert max(len(set(each.token_versions.tolist())) for each in decisions) == 2  # type: ignore[union-attr]
        assert list(server.adapters) == [f"lm-{served.fingerprint()}"]
    finally:
        server.close()


def test_who_does_not_know_the_number_does_not_take_it_away(servers: list[Any]) -> None:
    """As an evaluation of the weights that are being played with."""
    served = ready(servers[:1], concurrency=3)
    twin = served.twin()
    twin.inflight, twin._numbered, twin.number = False, None, None

    def evaluate() -> None:
        servers[0].until = 0  # it needs a place
        ask(twin, TEXTS[:1])

    decisions = asked_meanwhile(served, servers[:1], TEXTS, evaluate)
    assert servers[0].version == f"0-{served.fingerprint()}"
    assert {int(n) for each in decisions for n in each.token_versions} == {0}  # type: ignore[union-attr]


def test_adapters_of_another_policy_on_the_server_break_no_answer(model: Path) -> None:
    server = FakeServer(model, lora=True)
    server.streams = True
    lora = {"r": 4, "target_modules": ["q_proj", "v_proj"]}
    try:
        other_one = ready([server], lora=lora, name="other")
        served = ready([server], lora=lora, max_new_tokens=100)

        def often() -> None:
            for number in range(1, 5):
                there = stand([server])
                other_one.renew(other(other_one, number), number)
                until(there)

        decisions = asked_meanwhile(served, [server], TEXTS[:2], often, aborts=9)
        assert [each.error for each in decisions] == [None] * 2
        assert {int(n) for each in decisions for n in each.token_versions} == {0}  # type: ignore[union-attr]
    finally:
        server.close()


@pytest.mark.parametrize(("dialect", "transfer"), [("vllm", "shared_memory"), ("sglang", "http")])
def test_weights_that_go_without_a_folder_change_in_the_middle_as_well(
    servers: list[Any], dialect: str, transfer: str
) -> None:
    for each in servers:
        each.transfers = True
    served = ready(servers, dialect=dialect, transfer=transfer)
    states = [{name: value.clone() for name, value in served.state_dict().items()}, other(served)]
    decisions = asked_meanwhile(served, servers, TEXTS, lambda: served.renew(states[1], 1))
    assert [each.error for each in decisions] == [None] * 8
    assert max(len(set(each.token_versions.tolist())) for each in decisions) == 2  # type: ignore[union-attr]
    assert apart(decisions, states, LMPolicy.load(servers[0].folder)) < 1e-5
    assert all(each.version == f"1-{served.fingerprint()}" for each in servers)
    assert not any({"/collective_rpc", "/update_weights_from_disk"} & {*each.paths} for each in servers)


def test_without_it_a_token_has_no_version(servers: list[Any]) -> None:
    served = ready(servers[:1])
    served.inflight = False
    assert [each.token_versions for each in ask(served)] == [None] * 6
    assert isinstance(served, Inflight)


def test_who_waits_for_a_version_comes_in_when_it_is_there() -> None:
    gate, came = VersionGate(), threading.Event()

    def wait() -> None:
        with gate.entered("b"):
            came.set()

    gate.rename("b")
    assert gate.version is None  # nobody is in
    with gate.entered("a"):
        thread = threading.Thread(target=wait)
        thread.start()
        assert not came.wait(0.1)
        gate.rename("b")
        assert came.wait(5)
    thread.join()


# In training


class Standing(Local):
    """Play whose answers stop in their middle, from the second iteration on, until an update aborts them."""

    def __init__(self, servers: list[Any]) -> None:
        super().__init__()
        self.servers, self.iteration, self.before = servers, 0, 0

    def play(self, env: Any, team: Any, plan: Plan, **options: Any) -> Any:
        self.before = sum(each.stood for each in self.servers)
        for each in self.servers if plan.iteration > 1 else ():
            each.holds, each.until = 3, each.aborts + 1
        self.iteration = plan.iteration
        return super().play(env, team, plan, **options)

    def there(self, iteration: int) -> bool:
        """Whether most of an iteration's twelve answers are in their middle."""
        return self.iteration == iteration and sum(each.stood for each in self.servers) - self.before > 8


def test_play_goes_on_with_the_weights_of_every_update(servers: list[Any], tmp_path: Path) -> None:
    """The rows say it: tokens of one answer are of several updates, and the metrics count from each token's own."""
    served = ready(servers, max_new_tokens=24)
    served.inflight = False  # of the policy that learns; its player's is set by the trainer
    made = trainer(served, tmp_path / "run", iterations=5, lag=1, inflight=True)
    update, iterations = made.learner.update, iter(range(1, 6))
    assert made.overlap is not None
    made.executor = made.overlap.executor = standing = Standing(servers)

    def later(*args: Any, **options: Any) -> Any:
        if (iteration := next(iterations)) < 5:
            until(lambda: standing.there(iteration + 1))
        return update(*args, **options)

    made.learner.update = later  # type: ignore[method-assign]
    lines = made.run()
    assert [line["errors"] for line in lines] == [{}] * 5
    mixed = 0.0
    for line in lines:
        metrics = line["policies"]["lm"]
        table = pl.read_parquet(tmp_path / "run" / "turns" / f"iteration-{line['iteration']:06d}.parquet")
        assert table["token_versions"].list.len().to_list() == table["action_ids"].list.len().to_list()
        tokens = table["token_versions"].explode().to_numpy()
        assert metrics["staleness"] == pytest.approx((line["iteration"] - 1 - tokens).mean())
        assert metrics["staleness_max"] <= line["version_lag"] <= 1
        assert metrics.get("mismatch", 0.0) < 1e-5
        (version,) = table["policy_version"].unique().to_list()
        assert version <= tokens.min()  # an update may come before the first answer does
        mixed = max(mixed, metrics["mixed"])
    assert mixed > 0.5
    assert "mismatch" in lines[-1]["policies"]["lm"]


def test_a_run_goes_on_with_the_weights_of_its_checkpoint(servers: list[Any], tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(iteration: int, _: Any) -> None:
        if iteration == 3:
            raise Stop

    options: dict[str, Any] = {"iterations": 5, "lag": 1, "inflight": True}
    with pytest.raises(Stop):
        trainer(policy(servers[0]), tmp_path / "run", on_turns=stop, **options).run()
    with pytest.raises(InputError, match="made with inflight=True, not False"):
        trainer(policy(servers[0]), tmp_path / "run", **options | {"inflight": False}).run(resume=True)
    lines = trainer(policy(servers[0]), tmp_path / "run", **options).run(resume=True)
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["errors"] for line in lines] == [{}] * 5


def test_who_cannot_take_weights_while_it_answers_is_refused(servers: list[Any], tmp_path: Path) -> None:
    from palaestra.runs.config import TrainPart

    with pytest.raises(InputError, match="inflight: with lag 0 nothing is played while the learner learns"):
        trainer(policy(servers[0]), None, inflight=True)
    team = Team(a=LMPolicy.tiny(hidden=16, layers=1, heads=2, name="lm"))
    with pytest.raises(
        InputError, match=r"inflight: policy 'lm' answers here, .*only a served policy \(kind: served\)"
    ):
        Trainer(
            Much, team, credit=grpo(), learner=PolicyGradient(team), iterations=1, groups=1, group_size=2, lag=1,
            inflight=True,
        )  # fmt: skip
    with pytest.raises(ValueError, match="inflight: nothing is played while the learner learns: write lag: 1 or more"):
        TrainPart(inflight=True)


def test_what_other_weights_said_on_a_server_that_is_gone_is_dropped() -> None:
    """All of them fit the weights here, number 3; one has a token that another number said."""

    class Gone(Asking):
        number = 3
        _changing = contextlib.nullcontext()

        def _ours(self, server: Any) -> bool:
            return False

        def _still(self, server: Any, digest: str | None) -> bool:
            return False

        def _said_by(self, server: Any, prompts: Any, said: Any) -> list[bool]:
            return [True] * len(said)

    def said(*versions: int) -> Any:
        ids = np.zeros(2, np.int32)
        return SampledAnswer(ids, np.zeros(2, np.float32), versions=np.array(versions) if versions else None)

    answers = [said(3, 3), said(2, 3), said()]
    server: Any = object()
    kept = Gone()._kept([Outcome(server, each, each) for each in answers], "one", [np.zeros(1, np.int32)] * 3)
    assert [each is not None for each in kept] == [True, False, True]
