"""A checkpoint is whole or absent, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.errors import StorageError
from palaestra.learning import checkpoints

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text()
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@settings(max_examples=40, deadline=None)
@given(value=NESTED)
def test_plain_values_come_back_equal(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    directory = tmp_path_factory.mktemp("plain")
    assert checkpoints.load(checkpoints.save(directory, 1, {"value": value})) == {"value": value}


def test_optimiser_and_tied_tensors_come_back_to_the_bit(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.randn(4, 3)).sum().backward()
    optimiser.step()
    state = {
        "model": dict(model.state_dict()),
        "tied": model.weight,
        "view": model.weight.T,
        "optimiser": optimiser.state_dict(),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "array": np.arange(3.0),
        "count": np.int64(3),
        "empty": torch.zeros(0),
    }
    back = checkpoints.load(checkpoints.save(tmp_path, 3, state))
    assert torch.equal(back["model"]["weight"], model.weight)
    assert torch.equal(back["view"], model.weight.T)
    assert back["half"].dtype == torch.bfloat16
    assert isinstance(back["array"], np.ndarray)
    assert back["count"] == 3
    assert back["optimiser"]["param_groups"] == optimiser.state_dict()["param_groups"]
    for key, value in optimiser.state_dict()["state"][0].items():
        assert torch.equal(back["optimiser"]["state"][0][key], value)
    torch.optim.AdamW(model.parameters(), fused=True).load_state_dict(back["optimiser"])


def test_nothing_is_pickled(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not object"):
        checkpoints.save(tmp_path, 1, {"x": object()})
    assert not list(tmp_path.iterdir())


def test_latest_passes_over_what_is_damaged_or_incomplete(tmp_path: Path) -> None:
    assert checkpoints.latest(tmp_path) is None
    for iteration in (0, 10, 20, 30, 40):
        checkpoints.save(tmp_path, iteration, {"x": torch.full((1000,), float(iteration))})
    data = bytearray((tmp_path / "iteration-000040/tensors.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "iteration-000040/tensors.safetensors").write_bytes(data)
    os.truncate(tmp_path / "iteration-000030/state.json", 3)
    (tmp_path / "iteration-000020/manifest.json").unlink()
    (tmp_path / ".iteration-000050.123.tmp").mkdir()
    with pytest.warns(UserWarning, match="going back") as caught:
        found = checkpoints.latest(tmp_path)
    assert [str(w.message).split(":")[1].split()[0] for w in caught] == ["tensors.safetensors", "state.json", "not"]
    assert found == tmp_path / "iteration-000010"
    assert checkpoints.load(found)["x"][0] == 10
    with pytest.raises(StorageError, match=r"iteration-000040.*checksum"):
        checkpoints.load(tmp_path / "iteration-000040")


def test_the_newest_one_is_that_of_the_largest_number(tmp_path: Path) -> None:
    for iteration in (999_999, 1_000_000):
        checkpoints.save(tmp_path, iteration, {})
    assert checkpoints.latest(tmp_path) == tmp_path / "iteration-1000000"


def test_prune_keeps_the_last_ones_and_the_start(tmp_path: Path) -> None:
    for iteration in (0, 1, 2, 3):
        checkpoints.save(tmp_path, iteration, {})
    (tmp_path / ".iteration-000004.9.tmp").mkdir()
    checkpoints.prune(tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["iteration-000000", "iteration-000002", "iteration-000003"]
    checkpoints.prune(tmp_path, keep=5)
    assert len(list(tmp_path.iterdir())) == 3
    checkpoints.prune(tmp_path, keep=0)
    assert [p.name for p in tmp_path.iterdir()] == ["iteration-000000"]


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_disk_that_fills_up_leaves_the_previous_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    checkpoints.save(tmp_path, 1, {"x": torch.ones(10)})
    real = checkpoints.write

    def full(path: Path, data: bytes) -> None:
        if path.name == file:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, data)

    monkeypatch.setattr(checkpoints, "write", full)
    with pytest.raises(StorageError, match=r"iteration-000002.*No space left"):
        checkpoints.save(tmp_path, 2, {"x": torch.ones(10)})
    assert [p.name for p in tmp_path.iterdir()] == ["iteration-000001"]
    assert checkpoints.load(checkpoints.latest(tmp_path) or tmp_path)["x"].sum() == 10


def test_unusable_directories_are_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.check_writable(tmp_path / "new", need=1)
    assert not list((tmp_path / "new").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/below"):
        checkpoints.check_writable(tmp_path / "file" / "below", need=1)
    with pytest.raises(StorageError, match="cannot write to /proc"):
        checkpoints.check_writable(Path("/proc"), need=1)
    usage = shutil.disk_usage(tmp_path)
    with pytest.raises(StorageError, match=r"MB free, checkpoints need .* MB"):
        checkpoints.check_writable(tmp_path, need=usage.total * 2)
    assert checkpoints.size_of({"a": torch.zeros(10), "b": [torch.zeros(2, 2, dtype=torch.float64)]}) == 72


def test_the_probe_of_a_directory_has_no_name_that_could_stay_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(checkpoints.os, "fsync", lambda handle: seen.extend(path.name for path in tmp_path.iterdir()))
    checkpoints.check_writable(tmp_path, need=1)
    assert seen == []
