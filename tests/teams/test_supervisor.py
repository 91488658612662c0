"""A seat that assigns turns: who works, what everybody reads, when it ends, and whose answer it is."""

from __future__ import annotations

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import supervisor


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
    team = Team({name: script(name, *answers) for name, answers in scripts.items()})
    return rollout(made, team, groups=1, group_size=1, seed=0).frame


def test_the_picks_decide_who_works_until_finish():
    made = supervisor(Seven, ["alice", "bob"])
    rows = play(made, supervisor=("bob", "alice", "FINISH"), alice=("7",), bob=("8",))
    assert rows["agent"].to_list() == ["supervisor", "bob", "supervisor", "alice", "supervisor"]
    assert rows["assigned"].to_list() == ["bob", None, "alice", None, "FINISH"]
    assert rows["success"].all(), "the last worker's answer is the team's"
    assert rows["valid"].all()
    assert rows["turn"].to_list() == [0, 1, 2, 3, 4]
    assert rows["reward"].sum() == 3.0, "everybody who spoke has the score"


def test_everybody_reads_messages_with_names():
    env = supervisor(Seven, {"alice": "You add.", "bob": ""})()
    first = env.reset(0)["supervisor"]
    assert first.choices == ("alice", "bob", "FINISH")
    assert first.legal == ("alice", "bob")
    system, asked = first.conversation()
    assert "- alice: You add.\n- bob\n" in system["content"]
    assert "6 times at most" in system["content"]
    assert "Who" not in asked["content"]
    assert "FINISH" not in asked["content"], "nobody has answered yet"
    assert asked["content"].endswith("Next: <a name>")
    worker = env.step({"supervisor": "Sure.\nInstruction: Add three and four.\nNext: alice"}).observations["alice"]
    system, asked = worker.conversation()
    assert system["content"].startswith("You add.\n\nYou are alice")
    assert '<message from="supervisor" round="1">\nAdd three and four.\n</message>' in asked["content"]
    assert "Sure." not in asked["content"], "what the seat thinks is its own"
    assert worker.text == "3 + 4 = | supervisor: Add three and four."
    seat = env.step({"alice": "I think so.\nAnswer: 8"}).observations["supervisor"]
    assert [each["role"] for each in seat.conversation()] == ["system", "user", "assistant", "user"]
    assert "alice, bob; or FINISH, if the last answer is right" in seat.conversation()[-1]["content"]
    assert seat.conversation()[-1]["content"].endswith("Next: <a name, or FINISH>")
    assert '<message from="alice" round="1">\nI think so.\nAnswer: 8\n</message>' in seat.conversation()[-1]["content"]
    assert seat.text == "3 + 4 = | alice: 8"
    other = env.step({"supervisor": "Instruction: Check it.\nNext: bob"}).observations["bob"]
    read = other.conversation()[-1]["content"]
    assert read.index('from="alice"') < read.index('from="supervisor"')
    assert "Add three" not in read
    env.step({"bob": "7"})
    again = env.step({"supervisor": '{"instruction": "Again.", "next": "bob"}'}).observations["bob"]
    assert [each["role"] for each in again.conversation()][-3:] == ["user", "assistant", "user"]
    assert "alice" not in again.conversation()[-1]["content"], "each message is read once"
    assert env.step({"bob": "ok"}).observations["supervisor"].text.endswith("bob: 7"), "its own last answer"


def test_workers_may_hear_the_seat_alone_or_some():
    def read_by_bob(**options: object) -> str:
        env = supervisor(Seven, ["alice", "bob"], **options)()  # type: ignore[arg-type]
        env.reset(0)
        env.step({"supervisor": "alice"})
        env.step({"alice": "8"})
        return env.step({"supervisor": "bob"}).observations["bob"].text

    assert read_by_bob() == "3 + 4 = | alice: 8"
    assert read_by_bob(sees="own") == read_by_bob(sees={"alice": ["bob"]}) == "3 + 4 ="
    assert read_by_bob(sees={"bob": ["alice"]}) == "3 + 4 = | alice: 8"


