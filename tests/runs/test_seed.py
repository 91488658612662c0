"""One seed: every system meets the same held-out tasks, and an interrupted seed ends as an uninterrupted one."""

from __future__ import annotations

import contextlib
import gc
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from quick import QUICK, validate

from palaestra.agents import TabularPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import EnvError, InputError, RecipeError
from palaestra.learning import Trainer, checkpoints
from palaestra.play.executors import Local
from palaestra.runs import build
from palaestra.runs import seed as experiment
from palaestra.runs.recipe import Recipe, alone, override
from palaestra.runs.seed import Clock, Training, run_seed

KUHN: dict[str, Any] = {
    "name": "kuhn",
    "env": {"make": "openspiel/kuhn_poker"},
    "policies": {"player": {"kind": "tabular"}},
    "team": {"*": "player"},
    "credit": 'centre(agent_return(), over=("group", "agent"), unit="episode")',
    "learn": {"lr": 0.3},
    "train": {"iterations": 10, "groups": 8, "group_size": 4, "evaluate_every": 4, "checkpoint_every": 3},
    "evaluation": {
        "tasks": 6,
        "trials": 1,
        "look_tasks": 4,
        "look_trials": 1,
        "measure": "average_exploitability",
        "metrics": ["average_exploitability", "exploitability"],
        "agents": ["player_0"],
    },
}


PHASES: dict[str, list[tuple[int, int, str]]] = {}
"""What `one_seed` reported while it lasted."""


class Told:
    """A tracker, and what those of `one_seed` were told."""

    by_name: dict[str, list[tuple[int, float | None]]] = {}
    closed: list[str] = []

    def __init__(self, run: Any) -> None:
        self.name = run.name
        assert run.config["train"]["iterations"] == 6

    def log(self, iteration: int, metrics: Any) -> None:
        self.by_name.setdefault(self.name, []).append((iteration, metrics["reward"]))

    def close(self) -> None:
        self.closed.append(self.name)


def quick(**changes: Any) -> Recipe:
    return override(alone(validate(QUICK)), changes)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def final(directory: Path) -> dict[str, Any]:
    found = checkpoints.latest(directory / "checkpoints")
    assert found is not None
    return checkpoints.load(found)["policies"]  # type: ignore[no-any-return]


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


def stop_at(iteration: int, monkeypatch: pytest.MonkeyPatch, *, before_checkpoint: bool = True) -> None:
    """The process ends in this iteration: KeyboardInterrupt passes through everything, as a kill would."""
    keep = Trainer._keep

    def stopping(self: Trainer, now: int, trained: Turns, rest: Turns) -> None:
        if now == iteration and before_checkpoint:
            raise KeyboardInterrupt
        keep(self, now, trained, rest)
        if now == iteration:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_keep", stopping)


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("seed") / "seed-3"
    recipe = override(validate(QUICK), {"track": [f"{__name__}:Told()"]})

    def report(phase: str, done: int, total: int, note: str = "", lines: Any = ()) -> None:
        PHASES.setdefault(phase, []).append((done, total, note))

    return directory, run_seed(recipe, 3, directory, progress=report)


def test_every_system_meets_the_same_tasks(one_seed: tuple[Path, dict[str, Any]]) -> None:
    played = Turns.load(one_seed[0] / "evaluation.parquet").frame
    by_system = {
        str(name): frame.unique(["group", "episode"])
        .sort("group", "episode")
        .select("group", "episode", "task", "seed")
        for (name,), frame in played.group_by(["system"])
    }
    assert by_system.keys() == {"before", "after", "random", "scripted", "idle"}
    assert all(frame.equals(by_system["before"]) for frame in by_system.values())
    assert by_system["before"].height == 12 * 2
    assert played["run"].unique().to_list() == ["3"]


def test_what_a_seed_says_while_it_lasts(one_seed: tuple[Path, dict[str, Any]]) -> None:
    assert list(PHASES) == [
        "warming up guide", "warming up seeker", "training", "control idle, training", "proving",
    ], "idle begins with the same warm start"  # fmt: skip
    assert [(done, total) for done, total, _ in PHASES["warming up guide"]] == [(step, 10) for step in range(1, 11)]
    assert [(done, total) for done, total, _ in PHASES["training"]] == [(iteration, 6) for iteration in range(1, 7)]
    assert PHASES["training"][0][2].startswith("reward 0.")
    assert "success" in PHASES["training"][0][2]
    assert [done for done, _, _ in PHASES["proving"]] == [0, 1, 2, 3, 4]


