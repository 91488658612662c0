"""Phases: what changes, when, what goes on; a run that is killed anywhere ends as one that was not."""

from __future__ import annotations

import itertools
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from markupsafe import Markup

from palaestra.agents import Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, RecipeError
from palaestra.foundation.yaml import read as read_yaml
from palaestra.interface.report.load import SeedRun
from palaestra.interface.report.panels import progress
from palaestra.learning import PolicyGradient, Trainer
from palaestra.learning.phases import PhasedTrainer, carry_over
from palaestra.runs import build, phases
from palaestra.runs.inline import TrainingResult, learn
from palaestra.runs.phases import order, read
from palaestra.runs.recipe import Recipe, load, validate
from palaestra.runs.resume_checks import admit
from palaestra.runs.trainers import trainer_of

CREDIT = 'centre(agent_return(), over=("group", "agent"), unit="episode")'
KUHN: dict[str, Any] = {
    "name": "kuhn",
    "env": {"make": "openspiel/kuhn_poker"},
    "policies": {"one": {"kind": "tabular"}, "two": {"kind": "tabular"}},
    "team": {"player_0": "one", "player_1": "two"},
    "credit": CREDIT,
    "learn": {"lr": 0.3},
    "train": {"iterations": 8, "groups": 4, "group_size": 4},
}

STALLS = "stalled(1, iterations * 0)"
"""True after two iterations."""


def kuhn(*phases: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return KUHN | {"phases": list(phases)} | changes


def test_the_example_of_the_module_is_a_recipe() -> None:
    text = re.search(r"\n(    phases:\n(?:    .*\n)*)", phases.__doc__ or "")
    assert text is not None
    build.resolve(validate(KUHN | read_yaml(textwrap.dedent(text[1]))))


def names(found: TrainingResult) -> str:
    return "".join(line["phase"] for line in found.lines)


def equal(one: Team, other: Team) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(
        torch.equal(a[name][key], b[name][key])
        if isinstance(a[name][key], torch.Tensor)
        else a[name][key] == b[name][key]
        for name in a
        for key in a[name]
    )


# -- what a recipe may say -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "complaint"),
    [
        ([{"until": 3}], r"phases.0.name: a name of letters"),
        ([{"name": "a"}, {"name": "b"}], r"phases.a.until: when is it over\?"),
        ([{"name": "a", "until": 1}, {"name": "a"}], r"phases.a: there are two phases of this name"),
        ([{"name": "a", "until": "sucess > .9"}], r"phases.a.until: no metric 'sucess'.*did you mean 'success'"),
        ([{"name": "a", "until": "success >"}], r"phases.a.until: 'success >' is no condition"),
        ([{"name": "a", "untl": 3}], r"phases.a.untl: no phase can change it; did you mean 'until'"),
        ([{"name": "a", "seeds": 3}], r"phases.a.seeds: no phase can change it"),
        ([{"name": "a", "policies": {}}], r"phases.a.policies: no phase can change it"),
        ([{"name": "a", "train": {"iterations": 3}}], r"phases.a.train.iterations: the same for the whole run.*until"),
        ([{"name": "a", "learn": {"devices": "ddp"}}], r"phases.a.learn.devices: the same for the whole run"),
        ([{"name": "a", "learn": {"terms": "surogate()"}}], r"phases.a.learn.terms: .*did you mean 'surrogate"),
        ([{"name": "a", "learn": {"lrate": 1}}], r"phases.a.learn.lrate: unknown field"),
        ([{"name": "a", "credit": "grp()"}], r"phases.a.credit: .*did you mean 'grpo'"),
        ([{"name": "a", "stages": "critc()"}], r"phases.a.stages: .*did you mean"),
        ([{"name": "a", "train": {"groups": 0}}], r"phases.a.train.groups: "),
        ([{"alternate": []}], r"phases.0.alternate: expected a list of phases"),
        (
            [{"alternate": [{"name": "a", "until": 1}]}, {"name": "b"}],
            r"phases.0.repeat: what comes after it",
        ),
        ([{"alternate": [{"name": "a", "until": 1}], "repeat": 0}], r"phases.0.repeat: expected a number of rounds"),
        ([{"alternate": [{"name": "a"}]}], r"phases.a.until: when is it over\?"),
        ([{"name": "a", "until": 1, "repeat": 2}], r"phases.0.repeat: of a list of phases"),
        (["a"], r"phases.0"),
    ],
)
def test_what_is_wrong_is_named_with_phase_and_field(phases: list[Any], complaint: str) -> None:
    with pytest.raises(RecipeError, match=complaint):
        validate(kuhn(*phases))


