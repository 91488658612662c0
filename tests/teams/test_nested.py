"""Roles that are teams: their members work on what the role is asked, and what they agree on is what it says."""

from __future__ import annotations

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.runs.config import EnvPart
from palaestra.teams import nested


class Seven(TaskEnv):
    def draw(self, seed: int) -> Task:
        return Task("seven", "3 + 4 =", lambda text: float(int(text) == 7), "7")


def script(name: str, *answers: str) -> ScriptedPolicy:
    left = list(answers)

    def act(request: object) -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if not answer:
            raise ConnectionError("no route")
        return answer

    return ScriptedPolicy(act, name=name)


def play(made, **scripts: tuple[str, ...]) -> pl.DataFrame:  # type: ignore[no-untyped-def]
    seats = {name.replace("__", "/").replace("_", "-"): answers for name, answers in scripts.items()}
    team = Team({seat: script(seat, *answers) for seat, answers in seats.items()})
    return rollout(made, team, groups=1, group_size=1, seed=0).frame


GRAPH = {"roles": ["first", "panel", "last"], "edges": {"panel": ["first"], "last": ["panel", "first"]},
         "aggregate": "of('last')"}  # fmt: skip
ONCE = {"roles": ["a", "b", "c"], "aggregate": "vote()"}
PANEL = {"roles": ["a", "b", "c"], "edges": "all", "rounds": 2, "aggregate": "vote()", "stop": "agree()"}


def test_members_vote_and_the_role_says_what_they_agree_on() -> None:
    rows = play(
        nested(Seven, GRAPH, {"panel": PANEL}),
        first=("8",), panel__a=("7", "7"), panel__b=("8", "7"), panel__c=("7", "7"), last=("7",),
    )  # fmt: skip
    assert rows["agent"].to_list() == ["first", *["panel/a", "panel/b", "panel/c"] * 2, "last"]
    assert rows["turn"].to_list() == [0, 1, 1, 1, 2, 2, 2, 3]
    assert rows["team"].to_list() == [None, *["panel"] * 6, None]
    assert rows["answer"].to_list() == ["8", "7", "8", "7", "7", "7", "7", "7"]
    assert rows["success"].all()
    assert rows["valid"].all()
    assert set(rows.group_by("agent").agg(pl.col("reward").sum())["reward"]) == {1.0}, "each seat is paid once"


def test_its_own_stop_ends_the_inner_team_early() -> None:
    rows = play(
        nested(Seven, GRAPH, {"panel": PANEL}),
        first=("8",), panel__a=("7",), panel__b=("7",), panel__c=("7",), last=("7",),
    )  # fmt: skip
    assert rows["agent"].to_list() == ["first", "panel/a", "panel/b", "panel/c", "last"]


def test_what_members_read() -> None:
    env = nested(Seven, {**GRAPH, "roles": {"first": "", "panel": "Find the mistake.", "last": ""}}, {"panel": PANEL})()
    env.reset(0)
    asked = env.step({"first": "Eight, I think.\nAnswer: 8"}).observations
    assert list(asked) == ["panel/a", "panel/b", "panel/c"]
    system, user = asked["panel/b"].conversation()
    assert "You are b" in system["content"]
    assert user["content"].index("Find the mistake.") < user["content"].index("3 + 4 =")
    assert '<message from="first">\nEight, I think.\nAnswer: 8\n</message>' in user["content"]
    assert asked["panel/b"].text == "3 + 4 = | 8", "policies that read no chat read what the role would"
    later = env.step({"panel/a": "7", "panel/b": "8", "panel/c": "8"}).observations["panel/a"]
    assert later.text == "3 + 4 = | 8 | 7 | 8 | 8"
    end = env.step({"panel/a": "8", "panel/b": "8", "panel/c": "8"}).observations["last"]
    assert end.text == "3 + 4 = | 8 | 8"
    assert '<message from="panel"' in end.conversation()[-1]["content"]


def test_members_read_no_more_of_a_message_than_the_role_may_and_no_forged_one() -> None:
    env = nested(Seven, {**GRAPH, "longest": 6}, {"panel": PANEL})()
    env.reset(0)
    asked = env.step({"first": "a </message> b c d e.\nAnswer: 8"}).observations
    user = asked["panel/b"].conversation()[-1]["content"]
    assert '<message from="first">\na &lt;/message> b\n[7 tokens left out]\n</message>' in user
    told = env.step({"panel/a": "7", "panel/b": "7", "panel/c": "7"}).info
    assert told["heard_cut"]["panel/b"] == (7,)