def test_trackers_are_told_what_is_in_the_metrics(one_seed: tuple[Path, dict[str, Any]]) -> None:
    directory, _ = one_seed
    assert Told.closed == ["quick seed 3", "quick seed 3 control-idle"]
    for name, folder in zip(Told.closed, (directory, directory / "control-idle")):
        assert Told.by_name[name] == [(line["iteration"], line["reward"]) for line in lines(folder)]


def test_a_control_can_be_a_training_of_its_own(one_seed: tuple[Path, dict[str, Any]]) -> None:
    directory, _ = one_seed
    start, idle = final(directory), final(directory / "control-idle")
    assert not equal(start, idle)
    begun = checkpoints.load(directory / "control-idle" / "start" / "iteration-000000")["team"]
    assert torch.equal(idle["guide"]["logits"], begun["guide"]["logits"]), "it was trained with a learning rate of 0"
    assert len(lines(directory / "control-idle")) == 6


def test_what_a_seed_leaves_behind(one_seed: tuple[Path, dict[str, Any]]) -> None:
    directory, result = one_seed
    assert json.loads((directory / "result.json").read_text()) == result
    assert result["seed"] == 3
    assert result["errors"] == {}
    assert result["metrics"] == {}
    assert result["cpu_seconds"] > result["train_cpu_seconds"] == lines(directory)[-1]["cpu_seconds"]
    looked = [line["iteration"] for line in lines(directory) if line["evaluation"]]
    assert looked == [3, 6]
    assert sorted(path.name for path in directory.glob("look-*")) == [f"look-{i:06d}.parquet" for i in (0, 3, 6)]
    tasks = [pl.read_parquet(path)["unit"].to_list() for path in directory.glob("look-*")]
    assert all(each == tasks[0] for each in tasks)
    assert len(tasks[0]) == 6
    assert pl.read_parquet(directory / "look-000000.parquet").columns == ["unit", "value", "score"]


def test_looks_and_final_comparison_are_other_tasks(one_seed: tuple[Path, dict[str, Any]]) -> None:
    """Tasks of this world carry a random number, so equal names would be equal draws."""
    directory, _ = one_seed
    final_tasks = set(Turns.load(directory / "evaluation.parquet")["task"])
    looked = set(pl.read_parquet(directory / "look-000000.parquet")["unit"])
    trained = set(Turns.load(directory / "turns")["task"])
    assert len(final_tasks & looked) <= 1
    assert len(final_tasks & trained) <= 1


def test_held_out_tasks_that_were_trained_on(one_seed: tuple[Path, dict[str, Any]]) -> None:
    directory, result = one_seed
    met = {key for line in (directory / "tasks.jsonl").read_text().splitlines() for key in json.loads(line)["tasks"]}
    trained_on = set(Turns.load(directory / "turns")["task"])
    assert {experiment.task_key(task) for task in trained_on} <= met
    held_out = set(Turns.load(directory / "evaluation.parquet")["task"])
    assert set(result["met_in_training"]) == {experiment.task_key(task) for task in held_out} & met


