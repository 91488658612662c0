"""`opponents` of a recipe: what is wrong is named before play; a killed league goes on bit for bit; files and pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, RecipeError, StorageError
from palaestra.evaluation.games import read_game
from palaestra.evaluation.ranking import read_matches
from palaestra.interface.cli import main
from palaestra.interface.report import write_report
from palaestra.learning import checkpoints
from palaestra.learning.league.trainer import PhasedLeagueTrainer
from palaestra.play.executors import Local
from palaestra.runs import build
from palaestra.runs.inline import learn
from palaestra.runs.jobs import train
from palaestra.runs.measures import lower_is_better, measure
from palaestra.runs.recipe import load, validate
from palaestra.runs.trainers import trainer_of

KUHN: dict[str, Any] = {
    "name": "kuhn",
    "env": {"make": "openspiel/kuhn_poker"},
    "policies": {
        "one": {"kind": "tabular"}, "two": {"kind": "tabular"}, "dice": {"kind": "random"},
        "fair": {"kind": "script", "options": {"script": "kuhn"}},
    },
    "team": {"*": "one"},
    "credit": 'centre(agent_return(), over=("group", "agent"), unit="episode")',
    "learn": {"lr": 0.3},
    "train": {"iterations": 6, "groups": 4, "group_size": 2, "checkpoint_every": 2, "save_turns": "all"},
}  # fmt: skip
SEATED = {"player_0": "one", "player_1": "two"}


def kuhn(opponents: Any, **changes: Any) -> dict[str, Any]:
    return KUHN | {"opponents": opponents} | changes


# -- what is wrong is said before play -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opponents", "complaint"),
    [
        (
            {"method": "uniform", "every": None},
            r"opponents: a league without opponents: no snapshots .*scripts: \[NAME\]",
        ),
        ({"method": "latest", "every": None, "floor": 0.1}, r"opponents: a league without opponents"),
        ("scripts", r"opponents: a league without opponents: method scripts meets scripts"),
        ("psro(nsh)", r"opponents.method: .*unknown solver 'nsh'; did you mean 'nash'"),
        ("psr(nash)", r"opponents.method: .*unknown matchmaking 'psr'; did you mean 'psro'"),
        ({"floor": 1.5}, r"opponents.floor: .*less than or equal to 1"),
        ({"floor": -0.1}, r"opponents.floor: .*greater than or equal to 0"),
        ({"every": 0}, r"opponents.every: "),
        ({"rules": "latest"}, r"opponents.rules: unknown field"),
        ({"scripts": ["fairr"]}, r"opponents.scripts: no policy 'fairr'; did you mean 'fair'"),
        ({"scripts": "one"}, r"opponents.scripts: 'one' has a seat in the team"),
        ({"method": "psro(nash)", "matches": 0}, r"opponents: matches: method psro\(nash\) needs the pay-offs"),
        (
            {"method": "psro(nash)", "every": None, "scripts": "dice"},
            r"opponents: every: method psro\(nash\) weighs past",
        ),
        ({"seats": [[]]}, r"opponents: seats: a list without a seat"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_named(opponents: Any, complaint: str) -> None:
    with pytest.raises(RecipeError, match=complaint):
        validate(kuhn(opponents))


@pytest.mark.parametrize(
    ("opponents", "changes", "complaint"),
    [
        ({"seats": ["player_2"]}, {}, r"opponents.seats: the env has no agent 'player_2'; did you mean 'player_"),
        (
            {"seats": ["player_0", "player_1"]},
            {},
            r"opponents.seats: with opponents in player_0, player_1 nobody learns",
        ),
        (
            {"seats": ["player_0"]},
            {"team": {"player_0": "one", "player_1": "dice"}},
            r"opponents.seats: with opponents in player_0 nobody learns: no other seat .*\(one\)",
        ),
        ({"seats": ["player_1"]}, {"team": SEATED}, r"policy 'two' sits in player_1 only, .*learn.freeze"),
        (
            {"seats": ["player_1"]},
            {"team": {"player_0": "one", "player_1": "dice"}},
            None,  # past selves of the one policy that learns sit where the script is in the proof
        ),
        (
            {"seats": ["player_2"]},  # whose past self should sit there?
            {"env": {"make": "openspiel/kuhn_poker(players=3)"}, "team": {**SEATED, "player_2": "fair"}},
            r"opponents.seats: no past self can sit in player_2, where no policy learns, and several do elsewhere; "
            r"name scripts and every: null, or seats of a policy that learns",
        ),
        (
            {"seats": ["player_2"], "scripts": ["dice"], "every": None, "method": "scripts"},
            {"env": {"make": "openspiel/kuhn_poker(players=3)"}, "team": {**SEATED, "player_2": "fair"}},
            None,
        ),
        ({"scripts": ["lost"]}, {"policies": KUHN["policies"] | {"lost": {"kind": "random"}}}, None),
        (
            {},
            {"env": {"make": "native/arms"}, "team": {"*": "one"}},
            r"opponents: a league without opponents: the env has",
        ),
        (
            "psro(nash)",
            {"env": {"make": "native/bargaining", "options": {"rounds": 2}}},
            r"opponents.method: psro\(nash\): the env's returns do not add up to a constant, and nash: .*alpha_rank",
        ),
        ("psro(alpha_rank)", {"env": {"make": "native/bargaining", "options": {"rounds": 2}}}, None),
    ],
)
def test_what_cannot_be_played_is_said_before_play(opponents: Any, changes: Any, complaint: str | None) -> None:
    setup = build.resolve(validate(kuhn(opponents, **changes)))
    if complaint is None:
        build.check(setup)
        return
    with pytest.raises(InputError, match=complaint):
        build.check(setup)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("opponents.every=null", "a league without opponents: no snapshots are taken"),
        ("opponents.method=scripts", "a league without opponents: method scripts meets scripts"),
        ("opponents.seats=[]", "seats: a list without a seat"),
        ("opponents.seats=[[player_0,player_1]]", "with opponents in player_0, player_1 nobody learns"),
        ("env.make=openspiel/matrix_pd", "matrix_pd is not zero- or constant-sum"),
    ],
)
def test_the_terminal_says_it_before_play_in_one_line(
    override: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspiel")
    with pytest.raises(SystemExit) as stop:
        main(["train", "leduc-psro", override, "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert not (tmp_path / "out").exists()


def test_a_script_that_is_not_there_and_play_ahead_are_named() -> None:
    lost = {"kind": "script", "options": {"script": "kuhnn"}}
    with pytest.raises(RecipeError, match=r"policies.fair.options: unknown script .kuhnn.; did you mean 'kuhn'"):
        validate(kuhn({"scripts": "fair"}, policies=KUHN["policies"] | {"fair": lost}))
    with pytest.raises(RecipeError, match=r"opponents: .*write train.lag: 0"):
        validate(kuhn("uniform", train={**KUHN["train"], "lag": 1}))


def test_credit_may_read_the_opponent() -> None:
    credit = 'centre(agent_return(), over=("opponent", "agent"), unit="episode")'
    build.check(build.resolve(validate(kuhn("uniform", credit=credit))))
    with pytest.raises(InputError, match="needs column 'opponent'"):
        build.check(build.resolve(validate(KUHN | {"credit": credit})))


# -- killed and resumed ----------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


def run(directory: Path, opponents: Any, *, die_at: int = 0, resume: bool = False, **changes: Any) -> dict[str, Any]:
    setup = build.resolve(validate(kuhn(opponents, **changes)))
    team = setup.team(0, ())

    def die(iteration: int, turns: Turns) -> None:
        if iteration == die_at:
            raise Killed

    made = trainer_of(
        setup, team, setup.learner(team), Local(), seed=0, corpus=(), directory=directory, on_turns=die,
        checkpoint_every=2, save_turns="all",
    )  # fmt: skip
    made.run(resume=resume)
    state: dict[str, Any] = checkpoints.load(checkpoints.path_of(directory / "checkpoints", 6))
    return state


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool((one == other).all()) if hasattr(one, "all") else bool(one == other)


@pytest.mark.parametrize(
    "opponents",
    [
        {"method": "psro(nash)", "every": 1, "matches": 4, "scripts": ["fair"]},
        {"method": "pfsp(hard)", "every": 3, "matches": 0, "floor": 0.3},
        {"method": "latest", "every": 2, "matches": 2, "floor": 0.5},
    ],
    ids=["psro", "pfsp", "latest"],
)
@pytest.mark.parametrize("die_at", [1, 4])
def test_a_killed_league_ends_as_one_that_was_not(tmp_path: Path, opponents: Any, die_at: int) -> None:
    whole = run(tmp_path / "whole", opponents)
    with pytest.raises(Killed):
        run(tmp_path / "killed", opponents, die_at=die_at)
    resumed = run(tmp_path / "killed", opponents, resume=True)
    for part in ("policies", "learner", "league"):
        assert same(whole[part], resumed[part]), part
    for name in ("payoffs.json", "payoffs.csv", "matches.csv") if opponents["matches"] else ():
        one, other = (tmp_path / folder / "league" / name for folder in ("whole", "killed"))
        assert one.read_bytes() == other.read_bytes()
    for iteration in range(1, 7):
        name = f"turns/iteration-{iteration:06d}.parquet"
        one, other = (Turns.load(tmp_path / folder / name).frame for folder in ("whole", "killed"))
        assert one.drop("duration").equals(other.drop("duration"))
        assert one["opponent"].null_count() == 0


def test_a_resume_with_other_opponents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tmp_path, {"method": "uniform", "matches": 0, "every": 1}, die_at=4)
    with pytest.raises(InputError, match="the run was made with opponents="):
        run(tmp_path, {"method": "uniform(recent=.5)", "matches": 0, "every": 1}, resume=True)


def test_phases_and_a_league_go_together(tmp_path: Path) -> None:
    phases = [{"name": "a", "until": 3}, {"name": "b", "learn": {"lr": 0.1}}]
    opponents = {"method": "uniform", "every": 2, "matches": 2}
    whole = run(tmp_path / "whole", opponents, phases=phases)
    with pytest.raises(Killed):
        run(tmp_path / "killed", opponents, die_at=5, phases=phases)
    resumed = run(tmp_path / "killed", opponents, resume=True, phases=phases)
    assert all(same(whole[part], resumed[part]) for part in ("policies", "phase", "league"))
    setup = build.resolve(validate(kuhn(opponents, phases=phases)))
    team = setup.team(0, ())
    made = trainer_of(setup, team, setup.learner(team), Local(), seed=0, corpus=())
    assert isinstance(made, PhasedLeagueTrainer)
    assert [line["phase"] for line in made.run()] == ["a"] * 3 + ["b"] * 3


# -- a run as a person has it ----------------------------------------------------------------------------------------


def test_a_run_keeps_its_matrix_and_shows_it(tmp_path: Path) -> None:
    evaluation = {
        "tasks": 4, "trials": 1, "look_tasks": 4, "look_trials": 1, "measure": "league_exploitability",
        "metrics": ["league_exploitability", "exploitability"],
    }  # fmt: skip
    part = {"method": "psro(nash, evaluate=uniform)", "every": 2, "matches": 4, "scripts": ["fair"]}
    recipe = validate(kuhn(part, evaluation=evaluation))
    summary = train(recipe, tmp_path / "run", jobs=1)
    assert summary["measure"] == "league_exploitability"
    values = json.loads((tmp_path / "run" / "seed-0" / "result.json").read_text())["metrics"]
    assert values["league_exploitability"]["before"] == pytest.approx(11 / 24), "uniform play of Kuhn poker"
    assert values["league_exploitability"]["after"] != values["exploitability"]["after"]
    folder = tmp_path / "run" / "seed-0" / "league"
    assert read_game(folder / "payoffs.json").strategies[0] == ("0", "2", "4", "6")  # type: ignore[union-attr]
    assert set(read_matches(folder / "matches.csv").names) == {"0", "2", "4", "6", "fair"}
    page = write_report(tmp_path / "run").read_text()
    assert "Who earns what against whom" in page
    assert "Its answer, by the latest snapshot" in page
    (folder / "payoffs.csv").write_text("no,table\n1,2\n")
    with pytest.raises(StorageError, match=r"payoffs.csv: not the table of a league"):
        write_report(tmp_path / "run")


def test_the_measure_of_a_league_is_of_its_mixture() -> None:
    game = "matrix_rps"
    rock, paper, scissors = (
        {key: {a: float(a == hand) for a in range(3)} for key in _states(game)} for hand in range(3)
    )
    thirds = [(each, 1 / 3) for each in (rock, paper, scissors)]
    assert measure("league_exploitability", game, [rock], league=thirds) == pytest.approx(0)
    assert measure("league_exploitability", game, [rock]) == measure("exploitability", game, [rock]) == 1.0
    assert lower_is_better("league_nash_conv")
    with pytest.raises(RecipeError, match="unknown measure 'league_exploitabilty'; did you mean"):
        measure("league_exploitabilty", game, [rock])


def _states(game: str) -> list[str]:
    from palaestra.envs.worlds.exact.exploitability import information_states

    return [state.key for state in information_states(game)]


def test_the_shipped_recipe_and_its_control_can_be_played() -> None:
    recipe = load("leduc-psro")
    build.check(build.resolve(recipe))
    assert recipe.opponents is not None
    control = recipe.evaluation.controls["self-play"].train
    assert control == {"opponents": None}


def test_past_selves_sit_in_training_where_a_script_is_in_the_proof() -> None:
    recipe = validate(kuhn({"method": "latest", "seats": ["player_1"]}, team={"player_0": "one", "player_1": "dice"}))
    teams = []
    learn(recipe, on_turns=lambda iteration, turns: teams.append({*turns["policy"].cast(pl.String)}))
    assert teams
    assert all("dice" not in found and len(found) == 2 for found in teams)
