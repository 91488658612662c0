"""Recipes are code: what a file names runs only when somebody said so, and nothing runs by reading."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from quick import QUICK

from palaestra.errors import InputError, RecipeError
from palaestra.runs import build
from palaestra.runs.inline import learn
from palaestra.runs.recipe import Recipe, load, look, names, validate
from palaestra.runs.trust import code_in, refuse

PLAIN: dict[str, Any] = {
    "name": "plain",
    "env": {"make": "native/corridor"},
    "policies": {"one": {"kind": "tabular"}},
    "team": {"*": "one"},
    "train": {"iterations": 1, "groups": 2, "group_size": 2},
    "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
}
BOOM = "boom:make"

PLACES: dict[str, Any] = {
    "imports": {"imports": "boom"},
    "imports, several": {"imports": ["boom"]},
    "env": {"env": {"make": BOOM}},
    "workflow": {"env": {"make": "native/corridor", "workflow": "boom:make(1)"}},
    "Gymnasium": {"env": {"make": "gymnasium/boom:Thing-v0"}},
    "Gymnasium's option": {"env": {"make": "gymnasium", "options": {"name": "boom:Thing-v0"}}},
    "an env in options": {"env": {"make": "faulty", "options": {"env": BOOM}}},
    "policy": {"policies": {"one": {"kind": BOOM}}},
    "script": {"policies": {"one": {"kind": "script", "options": {"script": BOOM}}}},
    "warm start": {"warm_start": {"script": BOOM}},
    "stage": {"stages": "boom:make()"},
    "second stage": {"stages": "replay(k=1), boom:make"},
    "stage cut by YAML": {"stages": ["boom:make(1", "2)"]},
    "option of a stage": {"stages": ["embed(model='boom:make')"]},
    "judge": {"stages": ["tournament(judge='boom:make')"]},
    "deep in a stage": {"stages": ["judge('x', items={'a': ['boom:make']})"]},
    "escaped": {"stages": ["embed(model='boom\\x3amake')"]},
    "in two pieces": {"stages": ["embed(model='boom:' 'make')"]},
    "term": {"learn": {"terms": "surrogate(), boom:make(.1)"}},
    "learner": {"learn": {"kind": BOOM}},
    "option of a learner": {"learn": {"options": {"critic": {"net": BOOM}}}},
    "modules of an executor": {"play": {"executor": "processes(workers=1, imports=['boom'])"}},
    "modules of an executor, by position": {"play": {"executor": "processes(1, 4, 3.0, 9, 60.0, 0, 99, ['boom'])"}},
    "modules of a cluster's workers": {"play": {"executor": "ray(imports='boom')"}},
    "modules, deep in a stage": {"stages": ["judge('x', asker=some(imports=['boom']))"]},
    "executor": {"play": {"executor": "boom:make(workers=2)"}},
    "metric": {"evaluation": {"metrics": [BOOM], "measure": BOOM}},
    "control's policy": {"evaluation": {"controls": {"c": {"policies": {"one": {"kind": BOOM}}}}}},
    "control's script": {"evaluation": {"controls": {"c": {"script": BOOM}}}},
    "control's training": {"evaluation": {"controls": {"c": {"train": {"env": {"make": BOOM}}}}}},
    "control's search": {"evaluation": {"controls": {"c": {"search": {"one": "best_of('boom:make')"}}}}},
    "scorer": {"evaluation": {"scorers": {"s": "boom:make()"}}},
    "scorer in a scorer": {
        "evaluation": {"scorers": {"s": {"scorer": "vote(judged(question='?', policy='boom:make'), n=3)"}}}
    },
    "scorer in a search": {"evaluation": {"controls": {"c": {"search": "best_of(vote(judged(policy='boom:make')))"}}}},
    "scorer in a stage": {"stages": ["score('x', \"vote(judged(question='?', policy='boom:make'))\")"]},
    "control's imports": {"evaluation": {"controls": {"c": {"train": {"imports": ["boom"]}}}}},
}


@pytest.fixture
def boom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a file when it is imported."""
    (tmp_path / "boom.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'went off')!r}).touch()\ndef make(*a, **k): raise ValueError\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "went off"
    sys.modules.pop("boom", None)


@pytest.mark.parametrize("place", PLACES)
def test_nothing_that_a_file_names_runs_by_itself(place: str, boom: Path, tmp_path: Path) -> None:
    data = PLAIN | PLACES[place]
    path = tmp_path / "evil.yaml"
    path.write_text(yaml.safe_dump(data))
    assert look(path).name == "plain", "it can be read"
    with pytest.raises(RecipeError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} names code (")
    assert "read boom, then add --trust" in message
    assert "\n" not in message
    with pytest.raises(RecipeError, match="names code"):
        validate(data)
    with pytest.raises(RecipeError, match="names code"):
        learn(data)
    Recipe.model_validate(data | {"evaluation": {}} if "metric" in place else data)
    assert not boom.exists()
    assert "boom" not in sys.modules


@pytest.mark.parametrize("executor", ["ray(address='ray://host:10001')", "ray(2, 'host:6379')"])
def test_a_foreign_cluster_is_asked_for(executor: str) -> None:
    """Its answers are unpickled here."""
    with pytest.raises(RecipeError, match=r"names code \(play\.executor '\S*host:\d+'\), .* then add --trust"):
        validate(PLAIN | {"play": {"executor": executor}})
    assert not code_in({"play": {"executor": "ray(address='auto')"}})


def test_a_foreign_cluster_of_servers_is_asked_for() -> None:
    def policies(cluster: str) -> dict[str, object]:
        return {"policies": {"a": {"kind": "served", "options": {"server": "vllm", "cluster": cluster}}}}

    (found,) = code_in(policies("10.0.0.1:6379"))
    assert "who runs the cluster at 10.0.0.1:6379" in str(found)
    assert not code_in(policies("auto"))


@pytest.mark.parametrize("place", ["imports", "stage", "term", "env"])
def test_what_is_trusted_runs(place: str, boom: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(PLAIN | PLACES[place]))
    with contextlib.suppress(InputError):  # it is no env, no stage, no term
        build.resolve(load(path, trust=True))
    assert boom.exists()


def test_what_the_user_types_is_his_own(boom: Path, tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(yaml.safe_dump(PLAIN | PLACES["env"]))
    assert load(path, ["env.make=native/corridor"]).env.make == "native/corridor", "what is replaced is not asked for"
    assert load(path, [f"env.make={BOOM}"]).env.make == BOOM
    with pytest.raises(RecipeError, match=r"names code \(env.make 'boom:make'\)"):
        load(path, ["warm_start.script=random"])
    assert load("corridor", [f"env.make={BOOM}"]).env.make == BOOM


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place of a recipe where a text may stand."""
    for name, field in model.model_fields.items():
        yield from _of(field.annotation, (*path, name))


def _of(annotation: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    origin, inside = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from leaves(annotation, path)
    elif origin in (Union, types.UnionType):
        for each in inside:
            yield from _of(each, path)
    elif origin is dict:
        yield from _of(inside[1], (*path, "x"))
    elif origin is tuple:
        yield from _of(inside[0], (*path, "[]"))
    elif annotation in (str, Any):
        yield path


def test_every_text_of_the_model_is_looked_at() -> None:
    """A field that is added later is covered, unless it is written down as words here and in `trust`."""
    words = {("name",), ("description",), ("team", "x"), ("evaluation", "controls", "x", "note")}
    places = set(leaves(Recipe))
    assert words < places
    assert len(places) > 25
    for place in places:
        data: Any = "my.own:thing"
        for part in reversed(place):
            data = [data] if part == "[]" else {part: data}
        assert bool(code_in(data)) == (place not in words), place


def test_names_of_models_seats_and_judges_of_the_team_are_no_code() -> None:
    policies = {"one": {"kind": "chat", "options": {"model": "qwen3:latest", "base_url": "http://localhost:8000/v1"}}}
    stages = "tournament(judge='policy:one'), judge('a', question='Is it so: yes?')"
    assert code_in({"policies": policies, "stages": stages, "description": "see:this"}) == []


def test_own_scripted_play_may_be_named_and_nothing_else_of_the_package() -> None:
    """Much of the package would run whatever its options say."""
    assert code_in({"warm_start": {"script": "palaestra.judges.scripted:mentions"}}) == []
    for each in (
        "palaestra.runs.jobs:os.system",
        "palaestra.foundation.registry:load_object",
        "palaestra.foundation.files:write_text",
        "palaestra.judges.scripted:re.compile",
        "palaestra.judges.scripted:Callable",
        "palaestra.envs.worlds.market:np.save",
    ):
        assert code_in({"env": {"make": each}}), each


@pytest.mark.parametrize("name", names())
def test_what_ships_may_be_copied_and_needs_no_trust(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(look(name).dump())
    assert load(path) == load(name)


def say(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """As the installed command runs: the current folder is not on Python's path."""
    program = "import sys; from palaestra.interface.cli import main; main(sys.argv[1:])"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120)


def test_a_folder_from_elsewhere_runs_nothing_either(tmp_path: Path) -> None:
    """Neither as a plugin nor in the place of a library that is not installed."""
    (tmp_path / "evil.yaml").write_text(yaml.safe_dump(PLAIN | PLACES["imports"]))
    (tmp_path / "boom.py").write_text("from pathlib import Path\nPath('went off').touch()\n")
    (tmp_path / "boom-1.0.dist-info").mkdir()
    (tmp_path / "boom-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: boom\nVersion: 1.0\n")
    (tmp_path / "boom-1.0.dist-info" / "entry_points.txt").write_text("[palaestra.plugins]\nboom = boom\n")
    shown = say("recipes", "evil.yaml", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "imports:\n- boom" in shown.stdout
    refused = say("train", "evil.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "evil.yaml names code (imports 'boom'), which would run with your rights: read boom" in refused.stderr
    assert not (tmp_path / "went off").exists()
    assert not (tmp_path / "runs").exists()


def test_a_run_is_read_again_without_running_its_code(tmp_path: Path, trained: Any) -> None:
    assert "signalling" in (trained.directory / "recipe.yaml").read_text()
    command = say("evaluate", str(trained.directory), cwd=tmp_path)
    assert command.returncode == 0, command.stderr
    resumed = say(
        "train", str(trained.directory / "recipe.yaml"), "--out", str(trained.directory), "--resume", cwd=tmp_path
    )
    assert "names code (env.make 'signalling:Signalling'" in resumed.stderr
    assert QUICK["env"]["make"] in resumed.stderr


def test_children_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """Python's own way of starting them puts that folder first; modules of the standard library stand for all.

    Both kinds of children: those of seeds, and the workers that they start.
    """
    command = tmp_path / "bin" / "palaestra"
    command.parent.mkdir()
    command.write_text("from palaestra.interface.cli import main\n\nif __name__ == '__main__':\n    main()\n")
    (tmp_path / "here").mkdir()
    for name in ("random", "tempfile", "signal", "threading"):
        (tmp_path / "here" / f"{name}.py").write_text(f"open('{name} went off', 'a')\nraise ImportError\n")
    done = subprocess.run(
        [
            sys.executable, str(command), "train", "corridor", "train.iterations=1",
            "evaluation={tasks: 2, trials: 1, look_tasks: 2, look_trials: 1, controls: {}}",
            "seeds=2", "--jobs", "2", "play.executor=processes(workers=1)", "warm_start=null",
        ],
        capture_output=True, text=True, cwd=tmp_path / "here", timeout=120,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert not list((tmp_path / "here").glob("* went off"))
    assert done.returncode in (0, 1), done.stderr


def test_a_module_of_the_current_folder_is_found_with_trust(tmp_path: Path) -> None:
    (tmp_path / "paper.py").write_text("from pathlib import Path\nPath('was imported').touch()\n")
    words = ("train", "answers", "imports=[paper]", "train.iterations=1", "learn.lr=-1")
    refused = say(*words, cwd=tmp_path)
    assert refused.returncode == 2
    assert "paper lies in this folder" in refused.stderr
    assert "add --trust" in refused.stderr
    say(*words, "--trust", cwd=tmp_path)
    assert (tmp_path / "was imported").exists()


@pytest.mark.parametrize(("count", "said"), [(4, "'d'), which"), (5, "'d' and 1 more), which")])
def test_four_names_of_code_are_shown_and_others_counted(count: int, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        refuse({"imports": list("abcde"[:count])}, "evil.yaml")
    assert said in str(caught.value)
    assert f"read {', '.join('abcde'[:count])}, then" in str(caught.value)
