"""Served generation with a fake server: what is asked, what is learned from it, and every fault by its name."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import LMPolicy, Request, ServedPolicy, Team
from palaestra.agents.backends.answering import sampled
from palaestra.agents.backends.server import GoneError, SampledAnswer
from palaestra.agents.policy import Decision, Learnable
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import InputError, PolicyError
from palaestra.learning import PolicyGradient, Trainer, checkpoints
from palaestra.learning.alarms import alarms
from palaestra.learning.protocol import Served
from palaestra.play.rollout import rollout

_SPEC = importlib.util.spec_from_file_location("fake_server", Path(__file__).with_name("fake_server.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
fake_server = importlib.util.module_from_spec(_SPEC)
sys.modules["fake_server"] = fake_server
_SPEC.loader.exec_module(fake_server)
FakeServer = fake_server.FakeServer
TEXTS = [f"{n} + {n + 1} =" for n in range(6)]


@pytest.fixture
def server(model: Path) -> Iterator[Any]:
    made = FakeServer(model)
    yield made
    made.close()


_MADE: list[ServedPolicy] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Connections of a test's policies end with it: both ends of each are in this process."""
    yield
    for each in _MADE:
        each.close()
    _MADE.clear()


def policy(server: Any, **options: Any) -> ServedPolicy:
    given = {"url": server.url, "patience": 0.3, "timeout": 20.0, "max_new_tokens": 5, "name": "lm"} | options
    _MADE.append(ServedPolicy.from_pretrained(server.folder, **given))
    return _MADE[-1]


def ask(policy: ServedPolicy, texts: list[str] = TEXTS, seed: int = 0) -> list[Decision]:
    return policy.act([Request(Observation(t), "a", np.random.default_rng([seed, i])) for i, t in enumerate(texts)])


def within(policy: ServedPolicy, seconds: float) -> None:
    """From now on a server has so long for an answer; with so little a sync may fail where the cores are busy."""
    for each in policy.servers:
        assert each.client is not None
        each.client.timeout = seconds


def move(policy: ServedPolicy, seed: int = 0, by: float = 0.05) -> None:
    """As an update does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in policy.parameters():
            each += by * torch.randn(each.shape, generator=generator)


def rows(decisions: list[Decision]) -> pl.DataFrame:
    return pl.DataFrame({
        "policy": ["lm"] * len(decisions), "error": [each.error for each in decisions],
        "prompt_ids": pl.Series([each.prompt_ids.tolist() for each in decisions]),  # type: ignore[union-attr]
        "action_ids": pl.Series([each.action_ids.tolist() for each in decisions]),  # type: ignore[union-attr]
        "logprobs": pl.Series([each.logprobs.tolist() for each in decisions], dtype=pl.List(pl.Float32)),  # type: ignore[union-attr]
    }, schema_overrides={"error": pl.String})  # fmt: skip


# -- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_answers_are_those_of_the_weights_that_are_here(server: Any, dialect: str) -> None:
    served = policy(server, dialect=dialect, temperature=0.7)
    for round_ in range(3):
        decisions = ask(served)
        assert [each.error for each in decisions] == [None] * 6
        table = rows(decisions)
        with torch.no_grad():
            scored = served.score(table)
        here = [row[keep].tolist() for row, keep in zip(scored.logprobs, scored.mask, strict=True)]
        for one, two in zip(here, table["logprobs"].to_list(), strict=True):
            assert one == pytest.approx(two, abs=1e-5)
        assert served.mismatch(table)["mismatch"] < 1e-5
        assert served.syncs == round_ + 1
        whole = [each.action_ids[-1] in served.lm._ends for each in decisions]  # type: ignore[index]
        assert [each.finish for each in decisions] == ["stop" if each else "length" for each in whole]
        assert decisions[0].action == served.tokenizer.decode(decisions[0].action_ids, skip_special_tokens=True).strip()
        move(served, round_)
    assert isinstance(served, Learnable)
    assert isinstance(served, Served)


def test_what_a_request_says(server: Any) -> None:
    """Nothing of a server's own defaults is left: temperature, nucleus, penalties; a seed each from its rng."""
    served = policy(server, temperature=0.7)
    ask(served)
    asked = server.seen[-6:]
    assert {each["temperature"] for each in asked} == {0.7}
    assert {(each["top_p"], each["top_k"], each["min_p"], each["repetition_penalty"]) for each in asked} == {
        (1, -1, 0, 1)
    }
    assert {each["max_tokens"] for each in asked} == {5}
    assert len({each["seed"] for each in asked}) == 6
    assert all(each["stop_token_ids"] == [served.tokenizer.eos_token_id] for each in asked)
    first, again, other = ask(served), ask(served), ask(served, seed=1)
    assert all((a.action_ids == b.action_ids).all() for a, b in zip(first, again, strict=True))
    assert any(list(a.action_ids) != list(b.action_ids) for a, b in zip(first, other, strict=True))  # type: ignore[arg-type]


