"""New sub-agents: how many a round, who is drawn, tried out, refused; what a writer is told, and what is read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import numpy as np
import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy, ScriptedPolicy, Team
from palaestra.agents.bandits import BanditPolicy
from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Corridor, SkilledSubAgents
from palaestra.errors import InputError
from palaestra.learning.alarms import alarms
from palaestra.learning.stages import Context
from palaestra.learning.stages.recruit import recruit
from palaestra.play.executors import Local, Plan

NEEDS = {"edit": 0.9, "test": 0.1, "plan": 0.0, "read": 0.0}
SURE = functools.partial(SkilledSubAgents, needs=NEEDS, members=1, rates=(1.0, 0.0), noise=0.0)
"""Pairs: edit+test, edit+plan, edit+read, test+plan, test+read, plan+read; those without `edit` hardly help."""


def context(
    archive: tuple[int, ...] | None = (5,),
    seed: int = 0,
    env: Callable[[], object] = SURE,
    writer: Policy | None = None,
) -> Context:
    team = Team(staff=BanditPolicy(6, name="staff", clock="updates", archive=archive))
    advisers = {} if writer is None else {"writer": writer}
    return Context(np.random.default_rng(seed), 1, env, team, Local(), advisers=advisers)  # type: ignore[arg-type]


def bandit(told: Context) -> BanditPolicy:
    policy = told.team.policies["staff"]
    assert isinstance(policy, BanditPolicy)
    return policy


def test_a_slot_is_new_with_theta_over_theta_and_the_size_of_the_archive() -> None:
    for archive, theta in (((5,), 1.0), ((4, 5), 1.0), ((4, 5), 6.0)):
        drawn = 0
        for seed in range(300):
            stage = recruit("staff", theta=theta, slots=2, attempts=1, tasks=1)
            stage.plan(Plan(groups=1), context(archive, seed))
            drawn += len(stage.record)
        assert drawn / 600 == pytest.approx(theta / (theta + len(archive)), abs=0.06)


def test_drawn_ones_are_tried_out_and_the_slot_tries_again_until_one_passes() -> None:
    told, stage = context(), recruit("staff", theta=1e9, slots=1, tasks=8, attempts=6)
    plan = Plan(groups=1)
    assert stage.plan(plan, told) is plan
    assert [row["joined"] for row in stage.record] == [False] * (len(stage.record) - 1) + [True]
    assert all(row["joined"] == (row["helped"] >= 0.5) for row in stage.record)
    passed = stage.record[-1]
    assert passed["name"].startswith("edit+")
    assert bandit(told).joined() == sorted({5, passed["arm"]})
    assert told.metrics == {
        "archive": 2.0, "tried": float(len(stage.record)), "joined": 1.0, "unread": 0.0, "repeated": 0.0
    }  # fmt: skip
    assert told.notes["newcomers"] == f"{passed['name']} ({passed['helped']:.2f})"
    assert bandit(told).chances().argmax() == passed["arm"]
    for _ in range(3):
        stage.plan(plan, told)
    arms = [row["arm"] for row in stage.record]
    assert len(set(arms)) == len(arms) == 5  # nobody twice, and the first one, 5, never
    assert bandit(told).joined() == [0, 1, 2, 5]
    told.metrics.clear()
    stage.plan(plan, told)  # nobody is left
    assert told.metrics["tried"] == 0.0
    again = recruit("staff", theta=1e9)
    again.load_state_dict(stage.state_dict())
    again.plan(plan, told)
    assert again.record == stage.record


def test_a_try_out_has_new_tasks_each_time() -> None:
    seen: list[tuple[int, int, int]] = []

    class Seen(SkilledSubAgents):
        def try_out(self, member: int, tasks: int, seed: int) -> float:
            seen.append((member, tasks, seed))
            return 0.0

    stage = recruit("staff", theta=1e9, slots=1, tasks=7, attempts=3)
    stage.plan(Plan(groups=1), context(env=lambda: Seen(needs=NEEDS)))
    assert [tasks for _, tasks, _ in seen] == [7] * 3
    assert len({seed for _, _, seed in seen}) == len({member for member, _, _ in seen}) == 3


def said(skills: str, name: str = "x") -> str:
    return json.dumps({"name": name, "instructions": "Work.", "skills": skills})


def test_a_writer_is_told_the_archive_and_every_refusal() -> None:
    asked, left = [], iter(["no", "no", said("plan, read"), said("test, plan"), said("edit, plan", "mender")])

    def write(request):  # type: ignore[no-untyped-def]
        asked.append(request.observation.text)
        return next(left)

    told = context(writer=ScriptedPolicy(write, name="writer"))
    bandit(told).update(np.array([5]), np.array([0.25]), weights=np.array([12.0]))
    stage = recruit("staff", theta=1e9, slots=1, tasks=20, writer="writer")
    assert stage.asks == ("writer",)
    stage.plan(Plan(groups=1), told)
    assert [(row["arm"], row["name"], row["joined"]) for row in stage.record] == [
        (None, None, False), (5, "x", False), (3, "x", False), (1, "mender", True)
    ]  # fmt: skip
    assert [row["why"] for row in stage.record][:2] == [
        "the reply names no skills", "is in the archive already, or was refused before"
    ]  # fmt: skip
    assert stage.record[3]["instructions"] == "Work."
    assert told.metrics["unread"] == told.metrics["repeated"] == 1.0
    assert told.metrics["tried"] == 2.0
    assert "- plan+read: 0.25 of 12 tasks" in asked[0]
    assert "2 of these skills: edit, test, plan, read" in asked[0]
    assert "not taken" not in asked[0]
    assert asked[1] == asked[0]  # what cannot be read is asked for once more
    assert "- (unreadable): the reply names no skills" in asked[2]
    assert "- x (test+plan): helped with 0." in asked[4]
    assert told.spent.calls == 5


class Endpoint(ChatEndpoint):
    """Writes the pair that it was not told of yet; knows a form of reply, or refuses it."""

    def __init__(self, knows: bool) -> None:
        super().__init__()
        self.knows = knows

    def behave(self, handler, body):  # type: ignore[no-untyped-def]
        if "response_format" in body and not self.knows:
            reply(handler, b'{"error": {"message": "response_format: json_schema is not supported"}}', code=400)
            return
        pair = "edit, test" if "edit+test" not in body["messages"][-1]["content"] else "edit, plan"
        lines = f"Name: mender\nInstructions: Mend what is broken.\nSkills: {pair}"
        reply(handler, completion(said(pair, "mender") if "response_format" in body else lines))


@pytest.mark.parametrize("knows", [True, False])
def test_a_chat_model_writes_them(knows: bool) -> None:
    endpoint = Endpoint(knows)
    writer = ChatPolicy("m", base_url=endpoint.url, api_key_env=None, price_in=1.0, name="writer")
    told = context(writer=writer)
    stage = recruit("staff", theta=1e9, slots=2, tasks=9, writer="writer", budget=2)
    stage.plan(Plan(groups=1), told)
    assert bandit(told).joined() == [0, 1, 5]
    assert [row["name"] for row in stage.record] == ["mender", "mender"]
    assert {row["instructions"] for row in stage.record} == ({"Work."} if knows else {"Mend what is broken."})
    assert told.metrics["joined"] == 2.0
    answered = [body for body in endpoint.bodies if knows or "response_format" not in body]
    assert len(answered) == 2
    for body in answered:
        assert "joins the archive if it helps" in body["messages"][-1]["content"]
        if knows:
            form = body["response_format"]["json_schema"]
            assert form["schema"]["required"] == ["reasoning", "name", "instructions", "skills"]
    assert "- edit+test: not on a team yet" in answered[1]["messages"][-1]["content"]
    assert told.spent.cost == pytest.approx(2 * 1000 / 1e6)
    before = len(endpoint.bodies)
    stage.plan(Plan(groups=1), told)  # the budget is spent: nobody is asked, and it says so
    assert len(endpoint.bodies) == before
    assert told.metrics["unread"] > 0
    assert "budget" in told.notes["refused_why"]
    endpoint.close()


def test_own_instructions() -> None:
    asked = []

    def write(request):  # type: ignore[no-untyped-def]
        asked.append(request.observation.text)
        return said("edit, read")

    own = "{{ archive|length }} known. {{ place }}"
    stage = recruit("staff", theta=1e9, slots=1, writer="writer", instructions=own)
    stage.plan(Plan(groups=1), context(writer=ScriptedPolicy(write, name="writer")))
    assert asked[0].startswith("1 known. A team of 1")


def test_inverted_verdicts_ring() -> None:
    line = {"policies": {}, "errors": {}, "incomplete_groups": 0, "groups": 1, "reward": 1.0}
    for share, rings in ((0.4, False), (0.6, True)):
        told, stage = context(), recruit("staff")
        turns = Turns({"member": [1, 2, 3], "contradicted": [None, share - 0.1, share + 0.1]})
        assert stage(turns, told) is turns
        assert told.metrics["contradicted"] == pytest.approx(share)
        found = alarms(line | {"stages": {"recruit": told.metrics}}, [])
        assert any("verdicts are inverted" in each for each in found) == rings
        later = recruit("staff")
        later.load_state_dict(stage.state_dict())
        later(Turns({"contradicted": [share]}), told)
        later(Turns({"member": [1]}), told)  # a table without the column
        assert told.metrics["contradicted"] == pytest.approx(share)
        later(Turns({"contradicted": [1.0]}), told)
        assert told.metrics["contradicted"] == pytest.approx((3 * share + 1) / 4)
    told = context()
    recruit("staff")(Turns({"member": [1]}), told)
    recruit("staff")(Turns({"contradicted": [None]}), told)
    assert "contradicted" not in told.metrics


def test_faults() -> None:
    with pytest.raises(InputError, match="nobody new"):
        recruit("staff", theta=0.0)
    with pytest.raises(InputError, match=r"there is no \{\{ x \}\}"):
        recruit("staff", writer="a", instructions="{{ x }}")
    for told, policy, message in (
        (context(), "team", "policy 'team' must be a bandit with an archive"),
        (context(archive=None), "staff", "policy 'staff' must be a bandit"),
        (context(env=Corridor), "staff", "Corridor has no try_out"),
        (context(), "staff", "no policy 'writer'"),
    ):
        stage = recruit(policy, theta=1e9, writer="writer" if "writer" in message else None)
        with pytest.raises(InputError, match=message):
            stage.plan(Plan(groups=1), told)
