"""Served generation by a real vLLM (its CPU build): ten iterations through it, killed in the middle, and lied to.

Needs PALAESTRA_VLLM, a Python that has vLLM (`make .venv/vllm/.installed`); skipped without. Starting the server is
most of the time: half a minute on idle cores.
"""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import LMPolicy, Request, ServedPolicy, Team
from palaestra.agents.backends import weight_files
from palaestra.agents.backends.server import HttpCall
from palaestra.credit import grpo
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import PolicyError
from palaestra.learning import PolicyGradient, Trainer

pytestmark = pytest.mark.skipif("PALAESTRA_VLLM" not in os.environ, reason="no vLLM: PALAESTRA_VLLM is not set")
ENGINE = {"enforce_eager": True, "max_model_len": 256, "max_num_seqs": 64}
TEXTS = [f"{n} + {n + 1} =" for n in range(12)]


class Digits:
    """Say as many digits as you can; one turn."""

    agents = ("a",)
    task = "digits"

    def reset(self, seed: int) -> dict[str, Observation]:
        return {"a": Observation(f"{seed % 7} + 1 =")}

    def step(self, actions: Any) -> StepResult:
        return StepResult({}, {"a": float(sum(map(str.isdigit, actions["a"])))}, terminated=True)


def ask(policy: ServedPolicy) -> list[Any]:
    return policy.act([Request(Observation(text), "a", np.random.default_rng(i)) for i, text in enumerate(TEXTS)])


def move(policy: ServedPolicy, by: float) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for each in policy.parameters():
            each += by * torch.randn(each.shape, generator=generator)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedPolicy]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    lm = LMPolicy.tiny(hidden=64, heads=2, name="lm", max_new_tokens=8)
    made = ServedPolicy(lm, server="vllm", engine=ENGINE)
    yield made
    made.close()
    assert made.servers[0].child is not None
    assert not made.servers[0].child.alive


def test_ten_iterations_and_a_kill_in_the_middle(served: ServedPolicy, tmp_path: Path) -> None:
    team = Team(a=served)
    learner = PolicyGradient(team, "corrected(level='sequence')", lr=0.01)
    labels, pids = {}, []

    def look(iteration: int, _: Any) -> None:
        (server,) = served.servers
        assert server.client is not None
        assert server.child is not None
        labels[iteration] = served.dialect.version(server.client)
        pids.append(server.child.pid)
        if iteration == 5:
            os.kill(server.child.pid, signal.SIGKILL)

    trainer = Trainer(
        Digits, team, credit=grpo(), learner=learner, iterations=10, groups=4, group_size=8, directory=tmp_path,
        on_turns=look, save_turns="all",
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lines = trainer.run()
    assert any("the vLLM server ended by itself" in str(each.message) for each in said)
    assert len(set(pids[:5])) == len(set(pids[5:])) == 1
    assert pids[4] != pids[5]
    assert [line["errors"] for line in lines] == [{}] * 10
    assert max(line["policies"]["lm"]["mismatch"] for line in lines) < 1e-4
    assert min(line["policies"]["lm"]["mismatch_ess"] for line in lines) > 0.999
    assert np.mean([line["reward"] for line in lines[-3:]]) > np.mean([line["reward"] for line in lines[:3]]) + 0.3
    for iteration in range(1, 11):
        turns = pl.read_parquet(tmp_path / "turns" / f"iteration-{iteration:06d}.parquet")
        assert turns["policy_version"].unique().to_list() == [iteration - 1]
        assert turns["error"].null_count() == turns.height == 32
        assert str(labels[iteration]).partition("-")[0] == str(iteration - 1)


def test_answers_are_seeded(served: ServedPolicy) -> None:
    first, again = ask(served), ask(served)
    assert [each.error for each in first] == [None] * len(TEXTS)
    assert all(np.array_equal(a.action_ids, b.action_ids) for a, b in zip(first, again, strict=True))
    assert len({each.action for each in first}) > 3


def test_old_weights_behind_our_back_are_found(served: ServedPolicy, tmp_path: Path) -> None:
    """As after a restart by somebody else: other weights, and a version that is not the one it was given."""
    right = ask(served)
    served.export(tmp_path / "old")
    move(served, 0.02)
    moved = ask(served)
    assert any(not np.allclose(a.logprobs[:1], b.logprobs[:1]) for a, b in zip(right, moved, strict=True))
    client = served.servers[0].client
    assert client is not None
    served.dialect.load(client, tmp_path / "old", "default")
    again = ask(served)
    for a, b in zip(moved, again, strict=True):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)
    assert str(served.dialect.version(client)).endswith(served.fingerprint())