def test_requests_wait_at_the_same_time(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served = policy(server)
    ask(served)
    together, sampled = threading.Barrier(24), server.sampled

    def all_at_once(*how: Any) -> Any:
        together.wait(10)
        return sampled(*how)

    monkeypatch.setattr(server, "sampled", all_at_once)
    assert [each.error for each in ask(served, TEXTS * 4)] == [None] * 24


def test_a_prompt_that_does_not_fit_costs_its_own_row_only(server: Any) -> None:
    decisions = ask(policy(server), ["short", "long " * 2000])
    assert decisions[0].error is None
    assert "has 1" in (decisions[1].error or "")
    assert "at most 2043 fit" in (decisions[1].error or "")
    assert ask(policy(server), []) == []


# -- weights ----------------------------------------------------------------------------------------------------------


def test_weights_are_given_once_and_called_by_their_number(server: Any) -> None:
    served = policy(server)
    served.sync(3)
    label = server.version
    assert re.fullmatch(r"3-[0-9a-f]{12}", label)
    for _ in range(3):
        ask(served)
        served.sync(3)
    assert (served.syncs, server.version, server.paths.count("/collective_rpc")) == (1, label, 1)
    served.sync(4)  # an update that changed nothing
    assert (server.version, served.syncs) == (label.replace("3-", "4-"), 1)
    move(served)
    ask(served)  # somebody asks before the trainer says which number it is
    assert server.version.startswith("?-")
    served.sync(5)
    assert (server.version, served.syncs) == (f"5-{served.fingerprint()}", 2)


def test_a_loaded_state_reaches_the_server(server: Any) -> None:
    served = policy(server)
    before, start = {k: v.clone() for k, v in served.state_dict().items()}, ask(served)
    move(served)
    moved = ask(served)
    assert any(a.logprobs.tolist() != b.logprobs.tolist() for a, b in zip(start, moved, strict=True))  # type: ignore[union-attr]
    served.load_state_dict(before)
    assert [each.logprobs.tolist() for each in ask(served)] == [each.logprobs.tolist() for each in start]  # type: ignore[union-attr]


def test_an_update_of_the_fused_optimiser_is_seen(server: Any) -> None:
    """It does not move the version counters of torch's parameters."""
    served = policy(server)
    before = served.fingerprint()
    optimiser = torch.optim.AdamW(served.parameters(), lr=1e-6, fused=True)
    for each in served.parameters():
        each.grad = torch.ones_like(each)
    optimiser.step()
    assert served.fingerprint() != before


def test_an_export_has_a_head_of_its_own(server: Any, tmp_path: Path) -> None:
    served = policy(server)
    assert served.model.config.tie_word_embeddings
    served.export(tmp_path / "out")
    assert served.model.config.tie_word_embeddings
    again = LMPolicy.from_pretrained(tmp_path / "out")
    assert not again.model.config.tie_word_embeddings
    assert again.model.lm_head.weight.data_ptr() != again.model.model.embed_tokens.weight.data_ptr()
    assert torch.equal(again.model.lm_head.weight, served.model.lm_head.weight)


def test_a_stale_head_is_refused_after_the_sync_that_caused_it(server: Any) -> None:
    served = policy(server)
    served.sync(0)
    server.stale_head = True
    move(served, by=1e-3)  # one small update
    with pytest.raises(PolicyError, match=r"differ by .* nats per token .* its head may be tied, and stale") as error:
        served.sync(1)
    assert "\n" not in str(error.value)
    assert all("its head may be tied" in (each.error or "") for each in ask(served))
    server.stale_head = False
    assert [each.error for each in ask(served)] == [None] * 6


def test_log_probabilities_of_another_temperature_are_refused(server: Any) -> None:
    server.raw = True
    with pytest.raises(PolicyError, match="those are of temperature 1: start it with --logprobs-mode"):
        policy(server, temperature=0.5).sync(0)
    policy(server, temperature=1.0).sync(0)


def test_adapters_go_by_name(model: Path) -> None:
    server = FakeServer(model, lora=True)
    served = policy(server, lora={"r": 4, "target_modules": ["q_proj", "v_proj"]})
    try:
        assert [each.error for each in ask(served)] == [None] * 6
        (first,) = server.adapters
        assert first == f"lm-{served.fingerprint()}"
        move(served)
        decisions = ask(served)
        assert served.mismatch(rows(decisions))["mismatch"] < 1e-5
        assert list(server.adapters) == [f"lm-{served.fingerprint()}"]  # the old one is gone
        assert server.adapters.keys() != {first}
        server.adapters.clear()  # adapter missing: somebody dropped it
        assert [each.error for each in ask(served)] == [None] * 6
        assert "/collective_rpc" not in server.paths
        server.lora = False
        server.adapters.clear()
        assert all("VLLM_ALLOW_RUNTIME_LORA_UPDATING=1" in (each.error or "") for each in ask(served))
    finally:
        server.close()


@pytest.mark.filterwarnings("ignore:ServedPolicy")
def test_adapters_of_before_an_absence_are_taken_away(model: Path) -> None:
    server = FakeServer(model, lora=True)
    served = policy(server, lora={"r": 4, "target_modules": ["q_proj", "v_proj"]})
    try:
        served.sync(0)
        for seed in range(2):
            served.servers[0].absent(GoneError("for a moment"))
            move(served, seed)
            resumed = server.paths.count("/resume")
            served.sync(seed)
            assert list(server.adapters) == [f"lm-{served.fingerprint()}"]
            assert server.paths.count("/resume") == resumed + 1  # it may have been left paused
    finally:
        server.close()


def test_a_twin_with_equal_weights_and_another_number_takes_no_name_away(server: Any) -> None:
    served = policy(server)
    served.sync(5)
    twin = served.twin()
    for each, number in ((twin, 3), (served, 5), (twin, 3)):
        each.sync(number)
        assert server.version == f"{number}-{served.fingerprint()}"


def test_folders_that_killed_processes_left_are_swept(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as gone:
        pass
    names = {"old": gone.pid, "new": gone.pid, "ours": os.getpid()}
    folders = {name: tmp_path / f"palaestra-served-{pid}-{i:016x}" for i, (name, pid) in enumerate(names.items())}
    for name, folder in folders.items():
        (folder / "weights").mkdir(parents=True)
        if name != "new":
            os.utime(folder, (0, 0))
    (tmp_path / "palaestra-served-_x1ab2c3").mkdir()
    served = policy(server)
    served.sync(0)
    assert [name for name, folder in folders.items() if folder.exists()] == ["new", "ours"]
    assert (tmp_path / "palaestra-served-_x1ab2c3").exists()
    assert served._folder.name.startswith(f"palaestra-served-{os.getpid()}-")


def test_a_frozen_copy_plays_by_itself(server: Any) -> None:
    served = policy(server)
    copy = served.frozen_copy()
    assert type(copy) is LMPolicy
    assert not copy.parameters()
    team = Team(a=served).frozen_copy()
    server.down = True
    assert ask(team["a"])[0].error is None  # type: ignore[arg-type]


def test_it_is_saved_as_a_language_model(server: Any, tmp_path: Path) -> None:
    served = policy(server)
    Team(a=served).save(tmp_path)
    loaded = Team.load(tmp_path)["a"]
    assert type(loaded) is LMPolicy
    assert all(torch.equal(loaded.state_dict()[k], v) for k, v in served.state_dict().items())  # type: ignore[attr-defined]


# -- faults -----------------------------------------------------------------------------------------------------------


def test_no_server(server: Any) -> None:
    served = policy(server)
    server.down = True
    began = time.monotonic()
    decisions = ask(served)
    assert time.monotonic() - began < 15
    assert {each.error is None for each in decisions} == {False}
    assert re.search(r"no server at http://127.0.0.1:\d+ \(.*\), for 0.3 s; start it again", decisions[0].error or "")
    assert all("\n" not in (each.error or "") for each in decisions)


def test_a_server_that_comes_back_in_time_costs_nothing(server: Any) -> None:
    served = policy(server, patience=10)
    expected = ask(served)
    server.down = True

    def restart() -> None:
        time.sleep(0.3)
        server.start()  # without the weights it had been given
        server.down = False

    thread = threading.Thread(target=restart)
    thread.start()
    move(served, by=0.0)
    decisions = ask(served)
    thread.join()
    assert [each.error for each in decisions] == [None] * 6
    assert [each.action for each in decisions] == [each.action for each in expected]


def test_a_server_restarted_with_old_weights_gets_the_right_ones(server: Any) -> None:
    served = policy(server)
    ask(served)
    move(served)
    served.sync(1)
    right = ask(served)
    server.start()
    assert server.version == "default"
    again = ask(served)
    assert server.version == f"1-{served.fingerprint()}"
    assert [each.logprobs.tolist() for each in again] == [each.logprobs.tolist() for each in right]  # type: ignore[union-attr]


def test_an_engine_that_breaks_is_asked_again(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served, reply, broken = policy(server), server.reply, []
    right = ask(served)

    def sometimes(path: str, body: Any) -> Any:
        if path == "/v1/completions" and len(broken) < 4:
            broken.append(path)
            return 500, {"error": {"message": "EngineCore encountered an issue"}}
        return reply(path, body)

    monkeypatch.setattr(server, "reply", sometimes)
    again = ask(served)
    assert len(broken) == 4
    assert [each.action for each in again] == [each.action for each in right]
    assert [each.error for each in again] == [None] * 6


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_answers_of_old_weights_in_the_middle_of_a_wave_are_asked_again(server: Any, dialect: str) -> None:
    served = policy(server, dialect=dialect)
    ask(served)
    move(served)
    right = ask(served)
    server.old = server.answered + 4  # three of six answers are right, then it is restarted
    again = ask(served)
    assert server.old == 0
    assert [each.error for each in again] == [None] * 6
    assert [each.logprobs.tolist() for each in again] == [each.logprobs.tolist() for each in right]  # type: ignore[union-attr]


def test_a_slow_server(server: Any) -> None:
    served = policy(server)
    served.sync(0)
    within(served, 1.5)
    server.silent = 30.0
    decisions = ask(served, TEXTS[:2])
    assert [each.error for each in decisions] == ["LateError: no whole answer within 1.5 s"] * 2


def test_another_tokenizer(server: Any) -> None:
    server.foreign = True
    with pytest.raises(PolicyError, match=r"another tokenizer: token 0 of 'The quick brown fox '… is \[\d+\] there"):
        policy(server).sync(0)


def test_answers_without_token_ids(server: Any) -> None:
    server.mute = True
    with pytest.raises(PolicyError, match="the answer has no token_ids; vLLM sends them from"):
        policy(server).sync(0)
    assert all("has no token_ids" in (each.error or "") for each in ask(policy(server)))


def test_a_server_without_the_endpoints_for_weights(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = server.reply
    developer = ("/pause", "/weight_info", "/collective_rpc")
    monkeypatch.setattr(server, "reply", lambda path, body: (404, {}) if path in developer else reply(path, body))
    with pytest.raises(PolicyError, match="start the server with VLLM_SERVER_DEV_MODE=1"):
        policy(server).sync(0)


def test_an_unknown_model(server: Any) -> None:
    with pytest.raises(PolicyError, match="The model `other` does not exist"):
        policy(server, served_name="other").sync(0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": None}, "give url= of a server that runs, or server='vllm'"),
        ({"server": "vllm"}, "give url="),
        ({"url": None, "server": "sglang"}, "server is 'sglang'"),
        ({"dialect": "vlm"}, "dialect 'vlm' is unknown; did you mean 'vllm'"),
        ({"engine": {"dtype": "float32"}}, "engine= is for a server that is started here"),
        ({"url": None, "server": "vllm", "engine": {"trust_remote_code": True}}, "no option 'trust_remote_code'"),
        ({"url": "http://me:secret@host/v1"}, "url holds credentials"),
        ({"url": "host:8000"}, "url is .* expected something like"),
        ({"timeout": 0}, "timeout is 0, must be above 0"),
        ({"patience": 0}, "patience is 0, must be above 0"),
        ({"url": None, "server": "vllm", "cluster": ""}, "cluster is '': the address of a Ray cluster"),
        ({"url": None, "server": "vllm", "cluster": "auto", "transfer": "shared_memory"}, "is of one machine"),
        ({"lora": {"r": 2}, "transfer": "shared_memory"}, "'shared_memory' is for whole weights"),
        (
            {"url": None, "server": "vllm", "dialect": "sglang", "transfer": "http"},
            "of dialect 'sglang', not of 'vllm'",
        ),
    ],
)
def test_options_that_cannot_work(model: Path, options: dict[str, Any], said: str) -> None:
    given = {"url": "http://127.0.0.1:1/v1"} | options
    with pytest.raises(InputError, match=said):
        ServedPolicy.check(model, **given)
    with pytest.raises(InputError, match=said):
        ServedPolicy.from_pretrained(model, **given)


def test_no_vllm_to_start(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAESTRA_VLLM", "/nowhere/python")
    with pytest.raises(InputError, match="needs a Python that has vLLM, /nowhere/python has none: set PALAESTRA_VLLM"):
        ServedPolicy.from_pretrained(model, server="vllm").sync(0)


class Child:
    """Stands for a vLLM that was started here: a fake server, until it is ended or killed."""

    transfers = False

    def __init__(self, server: Any, log: Path) -> None:
        server.start()
        log.write_text("Error: killed")
        self.url, self.log, self.alive = server.url.removesuffix("/v1"), log, True

    def there(self, folder: Path) -> Path:
        return folder

    def died(self) -> PolicyError:
        return PolicyError(self.log.read_text())

    def end(self) -> None:
        self.alive = False


@pytest.fixture
def children(server: Any, monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    made: list[Child] = []

    def start(base: str, *, log: Path, **_: Any) -> Child:
        made.append(Child(server, log))
        return made[-1]

    monkeypatch.setattr("palaestra.agents.backends.weights.ServerProcess", start)
    return made


def starting(server: Any) -> ServedPolicy:
    """A policy that starts its server."""
    _MADE.append(ServedPolicy.from_pretrained(server.folder, server="vllm", max_new_tokens=5, name="lm"))
    return _MADE[-1]


def test_a_policy_that_was_closed_may_be_asked_again_and_leaves_no_folder(server: Any, children: list[Child]) -> None:
    served = starting(server)
    for count in (1, 2):
        assert [each.error for each in ask(served)] == [None] * 6
        assert [each.alive for each in children] == [False] * (count - 1) + [True]
        served.close()
        assert not children[-1].alive
        assert not served._folder.exists()


def test_connections_with_a_child_that_died_are_closed(server: Any, children: list[Child]) -> None:
    served = starting(server)
    ask(served)
    client = served.servers[0].client
    assert client is not None
    assert client._wires
    children[0].alive = False
    with pytest.warns(UserWarning, match="Error: killed; it is started again"):
        assert [each.error for each in ask(served)] == [None] * 6
    assert len(children) == 2
    assert not client._wires


def test_a_wave_on_a_server_that_another_thread_starts_again_goes_on_elsewhere(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = policy(server, concurrency=1)
    served.sync(0)
    (here,), reply = served.servers, server.reply
    client = here.client

    def lost(path: str, body: Any) -> Any:
        here.client = None
        return reply(path, body)

    monkeypatch.setattr(server, "reply", lost)
    prompts = [np.array([5, 6], np.int32)] * 2
    one, two = sampled([here], served.lm, here.digest, prompts, [1, 2], tokens=3, ends=[])
    here.client = client
    assert isinstance(one.answer, SampledAnswer)
    assert isinstance(two.answer, GoneError)


def test_weights_stay_where_they_are_while_a_twin_is_there(server: Any) -> None:
    twin = policy(server).twin()
    twin.sync(0)
    _MADE.clear()
    gc.collect()
    assert twin._folder.exists()
    twin.close()
    assert not twin._folder.exists()


# -- learning through it ----------------------------------------------------------------------------------------------


class Much:
    """Letters have numbers; say much; one turn."""

    agents = ("a",)
    task = "much"

    def reset(self, seed: int) -> dict[str, Observation]:
        return {"a": Observation(f"{seed % 5} + 1 =")}

    def step(self, actions: Any) -> StepResult:
        return StepResult({}, {"a": sum(map(ord, actions["a"])) / 1e3}, terminated=True)


def trainer(served: ServedPolicy, folder: Path | None, iterations: int = 3, **options: Any) -> Trainer:
    from palaestra.credit import grpo

    team = Team(a=served)
    return Trainer(
        Much, team, credit=grpo(), learner=PolicyGradient(team, "corrected()", lr=0.02), iterations=iterations,
        groups=3, group_size=4, directory=folder, checkpoint_every=1, save_turns="all", **options,
    )  # fmt: skip


def test_training_through_a_server_is_training(server: Any, tmp_path: Path) -> None:
    """Every row's policy_version is the number by which the server calls its weights, and the mismatch is measured."""
    versions: dict[int, str] = {}
    served = policy(server)
    made = trainer(served, tmp_path / "run", on_turns=lambda i, _: versions.__setitem__(i, server.version))
    lines = made.run()
    assert [line["policies"]["lm"]["mismatch"] < 1e-5 for line in lines] == [True] * 3
    assert [line["policies"]["lm"]["mismatch_ess"] for line in lines] == pytest.approx([1.0] * 3)
    assert [line["policies"]["lm"]["weight"] for line in lines] == pytest.approx([1.0] * 3, abs=1e-4)
    for iteration, label in versions.items():
        turns = pl.read_parquet(tmp_path / "run" / "turns" / f"iteration-{iteration:06d}.parquet")
        assert turns["policy_version"].unique().to_list() == [int(label.partition("-")[0])] == [iteration - 1]
    assert len(set(versions.values())) == 3


def test_a_run_that_stopped_for_lack_of_a_server_goes_on(server: Any, tmp_path: Path) -> None:
    """Bit for bit as if there had always been one: the checkpoint has the weights, the server gets them again."""
    whole = policy(server)
    trainer(whole, tmp_path / "whole").run()
    served = policy(server)

    def stop(iteration: int, _: Any) -> None:
        server.down = iteration == 1

    with pytest.raises(PolicyError, match=r"no server at .*--resume"):
        trainer(served, tmp_path / "run", on_turns=stop).run()
    assert checkpoints.latest(tmp_path / "run" / "checkpoints") is not None
    server.start()
    server.down = False
    again = policy(server)
    lines = trainer(again, tmp_path / "run").run(resume=True)
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), whole.parameters(), strict=True))


def test_rows_of_a_wave_without_a_server_have_errors(server: Any) -> None:
    served = policy(server)
    served.sync(0)
    server.down = True
    turns = rollout(Much, Team(a=served), groups=2, group_size=2)
    assert turns["error"].str.starts_with("policy: PolicyError: ServedPolicy 'lm': no server at").all()
    server.down = False
    assert rollout(Much, Team(a=served), groups=2, group_size=2)["error"].null_count() == 4


def test_the_mismatch_is_measured_and_alarmed() -> None:
    """Of worked numbers: half of the tokens are off by ln 3."""
    lm = LMPolicy.tiny(hidden=16, layers=1, heads=2, name="lm")
    served = ServedPolicy(lm, url="http://127.0.0.1:1")
    frame = pl.DataFrame({
        "policy": ["lm"] * 4, "error": pl.Series([None] * 4, dtype=pl.String), "prompt_ids": [[5, 6]] * 4,
        "action_ids": [[7, 8]] * 4,
    })  # fmt: skip
    with torch.no_grad():
        here = lm.score(frame).logprobs[0].tolist()
    there = [[here[0] - np.log(3.0), here[1]]] * 4
    found = served.mismatch(frame.with_columns(logprobs=pl.Series(there, dtype=pl.List(pl.Float32))))
    assert found["mismatch"] == pytest.approx(np.log(3) / 2, rel=1e-5)
    assert found["mismatch_max"] == pytest.approx(np.log(3), rel=1e-5)
    assert found["mismatch_ess"] == pytest.approx((3 + 1) ** 2 / (2 * (9 + 1)), rel=1e-5)
    assert served.mismatch(frame.clear().with_columns(logprobs=pl.Series([], dtype=pl.List(pl.Float32)))) == {}
    usual = dict.fromkeys(("entropy", "distinct_actions", "zero_credit", "illegal", "kl"))
    line = {"errors": {}, "policies": {"lm": usual | found}, "incomplete_groups": 0, "groups": 1, "reward": 1.0}
    (alarm,) = alarms(line, [])
    assert "other log-probabilities, by 0.55 nats per token on average" in alarm
    assert (
        alarms(line | {"policies": {"lm": usual | {"mismatch": 1e-6, "mismatch_max": 1e-5, "mismatch_ess": 1.0}}}, [])
        == []
    )


def test_a_recipe_names_it(server: Any) -> None:
    from palaestra.runs import build
    from palaestra.runs.config import PolicyPart

    def make(**options: Any) -> Any:
        part = PolicyPart(kind="served", options=options)
        return build.policy("solver", part, factory=Much, seed=0)

    made = make(model=str(server.folder), url=server.url, max_new_tokens=4)
    assert (type(made), made.name, made.lm.max_new_tokens) == (ServedPolicy, "solver", 4)
    with pytest.raises(ValueError, match=r"kind 'served' needs options\.model"):
        make(path="x")
    with pytest.raises(ValueError, match="unknown option 'patiense'; did you mean 'patience'"):
        make(model=str(server.folder), url=server.url, patiense=3)