@pytest.mark.parametrize(
    ("phase", "complaint"),
    [
        ({"credit": "gae()"}, r"^phases.b.credit: .*needs column 'value', which nothing here gives; add critic"),
        ({"learn": {"terms": "dpo()"}}, r"^phases.b.learn needs column 'chosen'"),
        (
            {"learn": {"freeze": "three"}},
            r"^phases.b.learn: .*freeze='three' is no policy that learns.*one, two",
        ),
        ({"learn": {"freeze": "one, two"}}, r"^phases.b.learn: .*every policy is in freeze"),
        ({"env": {"make": "openspiel/tic_tac_toe"}}, r"^phases.b.env: the policies cannot play it: "),
        ({"env": {"make": "native/maze", "options": {"map": "S..G"}}}, r"^phases.b.env: its agents are"),
    ],
)
def test_what_a_phase_lacks_is_said_before_anything_is_played(phase: dict[str, Any], complaint: str) -> None:
    recipe = validate(kuhn({"name": "a", "until": 1}, {"name": "b", **phase}))
    with pytest.raises(InputError, match=complaint):
        build.check(build.resolve(recipe))


def test_phases_and_what_does_not_go_with_them() -> None:
    with pytest.raises(RecipeError, match=r"phases: .*write train.lag: 0"):
        validate(kuhn({"name": "a"}, train={**KUHN["train"], "lag": 1}))
    with pytest.raises(RecipeError, match=r"phases: .*write learn.devices: one"):
        validate(kuhn({"name": "a"}, learn={"devices": "ddp"}))


def test_a_phase_overrides_the_recipe_and_not_the_phase_before_it() -> None:
    recipe = validate(
        kuhn(
            {"name": "a", "until": 1, "reward": {"x": "reward"}, "learn": {"lr": 0.1}, "train": {"groups": 2}},
            {"name": "b", "learn": {"terms": "clone()"}},
            reward={"x": "reward", "y": "0 * reward"},
        )
    )
    one, other = (recipe.in_phase(phase) for cycle in read(recipe.phases) for phase in cycle.phases)
    assert (one.reward, one.learn.lr, one.train.groups, one.train.group_size) == ({"x": "reward"}, 0.1, 2, 4)
    assert (other.reward, other.learn.lr, other.learn.terms) == (recipe.reward, 0.3, ("clone()",))
    assert load_again(recipe) == recipe


def load_again(recipe: Recipe) -> Recipe:
    return validate(read_yaml(recipe.dump()))


def test_the_order_of_phases() -> None:
    a, b, c = ({"name": name, "until": 1} for name in "abc")
    cycles = read([a, {"alternate": [b, c], "repeat": 2}])
    assert order(cycles, 100).steps == ((0, 1), (1, 1), (2, 1), (1, 2), (2, 2))
    assert not order(cycles, 100).endless
    assert order(read([{"alternate": [a, b]}]), 3).endless


def test_the_example_of_the_page_works() -> None:
    page = (Path(__file__).parents[2] / "docs" / "phases.md").read_text(encoding="utf-8")
    example = read_yaml(page.split("```yaml\n")[1].split("```")[0])
    assert isinstance(example, dict)
    recipe = validate({**KUHN, **example, "train": {"iterations": 24, "groups": 1, "group_size": 2}})
    build.check(build.resolve(recipe))
    assert [line["phase"] for line in learn(recipe).lines[19:21]] == ["imitate", "explore"]


# -- what a run does -------------------------------------------------------------------------------------------------


