from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, PolicyError
from palaestra.evaluation.analyses import analyze
from palaestra.judges.indicators import failed_messages, indicators_of, read_indicator, read_same
from palaestra.teams.indicators import Indicator, read_indicators

CARRY = Indicator("carry", "The carry of the sum is lost.", "sums in columns", "too small")
AGAIN = Indicator("no_carry", "The carry of the sum was lost.", "sums", "too small")
BORROW = Indicator("borrow", "Nobody borrows from the tens.", "differences", "too large")
UNIT = Indicator("carry", "Nobody says metres or feet.", "lengths", "cannot be used")


def failures(number: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"prompt": [f"{at}?" for at in range(number)], "response": ["x"] * number, "expected": [None] * number},
        {"prompt": pl.String, "response": pl.String, "expected": pl.String},
    )


def told(indicators, same="no"):
    """A writer that gives these in order, and says of similar ones whether they are the same."""
    left, asked = iter(indicators), []

    def say(request):
        asked.append(request.observation.text)
        if "Two descriptions" in request.observation.text:
            return json.dumps({"same": same})
        made = next(left)
        return made if isinstance(made, str) else json.dumps(made._asdict())

    return ScriptedPolicy(say, name="writer"), asked


def test_failed_are_rows_of_low_score_and_each_message_counts_once():
    rows = pl.DataFrame({"observation": ["a", "a", "b", "c", "d", "e"], "action": ["x", "x", "y", "z", "", "v"],
                         "score": [0.0, 0.0, 1.0, None, 0.0, 0.5], "expected": ["1", "1", "1", "1", "1", None],
                         "success": [True] * 6})  # fmt: skip
    assert failed_messages(rows).rows() == [("a", "x", "1"), ("e", "v", None)]
    assert failed_messages(rows, 0.5).rows() == [("a", "x", "1")]
    plain = pl.DataFrame({"prompt": ["a", "b"], "response": ["x", "y"], "success": [False, None]})
    assert failed_messages(plain).rows() == [("a", "x", None)]
    assert len(failed_messages(plain.drop("success"))) == 2


def test_a_new_indicator_joins_unless_a_similar_one_says_the_same():
    writer, asked = told([CARRY, BORROW, AGAIN], same="yes")
    pool, rows = indicators_of(failures(3), writer)
    assert pool == [CARRY, BORROW]
    assert rows["kept"].to_list() == [True, True, False]
    assert rows["similar_to"].to_list() == [None, None, "carry"]
    assert rows["similarity"][2] == pytest.approx(8 / 9)  # "the" twice: 4, and carry, of, sum, lost; of 4 + 5
    assert sum("Two descriptions" in each for each in asked) == 1
    assert "First: carry: The carry of the sum is lost." in asked[-1]
    assert "Second: no_carry: The carry of the sum was lost." in asked[-1]
    for same, joins in (("no", True), ("yes", False), ("hm", False)):
        pool, rows = indicators_of(failures(1), told([AGAIN], same)[0], [CARRY])
        assert (AGAIN in pool) == joins
        assert (rows["error"][0] is not None) == (same == "hm")
    pool, _ = indicators_of(failures(1), told([AGAIN])[0], [CARRY], decide=False)
    assert pool == [CARRY]
    pool, _ = indicators_of(failures(1), told([AGAIN], "yes")[0], [CARRY], similarity=0.9)
    assert pool == [CARRY, AGAIN]


def test_a_name_that_is_taken_gets_a_number():
    pool, rows = indicators_of(failures(3), told([UNIT, BORROW, CARRY])[0], [CARRY], similarity=1.1)
    assert [each.name for each in pool] == ["carry", "carry-2", "borrow", "carry-3"]
    assert rows["name"].to_list() == ["carry-2", "borrow", "carry-3"]


def test_what_cannot_be_read_is_asked_again_once_and_then_said():
    writer, asked = told(["no", "I see nothing.", CARRY, "hm"])
    pool, rows = indicators_of(failures(2), writer)
    assert len(asked) == 4
    assert rows["error"].to_list() == [None, "the reply is no indicator"]
    assert pool == [CARRY]


def test_replies_are_read_as_json_or_lines():
    lines = "**Name:** carry\nDefinition: The carry of\nthe sum is lost.\nTrigger: sums in columns\nRisk: too small"
    assert read_indicator(lines) == CARRY
    assert read_indicator(f"Here it is:\n```json\n{json.dumps(CARRY._asdict())}\n```") == CARRY
    assert read_indicator('{"name": "a", "definition": "b", "trigger": "c"}') == Indicator("a", "b", "c")
    assert read_indicator('{"name": "a", "definition": "", "trigger": "c"}') is None
    assert read_indicator("The carry is lost.") is None
    assert [read_same(each) for each in ("Same: Yes.", '{"same": false}', "Same: partly", "yes")] == [
        True, False, None, None
    ]  # fmt: skip


