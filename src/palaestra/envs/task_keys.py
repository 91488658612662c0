"""Keys of tasks: equal for tasks that say the same, and what decides on which side of a split a task is.

A key is a 64-bit hash of the normalised text. Held-out tasks have the smallest keys, so that a task and its duplicates
are on one side by construction, in every file, run and process.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

import numpy as np

from palaestra.errors import InputError

_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ]+")
_NAMED = re.compile(r".*:([0-9a-f]{16})")


def normalise(text: str) -> str:
    r"""Text normalised for comparison: Unicode NFKC, case folded, white space collapsed, no final punctuation.

    Exponents are written `^n`, which NFKC would make part of the number, and the `!` behind a final digit stays.

    >>> normalise("  What is\n２ + 2? ") == normalise("what IS 2 + 2")
    True
    >>> normalise("What is 2³?"), normalise("What is 4!?")
    ('what is 2^3', 'what is 4!')
    """
    text = _RAISED.sub(lambda found: "^" + unicodedata.normalize("NFKC", found[0]).replace("\u2212", "-"), text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    whole = " ".join(folded.split())
    bare = whole.rstrip(" .?!:")
    if bare[-1:].isdigit():
        end = whole[len(bare) :]
        bare += end[: len(end) - len(end.lstrip("!"))]
    return bare or whole


def task_key(text: str) -> int:
    """64-bit hash of a text in normalised form, the key of a task.

    >>> f"{task_key('What is 2 + 2?'):016x}"
    '3cd3d75c4492aff6'
    """
    digest = hashlib.blake2b(normalise(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def task_keys(texts: Iterable[str]) -> np.ndarray:
    """64-bit hashes of texts in normalised form, uint64[texts]."""
    return np.fromiter(map(task_key, texts), np.uint64)


def task_id(source: str, key: int) -> str:
    """Name of a task, `SOURCE:HEX`, from its source and its 64-bit key.

    >>> task_id("gsm8k", 255)
    'gsm8k:00000000000000ff'
    """
    return f"{source}:{key:016x}"


def key_in(named: str) -> int:
    """64-bit key of a task as int: parsed from a name `SOURCE:HEX`, otherwise the hash of the text (`task_key`).

    >>> key_in("gsm8k:00000000000000ff"), key_in("What is 2 + 2?") == task_key("What is 2 + 2?")
    (255, True)
    """
    found = _NAMED.fullmatch(named)
    return int(found[1], 16) if found else task_key(named)


def is_held_out(keys: np.ndarray | int, share: float) -> np.ndarray:
    """Mask of the keys in the held-out `share`, bool[keys]: True where key < share · 2**64.

    Raises:
        InputError: the share is not in [0, 1).
    """
    if not 0 <= share < 1:
        raise InputError(f"held_out={share}: expected a share in [0, 1), or a file of held-out tasks")
    return np.asarray(keys, np.uint64) < np.uint64(int(share * 2**64))
