"""One of each kind, added by a package from outside: found by its entry point, used by name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.in_turn import in_turn

from palaestra import Turns, extend
from palaestra.foundation.registry import REGISTRIES
from palaestra.interface.cli.names import registered_names

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"


MINE = """
name: mine
env: {make: extra/coin, workflow: plainly}
policies: {caller: {kind: tabular}}
team: {caller: caller}
warm_start: {script: heads, groups: 4, steps: 1}
stages: [thermometer()]
reward: 0.25 + 0.75 * col("worth")
credit: grpo() + 0.0 * warmth()
learn: {terms: [surrogate(), push(0.01)]}
train: {iterations: 2, groups: 2, group_size: 2}
evaluation:
  {tasks: 2, trials: 1, look_tasks: 2, look_trials: 1,
   controls: {s: {policies: {caller: {kind: stubborn}}}}}
"""
MEASURED = [
    "train", "kuhn-selfplay", "policies.player={kind: tabular}", "warm_start=null", "train.iterations=1", "seeds=1",
    "train.groups=2", "train.group_size=2", "evaluation={tasks: 2, trials: 1, look_tasks: 2, look_trials: 1, "
    "metrics: [nothing_at_all], measure: nothing_at_all, controls: {}}", "learn.terms=surrogate()",
    "--out", "kuhn", "--jobs", "1",
]  # fmt: skip
IDLE = [
    "warm_start=null", "learn.kind=idle", "play.executor=here()", "track=textfile()",
    "train.iterations=1", "train.groups=2", "train.group_size=2", "seeds=1", "--jobs", "1",
    "evaluation={tasks: 2, trials: 1, look_tasks: 2, look_trials: 1, controls: {}}",
]  # fmt: skip
TALK = (
    'env.workflow=graph(["a", "b"], edges="all", rounds=2, gate="short(20)", route="first()", aggregate="shortest()", '
    'stop="spoke(2)")'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the template, as it is shipped."""
    source, site = tmp_path_factory.mktemp("plugin"), tmp_path_factory.mktemp("site")
    shutil.copytree(PLUGIN, source, dirs_exist_ok=True)  # pip builds in it
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, str(source)], check=True, timeout=120)
    return site


def run(site: Path, *commands: list[str], cwd: Path) -> list[tuple[int, str, str]]:
    """Code, output and errors of commands that are given one after the other in a process that finds the plugin."""
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return in_turn(sys.executable, *commands, cwd=cwd, env=environment)


def test_what_comes_from_outside_is_found_by_name(site: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    lines = [{"coin": f"c{n}", "fell": "heads", "call": "heads" if n < 3 else "tails"} for n in range(4)]
    (tmp_path / "labels.csv").write_text(
        "group,features,score\n" + "".join(f"{n // 4},{n},{n % 2}\n" for n in range(60))
    )
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names, greeting, trained, wrong, read, measured, asked, fitted, idle = run(
        site,
        ["names", "--json"],
        ["greet"],
        ["train", "mine.yaml", "--out", "run", "--jobs", "1"],
        ["train", "mine.yaml", "stages=[]", "--out", "other"],
        ["evaluate", "log.jsonl", "--json"],
        MEASURED,
        ["analyze", "longest", "run/seed-0/evaluation.parquet", "--json"],
        ["fit-reward", "labels.csv", "--model", "constant()", "--target", "score", "--out", "rm"],
        ["train", "cups", TALK, "team={'*': reader}", *IDLE, "--out", "idle"],
        cwd=tmp_path,
    )
    assert names[0] == 0, names
    found = json.loads(names[1])
    text = (PLUGIN / "palaestra_extra.py").read_text()
    for kind in extend.KINDS:
        given = re.findall(rf"@extend\.{kind}\(\"?([\w/]*)\"?\)\n(?:def|class) (\w+)", text)
        assert given, f"no example of {kind}"
        for name, own in given:
            assert (name or own) in found[kind], (kind, name or own)
    assert found["stage"]["thermometer"] == "A stage that fills the column `heat`."
    assert json.loads(asked[1]) == [{"longest": "heads"}], asked
    assert (fitted[0], (tmp_path / "rm/mean.txt").exists()) == (0, True), fitted
    assert idle[0] == 0, idle
    assert (tmp_path / "idle/seed-0/tracked.txt").read_text().startswith("1 ")
    assert greeting[:2] == (0, "hello from outside\n")

    assert trained[0] == 0, trained
    assert set(Turns.load(tmp_path / "run/seed-0/turns")["reward"]) <= {1.0, 0.25}, (
        "paid by a column that its env tells"
    )
    line = json.loads((tmp_path / "run/seed-0/metrics.jsonl").read_text().splitlines()[-1])
    assert line["stages"]["thermometer"]["seconds"] > 0
    page = (tmp_path / "run/report.html").read_text()
    assert "Heads &lt;of&gt; state" in page, "its chart"
    assert "could not be drawn: RuntimeError: no &lt;ink&gt;" in page, "and one that fails"

    assert wrong[0] == 2
    assert "needs column 'heat', which nothing here gives; add thermometer() to `stages`" in wrong[2]
    assert not (tmp_path / "other").exists()

    (row,) = json.loads(read[1])
    assert (row["tasks"], row["success"]["mean"]) == (4, 0.75)

    assert measured[0] == 0, measured
    summary = json.loads((tmp_path / "kuhn/summary.json").read_text())
    assert summary["metrics"] == {"nothing_at_all": [{"seed": 0, "before": 0.25, "after": 0.25}]}


def test_the_page_for_contributors_names_a_place_and_a_registration_for_each_kind() -> None:
    registered_names()
    root = PLUGIN.parents[1]
    page = (root / "CONTRIBUTING.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")][2:]
    for kind in REGISTRIES:
        assert sum(f"`@extend.{kind}(" in row[1] for row in rows) == 1, f"a row for {kind}"
    for row in rows:
        for place in row[2].split(","):
            assert place.strip() == "the env's file" or (root / place.strip(" `")).exists(), place


def test_a_plugin_that_is_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[palaestra.plugins]\nbroken = no_such_module_at_all\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    ((code, _, said),) = run(tmp_path, ["names", "term"], cwd=tmp_path)
    assert code == 2
    assert "plugin 'broken' (no_such_module_at_all) cannot be loaded" in said
    assert len(said.splitlines()) == 1
