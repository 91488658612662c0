"""The commands that the README promises of the core install, in an environment that has nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import venv
from importlib.metadata import distribution
from pathlib import Path

import polars as pl
import pytest
from tests.in_turn import in_turn

ROOT = Path(__file__).parents[1]
BARE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def requirements(name: str, found: dict[str, None]) -> dict[str, None]:
    """Distributions that `name` requires without extras, itself left out."""
    for line in distribution(name).requires or ():
        required = re.match(r"[\w.-]+", line)
        if required and "extra ==" not in line and "sys_platform ==" not in line and required[0] not in found:
            found[required[0]] = None
            requirements(required[0], found)
    return found


@pytest.fixture(scope="module")
def palaestra(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in a virtual environment of links to what the core requires, and to nothing else."""
    home = tmp_path_factory.mktemp("core")
    venv.create(home, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    for name in requirements("palaestra", {}):
        found = distribution(name)
        for top in {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))
    (site / "palaestra.pth").write_text(str(ROOT / "src"))
    script = home / "bin" / "palaestra"
    script.write_text(f"#!{home}/bin/python\nfrom palaestra.interface.cli import main\nmain()\n")
    script.chmod(0o755)
    return script


def told(command: Path, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run([command, *arguments], capture_output=True, text=True, cwd=cwd, env=BARE, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_the_environment_has_no_torch(palaestra: Path, tmp_path: Path) -> None:
    absent = ("torch", "transformers", "matplotlib", "openai", "palaestra_atlas", "inspect_ai")
    code = f"from importlib.util import find_spec; print([name for name in {absent} if find_spec(name)])"
    done = subprocess.run([palaestra.parent / "python", "-c", code], capture_output=True, text=True, env=BARE)
    assert (done.stdout, done.stderr) == ("[]\n", "")


LISTED = {
    "recipes": "kuhn-selfplay",
    "recipes cups": "warm_start",
    "recipes cups --explain": "independent trainings",
    "recipes --schema": "properties",
    "names": "grpo",
    "names signal": "grpo",
    "names env": "cups",
    "names analysis": "archives",
}


def test_what_lists_works(palaestra: Path, tmp_path: Path) -> None:
    found = in_turn(palaestra.parent / "python", *(words.split() for words in LISTED), cwd=tmp_path, env=BARE)
    for (words, expected), (code, out, err) in zip(LISTED.items(), found, strict=True):
        assert code == 0, (words, err)
        assert expected in out, words
        assert "Traceback" not in err, words


def test_every_command_has_help(palaestra: Path, tmp_path: Path) -> None:
    _, out, _ = told(palaestra, "--help", cwd=tmp_path)
    commands = re.findall(r"^  ([a-z][a-z-]+)  ", out, flags=re.MULTILINE)
    assert len(commands) >= 12
    found = in_turn(palaestra.parent / "python", *([command, "--help"] for command in commands), cwd=tmp_path, env=BARE)
    for command, (code, out, err) in zip(commands, found, strict=True):
        assert code == 0, (command, err)
        assert "--help" in out, command


def test_logs_are_evaluated_ranked_sorted_and_audited(palaestra: Path, tmp_path: Path) -> None:
    rows = [
        {"task": f"t{task}", "system": system, "success": (task + number) % 3 == 0, "score": (task % 5) / 5}
        for number, system in enumerate(("a", "b"))
        for task in range(30)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    code, out, err = told(palaestra, "evaluate", "log.csv", cwd=tmp_path)
    assert code == 0, err
    assert "success" in out
    games = "".join(f"{one},{two},{result}\n" for one, two, result in (("x", "y", 1), ("y", "z", 1), ("x", "z", 0.5)))
    (tmp_path / "games.csv").write_text("a,b,score\n" + games)
    code, out, err = told(palaestra, "rank", "games.csv", cwd=tmp_path)
    assert code == 0, err
    code, out, err = told(palaestra, "triage", "log.csv", "--budget", "5", cwd=tmp_path)
    assert code == 0, err
    (tmp_path / "scores.csv").write_text("system,one,two\na,1,2\nb,2,3\n")
    code, out, err = told(palaestra, "analyze", "swiss()", "scores.csv", cwd=tmp_path)
    assert (code, "expected" in out) == (0, True), err


def test_a_page_that_cannot_be_drawn_is_refused_before_the_work(palaestra: Path, tmp_path: Path) -> None:
    (tmp_path / "games.csv").write_text("a,b,score\nx,y,1\ny,z,1\n")
    (tmp_path / "log.csv").write_text(
        "item,score,correct\n" + "".join(f"{i},{i / 40},{i % 3 == 0}\n" for i in range(40))
    )
    commands = (
        ["evaluate", "log.csv", "--report"],
        ["rank", "games.csv", "--report"],
        ["audit-judge", "log.csv", "--out"],
    )
    found = in_turn(palaestra.parent / "python", *([*each, "p.html"] for each in commands), cwd=tmp_path, env=BARE)
    for code, out, err in found:
        assert (code, out, "pip install 'palaestra[report]'" in err) == (2, "", True), err
    assert not (tmp_path / "p.html").exists()


def test_what_needs_torch_names_the_extra(palaestra: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "p", "chosen": "a b", "rejected": "c"}\n' * 20)
    commands = ["train", "cups"], ["fit-reward", "pairs.jsonl", "--out", "model"], ["names", "term"]
    commands += ["recipes", "cups", "--steps"], ["analyze", "archives()", "."]
    for code, _, err in in_turn(palaestra.parent / "python", *commands, cwd=tmp_path, env=BARE):
        assert (code, "pip install 'palaestra[train]'" in err) == (2, True), err


def test_the_shipped_plugin_leaves_the_core_as_it_is(palaestra: Path, tmp_path: Path) -> None:
    meta = tmp_path / "palaestra_extra-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: palaestra-extra\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[palaestra.plugins]\nextra = palaestra_extra\n")
    bare = BARE | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "examples" / "plugin")])}
    lines = ["names", "stage"], ["greet"], ["names", "term"]
    stage, greet, term = in_turn(palaestra.parent / "python", *lines, cwd=tmp_path, env=bare)
    assert (stage[0], "thermometer" in stage[1]) == (0, True), stage
    assert greet[:2] == (0, "hello from outside\n"), greet
    assert (term[0], "pip install 'palaestra[train]'" in term[2]) == (2, True), term


def test_commands_of_the_atlas_name_what_brings_them(palaestra: Path, tmp_path: Path) -> None:
    commands = ["systems"], ["reproduce", "18"], ["verify", "18"]
    for code, out, err in in_turn(palaestra.parent / "python", *commands, cwd=tmp_path, env=BARE):
        assert (code, out, "pip install 'palaestra[atlas]'" in err) == (2, "", True), err
