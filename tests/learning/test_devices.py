"""Two processes learn as one does, whole and in parts, keep what they have, and stop together and say why.

All scenarios are in `several.py`; two processes play them once, one after the other, and the tests read what was found.
"""

from __future__ import annotations

import copy
import functools
import socket
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import several
import torch
from forked import fork

from palaestra.errors import InputError, LearnerError, RankError
from palaestra.learning import PolicyGradient, checkpoints, ranks
from palaestra.learning.devices import Devices


class Found:
    """What two ranks left in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = torch.load(folder / "found-0.pt", weights_only=False)
        self.second = torch.load(folder / "before-1.pt", weights_only=False)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("several")
    several.kept("one", folder / "one")
    several.team_of()["a"].save(folder / "base")  # type: ignore[attr-defined]
    said = [folder / f"said-{rank}.txt" for rank in range(2)]
    processes = [
        fork(several.main, folder, said=file, environment=place)
        for place, file in zip(several.places(), said, strict=True)
    ]
    try:
        for process in processes:
            process.join(600)
    finally:
        for process in processes:
            process.kill()
    assert processes[0].exitcode == 0, said[0].read_text()
    assert processes[1].exitcode == -9, said[1].read_text()
    return Found(folder)


KINDS = [("ddp", name) for name in list(several.FULL)[:2]] + [("fsdp", name) for name in several.FULL]


@functools.cache
def alone(name: str) -> dict[str, Any]:
    return several.trained("one", **several.FULL[name])


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_two_ranks_make_the_updates_of_one(found: Found, kind: str, name: str) -> None:
    one, two = alone(name), found.first[f"{kind} {name}"]
    assert several.apart(one["weights"], two["weights"]) < 1e-5
    for policy, said in one["metrics"].items():
        told = two["metrics"][policy]
        assert [key for key in said if said[key] is None] == [key for key in told if told[key] is None]
        # ranks cut prefix trees, and models in parts have none
        known = {key: value for key, value in said.items() if value is not None and key != "shared"}
        assert told.get("shared", 0) == 0 or kind == "ddp"
        assert {key: told[key] for key in known} == pytest.approx(known, abs=1e-5, rel=1e-5)
        for term, memory in one["memory"][policy].items():
            for key, history in memory.items():
                assert two["memory"][policy][term][key] == pytest.approx(history, abs=1e-5)
    assert two["updates"] == 3
    other = found.second[f"{kind} {name}"]
    assert (other["metrics"], other["memory"]) == (two["metrics"], two["memory"])  # nobody sees anything else


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_resume_is_bit_for_bit_and_goes_from_any_number_of_ranks_to_any_other(found: Found, kind: str) -> None:
    kept, resumed = found.first[f"{kind} kept"], found.first[f"{kind} resumed"]
    assert all(torch.equal(kept[name], resumed[name]) for name in kept)
    assert several.apart(several.resumed("one", found.folder / kind), kept) < 1e-6
    assert several.apart(several.resumed("one", found.folder / "one"), found.first[f"{kind} from one"]) < 1e-6
    parts = [path for path in (found.folder / kind).rglob("*.safetensors") if path.parent.name.startswith("folder-")]
    assert len(parts) == (2 if kind == "fsdp" else 0)  # each rank wrote its own


def test_moments_are_in_parts_and_those_of_frozen_weights_do_not_exist(found: Found) -> None:
    (full, weights, model), (other, *_) = found.first["moments"]["full"], found.second["moments"]["full"]
    assert weights == model
    assert full + other == 2 * weights
    assert max(full, other) < 1.05 * weights  # uneven by a row of a matrix
    (mine, adapters, model), (theirs, *_) = found.first["moments"]["lora"], found.second["moments"]["lora"]
    assert mine + theirs == 2 * adapters < model / 30


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_nan_on_one_rank_moves_nobody_and_names_it(found: Found, kind: str) -> None:
    for each in (found.first, found.second):
        assert "LearnerError: policy 'lm', update 1: the loss is nan on rank 1 of 2" in each[f"{kind} nan"]["said"]
        assert each[f"{kind} nan"]["updates"] == 2  # the next update was made
    assert found.first[f"{kind} nan"]["same"]


def test_an_error_on_one_rank_is_said_by_all(found: Found) -> None:
    for each in (found.first, found.second):
        assert "policy 'lm', update 1: rank 1 of 2: KeyError: 'absent'" in each["ddp broken"]["said"]
    assert found.first["ddp broken"]["same"]


def test_a_disk_that_is_full_on_one_rank_leaves_no_half_of_a_checkpoint(found: Found) -> None:
    disk = found.first["disk"]
    assert "StorageError: cannot write checkpoint" in disk["said"]
    assert "rank 1 of 2: [Errno 27]" in disk["said"]
    assert "rank 1 of 2" in found.second["disk"]["said"]
    assert disk["left"] == []
    assert checkpoints.damage(found.folder / "full") is None


def test_a_rank_that_is_killed_is_named_and_nothing_moves(found: Found) -> None:
    killed = found.first["killed"]
    assert killed["said"].startswith("RankError: rank 1 of 2 (process ")
    assert "is gone; nothing of this update was made" in killed["said"]
    assert killed["same"]
    assert killed["seconds"] < 60
    assert "rank 1 of 2" in killed["again"]  # and at once


def test_only_the_first_rank_plays_and_writes_and_all_have_learned(found: Found) -> None:
    (first, second), folder = (found.first["trainer"], found.second["trainer"]), found.folder
    assert (first["lines"], second["lines"]) == (3, 0)
    assert (folder / "run-0" / "metrics.jsonl").exists()
    assert not (folder / "run-1").exists()
    for name, state in first["weights"].items():
        assert all(torch.equal(value, second["weights"][name][key]) for key, value in state.items())
        assert state["logits"].abs().sum() > 0


# -- without other processes ------------------------------------------------------------------------------------------


class Place(Devices):
    def __init__(self, rank: int, size: int, *, sharded: bool) -> None:
        super().__init__("fsdp" if sharded else "ddp", None)
        self.rank, self.size = rank, size
        self.sharded = {"lm"} if sharded else set()


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [1, 2, 5, 40])
def test_passes_share_rows_by_tokens_and_are_equally_many_where_models_are_in_parts(size: int, rows: int) -> None:
    tokens = np.random.default_rng(rows).integers(1, 30, rows)
    chosen = np.arange(rows)[::-1].copy()
    whole = [list(Place(rank, size, sharded=True).passes("lm", chosen, tokens, 64)) for rank in range(size)]
    assert len({len(passes) for passes in whole}) == 1
    assert whole[0] or rows == 0
    real = [np.concatenate([at for at, weight in passes if weight] or [[]]) for passes in whole]
    assert sorted(np.concatenate(real)) == list(range(rows))
    apart = [list(Place(rank, size, sharded=False).passes("lm", chosen, tokens, 64)) for rank in range(size)]
    assert all(weight == 1 for passes in apart for _, weight in passes)
    shares = [tokens[each.astype(int)].sum() for each in real]
    assert max(shares) <= tokens.sum() / size + tokens.max()
    together = [list(Place(rank, size, sharded=True).passes("lm", chosen, tokens, None)) for rank in range(size)]
    assert sum(weight for passes in together for _, weight in passes) == pytest.approx(1)
    assert all(list(at) == list(chosen) for passes in together for at, _ in passes)


def test_gradients_are_scaled_down_to_the_limit_and_never_up_or_around() -> None:
    for gradient, limit, expected in (
        ([3.0, 4.0], 1.0, [0.6, 0.8]),
        ([0.3, 0.4], 1.0, [0.3, 0.4]),
        ([3e-7, 4e-7], 1.0, [3e-7, 4e-7]),
    ):
        parts = [torch.nn.Parameter(torch.zeros(1)) for _ in (*gradient, None)]
        for p, value in zip(parts, gradient):
            p.grad = torch.tensor([value])
        Place(0, 1, sharded=False).clip(parts, limit, torch.tensor(gradient).norm())
        assert [p.grad.item() for p in parts if p.grad is not None] == pytest.approx(expected, rel=1e-5)


class Board:
    """A store to which these ranks write that they are alive and how many collectives they entered."""

    def __init__(self, alive: set[int], entered: list[int], polls: int = 0) -> None:
        self.alive, self.entered, self.asked, self.polls = alive, entered, 0, polls

    def check(self, keys: list[str]) -> bool:
        if keys == ["call/0"]:  # after so many polls
            self.polls -= 1
            return self.polls < 0
        return keys != ["fault"]

    def get(self, key: str) -> bytes:
        what, rank = key.split("/")
        if what == "who":
            return b"process 7 on here"
        self.asked += int(rank) in self.alive
        return f"{self.asked if int(rank) in self.alive else 1} {self.entered[int(rank)]}".encode()

    def compare_set(self, key: str, was: str, now: str) -> bytes:
        return now.encode()


class Clock:
    """In place of `time`: an hour passes in no time."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("alive", "entered", "said"),
    [
        ({0, 1, 2}, [4, 4, 4], "the connection between 3 ranks failed, all of which are alive (Connection reset)"),
        ({0, 1, 2}, [4, 3, 4], "rank 1 of 3 is alive but did not come within 5 seconds"),
        ({0, 1}, [4, 4, 4], "rank 2 of 3 (process 7 on here) is gone"),
        ({0}, [4, 4, 4], "rank 1 of 3 (process 7 on here) and rank 2 of 3 (process 7 on here) is gone"),
    ],
)
def test_who_is_missing_when_a_connection_fails(
    monkeypatch: pytest.MonkeyPatch, alive: set[int], entered: list[int], said: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(ranks, "time", clock)
    one = ranks.Ranks.__new__(ranks.Ranks)
    one.rank, one.size, one.timeout, one.store = 0, 3, 5.0, Board(alive, entered)
    assert one.fault(RuntimeError("Connection reset")).startswith(f"{said}; nothing of this update was made")
    assert (clock.now < ranks.PATIENCE) == (len(alive) == 3), "nobody waits for ranks that were seen to live"
    assert one.fault(ValueError("odd")).startswith("rank 0 of 3 failed: ValueError: odd;")


@pytest.mark.parametrize(("alive", "timeout", "gone"), [({0}, 0.02, False), (set(), 30.0, False), (set(), 0.02, True)])
def test_what_is_announced_is_waited_for_while_the_first_rank_lives(
    alive: set[int], timeout: float, gone: bool
) -> None:
    one = ranks.Ranks.__new__(ranks.Ranks)
    one.rank, one.size, one.timeout, one.store = 1, 2, timeout, Board(alive, [0, 0], polls=10)
    if gone:
        with pytest.raises(RankError, match=r"rank 0 of 2 has not been alive for \d+ seconds; nothing of this update"):
            one._wait(["call/0"], [0])
    else:
        one._wait(["call/0"], [0])
        assert one.store.polls == -1


class Wire:
    """In place of `torch.distributed`: what rank 0 sends lies here until the other one takes it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.brought: list[Any] = []
        self.sends = True

    def broadcast_object_list(self, said: list[Any], **_: Any) -> None:
        self.broadcast(said)

    def broadcast(self, thing: Any, **_: Any) -> None:
        if self.sends:
            self.sent.append(copy.copy(thing))
        else:
            thing[:] = self.sent.pop(0)

    def all_gather_object(self, found: list[Any], thing: Any, **_: Any) -> None:
        found[:] = self.brought


def one_of_two(rank: int) -> ranks.Ranks:
    one = ranks.Ranks.__new__(ranks.Ranks)
    one.rank, one.size, one.entered, one.talk = rank, 2, 0, None
    return one


def test_what_the_first_rank_brings_is_the_same_at_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    for name in ("broadcast_object_list", "broadcast"):
        monkeypatch.setattr(ranks.dist, name, getattr(wire, name))
    frame, tensor = pl.DataFrame({"a": [1, None]}), torch.arange(6.0).view(2, 3)
    assert one_of_two(0).same({"table": frame, "deep": [tensor, 7]})["deep"][1] == 7
    wire.sends = False
    other = one_of_two(1)
    found = other.same({"of": "nobody"})
    assert found["table"].equals(frame)
    assert torch.equal(found["deep"][0], tensor)
    assert (found["deep"][1], other.entered, wire.sent) == (7, 3, [])


def test_an_error_of_ones_own_is_raised_as_it_is_and_that_of_others_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, own = Wire(), InputError("mine")
    monkeypatch.setattr(ranks.dist, "all_gather_object", wire.all_gather_object)
    wire.brought = [None, None]
    one_of_two(1).agree(None, "here")
    wire.brought = [None, "InputError: mine"]
    with pytest.raises(InputError, match=r"^mine$"):
        one_of_two(1).agree(own, "here")
    with pytest.raises(LearnerError, match="here: rank 1 of 2: InputError: mine"):
        one_of_two(0).agree(None, "here")
    wire.brought = ["KeyError: 'x'", "InputError: mine"]
    with pytest.raises(LearnerError, match="here: rank 0 of 2: KeyError"):
        one_of_two(1).agree(own, "here")


def test_started_alone_several_devices_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = several.learner_of("fsdp")
    assert (learner.rank, learner.devices.size, learner.devices.sharded) == (0, 1, set())
    monkeypatch.setenv("WORLD_SIZE", "2")
    with ranks.by_itself():
        assert several.learner_of("fsdp").devices.size == 1
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match=r"WORLD_SIZE=2 but no RANK: start the ranks with torchrun, or --ranks 2"):
        PolicyGradient(several.team_of(), devices="ddp")
    with pytest.raises(InputError, match=r"devices='dpp' is unknown; did you mean 'ddp'"):
        PolicyGradient(several.team_of(), devices="dpp")  # type: ignore[arg-type]


def test_a_rank_that_never_comes_is_said_within_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "JOIN", 0.5)
    with pytest.raises(RankError, match=r"rank 0 of 2: not all ranks came within 1 seconds"):
        ranks.world(1.0)