class Writer(ChatEndpoint):
    """Writes an indicator of what stands in the answer; knows a form of reply, or refuses it."""

    def __init__(self, knows: bool = True) -> None:
        super().__init__()
        self.knows = knows

    def behave(self, handler, body):  # type: ignore[no-untyped-def]
        if "response_format" in body and not self.knows:
            reply(handler, b'{"error": {"message": "response_format: json_schema is not supported"}}', code=400)
            return
        text = body["messages"][-1]["content"]
        if "Two descriptions" in text:
            said = {"same": "yes"}
        else:
            made = CARRY if "columns" in text else AGAIN if "sum" in text else BORROW
            said = made._asdict()
        lines = "\n".join(f"{name.capitalize()}: {value}" for name, value in said.items())
        reply(handler, completion(json.dumps(said) if "response_format" in body else lines))


def written(tmp_path: Path) -> Path:
    rows = [{"prompt": "1 + 9?", "response": f"{word}: 0", "score": 0.0, "expected": "10"}
            for word in ("columns", "sum", "less")]  # fmt: skip
    path = tmp_path / "turns.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("knows", [True, False])
def test_a_model_writes_a_file_of_indicators_and_is_paid_once(tmp_path, knows):
    endpoint = Writer(knows)
    options = f"model='m', base_url={endpoint.url!r}, api_key_env=None, price_in=1.0"
    call = f"extract_indicators({str(tmp_path / 'i.jsonl')!r}, {options}, ledger={str(tmp_path / 'l.sqlite')!r})"
    rows = analyze(call, written(tmp_path))
    assert rows["kept"].to_list() == [True, False, True]
    assert read_indicators(tmp_path / "i.jsonl") == [CARRY, BORROW]
    assert rows["tokens"].to_list() == [1010, 2020, 1010]
    assert rows["cost"].sum() == pytest.approx(4 * 1000 / 1e6)
    answered = [body for body in endpoint.bodies if knows or "response_format" not in body]
    assert len(answered) == 4
    for body in answered[:3]:
        text = body["messages"][-1]["content"]
        assert body["temperature"] == 0
        assert "1 + 9?" in text
        assert "A right answer is: 10" in text
        if knows:
            form = body["response_format"]["json_schema"]
            assert form["strict"]
            assert form["schema"]["required"] == ["reasoning", "name", "definition", "trigger", "risk"]
    before = len(endpoint.bodies)
    (tmp_path / "i.jsonl").unlink()
    again = analyze(call, written(tmp_path))
    assert again["kept"].to_list() == [True, False, True]
    sent = endpoint.bodies[before:]
    assert all("response_format" in body for body in sent)  # a fresh policy tries the form, once
    assert len(sent) <= (0 if knows else 3)
    more = analyze(call, written(tmp_path))  # onto the pool that is there
    assert not more["kept"].any()
    assert read_indicators(tmp_path / "i.jsonl") == [CARRY, BORROW]
    endpoint.close()


def test_an_endpoint_that_fails_is_named_and_no_file_is_written(tmp_path):
    endpoint = ChatEndpoint()
    endpoint.behave = lambda handler, body: reply(handler, b'{"error": {"message": "no such model"}}', code=404)
    path = tmp_path / "i.jsonl"
    call = f"extract_indicators({str(path)!r}, model='m', base_url={endpoint.url!r}, api_key_env=None, retries=0)"
    with pytest.raises(PolicyError, match=rf"no indicator of 3 messages.*no such model.*{endpoint.url}"):
        analyze(call, written(tmp_path))
    endpoint.close()
    assert not path.exists()


def test_own_instructions_and_bad_options(tmp_path):
    path = str(tmp_path / "i.jsonl")
    writer, asked = told([CARRY, BORROW, AGAIN])
    indicators_of(failures(1), writer, own={"indicator": "Only {{ response }} of {{ task }}"})
    assert asked[0].startswith("Only =====")
    for options, message in (
        ("", "give a policy"),
        ("model='m', policy='a:b()'", "give a policy"),
        ("policy='a:b()', base_url='http://x', ledger='y'", "base_url, ledger: options of model"),
        ("model='m', similarity=2", "from 0 to 1"),
        ("model='m', most=0", "at least 1"),
        ("model='m', instructions={'indicator': '{{ x }}'}", "there is no {{ x }}"),
        ("model='m', instructions={'judge': 'x'}", "there are indicator, same_indicator"),
        ("model='m', temprature=0", "temprature"),
    ):
        with pytest.raises(InputError, match=message):
            analyze(f"extract_indicators({path!r}, {options})", written(tmp_path))


def test_turns_of_a_run_are_read_from_its_folder(tmp_path):
    frame = pl.read_ndjson(written(tmp_path)).rename({"prompt": "observation", "response": "action"})
    turns = Turns(frame.with_columns(group=0, episode=pl.int_range(3), turn=0, agent=pl.lit("a"), success=False))
    (tmp_path / "turns").mkdir()
    turns.save(tmp_path / "turns" / "0.parquet")
    endpoint = Writer()
    call = f"extract_indicators({str(tmp_path / 'i.jsonl')!r}, model='m', base_url={endpoint.url!r}, api_key_env=None)"
    assert len(analyze(call, tmp_path / "turns")) == 3
    endpoint.close()
