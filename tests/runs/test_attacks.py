"""A trained team with an adversary in one seat, in a world whose best attack is known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palaestra.agents import Request, Team
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, StorageError
from palaestra.foundation.files import read_object
from palaestra.interface import library
from palaestra.interface.cli import main
from palaestra.interface.report import write_attack
from palaestra.learning.stages.stage import Stages
from palaestra.runs import attacks, saved_policies
from palaestra.runs.jobs import train
from palaestra.runs.recipe import validate
from palaestra.runs.seed import run_seed

TEAM: dict[str, Any] = {
    "name": "pair",
    "env": {"make": "signalling:Signalling", "options": {"places": 40}},
    "policies": {"guide": {"kind": "tabular"}, "seeker": {"kind": "tabular"}},
    "team": {"guide": "guide", "seeker": "seeker"},
    "warm_start": {"script": "signalling:mumbler", "options": {"clarity": 1.0}, "groups": 60, "steps": 40, "lr": 0.3},
    "learn": {"lr": 0.3},
    "train": {"iterations": 0, "groups": 8, "group_size": 8, "evaluate_every": 10, "checkpoint_every": 10},
    "evaluation": {"tasks": 24, "trials": 2, "look_tasks": 4, "look_trials": 1},
    "seeds": 2,
}
"""Two tables that imitate perfect signals: the team succeeds, and a seeker that never says the colour is the worst."""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, recipe = tmp_path_factory.mktemp("attacks") / "run", validate(TEAM, trust=True)
    for seed in recipe.seeds:
        run_seed(recipe, seed, folder / f"seed-{seed}")
    (folder / "recipe.yaml").write_text(recipe.dump())
    return folder


@pytest.fixture(scope="module")
def harmed(team: Path) -> dict[str, Any]:
    return library.attack(team, "seeker", iterations=20, jobs=1, trust=True)


def test_a_trained_attacker_finds_the_worst_play_and_an_untrained_one_does_not(harmed: dict[str, Any]) -> None:
    intact, untrained, trained = (harmed["systems"][name]["mean"] for name in ("intact", "untrained", "trained"))
    assert intact > 0.95
    assert 0.2 < untrained < 0.5  # a random seeker is right in a third of the episodes
    assert trained < 0.05  # a seeker that knows the signals is never right
    loss, member, added = (harmed["differences"][name] for name in ("loss", "untrained", "added"))
    assert loss["mean"] == pytest.approx(intact - trained)
    assert loss["mean"] == pytest.approx(member["mean"] + added["mean"])
    for each in (loss, member, added):
        assert each["low"] <= each["mean"] <= each["high"]
        assert each["low"] < each["high"]
        assert (each["clear"], each["comparisons"]) == (True, 3)
    assert added["low"] > 0
    assert "training added" in harmed["verdict"]
    assert harmed["seeds"] == harmed["teams"] == [0, 1]


def test_the_others_stay_as_they_were_trained(team: Path, harmed: dict[str, Any]) -> None:
    seen = Observation("see red", choices=("la", "mi", "so"))
    for seed in (0, 1):
        before = Team.load(team, seed=seed)["guide"].state_dict()
        after = Team.load(team / "attacks" / "seeker" / "training", seed=seed)
        tensors = after["guide"].state_dict()
        assert all(torch.equal(value, tensors[name]) for name, value in before.items() if torch.is_tensor(value))
        assert after["seeker"].name == "attacker"
    guide = saved_policies.saved_policy(str(team), "guide", [0, 1], seed=1, name="other")
    assert guide.name == "other"
    assert not guide.parameters()
    request = Request(seen, "guide", lambda _: np.random.default_rng(0))
    assert guide.act([request])[0].action == Team.load(team, seed=1)["guide"].act([request])[0].action


def test_the_page_shows_the_worst_episodes_beside_those_of_the_intact_team(team: Path, harmed: dict[str, Any]) -> None:
    folder = team / "attacks" / "seeker"
    stored = read_object(folder / "summary.json") or {}
    assert stored == harmed
    assert all(each["harm"] == 1 for each in stored["worst"])
    assert len({each["task"] for each in stored["worst"]}) == len(stored["worst"]) == 6
    page = write_attack(folder).read_text()
    assert page.count('class="episode"') == 12
    assert "trained attacker" in page
    shown = page.split('class="episode"')[1:]
    assert all("team&#39;s own" in each for each in shown[::2])  # the intact team's member of that seat
    assert not any("team&#39;s own" in each for each in shown[1::2])
    assert "lower bound" in page
    (folder / "summary.json").write_text((folder / "summary.json").read_text().replace('"trials": 2', '"trials": 9'))
    with pytest.raises(StorageError, match="was changed after it was written"):
        write_attack(folder)
    library.attack(team, "seeker", iterations=20, jobs=1, trust=True)  # finished: it is only summed up again
    assert read_object(folder / "summary.json") == stored


def test_a_target_is_what_the_attacker_is_paid_for(team: Path, tmp_path: Path) -> None:
    target = "is_in('agent', 'seeker') & is_in('action', 'blue')"
    found = library.attack(
        team, "guide", target=target, iterations=25, seeds=1, directory=tmp_path / "out", jobs=1, trust=True
    )
    often = {name: each["mean"] for name, each in found["target_systems"].items()}
    assert often["intact"] < 0.55  # as often as the colour is blue
    assert often["trained"] > 0.9  # the guide always says the word for blue
    assert found["target_differences"]["added"]["clear"]
    assert found["systems"]["trained"]["mean"] < 0.55  # right where it is blue
    assert "targeted behaviour" in found["verdict"]
    assert "is above 0 in a turn" in (tmp_path / "out" / "report.html").read_text()


def test_what_is_kept_of_a_recipe(team: Path) -> None:
    changed = {
        "reward": {"main": "success_reward()", "cost": "0.1 * reward"},
        "stages": ["replay(k=1)"],
        "credit": "gigpo()",
        "learn": {"lr": {"seeker": 0.2, "guide": 0.1}, "terms": ["surrogate()", "kl(0.1)"]},
        "evaluation": TEAM["evaluation"] | {"controls": {"random": {"script": "random"}}, "agents": ["seeker"]},
        "warm_start": TEAM["warm_start"],
        "train": TEAM["train"] | {"budget": {"turns": 500}},
    }
    recipe = validate(TEAM | changed, trust=True)
    found = attacks.derive(recipe, team, [0, 1], seat="seeker", seeds=3)
    assert found.team == {"guide": "guide", "seeker": "attacker"}
    assert [found.policies[name].kind for name in ("guide", "attacker")] == ["saved", "tabular"]
    assert "seeker" not in found.policies
    assert found.evaluation.controls["intact"].policies is not None
    assert found.evaluation.controls["intact"].policies["attacker"].options["policy"] == "seeker"
    assert found.evaluation.agents == ("guide",)  # the attacker's own success is nobody's loss
    assert (found.learn.lr, found.learn.terms, found.train.budget) == (0.2, ("surrogate()",), None)
    assert (found.warm_start, found.stages, found.seeds) == (None, (), (0, 1, 2))
    assert "success_reward()" in str(found.reward)
    assert Stages(found.stages).reward_at == 0
    shared = validate(TEAM | {"team": {"*": "guide"}}, trust=True)
    found = attacks.derive(shared, team, [0], seat="seeker")
    assert (found.team, found.policies["guide"].kind) == ({"guide": "guide", "seeker": "attacker"}, "saved")
    tiny = attacks.derive(recipe, team, [0], seat="guide", kind="tiny")
    assert tiny.warm_start == recipe.warm_start


def test_influence_is_taken_off_in_each_turn(team: Path) -> None:
    recipe = validate(TEAM, trust=True)
    found = attacks.derive(recipe, team, [0, 1], seat="guide", influence=0.2)
    assert Stages(found.stages).names == ["minority_influence"]
    assert "0.2 * fill_missing('influence', 0.0)" in str(found.reward)
    assert found.credit == attacks.BY_TURN
    without = attacks.derive(recipe, team, [0, 1], seat="guide", influence=0.0)
    assert (without.stages, without.credit) == ((), attacks.BY_TURN)
    assert "influence" not in str(without.reward)


def test_a_recipe_names_attacks_as_a_part_of_its_proof(tmp_path: Path) -> None:
    asked = {"bad": {"seat": "seeker", "iterations": 12, "influence": 0.05}}
    recipe = validate(TEAM | {"evaluation": TEAM["evaluation"] | {"attacks": asked}, "seeds": 1}, trust=True)
    found = library.train(recipe, directory=tmp_path / "run", jobs=1)["attacks"]["bad"]
    loss = found["differences"]["loss"]
    assert loss["low"] <= loss["mean"] <= loss["high"]
    assert loss["mean"] > 0.4
    assert (tmp_path / "run" / "attacks" / "bad" / "report.html").exists()
    assert read_object(tmp_path / "run" / "summary.json")["attacks"]["bad"]["seat"] == "seeker"  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seat": ""}, "give --seat, the agent that the attacker plays: one of guide, seeker"),
        ({"seat": "seker"}, "--seat 'seker': no such seat .*; did you mean 'seeker'"),
        ({"seat": "seeker", "target": "acton > 0"}, "--target: .*'acton'.*did you mean 'action'"),
        ({"seat": "seeker", "target": "col('verdicts') > 0"}, "the table of turns has no column 'verdicts'"),
        ({"seat": "seeker", "kind": "random"}, "--kind random does not learn; give a kind that does"),
        ({"seat": "seeker", "kind": "tabula"}, "no 'tabula' here; did you mean 'tabular'"),
    ],
)
def test_bad_input_is_named_before_play(team: Path, tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        attacks.attack(team, train=train, directory=tmp_path / "out", trust=True, **given)
    assert not (tmp_path / "out").exists()


def test_teams_without_a_seat_to_attack_are_named(
    team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lone = tmp_path / "lone"
    (lone / "seed-0").mkdir(parents=True)
    recipe = {"name": "lone", "env": {"make": "native/corridor"}, "policies": {"walker": {"kind": "tabular"}}}
    (lone / "recipe.yaml").write_text(validate(recipe | {"team": {"walker": "walker"}}).dump())
    with pytest.raises(InputError, match="walker: it is the only seat of the team"):
        attacks.attack(lone, train=train, seat="walker")
    empty = tmp_path / "empty"
    (empty / "seed-0").mkdir(parents=True)
    (empty / "recipe.yaml").write_text((team / "recipe.yaml").read_text())
    with pytest.raises(InputError, match="no seed has a checkpoint, so there is no trained team"):
        attacks.attack(empty, train=train, seat="seeker", trust=True)
    with pytest.raises(SystemExit) as stop:
        main(["attack", str(empty), "--seat", "seeker"])
    assert stop.value.code == 2
    assert "add --trust" in capsys.readouterr().err  # the recipe names a module of the tests
    scripted = validate(TEAM | {"policies": TEAM["policies"] | {"seeker": {"kind": "random"}}}, trust=True)
    with pytest.raises(InputError, match="seat 'seeker' is played by 'seeker', of kind 'random', which does not learn"):
        attacks.derive(scripted, team, [0], seat="seeker")


def test_saved_policies_that_are_not_there_are_named(team: Path) -> None:
    for options, said in (
        ({"run": str(team / "nowhere")}, "no stored team there"),
        ({"run": str(team), "policy": "gide"}, "no policy 'gide' there; did you mean 'guide'"),
        ({"run": str(team)}, "no policy None there"),
    ):
        with pytest.raises(InputError, match=said):
            saved_policies.saved_policy(**options)


def test_a_seat_that_a_recipe_attacks_and_that_is_not_there_is_named_before_play(tmp_path: Path) -> None:
    recipe = validate(TEAM | {"evaluation": TEAM.get("evaluation", {}) | {"attacks": {"seker": {}}}}, trust=True)
    with pytest.raises(InputError, match=r"evaluation\.attacks\.seker: no seat 'seker' .*did you mean 'seeker'"):
        train(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_attacker_with_every_seat_is_refused_before_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lone = {"name": "lone", "env": {"make": "native/corridor"}, "policies": {"walker": {"kind": "tabular"}}}
    recipe = validate(lone | {"team": {"walker": "walker"}, "evaluation": {"attacks": {"walker": {}}}})
    with pytest.raises(InputError, match=r"evaluation\.attacks\.walker: 'walker' is the only seat, so nobody is left"):
        train(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "lone" / "seed-0").mkdir(parents=True)
    (tmp_path / "lone" / "recipe.yaml").write_text(recipe.dump())
    for seat, said in (("walker", "it is the only seat of the team"), ("walker,other", "no such seat")):
        with pytest.raises(SystemExit) as stop:
            main(["attack", str(tmp_path / "lone"), "--seat", seat])
        assert stop.value.code == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert said in line


def test_a_team_that_was_trained_on_is_attacked_anew_and_one_that_only_moved_is_not(team: Path, tmp_path: Path) -> None:
    def attacked(run: Path) -> dict[str, Any]:
        return library.attack(run, "seeker", iterations=1, jobs=1, trust=True, overrides=["evaluation.tasks=6"])

    def result(run: Path, seed: int) -> Path:
        return run / "attacks" / "seeker" / "training" / f"seed-{seed}" / "result.json"

    def kept(run: Path) -> list[int]:
        return [result(run, seed).stat().st_mtime_ns for seed in (0, 1)]

    run, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(team, run, ignore=shutil.ignore_patterns("attacks"))
    before, times = attacked(run), kept(run)
    run.rename(moved)
    assert attacked(moved) == before | {"run": str(moved), "checksum": attacked(moved)["checksum"]}
    assert kept(moved) == times
    stored = moved / "seed-1" / "policies"
    shutil.rmtree(stored)
    shutil.copytree(moved / "seed-0" / "policies", stored)  # the team of seed 1 is now another
    attacked(moved)
    assert (kept(moved)[0], kept(moved)[1] > times[1]) == (times[0], True)
    guides = [Team.load(folder, seed=1)["guide"].state_dict() for folder in (moved, result(moved, 1).parents[1])]
    assert torch.equal(guides[0]["logits"], guides[1]["logits"])


def test_a_seed_is_added_to_a_run_that_was_attacked(tmp_path: Path) -> None:
    asked = {"seeker": {"iterations": 1}}
    evaluation = TEAM["evaluation"] | {"tasks": 6, "attacks": asked}
    for seeds in ([0], [0, 1]):
        recipe = validate(TEAM | {"evaluation": evaluation, "seeds": seeds}, trust=True)
        found = train(recipe, tmp_path / "run", resume=True, jobs=1)
        assert found["attacks"]["seeker"]["systems"]["trained"]["mean"] >= 0
        assert (read_object(tmp_path / "run" / "attacks" / "seeker" / "summary.json") or {})["seeds"] == seeds