def test_turns_are_bounded_and_a_pick_of_nobody_costs_one():
    made = supervisor(Seven, ["alice"], turns=3)
    rows = play(made, supervisor=("carol", "alice"), alice=("7",))
    assert rows["agent"].to_list() == ["supervisor", "supervisor", "alice", "supervisor", "alice"]
    assert rows["valid"].to_list() == [False, True, True, True, True]
    assert rows["success"].all()
    nobody = play(made, supervisor=("carol",), alice=("7",))
    assert nobody.height == 3
    assert not nobody["success"].any()
    assert nobody["error"].null_count() == 3
    early = play(made, supervisor=("FINISH", "alice", "FINISH"), alice=("7",))
    assert early["valid"].to_list() == [False, True, True, True], "nothing can be finished before there is an answer"


def test_the_seat_reads_that_its_choice_was_none_and_who_is_away():
    env = supervisor(Seven, ["alice", "bob"], on_error="skip")()
    env.reset(0)
    for early in ("carol", "FINISH"):  # before there is an answer
        again = env.step({"supervisor": early}).observations["supervisor"].conversation()[-1]["content"]
        assert "Your last choice was none of: alice, bob\n" in again
    env.step({"supervisor": "alice"})
    env.step({"alice": "8"})
    again = env.step({"supervisor": "carol"}).observations["supervisor"].conversation()[-1]["content"]
    assert "Your last choice was none of: alice, bob, FINISH\n" in again
    made = supervisor(Seven, ["alice", "bob"], on_error="skip")
    rows = play(made, supervisor=("alice", "bob", "FINISH"), alice=("",), bob=("7",))
    assert rows["success"].all()
    assert rows["error"].to_list() == [None, "skipped: policy: ConnectionError: no route", None, None, None]
    assert rows["observation"][2] == "3 + 4 = | alice"


def test_the_seat_may_give_the_answer_itself():
    made = supervisor(Seven, ["alice"], turns=2, closing=True)
    rows = play(made, supervisor=("alice", "FINISH", "7"), alice=("8",))
    assert rows["agent"].to_list() == ["supervisor", "alice", "supervisor", "supervisor"]
    assert rows["success"].all()
    assert rows["answer"][-1] == "7"
    assert rows["assigned"].to_list() == ["alice", None, "FINISH", None]
    used = play(made, supervisor=("alice", "alice", "7"), alice=("8",))
    assert used["agent"].to_list()[-2:] == ["alice", "supervisor"]
    assert used["success"].all()


def test_other_rules_count_the_workers_answers_alone():
    vote = supervisor(Seven, ["alice", "bob", "carol"], aggregate="vote()")
    rows = play(vote, supervisor=("alice", "bob", "carol", "FINISH"), alice=("7",), bob=("7",), carol=("8",))
    assert rows["success"].all()
    ends = supervisor(Seven, ["alice", "bob"], stop="verified()")
    assert play(ends, supervisor=("alice",), alice=("7",), bob=("7",)).height == 2


def test_a_table_may_sit_there_and_the_messages_are_in_the_table():
    made = supervisor(Seven, ["alice", "bob"], turns=3)
    team = Team(supervisor=TabularPolicy(actions=3), alice=script("a", "7"), bob=script("b", "8"))
    turns = rollout(made, team, groups=4, group_size=2, seed=1)
    rows = turns.frame
    assert rows["error"].null_count() == rows.height
    picks = rows.filter(pl.col("agent") == "supervisor")
    assert picks["logprobs"].null_count() == 0
    assert set(picks["assigned"]) <= {"alice", "bob", "FINISH"}
    sent = messages(turns)
    assert set(sent["receiver"].cast(pl.String)) >= {"supervisor"}


def test_names_are_checked():
    for options, message in (
        ({"workers": ["supervisor"]}, "at least one, other than 'supervisor'"),
        ({"workers": ["FINISH"]}, "other than"), ({"workers": []}, "at least one"),
        ({"workers": ["a"], "sees": "some"}, "sees='some'"), ({"workers": ["a"], "sees": {"a": ["b"]}}, "sees has 'b'"),
        ({"workers": ["a"], "turns": 0}, "rounds=0"), ({"workers": ["a"], "aggregate": "of('b')"}, "'b', which is no"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            supervisor(Seven, **options)  # type: ignore[arg-type]


def test_an_instruction_may_have_several_lines():
    env = supervisor(Seven, ["alice"])()
    env.reset(0)
    seen = env.step({"supervisor": "Instruction: Write what\n- adds\n- prints.\nNext: alice"}).observations["alice"]
    assert ">\nWrite what\n- adds\n- prints.\n</message>" in seen.conversation()[-1]["content"]
