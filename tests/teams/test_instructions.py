"""Chat models are told what to do: every request of every workflow, as a server gets it, over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import polars as pl
import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS, workflows
from palaestra.teams.instructions import ASKS, TEMPLATES


class Sums(TaskEnv):
    """a + b, which everybody can read in the question."""

    def draw(self, seed: int) -> Task:
        a, b = seed % 10, seed // 10 % 10
        return Task(
            f"{a}+{b}", f"{a} + {b} =", lambda text: float(int(text) == a + b), str(a + b), (f"{a} +", f"{b} =")
        )


ARGUMENTS: dict[str, dict] = {
    "graph": {"roles": {"alice": "You like sums.", "bob": ""}, "edges": "chain", "asks": {"bob": "check"}},
    "debate": {"debaters": 3, "rounds": 3},
    "star": {"workers": 2, "rounds": 2},
    "chain": {"roles": 2, "reads": "part"},
    "handover": {"seat": "debater-1", "to": "closer"},
    "orchestrated": {"plans": {"alone": "single()", "talk": "debate(2)"}, "price": 0.01},
    "conducted": {"tries": 2},
    "refine": {"attempts": 3, "condition": "last"},
    "tree_search": {"branch": 2, "depth": 2, "budget": 4},
    "audited": {"agents": 3, "attempts": 2, "audit": "indicators(3, wrong=1., right=0.)"},
    "context_window": {"budget": 4000},
    "self_summary": {"window": 1},
    "plan_act_check": {"rounds": 2},
    "nested": {"outer": "chain(3)", "teams": {"link-2": "debate(2)"}},
    "supervisor": {"workers": {"alice": "You like sums.", "bob": ""}, "turns": 4},
}
OVER = {"handover": "debate", "context_window": "debate", "self_summary": "single"}
GAMES = {
    "advantage_feedback", "archetypes", "branches", "coordinator", "mean_field", "omission", "one_model", "options",
    "program", "stage_beam", "subgoals", "switching", "thoughts", "turn_tree",
}  # fmt: skip
"""A program of somebody tells its agents itself, the others are over games; what they say is tested beside them."""
WRONG_FIRST = {"refine", "conducted", "audited"}
"""Their later turns come about only if the first answer is wrong."""


class Obedient(ChatEndpoint):
    """Does what the last message says, and nothing else; refuses to be held to a schema unless it `knows` them."""

    def __init__(self, wrong_first: bool = False, knows: bool = True) -> None:
        super().__init__()
        self.wrong_first, self.knows = wrong_first, knows
        self.answered: list[list[dict]] = []

    def behave(self, handler, body):  # type: ignore[no-untyped-def]
        if "response_format" in body and not self.knows:
            reply(handler, b'{"error": {"message": "response_format: json_schema is not supported"}}', code=400)
            return
        with self.lock:
            self.answered.append(body["messages"])
        reply(handler, completion(self.say(body)))

    def say(self, body: dict) -> str:
        asked = body["messages"][-1]["content"]
        whole = "\n".join(message["content"] for message in body["messages"] if message["role"] != "assistant")
        numbers = [int(found) for found in re.findall(r"\b(\d) [+=]", whole)][:2]
        right = str(sum(numbers)) if len(numbers) == 2 else f"part {numbers}"
        if self.wrong_first and len(body["messages"]) == 2:
            right = "99"
        values = {
            "answer": "ok" if "your answer is then the word ok" in asked else right, "bid": "7", "marks": "3, 4",
            "listeners": "alice", "confidence": "0.9", "step": right, "choice": "talk", "team": "2-1",
            "summary": "I said it.", "task": "2 + 4 =", "instruction": "Because. Add them.",
            "next": "FINISH" if asked.count("<message") and len(body["messages"]) > 4 else "bob",
        }  # fmt: skip
        if "response_format" in body:
            fields = body["response_format"]["json_schema"]["schema"]["required"]
            return json.dumps({"reasoning": "Because."} | {name: values[name] for name in fields[1:]})
        lines = asked[asked.index("End your reply") :].splitlines()[1:] if "End your reply" in asked else []
        asked_for = [line.partition(":")[0] for line in lines if ":" in line]
        return "\n".join(["Because.", *(f"{name}: {values[name.lower()]}" for name in asked_for)])


@pytest.fixture
def endpoints() -> Iterator[list[Obedient]]:
    made: list[Obedient] = []
    yield made
    for each in made:
        each.close()


def played(name: str, endpoint: Obedient, **options: object) -> pl.DataFrame:
    tasks = WORKFLOWS.find(OVER[name])(Sums) if name in OVER else Sums  # type: ignore[call-arg, arg-type]
    made = WORKFLOWS.find(name)(tasks, **ARGUMENTS.get(name, {}))  # type: ignore[call-arg, arg-type]
    policy = ChatPolicy("m", base_url=endpoint.url, api_key_env=None, retries=0, **options)  # type: ignore[arg-type]
    return rollout(made, Team(dict.fromkeys(made().agents, policy)), groups=1, group_size=2, seed=3).frame


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize("name", sorted({*WORKFLOWS} - GAMES))
def test_every_request_says_who_one_is_what_is_asked_and_who_said_what(name, structured, endpoints):
    endpoints.append(endpoint := Obedient(wrong_first=name in WRONG_FIRST))
    rows = played(name, endpoint, structured=structured)
    assert rows["error"].null_count() == rows.height
    for body in endpoint.bodies:
        held = body.get("response_format", {}).get("json_schema", {}).get("strict", False)
        assert held == (structured and "Write a short plan" not in body["messages"][-1]["content"])
    sent = sorted(json.dumps(body["messages"], ensure_ascii=False) for body in endpoint.bodies)
    assert sent == sorted(rows["messages"].to_list()), "the table holds what was sent"
    for episode in rows.partition_by("episode"):
        said: dict[tuple[str, int], str] = {}
        for row in episode.iter_rows(named=True):
            talk = json.loads(row["messages"])
            system, last = talk[0], talk[-1]["content"]
            asked = [message["content"] for message in talk if message["role"] == "user"]
            assert (system["role"], talk[-1]["role"]) == ("system", "user")
            assert not re.search(r"\{\{|\{%|None|\bnull\b|\[\]", "\n".join(each["content"] for each in talk))
            names = WORKFLOWS.find(name) in (workflows.single, workflows.self_consistency, workflows.refine)
            seated = name in ("orchestrated", "conducted", "self_summary") or row["agent"] == "solver"
            assert names or seated or "closer" in row["agent"] or row["agent"].split("/")[-1] in system["content"]
            part = re.search(r"\d [+=]", "\n".join(asked))
            assert part, "the question"
            assert "Question:" in asked[0] or "of the question" in asked[0] or name == "self_summary"
            form = r"Reply with a JSON object" if structured else r"End your reply with"
            assert re.search(form, last) or "Write a short plan" in last, "the form of the reply"
            assert row["valid"] or name == "chain", row["action"]
            for sender, turn, kept in zip(
                row.get("heard") or (), row.get("heard_turn") or (), row.get("heard_kept") or [True] * 99, strict=False
            ):
                if kept and name != "tree_search":
                    read = "\n".join(asked) if name == "audited" else last
                    names = {sender, *sender.split("/")}  # a member is known to others by its role
                    assert any(f'<message from="{known}"' in read for known in names)
                    assert "/" in sender or said[sender, turn] in read, "all of it"
            said[row["agent"], row["turn"]] = "Because."
    if name in OVER and name != "self_summary":
        return
    assert set(rows["read_as"].drop_nulls()) <= {"json" if structured else "line", "whole"}


def test_these_are_all_workflows_and_all_that_is_asked():
    asked = {"answer", "check", "plan", "bid", "marks", "listeners", "step", "choice", "team", "summary", "assign"}
    assert asked == set(ASKS)
    assert {"turn", "ask", "team", "remember"} <= set(TEMPLATES.names())


def test_an_endpoint_that_knows_no_schemas_is_asked_without_from_then_on(endpoints):
    endpoints.append(endpoint := Obedient(knows=False))
    tasks = workflows.debate(Sums, 2, rounds=2)
    policy = ChatPolicy("m", base_url=endpoint.url, api_key_env=None, retries=0, concurrency=1)
    rows = rollout(tasks, Team(dict.fromkeys(tasks().agents, policy)), groups=1, group_size=1, seed=3).frame
    assert rows["error"].null_count() == rows.height == 4
    assert set(rows["read_as"]) == {"line"}
    assert sum("response_format" in body for body in endpoint.bodies) <= 2, "asked once, or twice beside each other"
    assert all("End your reply with" in talk[-1]["content"] for talk in endpoint.answered)


def test_an_endpoint_that_knows_no_system_message_reads_it_in_the_first_message(endpoints):
    class Gemma(Obedient):
        def behave(self, handler, body):  # type: ignore[no-untyped-def]
            if body["messages"][0]["role"] == "system":
                reply(handler, b'{"error": {"message": "System role not supported"}}', code=400)
            else:
                super().behave(handler, body)

    endpoints.append(endpoint := Gemma())
    tasks = workflows.debate(Sums, 2, rounds=2)
    policy = ChatPolicy("m", base_url=endpoint.url, api_key_env=None, retries=0, concurrency=1, structured=False)
    rows = rollout(tasks, Team(dict.fromkeys(tasks().agents, policy)), groups=1, group_size=1, seed=3).frame
    assert rows["error"].null_count() == rows.height == 4
    assert all(talk[0]["content"].startswith("You are debater-") for talk in endpoint.answered)
    assert all("Question:" in talk[0]["content"] for talk in endpoint.answered)


def test_messages_are_whole_unless_there_is_a_limit_and_a_cut_is_a_fact():
    long = "word " * 300 + "\nAnswer: 7"
    for longest, left_out in ((None, 0), (50, 253)):
        env = workflows.debate(Sums, 2, rounds=2, longest=longest)()
        env.reset(43)
        result = env.step({"debater-1": long, "debater-2": "Answer: 7"})
        heard = list(result.observations["debater-2"].messages)[-1]["content"]
        assert heard.count("word") == (50 if left_out else 300)
        assert (f"[{left_out} tokens left out]" in heard) == bool(left_out)
        result = env.step({"debater-1": "7", "debater-2": "7"})
        assert list(result.info["heard_cut"]["debater-2"]) == ([left_out] if longest else [])


def test_a_limit_counts_the_tokens_of_who_reads():
    from palaestra.envs.conversations import Reader

    env = workflows.debate(Sums, 2, rounds=2, longest=4)()
    env.reset(43)
    seen = env.step({"debater-1": "abcdefgh", "debater-2": "7"}).observations["debater-2"]
    letters = Reader(count=len, first=lambda text, limit: text[:limit])
    assert ">\nabcd\n[4 tokens left out]" in seen.conversation(letters)[-1]["content"]
    result = env.step({"debater-1": "7", "debater-2": "7"})
    assert list(result.info["heard_cut"]["debater-2"]) == [4]


def test_a_user_writes_the_prompts_of_some_roles():
    own = {"hub": "Decide, {{ role }}: {{ hears|join(' or ') }}?", "worker": "{{ default }}\nBe brief."}
    env = workflows.star(Sums, 2, instructions=own)()
    first = env.reset(43)
    assert first["worker-2"].conversation()[0]["content"].endswith("\nBe brief.")
    hub = env.step({"worker-1": "7", "worker-2": "8"}).observations["hub"]
    assert hub.conversation()[0]["content"] == "Decide, hub: worker-1 or worker-2?"
    for wrong, message in (
        ({"hubb": "?"}, "'hubb' is no role; did you mean 'hub'"), ({"hub": "{{ rol }}"}, "no {{ rol }}; did you mean"),
        ({"hub": "{% if %}"}, "line 1 is no Jinja template"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            workflows.star(Sums, 2, instructions=wrong)
    risky = workflows.star(Sums, 2, instructions={"worker": "{{ role.__class__.__mro__ }}"})().reset(43)
    with pytest.raises(InputError, match="access to attribute '__class__' of 'str' object is unsafe"):
        risky["worker-1"].conversation()


def test_an_accepted_answer_is_heard_as_what_it_accepts():
    env = workflows.plan_act_check(Sums, rounds=2)()
    env.reset(43)
    env.step({"planner": "Add them."})
    env.step({"actor": "Answer: 7"})
    result = env.step({"checker": "3 and 4 are 7.\nAnswer: ok"})
    assert result.info["success"] is True
    assert result.info["answer"] == {"checker": "7"}


def test_what_a_planner_thinks_is_read_by_nobody():
    env = workflows.plan_act_check(Sums, rounds=1)()
    env.reset(43)
    seen = env.step({"planner": "<think>secret: 7</think>\nAdd the two."}).observations["actor"]
    assert '<message from="planner">\nAdd the two.\n</message>' in seen.conversation()[-1]["content"]
    assert "secret" not in seen.text


def test_policies_that_read_text_cost_no_template(monkeypatch):
    def refuse(*_: object) -> str:
        raise AssertionError("a template was rendered")

    monkeypatch.setattr(type(TEMPLATES), "render", refuse)
    env = workflows.debate(Sums, 2, rounds=2)()
    seen = env.reset(43)["debater-1"]
    assert (seen.text, seen.key()) == ("3 + 4 =", seen.key())
    assert env.step({"debater-1": "7", "debater-2": "7"}).observations["debater-1"].text == "3 + 4 = | 7 | 7"
