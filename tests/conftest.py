"""What the tests of whole runs share: small worlds that recipes can name, and one run that was really made."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from palaestra.play import forkserver
from palaestra.play.gc_freeze import set_aside_for_good

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from quick import Trained

# A busy machine is not a wrong result. What CI says depends on the code alone; `make fuzz` draws anew, and more.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=500)
settings.load_profile(PROFILE := os.environ.get("PALAESTRA_EXAMPLES", "fixed"))
if PROFILE == "fixed":  # else examples depend on which modules were imported before, as constants in those are tried
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Thousands of tests are found and none is garbage: to look for some takes a third of the time, and more later."""
    gc.disable()
    try:
        return (yield)
    finally:
        set_aside_for_good()
        gc.enable()


ThreadingHTTPServer.request_queue_size = 256  # it is 5, and whoever comes sixth comes again after a second
if "PYTEST_XDIST_WORKER" in os.environ:  # whichever test starts the first process, many of them play language models
    forkserver.TORCH += forkserver.LANGUAGE

collect_ignore = [
    "plugin",  # a package of its own: importing it here would register its names everywhere
    "teams/langgraph_program.py",  # somebody's program: it wants OPENAI_API_KEY to be imported
]

WORLDS = Path(__file__).parent / "worlds"
if str(WORLDS) not in sys.path:
    sys.path.append(str(WORLDS))  # also that of the processes in which seeds run


@pytest.fixture(autouse=True)
def environment_is_kept() -> Iterator[None]:
    """The command line sets `PYTHONSAFEPATH` for the children of its process, and here that process is the tests'."""
    before = os.environ.get("PYTHONSAFEPATH")
    yield
    if before is None:
        os.environ.pop("PYTHONSAFEPATH", None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which rows of the atlas were played, so that a failure can be repeated."""
    if any("PALAESTRA_ALL" in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())):
        from tests.atlas.rotation import said

        terminalreporter.write_line(said())


def train_quick(folder: Path) -> None:
    """The quick recipe, by the command line in a process of its own; unless somebody else does it."""
    from quick import QUICK, start

    try:
        folder.mkdir()
    except FileExistsError:
        return
    (folder / "quick.yaml").write_text(yaml.safe_dump(QUICK))
    process = start("train", "quick.yaml", "--trust", "--out", "run", "--jobs", "1", cwd=folder)
    said = json.dumps([*process.communicate(timeout=400), process.returncode])
    (folder / "said.part").write_text(said)
    (folder / "said.part").rename(folder / "said.json")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Of several processes that test none waits for it, if it begins with them."""
    wanted = any("trained" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and "PYTEST_XDIST_WORKER" in os.environ:
        base = session.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
        threading.Thread(target=train_quick, args=(base / "trained",)).start()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The quick recipe, trained by the command line in a process of its own; once, however many processes test."""
    from quick import Trained

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "trained"
    train_quick(folder)
    for _ in range(8000):
        if (folder / "said.json").exists():
            break
        time.sleep(0.05)
    stdout, stderr, code = json.loads((folder / "said.json").read_text())
    assert code == 0, stderr
    return Trained(folder / "quick.yaml", folder / "run", stdout, stderr)
