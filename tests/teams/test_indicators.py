from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy, ScriptedPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, StorageError
from palaestra.play.rollout import rollout
from palaestra.teams import audited
from palaestra.teams.auditors import read_verdict
from palaestra.teams.indicators import Indicator, IndicatorPool, read_indicators, read_pool, write_indicators
from palaestra.testing.env import check_env

CARRY = Indicator("carry", "The carry is lost.", "digits are added in columns", "a sum that is too small")
UNIT = Indicator("unit", "The unit is missing.", "a length or a weight is asked for")
GUESS = Indicator("guess", "It is a guess.", "somebody guesses")
FLAWED, FINE = "Suggestion: say 1\nSignificant: yes\nFlawed: yes", "Suggestion: none\nSignificant: no\nFlawed: no"


class Sum(TaskEnv):
    """The answer is 1."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", f"What length is {seed}?", lambda text: float(int(text) == 1), "1")


@pytest.fixture
def pool(tmp_path: Path) -> str:
    path = tmp_path / "indicators.jsonl"
    write_indicators(path, [CARRY, UNIT, GUESS])
    return f"pool('{path}', k=2)"


def play(pool, say, groups=1, agents=1, least=0, **options):
    env = audited(Sum, agents, audit=pool, least=least, **options)
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="s")))
    return rollout(env, team, groups=groups, seed=0)


def asked(turns) -> list[tuple[int, list[str]]]:
    """(turn, names of the indicators that were asked about), of each audit."""
    rows = turns.frame.drop_nulls("indicator")
    return [(part["turn"][0], sorted(part["indicator"])) for part in rows.partition_by("turn")]


def test_the_nearest_are_those_whose_triggers_have_the_rarest_words_in_common():
    pool = IndicatorPool([Indicator(str(at), "x", f"sums of kind{at}") for at in range(9)], k=2)
    assert [each.name for each in pool.nearest("sums of kind7, they say, or of kind3")] == ["3", "7"]
    assert pool.nearest("nothing in common") == []
    for indicators, k in (([], 1), ([CARRY, CARRY], 1), ([CARRY], 0)):
        with pytest.raises(InputError, match="pool: k="):
            IndicatorPool(indicators, k)


def test_a_long_message_is_looked_for_by_its_rarest_words():
    filler = [Indicator(f"f{at}", "x", " ".join(f"word{n}" for n in range(80))) for at in range(9)]
    pool = IndicatorPool([*filler, CARRY], k=1)
    assert pool.nearest(" ".join(f"word{n}" for n in range(80)) + " columns") == [CARRY]


def test_a_file_of_indicators_is_read_as_it_was_written_and_a_bad_line_is_named(tmp_path):
    path = tmp_path / "i.jsonl"
    write_indicators(path, [CARRY, UNIT])
    assert read_indicators(path) == [CARRY, UNIT]
    first = read_pool(path)
    assert read_pool(path) is first
    write_indicators(path, [CARRY, UNIT, GUESS])
    assert len(read_pool(path).indicators) == 3
    for line in ("{", '{"name": "a"}', "[1]", '{"name": "a", "definition": "b", "trigger": 3}',
                 '{"name": "a", "definition": " ", "trigger": "c"}'):  # fmt: skip
        path.write_text(f"{json.dumps(CARRY._asdict())}\n\n{line}\n")
        with pytest.raises(InputError, match=r"i\.jsonl, line 3"):
            read_indicators(path)
    path.write_text("")
    with pytest.raises(InputError, match=r"i\.jsonl: pool"):
        read_pool(path)
    with pytest.raises(StorageError, match="none"):
        read_pool(tmp_path / "none.jsonl")


def test_each_message_is_audited_by_the_indicators_that_fit_it_anew_for_each_attempt(pool):
    said = iter(["I guess.\nAnswer: 2", "digits in columns:\nAnswer: 3", "Answer: 1"])

    def say(request):
        if request.agent.startswith("auditor"):
            return FINE if " | Answer: 1 | " in request.observation.text else FLAWED
        return next(said)

    turns = play(pool, say)
    rows = turns.frame
    assert [names for _, names in asked(turns)] == [["unit"], ["carry", "unit"], ["unit"]]
    assert rows["turn"].to_list() == [0, 1, 2, 3, 3, 4, 5]
    own = rows.filter(pl.col("audited").is_null())
    assert own["attempt"].to_list() == [0, 1, 2]
    assert own["audit_passed"].null_count() == 3
    assert rows.drop_nulls("audited")["audit_passed"].to_list() == [False, False, False, True]
    assert own["observation"][1] == f"{own['observation'][0]} | 2 | audit: say 1"
    assert set(rows["success"]) == {True}


def test_what_an_auditor_finds_counts_if_it_is_significant_and_can_be_mended():
    cases = {
        FLAWED: (True, "say 1"),
        FINE: (False, None),
        '{"reasoning": "x", "suggestion": "say 1", "significant": "yes", "flawed": "yes"}': (True, "say 1"),
        '{"suggestion": "say 1", "significant": true, "flawed": true}': (True, "say 1"),
        FLAWED.replace("say 1", "None."): (False, None),
        FLAWED.replace("Significant: yes", "Significant: no"): (False, None),
        FLAWED.replace("Significant: yes\n", ""): (None, None),
        FLAWED.replace("Flawed: yes", "Flawed: perhaps"): (None, None),
        "**Suggestion:** say 1,\nand only that\n**Significant:** Yes.\n**Flawed:** Yes.": (
            True, "say 1,\nand only that"
        ),
        "It is flawed.": (None, None),
        "yes": (None, None),
        "Significant: yes\nFlawed: yes": (False, None),
        "": (None, None),
    }  # fmt: skip
    for text, verdict in cases.items():
        assert read_verdict(text) == verdict, text


def test_a_verdict_that_cannot_be_read_counts_neither_way_and_its_turn_is_not_valid(pool):
    def say(request):
        if not request.agent.startswith("auditor"):
            return "digits in columns\nAnswer: 1"
        return "who knows" if "carry" in request.observation.text else verdict

    verdict = FLAWED
    assert set(play(pool, say, attempts=1).frame.drop_nulls("audited")["audit_failed"]) == {1.0}
    verdict = FINE
    rows = play(pool, say).frame.drop_nulls("audited").sort("indicator")
    assert rows["indicator"].to_list() == ["carry", "unit"]
    assert rows["valid"].to_list() == [False, True]
    assert rows["flawed"].to_list() == [None, False]
    assert set(rows["audit_failed"]) == {0.0}


def test_messages_said_at_once_are_audited_one_after_the_other_and_lost_ones_are_unheard(pool):
    def say(request):
        if request.agent.startswith("auditor"):
            return FLAWED if " | Answer: 2 | " in request.observation.text else FINE
        return "Answer: 2" if request.agent == "agent-1" else "Answer: 1"

    turns = play(pool, say, agents=3, talk=False, attempts=2)
    rows = turns.frame
    assert rows.drop_nulls("audited")["audited"].to_list() == ["agent-1", "agent-2", "agent-3", "agent-1"]
    assert rows.filter(pl.col("agent").cast(str) == "agent-1")["turn"].to_list() == [0, 4]
    assert set(rows["success"]) == {True}
    talk = play(pool, say, agents=3, attempts=2)
    heard = messages(talk)
    assert not heard.filter(pl.col("sender") == "agent-1")["kept"].any()
    assert set(heard.filter(pl.col("sender") == "agent-1")["reason"]) == {"failed the audit"}
    lines = talk.frame.select("turn", pl.col("agent").cast(str), "answer").rows()
    assert {(turn, sender) for turn, sender in heard.select("sender_turn", "sender").rows()} <= {
        (turn, agent) for turn, agent, answer in lines if answer
    }


def test_auditors_share_the_score_and_a_team_with_too_few_messages_works_once_more_without_them(pool):
    def say(request):
        return FLAWED if request.agent.startswith("auditor") else "Answer: 1"

    rows = play(pool, say, agents=2, talk=False, attempts=1, least=2).frame
    assert rows.drop_nulls("audited").height == 2
    last = rows.filter(pl.col("turn") == rows["turn"].max())
    assert last["agent"].cast(str).to_list() == ["agent-1", "agent-2"]
    assert last["audit_passed"].all()
    assert rows.group_by("agent").agg(pl.col("reward").sum())["reward"].to_list() == [1.0] * 3


def test_a_message_that_no_indicator_fits_passes_unasked(tmp_path):
    write_indicators(tmp_path / "i.jsonl", [GUESS])
    turns = play(f"pool('{tmp_path / 'i.jsonl'}')", lambda request: "Answer: 1")
    assert len(turns) == 1
    assert turns["audit_passed"].to_list() == [True]
    assert turns.frame["indicator"].null_count() == 1


def test_the_protocol_is_kept_and_bad_options_are_named(pool, tmp_path):
    check_env(audited(Sum, 2, audit=pool))
    check_env(audited(Sum, 3, talk=False, audit=pool, rounds=2))
    assert audited(Sum, 2, audit=pool)().agents == ("agent-1", "agent-2", "auditor-1", "auditor-2")
    with pytest.raises(StorageError, match=r"none\.jsonl"):
        audited(Sum, audit=f"pool('{tmp_path / 'none.jsonl'}')")
    with pytest.raises(InputError, match="reads='part'"):
        audited(Sum, 2, audit=pool, reads="part")
    with pytest.raises(InputError, match="auditor-9"):
        audited(Sum, 2, audit=pool, instructions={"auditor-9": "x"})


class Model(ChatEndpoint):
    """Says 2, then what it is told to say; as an auditor finds fault with 2 if it looks for the unit."""

    def behave(self, handler, body):  # type: ignore[no-untyped-def]
        system, *_, last = (message["content"] for message in body["messages"])
        if system.startswith("You are auditor"):
            flawed = "unit" in last and "Answer: 2" in last
            said = {
                "suggestion": "say 1" if flawed else "none",
                "significant": "yes",
                "flawed": "yes" if flawed else "no",
            }
        else:
            said = {"answer": "1" if "audit: say 1" in last else "2"}
        lines = "\n".join(f"{name.capitalize()}: {text}" for name, text in said.items())
        reply(handler, completion(json.dumps(said) if "response_format" in body else lines))


@pytest.mark.parametrize("structured", [True, False])
def test_chat_models_audit_in_calls_of_their_own(pool, structured):
    endpoint = Model()
    options = {"base_url": endpoint.url, "api_key_env": None, "structured": structured}
    seats = {
        "agent": ChatPolicy("m", **options),
        "auditor": ChatPolicy("judge", temperature=0.0, price_in=1.0, **options),
    }
    env = audited(Sum, 1, audit=pool, least=0, instructions={"auditor": "{{ default }} Be strict, {{ role }}."})
    team = Team({seat: seats[seat.partition("-")[0]] for seat in env().agents})
    rows = rollout(env, team, groups=1, seed=0).frame
    endpoint.close()
    assert set(rows["success"]) == {True}
    audits = [body for body in endpoint.bodies if body["model"] == "judge"]
    assert len(audits) == rows.drop_nulls("audited").height == 2
    for body in audits:
        system, user = body["messages"]
        assert body["temperature"] == 0
        assert system["content"].endswith("Be strict, auditor-1.")
        assert re.search(r'What length is \d+\?\n\n<message from="agent-1">\n.*Answer: \d', user["content"], re.DOTALL)
        assert "The unit is missing." in user["content"]
        assert UNIT.trigger in user["content"]
        assert "The carry is lost." not in user["content"]
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        assert schema.get("required") == (["reasoning", "suggestion", "significant", "flawed"] if structured else None)
        assert ("End your reply with these lines:" in user["content"]) == (not structured)
    assert rows.drop_nulls("audited")["cost"].sum() > 0


def test_an_auditor_that_fails_names_model_and_endpoint(pool):
    endpoint = ChatEndpoint()
    endpoint.behave = lambda handler, body: reply(handler, b'{"error": {"message": "no such model"}}', code=404)
    auditor = ChatPolicy("judge", base_url=endpoint.url, api_key_env=None, retries=0)
    env = audited(Sum, 1, audit=pool, least=0)
    team = Team(dict.fromkeys(env().agents, auditor) | {"agent-1": ScriptedPolicy(lambda r: "Answer: 2", name="s")})
    rows = rollout(env, team, groups=1, seed=0).frame
    endpoint.close()
    error = rows["error"].drop_nulls()[0]
    assert "no such model" in error
    assert f"[model 'judge' at {endpoint.url}]" in error
