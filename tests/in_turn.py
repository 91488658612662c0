"""Several commands one after the other in one process of another Python: to import the package takes a second."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = """
import contextlib, io, json, sys
from palaestra.interface.cli import main
for words in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(words)
    except SystemExit as error:
        code = error.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def in_turn(
    python: str | Path, *commands: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
) -> list[tuple[int, str, str]]:
    """Code, output and errors of each command; a command that ends by another exception than SystemExit is an error."""
    process = [str(python), "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(process, capture_output=True, text=True, cwd=cwd, env=env, timeout=600)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]
