"""Tunes malloc: whether freed memory is kept, which costs room, or given back, which costs time.

glibc gives what is larger than a threshold back at once, and raises the threshold, up to 32 MiB, to whatever was given
back; below it memory is cut from a heap that only shrinks at its end, and blocks that torch asks for (aligned) are not
found again there before glibc 2.38. So an update of large tensors can take twice the room of what lives, and a loop
over arrays of some MiB has the kernel clear the same pages again and again. Elsewhere these functions do nothing.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MIB = 2**20


def give_back(least: int = _MIB // 4) -> None:
    """Make malloc return freed blocks of at least `least` bytes to the system at once, from now on."""
    _set({_MMAP_THRESHOLD: least})


def keep_freed(room: int = 256 * _MIB) -> None:
    """Make malloc keep up to `room` freed bytes at the end of the heap for reuse, from now on.

    Blocks above 32 MiB are not kept.
    """
    _set({_MMAP_THRESHOLD: 32 * _MIB, _TRIM_THRESHOLD: room, _TOP_PAD: 16 * _MIB})


def _set(options: dict[int, int]) -> None:
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for option, value in options.items():
        if mallopt is not None:
            mallopt(option, value)
