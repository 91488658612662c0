"""Nobody runs every benchmark every day: that each can still be started is seen here."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOAD = """
import runpy, sys
sys.path.insert(0, "benchmarks")
failed = {}
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="loaded")
    except Exception as error:
        failed[path] = repr(error)
sys.exit("\\n".join(f"{path}: {said}" for path, said in failed.items()) or 0)
"""


def test_every_benchmark_can_be_loaded() -> None:
    """What stands outside of functions is executed: expressions, recipes, imports that no extra brings."""
    paths = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
    assert len(paths) >= 20
    run = subprocess.run([sys.executable, "-c", LOAD, *paths], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
