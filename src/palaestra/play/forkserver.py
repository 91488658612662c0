"""Processes that play or train: how they start, and that they end with whoever started them.

torch and transformers take five seconds of a core to import. On Linux one process, started when the first is needed,
has imported them and nothing else, and the others are forked from it (`forkserver` of Python): none of the threads that
a fork would lose is there yet. Elsewhere, and beside an accelerator, whose driver (CUDA, ROCm) may not survive a fork,
each starts from nothing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path

from palaestra.foundation.plain_warnings import format_warning
from palaestra.foundation.safe_path import keep_children_off_the_current_folder

TORCH = ("torch", "torch._dynamo", "scipy.special")
"""Modules that each seed imports: `torch._dynamo` at the first step of an optimiser, `scipy.special` for intervals."""

LANGUAGE = ("transformers", "transformers.models.llama.modeling_llama")
"""What language models need besides."""

_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd")


def context(*modules: str) -> ForkServerContext | SpawnContext:
    """The multiprocessing context (forkserver or spawn) for starting processes; `modules`: preloaded by the server.

    Those of the first call only.

    Where they are forked, the server of that starts now, and Ctrl-C never reaches it: whoever started it stops it.
    """
    keep_children_off_the_current_folder()
    short = len(os.fsencode(tempfile.gettempdir())) < 70  # the server's socket is there, and its path has 107 bytes
    if sys.platform != "linux" or not short or any(map(os.path.exists, _ACCELERATORS)):
        return multiprocessing.get_context("spawn")
    chosen = multiprocessing.get_context("forkserver")
    chosen.set_forkserver_preload(list(modules))
    resource_tracker.ensure_running()  # it unblocks the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is started inherits this
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return chosen


def end_server() -> None:
    """Kill the fork server at once, on an interruption; the next process starts another one.

    A server that still imports would else fork what was asked for after all, and print that its parent is gone.
    """
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def prepare(*modules: str) -> None:
    """Start the fork server in the background, which imports these modules for later processes."""
    context(*modules)


def begin(environment: Mapping[str, str], folder: Path | str | None = None) -> None:
    """First call in a child process: take the parent's environment, ignore Ctrl-C, and end with the parent.

    Its warnings are printed in one line each, see `format_warning`.

    Whoever interrupts a run means the parent, which stops this process; if it cannot any more, this one ends.
    folder: is removed then.
    """
    os.environ.clear()
    os.environ.update(environment)
    warnings.formatwarning = format_warning
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def wait_for_it() -> None:
        if parent is not None:
            parent.join()
        if folder is not None:
            time.sleep(0.1)  # other workers may be reading
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait_for_it, daemon=True).start()


def one_thread() -> None:
    """Limit torch to one thread, so that workers share cores and results are the same to the last bit."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