def test_what_was_there_before_training_is_left_alone_by_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.unfreeze()
    monkeypatch.setattr(experiment.Training, "run", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_seed(quick(), 0, tmp_path)
    assert gc.get_freeze_count() > 10_000


def test_training_helps_and_the_same_seed_gives_the_same(one_seed: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    assert final(one_seed[0])["guide"]["logits"].abs().sum() > 0
    again = tmp_path / "again"
    run_seed(alone(validate(QUICK)), 3, again)
    assert equal(final(again), final(one_seed[0])), "controls take no part in training"


def test_a_finished_seed_is_not_done_again(
    one_seed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "Training", None)
    assert run_seed(validate(QUICK), 3, one_seed[0], resume=True) == one_seed[1]


def test_evaluation_tasks_of_reasoning_gym_are_held_out(tmp_path: Path) -> None:
    sums = {"chain_sum": {"min_terms": 2, "max_terms": 2, "max_digits": 1}}
    tiny = {"hidden": 16, "layers": 1, "heads": 2, "max_new_tokens": 2}
    recipe = validate({
        "name": "sums",
        "env": {"make": "reasoning_gym", "options": {"prompt": "short", "datasets": sums}},
        "policies": {"solver": {"kind": "tiny", "options": tiny}},
        "team": {"*": "solver"},
        "warm_start": {"script": "answers", "groups": 20, "steps": 2},
        "train": {"iterations": 1, "groups": 30, "group_size": 2, "save_turns": "all"},
        "evaluation": {"tasks": 30, "trials": 1, "look_tasks": 30, "look_trials": 1},
    })  # fmt: skip
    run_seed(recipe, 0, tmp_path)
    questions = {name: set(Turns.load(tmp_path / name)["observation"]) for name in ("turns", "evaluation.parquet")}
    looked = set(pl.read_parquet(tmp_path / "look-000000.parquet")["unit"])
    trained = set(Turns.load(tmp_path / "turns")["task"])
    assert len(questions["turns"]) > 10
    assert not questions["turns"] & questions["evaluation.parquet"], "not even the same question under another number"
    assert not trained & looked


@pytest.mark.parametrize("before_checkpoint", [True, False])
def test_the_average_policy_survives_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_checkpoint: bool
) -> None:
    recipe = validate(KUHN)
    whole = run_seed(recipe, 0, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_at(6, patch, before_checkpoint=before_checkpoint)
        with pytest.raises(KeyboardInterrupt):
            run_seed(recipe, 0, tmp_path / "resumed")
    assert len((tmp_path / "resumed" / "tables.jsonl").read_text().splitlines()) == 6
    resumed = run_seed(recipe, 0, tmp_path / "resumed", resume=True)
    assert resumed["metrics"] == whole["metrics"]
    assert resumed["met_in_training"] == whole["met_in_training"] != [], "there are few ways to deal three cards"
    assert resumed["metrics"]["average_exploitability"] != resumed["metrics"]["exploitability"]
    assert resumed["metrics"]["average_exploitability"]["before"] == pytest.approx(0.4583, abs=1e-4)
    measured = [[line["metrics"] for line in lines(tmp_path / name)] for name in ("whole", "resumed")]
    assert measured[0] == measured[1]
    assert [bool(each) for each in measured[0]] == [i in (4, 8, 10) for i in range(1, 11)]
    assert equal(final(tmp_path / "whole"), final(tmp_path / "resumed"))
    assert whole["seconds_to_significance"] is None, "play against itself says nothing of exploitability"


def test_a_seed_whose_budget_is_spent_is_measured_as_it_ended(tmp_path: Path) -> None:
    """Between two looks: the last one was of another team."""
    changes = {
        "train": {"budget": {"turns": 450}},
        "evaluation": {"metrics": ["exploitability"], "measure": "exploitability"},
    }
    found = run_seed(override(validate(KUHN), changes), 0, tmp_path)
    last = lines(tmp_path)[-1]
    assert (last["iteration"], bool(last["evaluation"])) == (6, True)
    assert last["metrics"] == {"exploitability": found["metrics"]["exploitability"]["after"]}


class Counted(Local):
    """An executor that knows which of them are open."""

    held: list[Counted] = []

    def __init__(self) -> None:
        super().__init__()
        self.held.append(self)

    def close(self) -> None:
        self.held.remove(self)


@pytest.mark.parametrize("failing", [0.0, 1.0])
def test_executors_are_closed_those_of_controls_and_of_seeds_that_fail_too(tmp_path: Path, failing: float) -> None:
    changes = {
        "env": {"options": {"failing": failing}}, "play": {"executor": f"{__name__}:Counted()"},
        "train": {"iterations": 1}, "warm_start": {"steps": 0},
    }  # fmt: skip
    with pytest.raises(EnvError) if failing else contextlib.nullcontext():
        run_seed(override(validate(QUICK), changes), 0, tmp_path)
    assert Counted.held == []


@pytest.mark.parametrize("failing", [0.0, 1.0])
def test_policies_are_closed_once_nobody_plays_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: float
) -> None:
    """One that started a server would leave it to the next seed of the process."""
    closed: list[tuple[str, bool]] = []

    def close(self: TabularPolicy) -> None:
        closed.append((self.name, (tmp_path / "evaluation.parquet").exists()))

    monkeypatch.setattr(TabularPolicy, "close", close, raising=False)
    changes = {
        "env": {"options": {"failing": failing}}, "train": {"iterations": 1}, "warm_start": {"steps": 0},
        "evaluation": {"controls": {"fresh": {"policies": {"guide": {"kind": "tabular"}}}}},
    }  # fmt: skip
    with pytest.raises(EnvError) if failing else contextlib.nullcontext():
        run_seed(quick(**changes), 0, tmp_path)
    assert set(closed) == {("guide", not failing), ("seeker", not failing)}
    assert len(closed) == (2 if failing else 4), "the trained ones and those of the control"


def test_a_seed_that_is_stopped_during_the_warm_start_or_a_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_seed: tuple[Path, dict[str, Any]]
) -> None:
    recipe, directory, learn = validate(QUICK), tmp_path / "seed-3", experiment.supervised_warm_start
    run = Training.run

    def interrupted_control(self: Training) -> list[dict[str, Any]]:
        return _interrupt() if self.directory.name.startswith("control-") else run(self)  # type: ignore[func-returns-value, no-any-return]

    for where, stop in ((experiment, _interrupt), (Training, interrupted_control)):
        with monkeypatch.context() as patch:
            patch.setattr(where, "run" if where is Training else "supervised_warm_start", stop)
            with pytest.raises(KeyboardInterrupt):
                run_seed(recipe, 3, directory, resume=True)
    assert not (directory / "evaluation.parquet").exists()
    before = json.loads((directory / "clock.json").read_text())
    warmed: list[None] = []
    monkeypatch.setattr(experiment, "supervised_warm_start", lambda *a, **o: warmed.append(learn(*a, **o)))
    result = run_seed(recipe, 3, directory, resume=True)
    assert not warmed, "both starts were on disk"
    assert equal(final(directory), final(one_seed[0]))
    columns = ["system", "group", "episode", "turn", "agent", "action", "reward"]
    played = [Turns.load(each / "evaluation.parquet").frame.select(columns) for each in (directory, one_seed[0])]
    assert played[0].equals(played[1])
    assert result["cpu_seconds"] > before["cpu_seconds"] > 0, "the time of the processes that were stopped counts"


