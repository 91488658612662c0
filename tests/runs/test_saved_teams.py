"""What a run leaves behind is a team that plays, and folders that other libraries read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quick import QUICK, Trained
from transformers import AutoModelForCausalLM, AutoTokenizer

from palaestra.agents import LMPolicy, Request, TabularPolicy, Team
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, StorageError
from palaestra.learning import checkpoints
from palaestra.runs.recipe import validate
from palaestra.runs.saved_teams import export, push
from palaestra.runs.seed import run_seed

LM: dict[str, Any] = QUICK | {
    "policies": {
        "guide": {"kind": "tiny", "options": {"hidden": 16, "layers": 1, "heads": 2, "max_new_tokens": 2}},
        "seeker": {"kind": "script", "options": {"script": "signalling:mumbler", "clarity": 1.0}},
    },
    "warm_start": {"script": "signalling:mumbler", "groups": 8, "steps": 2},
    "train": {"iterations": 2, "groups": 2, "group_size": 2, "evaluate_every": 2, "checkpoint_every": 1},
    "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    "seeds": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model beside a script, trained for two iterations."""
    folder, recipe = tmp_path_factory.mktemp("lm") / "run", validate(LM, trust=True)
    run_seed(recipe, 0, folder / "seed-0")
    (folder / "recipe.yaml").write_text(recipe.dump())
    return folder


def last(run: Path) -> dict[str, Any]:
    found = checkpoints.latest(run / "seed-0" / "checkpoints")
    assert found is not None
    return checkpoints.load(found)["policies"]


def test_a_language_model_is_one_for_transformers(run: Path) -> None:
    folder = run / "seed-0" / "policies" / "guide"
    policy = LMPolicy.load(folder)
    for name, tensor in last(run)["guide"].items():
        assert torch.equal(policy.state_dict()[name], tensor)
    assert (policy.name, policy.max_new_tokens) == ("guide", 2)
    model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = words("see red", return_tensors="pt")["input_ids"]
    (prompt,) = policy.prompt_ids([Observation("see red")])
    assert ids[0].tolist() == prompt.tolist()
    torch.testing.assert_close(model(ids).logits, policy.model(ids).logits)
    assert words.decode(words(" la mi so", add_special_tokens=False)["input_ids"]) == " la mi so"


def test_the_team_of_a_run(run: Path) -> None:
    with pytest.raises(InputError, match=r"stored policy 'seeker' names code .*signalling:mumbler.* trust=True"):
        Team.load(run)
    team = Team.load(run, trust=True)
    assert repr(team) == "Team(guide=guide, seeker=seeker)"
    assert torch.equal(*(each["guide"]["model.norm.weight"] for each in (team.state_dict(), last(run))))
    heard = Request(Observation("hear mi", choices=("red", "green", "blue")), "seeker", np.random.default_rng(0))
    assert team["seeker"].act([heard])[0].action == 1  # the script has its options
    with pytest.raises(InputError, match=r"policies: no policy 'sekr' there; did you mean 'seeker'"):
        Team.load(run, policies={"sekr": team["seeker"]}, trust=True)
    mine = LMPolicy.tiny(name="seeker")
    assert Team.load(run, policies={"seeker": mine}, seed=0)["seeker"] is mine


def test_tables_of_several_seeds(trained: Trained, tmp_path: Path) -> None:
    assert sorted(path.name for path in trained.directory.glob("seed-*/policies/*/model.safetensors")) == (
        ["model.safetensors"] * 4
    )
    teams = [Team.load(trained.directory, seed=seed) for seed in (0, 1)]
    for seed, team in enumerate(teams):
        found = checkpoints.latest(trained.directory / f"seed-{seed}" / "checkpoints")
        state = checkpoints.load(found)["policies"]  # type: ignore[arg-type]
        for name, policy in team.learnable.items():
            assert isinstance(policy, TabularPolicy)
            assert torch.equal(policy.state_dict()["logits"], state[name]["logits"])
            assert policy.state_dict()["logits"].abs().sum() > 0
            assert torch.equal(policy.state_dict()["states"], state[name]["states"])
    assert Team.load(trained.directory)["guide"].name == "guide"
    with pytest.raises(InputError, match=r"no team of seed 7 there; seeds there: 0, 1"):
        Team.load(trained.directory, seed=7)
    with pytest.raises(InputError, match="give what `palaestra train` wrote"):
        Team.load(tmp_path)
    with pytest.raises(InputError, match="holds a policy of kind 'tabular', no language model"):
        LMPolicy.load(trained.directory / "seed-0" / "policies" / "guide")


