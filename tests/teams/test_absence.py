"""What a team does if the policy of a role fails: the table, the vote, the error, and who counts it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.faults import with_faults
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.evaluation.trials import trials
from palaestra.learning.iteration_metrics import measure, split
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS, context_window, self_summary, workflows
from palaestra.teams.absence import Absence


class Seven(TaskEnv):
    def draw(self, seed: int) -> Task:
        return Task("seven", "3 + 4 =", lambda text: float(int(text) == 7), "7", ("3 +", "4 ="))


def says(*answers: str) -> ScriptedPolicy:
    """Answers in turn; an empty one is a failure. The last one goes on."""
    left = list(answers)

    def act(request: object) -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if not answer:
            raise ConnectionError("no connection to 10.0.0.7")
        return answer

    return ScriptedPolicy(act)


def play(made, *scripts: tuple[str, ...]) -> Turns:  # type: ignore[no-untyped-def]
    team = {agent: says(*script) for agent, script in zip(made().agents, scripts, strict=True)}
    for name, policy in team.items():
        policy.name = name
    return rollout(made, Team(team), groups=1, group_size=1, seed=0)


def test_four_of_five_debaters_go_on_and_the_vote_is_theirs():
    made = workflows.debate(Seven, 5, rounds=2, on_error="skip")
    rows = play(made, ("8",), ("",), ("7",), ("7",), ("7",)).frame
    assert rows.height == 10
    assert rows["terminated"].all()
    assert rows["success"].all()
    down = rows.filter(pl.col("agent") == "debater-2")
    assert down["error"].to_list() == ["skipped: policy: ConnectionError: no connection to 10.0.0.7"] * 2
    assert down["action"].null_count() == down["valid"].null_count() == down["reward"].null_count() == 2
    rest = rows.filter(pl.col("agent") != "debater-2")
    assert rest["error"].null_count() == rest.height
    assert rest["reward"].sum() == 4.0
    heard = rows.filter((pl.col("agent") == "debater-3") & (pl.col("turn") == 1))["heard"].to_list()
    assert heard == [["debater-1", "debater-4", "debater-5"]], "nobody waits for a word of the one who is down"


@pytest.mark.parametrize("around", [context_window, with_faults, self_summary])
def test_envs_around_a_team_go_on_as_it_does(around):
    made = around(workflows.self_consistency(Seven, 2, on_error="skip"))
    rows = play(made, ("",), ("7",)).frame
    assert rows["error"].to_list() == ["skipped: policy: ConnectionError: no connection to 10.0.0.7", None]
    assert rows["success"].all()


def test_without_a_rule_one_failure_ends_the_episode():
    rows = play(workflows.debate(Seven, 3, rounds=2), ("7",), ("",), ("7",)).frame
    assert rows.height == 3
    assert rows["error"].to_list() == ["policy: ConnectionError: no connection to 10.0.0.7"] * 3


def test_below_the_quorum_the_error_names_who_is_down():
    made = workflows.debate(Seven, 5, rounds=2, on_error="quorum(3)")
    assert play(made, ("7",), ("",), ("",), ("7",), ("7",)).frame["success"].all()
    rows = play(made, ("",), ("",), ("",), ("7",), ("7",)).frame
    (error,) = set(rows["error"])
    assert error.startswith(
        "policy: PolicyError: 2 of 5 answered, quorum(3) was asked for; down: debater-1, debater-2, "
    )
    assert "debater-3 (policy: ConnectionError: no connection to 10.0.0.7)" in error
    assert not rows["terminated"].any()


def test_a_seat_that_is_alone_in_its_step_has_to_answer_a_quorum():
    made = workflows.star(Seven, 3, on_error="quorum(2)")
    assert play(made, ("7",), ("",), ("7",), ("7",)).frame["success"].all()
    assert "down: hub" in play(made, ("7",), ("",), ("7",), ("",)).frame["error"][0]
    skipped = play(workflows.star(Seven, 3, on_error="skip"), ("7",), ("",), ("7",), ("",)).frame
    assert skipped["success"].all(), "the last who spoke"


def test_nobody_at_all_is_an_error_with_any_rule():
    rows = play(workflows.debate(Seven, 2, rounds=2, on_error="skip"), ("",), ("",)).frame
    assert rows.height == 4
    assert "nobody has answered; down: debater-1, debater-2" in rows["error"][0]


def test_who_comes_back_goes_on_and_keeps_its_reward():
    made = workflows.debate(Seven, 2, rounds=3, on_error="skip")
    turns = play(made, ("7", "", "7"), ("7",))
    mine = turns.frame.filter(pl.col("agent") == "debater-1")
    assert mine["action"].to_list() == ["7", None, "7"]
    assert mine["reward"].to_list() == [0.0, None, 1.0]
    late = play(made, ("7", "", ""), ("7",)).frame.filter(pl.col("agent") == "debater-1")
    assert late["reward"].to_list() == [1.0, None, None], "it is paid for the last turn that it had"
    assert late["round"].to_list() == [0, 1, 2]


def test_trials_metrics_and_learners_see_an_episode_that_went_on():
    made = workflows.self_consistency(Seven, 3, on_error="skip")
    turns = play(made, ("7",), ("",), ("7",))
    (trial,) = trials(turns).iter_rows(named=True)
    assert (trial["success"], trial["error"]) == (True, None)
    line = measure(turns, 1, {}, [])
    assert (line["errors"], line["incomplete_groups"], line["success"]) == ({}, 0, 1.0)
    usable, rest = split(turns, 1, drop_incomplete=True)
    assert (len(usable), len(rest)) == (2, 1), "nobody learns from a turn without an action"


def test_a_route_compares_those_who_have_spoken():
    rows = play(workflows.auction(Seven, 3, on_error="skip"), ("3",), ("",), ("9", "7")).frame
    assert rows.filter(pl.col("turn") == 1)["agent"].to_list() == ["bidder-3"]
    assert rows["success"].all()


@pytest.mark.parametrize("text", ["retry", "quorum()", "quorum(0)", "quorum(2.5)", "skip(1)", "quorum(True)"])
def test_a_rule_that_is_none_is_an_input_error(text):
    with pytest.raises(InputError, match="on_error"):
        Absence(text)


def test_a_workflow_that_needs_every_answer_says_so():
    with pytest.raises(InputError, match="Personas knows no on_error='skip'"):
        WORKFLOWS.find("personas")(Seven, on_error="skip")  # type: ignore[call-arg, arg-type]


def test_an_orchestrated_team_goes_on_as_its_plan_says():
    made = WORKFLOWS.find("orchestrated")(  # type: ignore[call-arg]
        Seven, {"alone": "single()", "talk": "debate(3, on_error='skip')"}
    )
    seats = made().agents
    script = {"orchestrator": ("talk",), "debater-2": ("",)}
    rows = play(made, *[script.get(seat, ("7",)) for seat in seats]).frame
    assert rows["success"].all()
    assert rows["error"].drop_nulls().len() == 2
    assert np.isclose(rows.filter(pl.col("agent") == "orchestrator")["reward"].sum(), 1.0)