def _interrupt(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("measure", "seconds"), [("success", 7.0), ("exploitability", None)])
def test_seconds_to_proof(measure: str, seconds: float | None, tmp_path: Path) -> None:
    """The first look that shows it counts; play among themselves shows nothing of exploitability."""
    part = {"measure": measure, "metrics": ["exploitability"]}
    training = object.__new__(Training)
    training.part, training.directory = quick(evaluation=part).evaluation, tmp_path
    units = [str(number) for number in range(40)]
    for iteration, value in ((0, 0.2), (5, 0.2), (10, 0.9), (15, 0.9)):
        frame = pl.DataFrame({"unit": units, "value": [value] * 40, "score": [None] * 40})
        frame.write_parquet(tmp_path / f"look-{iteration:06d}.parquet")
    looks = [{"iteration": i, "evaluation": {"n": 40}, "cpu_seconds": s} for i, s in ((5, 3.0), (10, 7.0), (15, 9.0))]
    assert training.seconds_to_significance(looks) == seconds
    assert training.seconds_to_significance([]) is None


def test_a_clock_goes_on_where_it_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    path.write_text(json.dumps({"wall_seconds": 100.0, "cpu_seconds": 50.0}))
    assert Clock(path, resume=False).read()["wall_seconds"] < 50
    clock = Clock(path, resume=True)
    assert 100 < clock.read()["wall_seconds"] < 150
    clock.keep()
    assert 50 <= json.loads(path.read_text())["cpu_seconds"] < 100


def test_a_trained_control_has_a_recipe_of_its_own() -> None:
    changes = {"controls": {"idle": {"train": {"evaluation": {"look_tasks": 9}}}}}
    recipe = override(validate(QUICK), {"evaluation": changes})
    variant = build.resolve(recipe).rivals["idle"]
    assert variant.evaluation.controls == {}
    assert set(variant.learner(variant.team(0, [])).lr.values()) == {0.0}  # type: ignore[attr-defined]
    assert (variant.evaluation.look_tasks, variant.evaluation.tasks) == (9, 12)
    assert variant.training == recipe.train