def test_a_run_without_policies_is_exported_from_its_checkpoint(run: Path, tmp_path: Path) -> None:
    old = tmp_path / "run"
    shutil.copytree(run, old)
    shutil.rmtree(old / "seed-0" / "policies")
    with pytest.raises(InputError, match="write them with `palaestra export"):
        Team.load(old)
    folders = export(old, trust=True)
    assert folders == {"guide": old / "seed-0" / "policies" / "guide"}
    same = (run / "seed-0" / "policies" / "guide").rglob("*")
    for path in same:
        other = folders["guide"] / path.name
        assert other.read_bytes() == path.read_bytes(), path
    assert repr(Team.load(old, trust=True)) == repr(Team.load(run, trust=True))


def test_the_best_look_and_one_policy(trained: Trained, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained.directory, run)
    lines = [json.loads(line) for line in (run / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    kept = sorted(checkpoints.iteration_of(path) for path in (run / "seed-0" / "checkpoints").glob("iteration-*"))
    for line in lines:
        line["evaluation"] = {"success": 0.9 if line["iteration"] == kept[-2] else 0.1}
    (run / "seed-0" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"iter')
    folders = export(run, policy="seeker", out=tmp_path / "best", best=True, trust=True)
    assert folders == {"seeker": tmp_path / "best" / "seeker"}
    state = checkpoints.load(checkpoints.path_of(run / "seed-0" / "checkpoints", kept[-2]))["policies"]["seeker"]
    assert torch.equal(TabularPolicy.load(folders["seeker"]).state_dict()["logits"], state["logits"])


def test_the_best_look_is_not_put_in_place_of_the_team_that_was_proved(trained: Trained, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained.directory, run)
    before = {path: path.read_bytes() for path in (run / "seed-0" / "policies").rglob("*") if path.is_file()}
    folders = export(run, best=True, trust=True)
    assert set(folders.values()) == {run / "seed-0" / "best" / name for name in ("guide", "seeker")}
    assert Team.load(run / "seed-0" / "best").policies.keys() == folders.keys()
    assert {path: path.read_bytes() for path in (run / "seed-0" / "policies").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("policy", [None, "seeker"])
def test_a_damaged_team_is_exported_again(trained: Trained, tmp_path: Path, policy: str | None) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained.directory, run)
    stored = run / "seed-0" / "policies"
    (oldest, *_) = sorted((run / "seed-0" / "checkpoints").glob("iteration-*"))
    table = TabularPolicy.load(stored / "guide")
    table.load_state_dict(checkpoints.load(oldest)["policies"]["guide"])
    table.save(stored / "guide")  # of another iteration than the file that lists the team
    (stored / "seeker" / "model.safetensors").unlink()
    with pytest.raises(StorageError, match="export it again"):
        Team.load(run)
    assert set(export(run, policy=policy, trust=True)) == ({"guide", "seeker"} if policy is None else {policy})
    assert Team.load(run).state_dict().keys() == {"guide", "seeker"}
    whole = Team.load(trained.directory).state_dict()
    assert all(torch.equal(Team.load(run)[name].state_dict()["logits"], whole[name]["logits"]) for name in whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 5}, "no seed 5 there; its seeds: 0, 1"),
        ({"policy": "sucker"}, "no policy 'sucker' with parameters; did you mean 'seeker'"),
    ],
)
def test_what_is_not_there_is_not_exported(trained: Trained, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        export(trained.directory, trust=True, **options)


def test_no_run_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no recipe\.yaml: give a directory"):
        export(tmp_path)


def test_pushing_is_a_call_that_may_fail(tmp_path: Path) -> None:
    sent: list[Any] = []

    def upload(folder: Path, repository: str) -> str:
        sent.append((folder, repository))
        return f"hub/{repository}"

    assert push(tmp_path, "me/model", upload=upload) == "hub/me/model"
    assert sent == [(tmp_path, "me/model")]

    def fail(folder: Path, repository: str) -> str:
        raise ConnectionError("nobody there")

    with pytest.raises(StorageError, match=r"cannot push .* to 'me/model': ConnectionError: nobody there"):
        push(tmp_path, "me/model", upload=fail)
