"""Python's search for garbage, which walks over all that is there, again and again, while a rollout piles up rows.

With torch and transformers loaded a full walk takes a quarter of a second, and none of what was loaded is garbage. It
is set aside while one plays, or for good, in a process that is there to train. Later cycles are found as ever.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator

_for_good: bool | None = None  # None: nobody has played yet


def set_aside_for_good() -> None:
    """Collect garbage, then exclude all objects that exist now from garbage collection for good (`gc.freeze`)."""
    global _for_good
    gc.collect()
    gc.freeze()
    _for_good = True


@contextlib.contextmanager
def set_aside() -> Generator[None]:
    """Context manager that freezes existing objects from garbage collection, unless they are frozen for good."""
    global _for_good
    if _for_good is None:
        _for_good = gc.get_freeze_count() > 0  # which takes 30 ms if so
    if not _for_good:
        gc.freeze()
    try:
        yield
    finally:
        if not _for_good:
            gc.unfreeze()
