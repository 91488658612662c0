"""Facts from real language servers over a small package, and what happens when a server misbehaves."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingExtraError, SchemaError, StorageError
from palaestra.judges import DiagnosticsCache, LanguageServer, PythonSyntax, apply_edits, bundle_id, check_turns, locate
from palaestra.judges.language_server import LanguageServerError
from palaestra.rewards.shaping.diagnostics import lanser_reward

GOOD = {
    "shop/__init__.py": "",
    "shop/prices.py": "def gross(net: float, rate: float) -> float:\n    return net * (1 + rate)\n",
    "shop/bill.py": "from shop.prices import gross\n\n\ndef total(nets: list[float]) -> float:\n"
    "    return sum(gross(net, 0.19) for net in nets)\n",
}
BROKEN = GOOD | {
    "shop/prices.py": "def gross(net, rate:\n    return net",
    "shop/bill.py": "def total(nets)\n    return 0",
}


def installed(command: str) -> bool:
    return (
        shutil.which(command, path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])) is not None
    )


@pytest.fixture(scope="module")
def jedi() -> Iterator[LanguageServer]:
    if not installed("jedi-language-server"):
        pytest.skip("jedi-language-server is not installed")
    with LanguageServer() as server:
        yield server
        process = server._process
    assert process is None or process.poll() is not None


def test_a_real_server_counts_before_and_after(jedi: LanguageServer) -> None:
    found = jedi.diagnostics(BROKEN)
    assert [(fact["path"], fact["line"]) for fact in found] == [("shop/bill.py", 0), ("shop/prices.py", 0)]
    assert jedi.diagnostics(GOOD) == []
    assert bundle_id(jedi.diagnostics(BROKEN)) == bundle_id(found)
    del_bill = {path: text for path, text in BROKEN.items() if path != "shop/bill.py"}
    assert [fact["path"] for fact in jedi.diagnostics(del_bill)] == ["shop/prices.py"]


def test_a_real_server_knows_how_clear_a_target_is(jedi: LanguageServer) -> None:
    assert jedi.definitions(GOOD, "shop/bill.py", 4, 15) == 1
    twice = GOOD | {"shop/bill.py": "import sys\nif sys.argv:\n    x = 1\nelse:\n    x = 2\nprint(x)\n"}
    assert jedi.definitions(twice, "shop/bill.py", 5, 6) == 2
    assert jedi.definitions(GOOD | {"shop/bill.py": "\n\nnothing\n"}, "shop/bill.py", 2, 2) == 0


def test_turns_of_a_real_repair(jedi: LanguageServer, tmp_path: Path) -> None:
    half = BROKEN | {"shop/bill.py": GOOD["shop/bill.py"]}
    files = [json.dumps(each) for each in (half, GOOD, BROKEN, half)]
    table = Turns({"episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "agent": ["a"] * 4, "files": files})
    bundles = DiagnosticsCache(jedi, tmp_path / "facts")
    turns = check_turns(table, bundles, start=BROKEN)
    assert turns["diagnostics"].to_list() == [1, 0, 2, 1]
    assert turns["diagnostics_before"].to_list() == [2, 1, 2, 2]
    assert turns["check_error"].null_count() == 4
    assert bundles.asked == 3, "each workspace is asked about once"
    np.testing.assert_allclose(np.asarray(lanser_reward().evaluate(turns)), [0.5, 0.5, 0, 0.5])
    replay = check_turns(table, DiagnosticsCache(store=tmp_path / "facts", name=jedi.name), start=BROKEN)
    assert replay.frame.equals(turns.frame)
    other = table.with_column(files=[json.dumps({"x.py": "1"})] * 4)
    assert "run once with a checker" in check_turns(other, DiagnosticsCache(store=tmp_path, name="x"))["check_error"][0]


@pytest.mark.skipif(not installed("basedpyright-langserver"), reason="basedpyright is not installed")
def test_a_server_of_types_sees_one_file_break_another() -> None:
    with LanguageServer(("basedpyright-langserver",)) as server:
        assert server.diagnostics(GOOD) == []
        changed = GOOD | {"shop/prices.py": "def gross(net: float) -> float:\n    return net\n"}
        assert "reportCallIssue" in {fact["code"] for fact in server.diagnostics(changed)}
        assert server.diagnostics(GOOD) == []


def running_groups() -> list[int]:
    """The process group of every process that still runs."""
    groups = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if state != "Z":
            groups.append(int(group))
    return groups


# -- misbehaviour -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("import time; time.sleep(60)", "no answer within 0.5 s"),
        ("pass", "the server ended|Broken pipe"),
        ("import sys; sys.stdout.write('Content-Length: 3\\r\\n\\r\\n{}}'); sys.stdout.flush(); input()", "Extra data"),
        (
            "import sys; sys.stdout.write('Content-Length: x\\r\\n\\r\\n'); sys.stdout.flush(); input()",
            "invalid literal",
        ),
        ("import os\nwhile True:\n    os.fork(); break\nimport time; time.sleep(60)", "no answer within 0.5 s"),
    ],
)
def test_a_server_that_misbehaves_is_an_error_and_is_ended(body: str, what: str) -> None:
    started = []
    server = LanguageServer((sys.executable, "-c", body), timeout=0.5)
    real = server._start

    def start() -> None:
        try:
            real()
        finally:
            started.append(server._process)

    server._start = start  # type: ignore[method-assign]
    with pytest.raises(LanguageServerError, match=what):
        server.diagnostics(GOOD)
    assert server._process is None
    assert all(process.poll() is not None for process in started)
    table = Turns({"episode": [0], "files": [json.dumps(GOOD)]})
    turns = check_turns(table, server)
    assert turns["diagnostics"].to_list() == [None]
    assert turns["check_error"][0] is not None
    ends = time.monotonic() + 10  # what was killed takes a moment to be gone
    while any(group == process.pid for process in started for group in running_groups()):
        assert time.monotonic() < ends, "a process was left behind"
        time.sleep(0.05)


def test_a_missing_server_says_so() -> None:
    with pytest.raises(MissingExtraError, match="no-such-server is not installed: pip install"):
        LanguageServer(("no-such-server",))
    with pytest.raises(InputError, match="timeout=0 > 0"):
        LanguageServer(timeout=0)


# -- other checkers, and what is not looked at -------------------------------------------------------------------------


def test_any_checker_will_do() -> None:
    table = Turns({"episode": [0, 0], "turn": [0, 1], "files": [json.dumps(BROKEN), json.dumps(GOOD)]})
    turns = check_turns(table, PythonSyntax())
    assert turns["diagnostics"].to_list() == [2, 0]
    assert turns["diagnostics_before"].to_list() == [None, 2]


def test_a_workspace_that_leaves_itself_is_not_safe() -> None:
    paths = ["../evil.py", "/etc/passwd", "a/../../b.py", "a\0b.py"]
    table = Turns({"episode": [0] * 4, "turn": range(4), "files": [json.dumps({path: "x = ("}) for path in paths]})
    turns = check_turns(table, PythonSyntax())
    assert turns["safe"].to_list() == [False] * 4
    assert turns["diagnostics"].null_count() == 4
    assert "leaves the workspace" in turns["check_error"][0]


def test_wrong_cells_are_named() -> None:
    with pytest.raises(SchemaError, match="column 'files', row 1: not JSON"):
        check_turns(Turns({"episode": [0, 0], "files": ["{}", "{"]}), PythonSyntax())
    with pytest.raises(SchemaError, match="row 0: a JSON object is needed, not list"):
        check_turns(Turns({"episode": [0], "files": ["[]"]}), PythonSyntax())
    with pytest.raises(InputError, match="without a checker"):
        DiagnosticsCache()
    with pytest.raises(StorageError, match="no facts"):
        DiagnosticsCache(store="nowhere", name="x").facts({})


def test_edits_are_applied_all_or_none_to_what_the_turns_before_left() -> None:
    edits = [{"path": "a.py", "new": "y = 1\n"}, {"path": "a.py", "old": "1", "new": "("}, {"path": "/x", "new": ""}]
    start = ['{"a.py": "x = ("}'] * 3
    table = {"episode": [0] * 3, "turn": range(3), "edits": [json.dumps([each]) for each in edits], "start": start}
    turns = check_turns(Turns(table), PythonSyntax(), edits="edits", start="start")
    assert turns["diagnostics"].to_list() == [0, 1, 1]
    assert turns["diagnostics_before"].to_list() == [1, 0, 1]
    assert turns["safe"].to_list() == [True, True, False]
    assert "leaves the workspace" in turns["check_error"][2]
    with pytest.raises(InputError, match="stands there 2 times"):
        apply_edits({"a.py": "1 1"}, [{"path": "a.py", "old": "1", "new": "2"}])


def test_an_address_goes_with_what_it_names() -> None:
    files = {"a.py": "import os\n\n\nclass A:\n    def f(self): ...\n\n\ndef f(): ...\n"}
    assert locate(files, {"path": "a.py", "symbol": "A.f"}) == [4]
    assert locate(files, {"path": "a.py", "symbol": "f"}) == [4, 7]
    assert locate(files, {"path": "a.py", "text": "import os"}) == [0]
    assert locate({"a.py": "x = ("}, {"path": "a.py", "symbol": "f"}) == []
