"""Checkpoints: a directory that is whole or absent. Tensors in safetensors, all else in JSON; nothing is pickled.

A checkpoint is written under a temporary name, flushed to disk and renamed; its manifest holds size and SHA-256 of
every file, so that one that was damaged later is passed over. What several processes hold in parts they write
themselves, into a folder of it: `FolderPart`. Left out: writing in the background.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from palaestra.errors import StorageError, missing_extra

_TENSORS, _VALUES, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_PREFIX = "iteration-"


@dataclass(frozen=True)
class FolderPart:
    """Part of a checkpoint's state kept as a folder: `write` fills the folder at the path it gets; `size`: its bytes.

    Where it was saved, `load` finds the path of that folder.
    """

    write: Callable[[Path], None]
    size: int = 0


def save(directory: Path, iteration: int, state: dict[str, Any]) -> Path:
    """Write `state` as checkpoint `directory/iteration-000012` and return the path; one already there is replaced.

    state: nested dicts, lists and tuples of tensors, NumPy arrays, plain values and `FolderPart`.

    Raises:
        StorageError: it cannot be written (a full disk); checkpoints that are there stay as they are.
    """
    return write_state(path_of(directory, iteration), state)


def write_state(final: Path, state: dict[str, Any]) -> Path:
    """Write a state as a checkpoint folder at `final`, as `save` does, and return that path; an old one is replaced."""
    temporary = final.parent / f".{final.name}.{os.getpid()}.tmp"
    tensors: dict[str, torch.Tensor] = {}
    folders: dict[str, FolderPart] = {}
    values = _pack(state, tensors, folders)
    files = {_TENSORS: save_tensors(tensors), _VALUES: json.dumps(values).encode()}
    manifest = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for name, folder in folders.items():
            folder.write(temporary / name)
            for path in sorted((temporary / name).iterdir()):
                with path.open("rb") as file:
                    seen = {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
                manifest[f"{name}/{path.name}"] = seen
        for name, data in (files | {_MANIFEST: json.dumps(manifest, indent=1).encode()}).items():
            write(temporary / name, data)
        _sync(temporary)
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        _sync(final.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or str(error)
        raise StorageError(f"cannot write checkpoint {final}: {reason}; earlier ones are whole") from error
    except StorageError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise StorageError(f"cannot write checkpoint {final}: {error}; earlier ones are whole") from error
    return final


def load(path: Path) -> dict[str, Any]:
    """Load the state (dict) of the checkpoint folder `path`, as `save` was given it, on the CPU; raises if damaged.

    Raises:
        StorageError: the checkpoint is absent, incomplete or damaged.
    """
    fault = damage(path)
    if fault:
        raise StorageError(f"{path}: {fault}")
    tensors = load_tensors((path / _TENSORS).read_bytes())
    state: dict[str, Any] = _unpack(json.loads((path / _VALUES).read_text()), tensors, path)
    return state


def latest(directory: Path) -> Path | None:
    """Path of the newest checkpoint that is whole, or None. A damaged one is skipped with a warning."""
    for path in reversed(list(_stored(directory))):
        fault = damage(path)
        if not fault:
            return path
        warnings.warn(f"{path}: {fault}; going back to the checkpoint before", stacklevel=2)
    return None


def newest(directory: Path) -> Path | None:
    """Path of the newest checkpoint, whole or damaged; None if there is none."""
    return next(reversed(list(_stored(directory))), None)


def damage(path: Path) -> str | None:
    """Check a checkpoint's files by its manifest: a sentence that says what is damaged; None if it is whole."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        for name in {_TENSORS: None, _VALUES: None} | manifest:
            size = (path / name).stat().st_size
            if size != manifest[name]["size"]:
                return f"{name} has {size} bytes, not {manifest[name]['size']}"
            with (path / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != manifest[name]["sha256"]:
                    return f"{name} does not have the checksum of its manifest"
    except OSError as error:
        return f"not a whole checkpoint: {error}"
    except (ValueError, KeyError, TypeError) as error:
        return f"its manifest is damaged: {error!r}"
    return None


def path_of(directory: Path, iteration: int) -> Path:
    """Path of an iteration's checkpoint, `directory/iteration-000012`."""
    return directory / f"{_PREFIX}{iteration:06d}"


def iteration_of(path: Path) -> int:
    """Number of the iteration in a checkpoint's path: 12 of `iteration-000012`."""
    return int(path.name.removeprefix(_PREFIX))


def existing_file(directory: Path) -> str | None:
    """Text: relative path of the first file in `directory` that a new run there would overwrite; None if there is none.

    A start that failed before anything was learned leaves none.
    """
    metrics = directory / "metrics.jsonl"
    files = [path for path in _stored(directory / "checkpoints") if iteration_of(path)]
    files += [metrics] if metrics.is_file() and metrics.stat().st_size else []
    files += sorted((directory / "turns").glob(f"{_PREFIX}*.parquet"))
    return files[0].relative_to(directory).as_posix() if files else None


def prune(directory: Path, keep: int) -> None:
    """Remove from `directory` half-written checkpoints, and all finished ones but the last `keep` and the start (0)."""
    for leftover in directory.glob(f".{_PREFIX}*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    for path in list(_stored(directory))[: -keep or None]:
        if iteration_of(path):
            shutil.rmtree(path, ignore_errors=True)


def check_writable(directory: Path, need: int) -> None:
    """Create `directory` if need be; raise StorageError unless files can be written there and `need` bytes will fit.

    Raises:
        StorageError: naming the path and what is lacking.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as probe:  # has no name that a killed process could leave behind
            probe.write(b"probe")
            probe.flush()
            os.fsync(probe.fileno())
        free = shutil.disk_usage(directory).free
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"cannot write to {directory}: {reason}; choose another directory or make room") from error
    if free < need:
        raise StorageError(f"{directory}: {free / 1e6:.1f} MB free, checkpoints need {need / 1e6:.1f} MB; make room")


def size_of(state: Any) -> int:
    """Number of bytes of the tensors and folders in a state."""
    tensors: dict[str, torch.Tensor] = {}
    folders: dict[str, FolderPart] = {}
    _pack(state, tensors, folders)
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return held + sum(folder.size for folder in folders.values())


def write(path: Path, data: bytes) -> None:
    """Write bytes to a file and wait until they are on disk (fsync)."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _stored(directory: Path) -> Iterator[Path]:
    there = (path for path in directory.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit())
    yield from sorted(there, key=iteration_of)


def _sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_QUANTISED = {"OptimState8bit": "subclass_8bit", "OptimState4bit": "subclass_4bit", "OptimStateFp8": "subclass_fp8"}
"""Moments of torchao's optimisers, and the modules of torchao.optim that have them."""


def _quantised(kind: str, parts: dict[str, torch.Tensor], rest: list[Any]) -> Any:
    if kind not in _QUANTISED:
        raise StorageError(f"a checkpoint holds {kind!r}, which is no state of an optimiser")
    try:
        module = importlib.import_module(f"torchao.optim.{_QUANTISED[kind]}")
    except ImportError:
        raise missing_extra("torchao", "low-bit") from None
    return getattr(module, kind).__tensor_unflatten__(parts, rest)


def _pack(value: Any, tensors: dict[str, torch.Tensor], folders: dict[str, FolderPart]) -> Any:
    """JSON with every tensor replaced by its number. Lists stay; whatever JSON lacks becomes `{"!kind": ...}`."""
    if isinstance(value, torch.Tensor) and type(value).__name__ in _QUANTISED:
        quantised: Any = value
        names, rest = quantised.__tensor_flatten__()
        parts = {name: _pack(getattr(value, name), tensors, folders) for name in names}
        return {"!quantised": [type(value).__name__, parts, [_pack(each, tensors, folders) for each in rest]]}
    if isinstance(value, torch.dtype):
        return {"!dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.Tensor | np.ndarray):
        kind = "tensor" if isinstance(value, torch.Tensor) else "array"
        name = str(len(tensors))
        tensors[name] = torch.as_tensor(value).detach().to("cpu", copy=True).contiguous()
        return {f"!{kind}": name}
    if isinstance(value, FolderPart):
        name = f"folder-{len(folders)}"
        folders[name] = value
        return {"!folder": name}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("!") for key in value):
            return {key: _pack(item, tensors, folders) for key, item in value.items()}
        return {
            "!items": [[_pack(key, tensors, folders), _pack(item, tensors, folders)] for key, item in value.items()]
        }
    if isinstance(value, tuple):
        return {"!tuple": [_pack(item, tensors, folders) for item in value]}
    if isinstance(value, list):
        return [_pack(item, tensors, folders) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint holds tensors, arrays and plain values, not {type(value).__name__}: {value!r}")


def _unpack(value: Any, tensors: dict[str, torch.Tensor], path: Path) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors, path) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"!tensor": name}:
            return tensors[name]
        case {"!quantised": [kind, parts, rest]}:
            return _quantised(kind, *(_unpack(each, tensors, path) for each in (parts, rest)))
        case {"!dtype": name}:
            return getattr(torch, name)
        case {"!array": name}:
            return tensors[name].numpy()
        case {"!folder": name}:
            return path / name
        case {"!tuple": items}:
            return tuple(_unpack(item, tensors, path) for item in items)
        case {"!items": items}:
            return {_unpack(key, tensors, path): _unpack(item, tensors, path) for key, item in items}
    return {key: _unpack(item, tensors, path) for key, item in value.items()}
