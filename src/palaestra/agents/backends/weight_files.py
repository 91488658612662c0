"""Weights of a language model as files for a server, and the digest by which they are named."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch

from palaestra.agents.lm import LMPolicy, _quietly
from palaestra.foundation.files import alive

NUMBERS = 64
"""Of every parameter, whose digest names the weights: an optimiser moves them all."""

ABANDONED = 3600.0
"""Seconds for which nothing has been written into a folder that may be swept; its process may be out of sight."""
_WRITING = threading.Lock()


def adapting(lm: LMPolicy) -> bool:
    """Whether a server is given adapters of an `LMPolicy` (its model has peft's) rather than whole weights; bool."""
    return hasattr(lm.model, "peft_config")


def fingerprint(lm: LMPolicy) -> str:
    """Hexadecimal digest of an `LMPolicy`'s weights that learn, from some 64 numbers of each tensor; text."""
    digest = hashlib.blake2b(digest_size=6)
    parts = [
        tensor.detach().flatten()[:: max(1, tensor.numel() // NUMBERS)].float() for tensor in lm.state_dict().values()
    ]
    digest.update(torch.cat(parts).cpu().numpy().tobytes() if parts else b"")
    return digest.hexdigest()


def tensors(lm: LMPolicy) -> Iterator[tuple[str, torch.Tensor]]:
    """Whole weights under the names that a checkpoint has; a head is there even if it is tied to the embeddings."""
    state = lm.model.state_dict()
    with contextlib.suppress(ImportError):  # transformers below 5, whose models have the names of their checkpoints
        from transformers.core_model_loading import revert_weight_conversion

        state = revert_weight_conversion(lm.model, state)
    yield from state.items()


def export(lm: LMPolicy, folder: str | Path) -> None:
    """Writes into a folder what a server loads of an `LMPolicy`: the adapter, or the model with a head of its own.

    A server that ties its head to the embeddings keeps the old head when it reloads: vLLM does, and says nothing.
    """
    folder, model = Path(folder), lm.model
    with _quietly():
        if adapting(lm):
            model.save_pretrained(folder)
            return
        head, tensors = model.get_output_embeddings().weight, model.state_dict()
        apart = {k: v.clone() if v.data_ptr() == head.data_ptr() else v for k, v in tensors.items()}
        with _untied(model.config):
            model.save_pretrained(folder, state_dict=apart)
        lm.tokenizer.save_pretrained(folder)


def new_folder() -> Path:
    """Path of a folder for the weights of one policy of this process, which is not there yet."""
    return Path(tempfile.gettempdir()) / f"palaestra-served-{os.getpid()}-{secrets.token_hex(8)}"


def sweep() -> None:
    """Remove such folders that processes of this user left when they were killed, if it can be said."""
    if os.name != "posix":  # nobody owns files there
        return
    for each in Path(tempfile.gettempdir()).glob("palaestra-served-*"):
        named = re.fullmatch(r"palaestra-served-(\d{1,9})-[0-9a-f]{16}", each.name)
        with contextlib.suppress(OSError):
            seen = each.lstat()
            old = time.time() - seen.st_mtime > ABANDONED
            if named and old and seen.st_uid == os.getuid() and not alive(int(named[1])):
                rmtree(each, ignore_errors=True)


def written(lm: LMPolicy, folder: Path) -> Path:
    """A folder with what `export` writes, which is whole once it is there; several servers are started from one."""
    with _WRITING:
        if not folder.exists():
            begun = folder.with_name(f"{folder.name}.begun")
            rmtree(begun, ignore_errors=True)
            export(lm, begun)
            begun.rename(folder)
    return folder


@contextmanager
def _untied(config: Any) -> Iterator[None]:
    """A config, and that of its text part, that says so while it is written."""
    parts = {id(each): each for each in (config, config.get_text_config())}.values()
    before = [each.tie_word_embeddings for each in parts]
    for each in parts:
        each.tie_word_embeddings = False
    try:
        yield
    finally:
        for each, was in zip(parts, before, strict=True):
            each.tie_word_embeddings = was
