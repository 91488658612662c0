"""Nobody runs every benchmark every day: that each can still be started is seen here."""

from pathlib import Path

from forked import fork

ROOT = Path(__file__).parents[2]
LOAD = """
import os, runpy, sys
os.chdir(root)
sys.path.insert(0, "benchmarks")
failed = {}
for path in paths:
    try:
        runpy.run_path(path, run_name="loaded")
    except Exception as error:
        failed[path] = repr(error)
sys.exit("\\n".join(f"{path}: {said}" for path, said in failed.items()) or 0)
"""


def test_every_benchmark_can_be_loaded(tmp_path: Path) -> None:
    """What stands outside of functions is executed: expressions, recipes, imports that no extra brings."""
    paths = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
    assert len(paths) >= 20
    process = fork(exec, LOAD, {"root": str(ROOT), "paths": paths}, said=tmp_path / "said")
    process.join()
    assert process.exitcode == 0, (tmp_path / "said").read_text()