def test_phases_come_one_after_the_other_with_what_they_change() -> None:
    found = learn(
        kuhn(
            {"name": "a", "until": 2, "train": {"groups": 3}},
            {
                "alternate": [{"name": "b", "until": "stalled(1, iterations * 0)"}, {"name": "c", "until": 1}],
                "repeat": 2,
            },
            train={**KUHN["train"], "iterations": 20},
        )
    )
    assert names(found) == "aabbcbbc", "the run is over when the last phase is"
    assert [line["groups"] for line in found.lines] == [3, 3, 4, 4, 4, 4, 4, 4]
    assert not [alarm for line in found.lines for alarm in line["alarms"] if "phase" in alarm]


def test_a_second_run_goes_through_all_phases_again() -> None:
    setup = build.resolve(validate(kuhn({"name": "a", "until": 2}, {"name": "b", "until": 1, "learn": {"lr": 0.1}})))
    team = setup.team(0, ())
    trainer = trainer_of(setup, team, setup.learner(team), setup.executor(), seed=0, corpus=())
    runs = [[(line["iteration"], line["phase"]) for line in trainer.run()] for _ in range(2)]
    assert runs == [[(1, "a"), (2, "a"), (3, "b")]] * 2


def test_phases_that_change_nothing_change_no_bit() -> None:
    plain = learn({**KUHN, "learn": {"lr": 0.3, "terms": "surrogate(), kl(.1)"}, "stages": ["replay(k=1)"]})
    phased = learn(
        kuhn(
            {"name": "a", "until": 3},
            {"name": "b", "until": "iterations >= 2", "learn": {"betas": [0.9, 0.999], "max_grad_norm": 1.0}},
            {"name": "c", "learn": {"epochs": 1, "chunk_tokens": 4096}},  # a learner of its own, which goes on
            learn={"lr": 0.3, "terms": "surrogate(), kl(.1)"},
            stages=["replay(k=1)"],
        )
    )
    assert names(phased) == "aaabbccc"
    assert equal(plain.team, phased.team)


def test_a_phase_changes_what_is_learned() -> None:
    one = learn(kuhn({"name": "a", "until": 4}, {"name": "b", "learn": {"lr": 0.01}}))
    other = learn(kuhn({"name": "a", "until": 4}, {"name": "b"}))
    assert not equal(one.team, other.team)


def test_who_is_frozen_stays_as_it_is_and_thaws() -> None:
    states: list[dict[str, torch.Tensor]] = []

    def look(_: int, team: Team) -> dict[str, float]:
        states.append({name: policy.parameters()[0].detach().clone() for name, policy in team.learnable.items()})
        return {}

    found = learn(
        kuhn(
            {"name": "a", "until": 2, "learn": {"freeze": "two"}},
            {"name": "b", "until": 2, "learn": {"freeze": ["one"]}},
            {"name": "c", "until": 2},
        ),
        after_iteration=look,
    )

    def moved(name: str) -> list[bool]:
        return [not torch.equal(*(state[name][:1] for state in pair)) for pair in itertools.pairwise(states)]

    assert moved("two")[:1] == [False]
    assert moved("one")[2:3] == [False]
    assert all(moved("one")[4:])
    assert all(moved("two")[4:])
    assert [sorted(line["policies"]) for line in found.lines[::2]] == [["one"], ["two"], ["one", "two"]]


@pytest.mark.parametrize(
    ("phases", "alarm"),
    [
        (
            [{"name": "a", "until": "reward > 100"}, {"name": "b"}],
            r"phase 'a' did not end before iteration 8, the last: reward > 100 was never true in 8 iterations, reward"
            ".*; b never began: raise train.iterations",
        ),
        ([{"name": "a", "until": 3}, {"name": "b", "until": 30}], r"phase 'b' did not end .*: 5 of 30 iterations$"),
        ([{"name": "a", "until": 8}, {"name": "b"}], r"the run ended with phase 'a', in iteration 8; b never began"),
        ([{"name": "a", "until": 3}, {"name": "b"}], None),
        ([{"name": "a", "until": 3}, {"name": "b", "until": 5}], None),
        ([{"alternate": [{"name": "a", "until": 3}, {"name": "b", "until": 3}]}], None),
    ],
)
def test_a_phase_that_never_ends_is_bounded_and_says_so(phases: list[dict[str, Any]], alarm: str | None) -> None:
    found = learn(kuhn(*phases))
    said = [each for line in found.lines for each in line["alarms"] if "phase" in each]
    assert len(found.lines) == 8
    assert len(said) == (alarm is not None)
    assert alarm is None or re.search(alarm, said[0]), said
    assert alarm is None or said[0] in found.lines[-1]["alarms"]


