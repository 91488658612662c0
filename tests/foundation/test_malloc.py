"""What the C library keeps of freed memory, in a process of its own each time."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from palaestra.foundation import malloc

KEPT = """
import sys
from pathlib import Path
import numpy as np
from palaestra.foundation import malloc
def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
exec(sys.argv[1])
before, small = resident(), []
for _ in range(3):
    large = []
    for _ in range(16):
        large.append(np.ones(2**19))  # 4 MiB
        small.append(np.ones(2**13))
    del large
print(resident() - before)
"""


class Library(list[tuple[int, int]]):
    """In the place of the C library: what it was told."""

    def mallopt(self, option: int, value: int) -> None:
        self.append((option, value))


def test_only_linux_is_told_and_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: told)
    for system in ("darwin", "linux"):
        assert not told
        monkeypatch.setattr(sys, "platform", system)
        malloc.give_back()
        malloc.keep_freed()
    threshold, trim, pad = -3, -1, -2
    assert told == [(threshold, 2**18), (threshold, 2**25), (trim, 2**28), (pad, 2**24)]


def kept(what: str) -> float:
    """MiB that a process holds after blocks of 4 MiB, and small ones between them, of which the large are freed."""
    done = subprocess.run([sys.executable, "-c", KEPT, what], stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc")
def test_what_is_freed_goes_back_or_stays() -> None:
    assert kept("pass") > 30
    assert kept("malloc.keep_freed()") > 30
    assert kept("malloc.give_back()") < 15