def test_a_stale_head_is_refused(served: ServedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What vLLM does when the folder that it reloads has no head of its own: it keeps the old one and says nothing."""
    ask(served)
    with monkeypatch.context() as patch:
        patch.setattr(weight_files, "export", LMPolicy.save)
        move(served, 1e-3)
        with pytest.raises(PolicyError, match="its head may be tied, and stale"):
            served.sync(99)
        move(served, 1e-3)
        assert all("its head may be tied" in (each.error or "") for each in ask(served))
    move(served, 1e-3)
    assert [each.error for each in ask(served)] == [None] * len(TEXTS)


def test_it_tells_what_it_does_not_have(served: ServedPolicy) -> None:
    client = served.servers[0].client
    assert client is not None
    body = {"model": "nobody", "prompt": [5], "max_tokens": 1}
    with pytest.raises(PolicyError, match=r"HTTP 404: The model `nobody` does not exist"):
        client.ask(HttpCall("/v1/completions", body))


def test_adapters(tmp_path: Path) -> None:
    """A base that stays, and an adapter by name for every version."""
    LMPolicy.tiny(hidden=64, heads=2, name="lm").save(tmp_path / "base")
    lora = {"r": 4, "target_modules": ["q_proj", "v_proj"]}
    served = ServedPolicy.from_pretrained(
        tmp_path / "base", lora=lora, name="lm", max_new_tokens=8, server="vllm", engine=ENGINE
    )
    try:
        for round_ in range(3):
            decisions = ask(served)
            assert [each.error for each in decisions] == [None] * len(TEXTS), round_
            (server,) = served.servers
            assert server.client is not None
            names = served.dialect.models(server.client)
            assert names == ["policy", f"lm-{served.fingerprint()}"]
            move(served, 0.05)
    finally:
        served.close()


def test_two_replicas_play_ahead_and_one_is_killed(tmp_path: Path) -> None:
    """Nothing is lost, every answer is of its iteration's weights, and the killed one comes back with those of now."""
    lm = LMPolicy.tiny(hidden=64, heads=2, name="lm", max_new_tokens=8)
    served = ServedPolicy(lm, server="vllm", replicas=2, engine=ENGINE)
    team, killed = Team(a=served), []
    learner = PolicyGradient(team, "corrected(level='sequence')", lr=0.01)

    def look(iteration: int, _: Any) -> None:
        child = served.servers[1].child
        if iteration == 3 and child is not None:
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    try:
        trainer = Trainer(
            Digits, team, credit=grpo(), learner=learner, iterations=8, groups=4, group_size=8, directory=tmp_path,
            on_turns=look, save_turns="all", lag=1,
        )  # fmt: skip
        lines = trainer.run()
        assert len(killed) == 1
        assert [line["errors"] for line in lines] == [{}] * 8
        assert max(line["policies"]["lm"]["mismatch"] for line in lines) < 1e-4
        for iteration in range(1, 9):
            turns = pl.read_parquet(tmp_path / "turns" / f"iteration-{iteration:06d}.parquet")
            assert turns["policy_version"].unique().to_list() == [max(0, iteration - 2)]
            assert turns["error"].null_count() == turns.height == 32
        began = time.monotonic()
        while served.servers[1].digest != served.fingerprint() and time.monotonic() - began < 180:
            time.sleep(1)
            assert [each.error for each in ask(served)] == [None] * len(TEXTS)
        assert served.servers[1].digest == served.servers[0].digest == served.fingerprint()
        assert served.servers[1].child is not None
        assert served.servers[1].child.pid not in killed
    finally:
        served.close()


def test_answers_of_a_killed_server_are_gone_on_with() -> None:
    """Killed in the middle of long answers: what had come is kept, of the weights here, and the rest is asked for."""
    lm = LMPolicy.tiny(hidden=64, heads=2, name="lm", max_new_tokens=200)
    served = ServedPolicy(lm, server="vllm", engine=ENGINE | {"stream_interval": 4})
    try:
        served.sync(0)
        (server,) = served.servers
        assert server.client is not None
        send, killed, heard = server.client.send, list[int](), list[Any]()

        async def watched(call: HttpCall, *args: Any, **options: Any) -> Any:
            hear: Any = options.get("heard")

            def listen(event: Any) -> None:
                hear(event)
                heard.append(event)
                if len(heard) == 12 * 15 and not killed:  # a third of the way
                    assert server.child is not None
                    killed.append(server.child.pid)
                    os.kill(server.child.pid, signal.SIGKILL)

            return await send(call, *args, **options | ({"heard": listen} if hear else {}))

        server.client.send = watched  # type: ignore[method-assign]
        with pytest.warns(UserWarning, match="the vLLM server ended by itself"):
            decisions = ask(served)
        assert len(killed) == 1
        assert [each.error for each in decisions] == [None] * len(TEXTS)
        assert served.kept > 12 * 15
        columns = {"prompt_ids": pl.List(pl.Int32), "action_ids": pl.List(pl.Int32), "logprobs": pl.List(pl.Float32)}
        table = pl.DataFrame({"policy": ["lm"] * 12, "error": pl.Series([None] * 12, dtype=pl.String)} | {
            name: pl.Series([getattr(each, name).tolist() for each in decisions], dtype=kind)
            for name, kind in columns.items()
        })  # fmt: skip
        assert served.mismatch(table)["mismatch_max"] < 1e-3
        assert max(len(each.action_ids) for each in decisions) == 200
    finally:
        served.close()


def test_weights_change_while_answers_are_written(tmp_path: Path) -> None:
    """`train.inflight`: answers begin with the weights of one update and end with those of another."""
    lm = LMPolicy.tiny(hidden=64, heads=2, name="lm", max_new_tokens=200)
    served = ServedPolicy(lm, server="vllm", engine=ENGINE)
    team = Team(a=served)
    learner = PolicyGradient(team, "corrected()", lr=0.01)
    try:
        trainer = Trainer(
            Digits, team, credit=grpo(), learner=learner, iterations=6, groups=4, group_size=8, directory=tmp_path,
            save_turns="all", lag=1, inflight=True,
        )  # fmt: skip
        lines = trainer.run()
    finally:
        served.close()
    assert [line["errors"] for line in lines] == [{}] * 6
    metrics = [line["policies"]["lm"] for line in lines]
    assert max(each["mixed"] for each in metrics) > 0
    assert max(each["staleness_max"] for each in metrics) <= 1
    assert max(each["mismatch"] for each in metrics if "mismatch" in each) < 1e-4
    assert served.kept == 0  # nobody but us broke an answer off
    for iteration in range(1, 7):
        turns = pl.read_parquet(tmp_path / "turns" / f"iteration-{iteration:06d}.parquet")
        assert turns["token_versions"].list.len().to_list() == turns["action_ids"].list.len().to_list()
        assert turns["error"].null_count() == turns.height == 32
        assert all(each == sorted(each) for each in turns["token_versions"].to_list())