# -- what goes on from phase to phase ----------------------------------------------------------------------------------


def learners(before: str, now: str) -> tuple[PolicyGradient, PolicyGradient, Turns]:
    """Two learners of one team, the first after one update, and what it learned from."""
    setup = build.resolve(validate({**KUHN, "policies": {"one": {"kind": "mlp"}, "two": {"kind": "mlp"}}}))
    team, played = setup.team(0, ()), []
    first = PolicyGradient(team, before, lr=0.1)
    trainer_of(
        setup, team, first, setup.executor(), seed=0, corpus=(), on_turns=lambda _, turns: played.append(turns)
    ).run()
    second = PolicyGradient(team, now, lr=0.01)
    carry_over(first, second)
    return first, second, played[-1]


def test_moments_updates_and_terms_in_common_go_on() -> None:
    first, second, turns = learners(
        "surrogate(), value(target='reward'), kl(.1)", "surrogate(clip=.3), value(weight=.1, target='reward'), kl(.02)"
    )
    assert second.updates == first.updates == 8
    for name in ("one", "two"):
        head = next(iter(second.modules[name]["value"].parameters()))
        assert head is next(iter(first.modules[name]["value"].parameters()))
        moved = [*second.policies[name].parameters(), head]
        known = second.optimisers[name].state
        assert all(float(known[each]["step"]) == 8 and known[each]["exp_avg"].abs().sum() > 0 for each in moved)
        assert second.references[name] is first.references[name], "the start of the run, not of the phase"
    before = [p.detach().clone() for p in second.policies["one"].parameters()]
    second.update(turns)
    assert second.updates == 9
    assert any(not torch.equal(a, b) for a, b in zip(before, second.policies["one"].parameters()))
    assert float(second.optimisers["one"].state[second.policies["one"].parameters()[0]]["step"]) == 9


def test_a_reference_that_was_not_there_is_the_policy_as_the_phase_begins() -> None:
    first, second, _ = learners("surrogate()", "surrogate(), kl(.1)")
    assert not first.references
    for name, policy in second.policies.items():
        then = second.references[name].state_dict()
        assert all(
            torch.equal(then[key], value) for key, value in policy.state_dict().items() if hasattr(value, "shape")
        )


def test_a_head_of_another_shape_begins_anew() -> None:
    first, second, _ = learners("surrogate(), value(target='reward')", "surrogate(), value(target='reward')")
    other = PolicyGradient(Team({"player_0": first.policies["one"]}), second.terms.values())
    first.modules["one"]["value"] = torch.nn.Linear(3, 1)
    carry_over(first, other)
    assert other.modules["one"]["value"] is not first.modules["one"]["value"]
    assert other.updates == first.updates


# -- resume ------------------------------------------------------------------------------------------------------------

SEVERAL = kuhn(
    {"name": "imitate", "until": 2, "stages": "replay(k=1)", "learn": {"terms": "clone()"}, "credit": "reward"},
    {
        "alternate": [
            {
                "name": "explore",
                "until": STALLS,
                "stages": "counts('observation'), replay(k=1)",
                "reward": "reward + episodic_global_bonus('observation')",
            },
            {
                "name": "exploit",
                "until": 1,
                "learn": {"terms": "surrogate(), value(target='reward')"},
                "reward": "2 * reward",
            },
        ]
    },
    {"name": "never"},
    policies={"one": {"kind": "mlp"}, "two": {"kind": "mlp"}},
    learn={"lr": 0.05, "terms": "surrogate(), kl(.1), value(weight=.2, target='reward')"},
)
SEVERAL["phases"][1]["repeat"] = 2