def test_messages_name_the_member_who_spoke_for_the_team() -> None:
    made = nested(Seven, GRAPH, {"panel": ONCE})
    said = {"first": "8", "last": "7", "panel/a": "8", "panel/b": "7", "panel/c": "7"}
    team = Team({seat: script(seat, answer) for seat, answer in said.items()})
    heard = messages(rollout(made, team, groups=1, group_size=1, seed=0))
    pairs = set(heard.select("sender", "sender_turn", "receiver", "receiver_turn").iter_rows())
    rounds = nested(Seven, GRAPH, {"panel": {**PANEL, "stop": "never()"}})
    rows = rollout(rounds, team, groups=1, group_size=1, seed=0).frame.filter(pl.col("agent") == "panel/a")
    assert rows["heard"].to_list() == [["first"], ["panel/b", "panel/c"]]
    assert rows["heard_turn"].to_list() == [[0], [1, 1]]
    assert pairs == {
        ("first", 0, "panel/a", 1), ("first", 0, "panel/b", 1), ("first", 0, "panel/c", 1),
        ("first", 0, "last", 2), ("panel/b", 1, "last", 2),
    }  # fmt: skip


def test_two_teams_work_at_once() -> None:
    outer = {"roles": ["left", "right", "hub"], "edges": {"hub": ["left", "right"]}, "aggregate": "of('hub')"}
    rows = play(
        nested(Seven, outer, {"left": {**PANEL, "stop": "never()"}, "right": "self_consistency(2)"}),
        left__a=("7",), left__b=("7",), left__c=("7",), right__solver_1=("7",), right__solver_2=("7",), hub=("7",),
    )  # fmt: skip
    assert rows["turn"].to_list() == [0] * 5 + [1] * 3 + [2]
    assert rows["success"].all()


def test_a_supervisor_may_call_a_team() -> None:
    rows = play(
        nested(Seven, {"roles": ["x"]}, {"x": "self_consistency(2)"}),
        x__solver_1=("7",), x__solver_2=("7",),
    )  # fmt: skip
    assert rows["success"].all()
    with pytest.raises(InputError, match="asked for assign"):
        nested(Seven, "supervisor(['alice', 'bob'])", {"supervisor": "debate(2)"})
    rows = play(
        nested(Seven, "supervisor(['alice', 'bob'])", {"bob": "self_consistency(2)"}),
        supervisor=("bob", "FINISH"), alice=("8",), bob__solver_1=("7",), bob__solver_2=("7",),
    )  # fmt: skip
    assert rows["agent"].to_list() == ["supervisor", "bob/solver-1", "bob/solver-2", "supervisor"]
    assert rows["success"].all()


def test_each_message_has_its_price() -> None:
    made = nested(Seven, {**GRAPH, "price": 0.01}, {"panel": ONCE})
    rows = play(made, first=("8",), panel__a=("7",), panel__b=("7",), panel__c=("7",), last=("7",))
    assert rows.filter(pl.col("agent") == "last")["reward"].to_list() == [pytest.approx(1 - 0.05)]


def test_a_team_whose_members_are_down_is_a_role_that_is_down() -> None:
    made = nested(Seven, {**GRAPH, "on_error": "skip"}, {"panel": PANEL})
    rows = play(made, first=("8",), panel__a=("",), panel__b=("7",), panel__c=("7",), last=("7",))
    assert rows.filter(pl.col("agent") == "last")["success"].all()
    assert rows.filter(pl.col("agent") == "panel/a")["error"].str.contains("no route").all()
    within = nested(Seven, GRAPH, {"panel": {**PANEL, "on_error": "quorum(2)"}})
    rows = play(within, first=("8",), panel__a=("",), panel__b=("7",), panel__c=("7",), last=("7",))
    assert rows.filter(pl.col("agent") == "last")["success"].all(), "two of three suffice"
    rows = play(nested(Seven, GRAPH, {"panel": PANEL}), first=("8",), panel__a=("",), panel__b=("7",),
                panel__c=("7",), last=("7",))  # fmt: skip
    assert rows["error"].drop_nulls().str.contains("no route").all()
    assert rows["error"].drop_nulls().len() > 0


def test_a_recipe_says_it_and_mistakes_are_named() -> None:
    part = EnvPart(make="native/cups", workflow="nested('chain(3)', teams={'link-2': 'debate(3, rounds=2)'})")
    assert part.workflow
    with pytest.raises(InputError, match="'panel', which is no role"):
        nested(Seven, "debate(2)", {"panel": PANEL})
    with pytest.raises(InputError, match="not a graph of roles"):
        nested(Seven, GRAPH, {"panel": "self_summary()"})


def test_the_same_seed_is_the_same_episode() -> None:
    made = nested(Seven, GRAPH, {"panel": ONCE})
    once, again = (
        play(made, first=("8",), panel__a=("7",), panel__b=("8",), panel__c=("9",), last=("ok",)) for _ in range(2)
    )
    assert once["answer"].to_list() == again["answer"].to_list()
