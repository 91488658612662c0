"""`benchmarks/gpu.py` runs on a CPU with a tiny shape, so that it is right the first time somebody has a GPU."""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


def loaded(name: str, script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    return loaded("benchmarks_gpu", SCRIPT)


@pytest.fixture(scope="module")
def model(gpu: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("model")
    gpu.write_model(gpu.SHAPES["tiny"], folder, "cpu")
    return folder


@pytest.mark.parametrize("part", ["play", "learn", "weights", "iteration"])
@pytest.mark.parametrize("lora", [None, 2])
def test_every_part_of_ours_measures(gpu: ModuleType, model: Path, part: str, lora: int | None) -> None:
    shape = replace(gpu.SHAPES["tiny"], lora=lora, repeats=1, batches=(4,))
    found = gpu.PARTS[part](shape, model, "cpu")
    assert found
    assert all(math.isfinite(value) and value >= 0 for value in found.values()), found
    if part == "play":
        assert found["4 rows"] > 0
    if part == "weights" and lora is None:
        assert found["GB"] > 1e-4  # 74,000 weights of four bytes; adapters alone are less


def test_an_iteration_through_a_server_measures(gpu: ModuleType, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loaded("fake_server", SCRIPT.parents[1] / "tests" / "agents" / "fake_server.py").FakeServer(model)
    monkeypatch.setenv(gpu.SERVER, server.url)
    try:
        shape = replace(gpu.SHAPES["tiny"], repeats=1, answer=3)
        found = gpu.iteration_served(shape, model, "cpu")
    finally:
        server.close()
    assert found["seconds"] > found["of these, weights, s"] > 0
    assert found["mismatch, nats"] < 1e-4
    assert server.paths.count("/collective_rpc") == 3  # the first weights, and those of each update that are asked
    assert len({body["seed"] for body in server.seen}) >= shape.groups * shape.group_size


def test_what_cannot_be_measured_says_why(gpu: ModuleType, tmp_path: Path) -> None:
    assert "cannot load a model" in gpu.measured("learn", "tiny", tmp_path, "cpu")


def test_the_table_goes_between_the_marks(gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(gpu.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(gpu, "PAGE", page)
    for _ in range(2):
        gpu.write([("0.5b", "learn", "tokens/s", "12")], "a machine")
    text = page.read_text(encoding="utf-8")
    assert text.count("| 0.5b | learn | tokens/s | 12 |") == 1
    assert text.split(gpu.MARKS[0])[0] == gpu.PAGE.read_text(encoding="utf-8").split(gpu.MARKS[0])[0]
    assert "## How to read it" in text


def test_ways_of_weights_to_a_server_measure(gpu: ModuleType, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loaded("fake_server", SCRIPT.parents[1] / "tests" / "agents" / "fake_server.py").FakeServer(model)
    monkeypatch.setenv(gpu.SERVER, server.url)
    try:
        shape = replace(gpu.SHAPES["tiny"], repeats=1)
        server.transfers = True
        assert set(gpu.transfer(shape, model, "cpu")) == {"folder, s", "shared_memory, s"}
        server.transfers = False
        with pytest.warns(UserWarning, match="no transfer by"):
            assert set(gpu.transfer(shape, model, "cpu")) == {"folder, s", "shared_memory: failed, by a folder, s"}
    finally:
        server.close()