def run(directory: Path, *, resume: bool = False, every: int = 2) -> tuple[Team, list[dict[str, Any]]]:
    setup = build.resolve(validate(SEVERAL))
    team = setup.team(0, ())
    trainer = trainer_of(
        setup,
        team,
        setup.learner(team),
        setup.executor(),
        seed=0,
        corpus=(),
        directory=directory,
        checkpoint_every=every,
    )
    assert isinstance(trainer, PhasedTrainer)
    return team, trainer.run(resume=resume)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Team, list[dict[str, Any]]]:
    return run(tmp_path_factory.mktemp("whole"))


CLOCKS = ("wall_seconds", "cpu_seconds", "waiting_seconds", "stages", "seconds", "speed")


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in CLOCKS}
    return value


def test_the_run_that_is_interrupted(whole: tuple[Team, list[dict[str, Any]]]) -> None:
    shown = [line["phase"] for line in whole[1]]
    assert shown == ["imitate"] * 2 + ["explore"] * 2 + ["exploit"] + ["explore"] * 2 + ["exploit"]
    assert "never never began" in whole[1][-1]["alarms"][-1]


@pytest.mark.parametrize(
    ("killed", "kept", "every"),
    [
        (1, False, 2),
        (2, False, 2),
        (2, True, 2),
        (3, False, 2),
        (5, False, 2),
        (5, True, 5),
        (6, True, 2),
        (7, False, 2),
    ],
)
def test_a_run_that_is_killed_in_any_iteration_ends_as_one_that_is_not(
    killed: int,
    kept: bool,
    every: int,
    whole: tuple[Team, list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inside of phases and between them. kept: after the checkpoint. every: iterations between checkpoints."""
    keep = Trainer._keep

    def stopping(self: Trainer, now: int, trained: Turns, rest: Turns) -> None:
        if now == killed and not kept:
            raise KeyboardInterrupt
        keep(self, now, trained, rest)
        if now == killed:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_keep", stopping)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, every=every)
    team, lines = run(tmp_path, resume=True, every=every)
    assert equal(team, whole[0])
    assert timeless_lines(lines) == timeless_lines(whole[1])


def timeless_lines(lines: list[dict[str, Any]]) -> list[Any]:
    return [timeless(line) | {"policies": {n: timeless(p) for n, p in line["policies"].items()}} for line in lines]


def test_a_run_goes_on_with_the_same_phases_only(tmp_path: Path) -> None:
    recipe = validate(SEVERAL)
    (tmp_path / "recipe.yaml").write_text(recipe.dump())
    seed = tmp_path / "seed-0"
    seed.mkdir()
    (seed / "result.json").write_text("{}")
    assert admit(recipe, tmp_path, resume=True)
    changed = validate({**SEVERAL, "phases": [{**SEVERAL["phases"][0], "until": 3}, *SEVERAL["phases"][1:]]})
    with pytest.raises(InputError, match=r"phases\.imitate.until=2, not 3"):
        admit(changed, tmp_path, resume=True)
    fewer = validate({**SEVERAL, "phases": SEVERAL["phases"][:-1]})
    with pytest.raises(InputError, match=r"phases=.*never"):
        admit(fewer, tmp_path, resume=True)
    planned = validate({**SEVERAL, "train": {**SEVERAL["train"], "iterations": 9}})
    assert admit(planned, tmp_path, resume=True)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_every_curve_has_its_phases() -> None:
    same: dict[str, Any] = {"reward": 1.0, "success": 0.5, "metrics": {}, "policies": {}}
    metrics = [same | {"iteration": i, "phase": "sft" if i < 4 else "rl"} for i in range(1, 8)]
    seed = SeedRun("0", metrics, False, None, None, {})
    charts = progress([("all seeds", [seed])])
    assert charts
    for chart in charts:
        assert "Phases: sft from 1, rl from 4" in chart.svg
        assert isinstance(chart.svg, Markup)


def test_a_recipe_that_ships_has_no_phases_unless_it_says_so() -> None:
    assert load("corridor").phases == ()