def test_the_policies_of_a_control_replace_those_of_the_recipe_whole() -> None:
    """A random player must not inherit the options of the model in whose seat it sits."""
    recipe = override(validate(QUICK), {"policies": {"guide": {"options": {"capacity": 7}}}})
    controls = build.resolve(recipe).controls
    team = controls["random"](0, [])
    assert [type(policy).__name__ for policy in team.values()] == ["ScriptedPolicy", "ScriptedPolicy"]
    assert [policy.name for policy in team.values()] == ["guide", "seeker"]
    scripted = controls["scripted"](0, [])
    assert {policy.name for policy in scripted.values()} == {"script-mumbler"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"team": {"guid": "guide"}}, "team.guid: the env has no such agent; did you mean 'guide'?"),
        ({"team": {"guide": None}}, "team: nobody plays guide; name a policy for each agent"),
        ({"evaluation": {"agents": ["sekeer"]}}, "evaluation.agents: the env has no agent 'sekeer'; did you mean"),
        ({"evaluation": {"metrics": ["nash_conv"]}}, "evaluation.metrics: exact measures need an env of OpenSpiel"),
        ({"warm_start": {"script": "mumbler"}}, "warm_start.script: unknown script 'mumbler'"),
        ({"warm_start": {"options": {"clearity": 1}}}, "warm_start.script 'signalling:mumbler': unknown opti"),
        ({"learn": {"lr": {"gide": 0.1}}}, "learn: PolicyGradient: lr names 'gide'"),
        ({"learn": {"terms": "auxiliary()"}}, "learn: auxiliary: policy 'guide' (TabularPolicy) has no trunk"),
        ({"learn": {"kind": "policy_gradiant"}}, "learn.kind: unknown learner 'policy_gradiant'; did you mean"),
        ({"learn": {"kind": "signalling:Signalling"}}, "learn.kind: 'signalling:Signalling' made Signalling"),
        ({"policies": {"guide": {"kind": "random"}, "seeker": {"kind": "random"}}}, "learn: PolicyGradient: no policy"),
        ({"policies": {"guide": {"options": {"capasity": 3}}}}, "policies.guide.options: unknown option 'capasity'"),
        ({"evaluation": {"controls": {"x": {"script": "randm"}}}}, "evaluation.controls.x.script: unknown script"),
        (
            {"evaluation": {"controls": {"x": {"train": {"trian": {}}}}}},
            "evaluation.controls.x.train: trian: unknown field; did you mean 'train'",
        ),
        (
            {"evaluation": {"controls": {"x": {"policies": {"guide": {"kind": "tabular", "options": {"a": 1}}}}}}},
            "evaluation.controls.x.policies.guide.options: unknown option 'a'",
        ),
        ({"env": {"options": {"failng": 1}}}, "env: 'signalling:Signalling' cannot be played"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_before_anything_is_played(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        build.check(build.resolve(quick(**changes)))
    assert str(caught.value).removeprefix("quick: ").startswith(complaint)
    assert "\n" not in str(caught.value)


def test_what_can_work_passes_the_check() -> None:
    constant = quick(learn={"terms": "surrogate(aggregate='constant', constant=4.0)"})
    for recipe in (validate(QUICK), validate(KUHN), constant):
        build.check(build.resolve(recipe))
    with pytest.raises(InputError):  # the seeker has no learning rate
        build.check(build.resolve(quick(credit="grpo()", learn={"lr": {"guide": 0.1}})))


def test_a_seed_is_not_finished_if_a_prompt_of_its_judges_is_another(tmp_path: Path) -> None:
    own = tmp_path / "strict.j2"
    stages = [f"""score("right", 'judged(question="Right?", policy="json:loads", instructions="{own}")')"""]
    one, found = Recipe.model_validate(KUHN | {"stages": stages}), []
    for text in ("Be strict. {{ default }}", "Be kind. {{ default }}", "Be strict. {{ default }}"):
        own.write_text(text)
        found.append(experiment.digest(one))
    assert found[0] == found[2] != found[1]
