"""Texts, or messages, to tokens for reward models; and where their transformers come from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import InputError, missing_extra

Said = str | list[Mapping[str, Any]] | None


def plain(said: Said) -> str | None:
    """Join a text or chat messages to one text, a line per message's content; None stays None."""
    return said if isinstance(said, str) or said is None else "\n".join(str(each["content"] or "") for each in said)


def conversation(prompt: Said, response: Said) -> list[dict[str, str]]:
    """List of chat messages of a prompt and a response; plain texts become the user's and the assistant's message."""
    found: list[dict[str, str]] = []
    for said, role in ((prompt, "user"), (response, "assistant")):
        if isinstance(said, str):
            found += [{"role": role, "content": said}] if said else []
        else:
            found += [{"role": str(each["role"]), "content": str(each["content"] or "")} for each in said or []]
    return found


def tokens(tokenizer: Any, text: str, longest: int, *, special: bool, end: bool) -> np.ndarray:
    """Array int64 of the token ids of a text; a text longer than `longest` loses its beginning. end: close with eos."""
    ids = tokenizer(text, add_special_tokens=special)["input_ids"]
    if end and tokenizer.eos_token_id is not None and (not ids or ids[-1] != tokenizer.eos_token_id):
        ids = [*ids, tokenizer.eos_token_id]
    return np.array(ids[-longest:] or [tokenizer.eos_token_id or 0], np.int64)


@contextlib.contextmanager
def loading(path: Any) -> Iterator[None]:
    """Context manager for loading a model: errors of transformers become a one-line InputError with the path; no bars.

    Raises:
        InputError: nothing can be loaded from there. MissingExtraError: transformers is not installed.
    """
    try:
        from transformers.utils import logging
    except ImportError:
        raise missing_extra("transformers", "train") from None
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot load a model and tokenizer from {str(path)!r}: {line}") from error
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def where(path: str | Path) -> str:
    """Absolute path, as text, of a folder that exists; any other text (a hub id) is returned unchanged."""
    return str(Path(path).absolute()) if Path(path).is_dir() else str(path)


def check_tokenizer(tokenizer: Any, path: Any) -> Any:
    """Give a tokenizer without pad token its eos token as one, in place, and return it; raise if it has neither.

    Raises:
        InputError: it has neither a token for padding nor one for the end.
    """
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise InputError(f"{path}: its tokenizer has neither a pad token nor an eos token")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
