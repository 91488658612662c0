from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.algebra.messages import messages
from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import contains_any, persona_turns, scored_personas, set_recall, transcript

DATA = Path(__file__).parents[2] / "atlas" / "data" / "personas.jsonl"
CANNED = json.loads(DATA.read_text(encoding="utf-8").splitlines()[0])["text"]


def test_a_transcript_of_three_personas_and_two_revisions():
    found = transcript(CANNED)
    assert found.participants == ("AI Assistant (you)", "Film Expert", "Geographer")
    assert [name for name, _ in found.said] == [*found.participants, *found.participants]
    assert found.said[1] == ("Film Expert", "It was shot in Vienna.")
    assert found.answer == "The Third Man was shot in Vienna, on the Danube."
    assert not found.unparsed


@pytest.mark.parametrize("marker", ["Final answer:", "final answer :", "FINAL ANSWER:"])
def test_the_answer_follows_the_last_marker(marker):
    assert transcript(f"Final answer: no\n{marker} yes").answer == "yes"


def test_without_the_marker_the_whole_text_counts_and_is_flagged():
    found = transcript("Just soup.")
    assert (found.answer, found.unparsed, found.said) == ("Just soup.", True, ())


def test_lines_go_on_and_strangers_do_not_speak():
    found = transcript("Participants: Chef\nChef: Salt\nand pepper.\nNote: nobody\nFinal answer: soup")
    assert found.said == (("Chef", "Salt\nand pepper.\nNote: nobody"),)


def test_personas_become_turns_and_messages():
    turns = persona_turns([CANNED, "soup"])
    assert turns["agent"].to_list()[-1] == "AI Assistant (you)"
    assert len(turns) == 7
    heard = messages(turns)
    assert len(heard) == 15  # each hears all that was said before it
    assert heard.filter(heard["receiver_turn"] == 1)["sender"].to_list() == ["AI Assistant (you)"]


def test_scorers_on_hand_cases():
    assert contains_any("Paris, and nyc!", [["New York", "NYC"], ["Paris"], ["Rome"]]) == pytest.approx(2 / 3)
    assert set_recall("sun, Sun; moon.", ["moon", "sun", "star"]) == pytest.approx(2 / 3)
    with pytest.raises(InputError):
        set_recall("x", [])


def test_an_answer_is_right_whatever_its_case_and_full_stop():
    texts = ["Final answer: Soup.", "Final answer: stew"]
    rows = pl.DataFrame({"method": ["a", "b"], "text": texts, "right": "soup"})
    assert scored_personas(rows)["score"].to_list() == [1.0, 0.0]


def test_failed_calls_are_counted_and_in_no_mean():
    rows = {row["method"]: row for row in analyze("personas", DATA).rows(named=True)}
    assert (rows["spp"]["completions"], rows["spp"]["unparsed"], rows["spp"]["score"]) == (2, 1, 0.75)
    assert (rows["standard"]["failed"], rows["standard"]["score"], rows["standard"]["personas"]) == (1, 0.5, 0.0)
