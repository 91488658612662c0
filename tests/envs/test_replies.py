from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.envs.protocol import Observation
from palaestra.envs.replies import Reply, read_reply

CODE = "def f(x):\n    # Answer: the square\n    return x * x"


@pytest.mark.parametrize("end", ["\n```", "\n```\nIt squares.", ""])
@pytest.mark.parametrize("begin", ["Answer: ```python\n", "**Answer:**\n```\n"])
def test_an_answer_of_several_lines_is_the_fenced_block_that_begins_there(begin, end):
    assert read_reply(f"I write it.\n{begin}{CODE}{end}")[:2] == (CODE, "line")


def test_prose_goes_to_the_next_field_or_the_end():
    said = "Step: Let x = 4. Then\n- x + 3 = 7,\n- so \\boxed{7}.\n\n**Confidence:** 0.9"
    text = "Let x = 4. Then\n- x + 3 = 7,\n- so \\boxed{7}."
    assert read_reply(said, "step", until=["confidence"]).text == text
    assert read_reply(f"Confidence: 0.9\n{text}\nStep: {text}", "step", until=["confidence"]).text == text
    assert read_reply("Step:\nConfidence: 0.9", "step", until=["confidence"]).text == ""


@pytest.mark.parametrize("before", ["", " <think>41?</think>\n"])
def test_thinking_that_was_cut_off_is_no_answer_and_is_shown_to_nobody(before):
    said = read_reply(f"{before}<think>A first guess:\nAnswer: 42\nbut wait, \\boxed{{41}}")
    assert said == Reply("", "whole", "")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Answer: **42**.", "42"), ("**Answer:** **42**.", "42"), ("**Answer: 42**.", "42"), ("**Answer:** `42`", "42"),
        ("***Answer: 42.***", "42."), ("Answer: ```42```", "42"), ("Answer: 42.", "42."), ("* Answer: 2 * 3", "2 * 3"),
        ("Answer: __init__", "__init__"), ("Answer: *args", "*args"), ("Answer: _private", "_private"),
        ("Answer: **Paris** is it", "**Paris** is it"), ("Answer: `a` or `b`", "`a` or `b`"),
        ("**Answer:** 2**3", "2**3"), ("*Answer:* _Paris_", "Paris"),
    ],
)  # fmt: skip
def test_emphasis_is_taken_off_where_it_is_around_all_of_an_answer(said, text):
    assert read_reply(said)[:2] == (text, "line")


MARKS = st.sampled_from(["", "*", "**", "***", "_", "`"])


ANSWERS = st.from_regex(r"[a-z][a-z0-9]{0,5}( [a-z0-9]{1,3})?", fullmatch=True)
ENDS = st.sampled_from(["", "."])


@given(ANSWERS, MARKS, MARKS, st.booleans(), ENDS)
def test_emphasis_around_an_answer_and_its_line_says_nothing(answer, inner, outer, whole, end):
    line = f"{outer}Answer: {answer}{outer}" if whole else f"{outer}Answer:{outer} {inner}{answer}{inner}"
    assert read_reply(f"So.\n{line}{end}").text.removesuffix(".") == answer


@given(MARKS, MARKS, st.sampled_from(["", '"', "'", "`"]), ENDS, st.sampled_from(["", "Action: "]))
def test_a_choice_is_known_in_quotes_with_emphasis_and_a_full_stop(outer, inner, quote, end, field):
    seen = Observation("", ("right", "go left", "[0]"))
    for place, name in enumerate(seen.choices):
        assert seen.index(f"{field}{outer}{quote}{inner}{name.title()}{inner}{quote}{outer}{end}") == place


@pytest.mark.parametrize(
    "said",
    [
        '{"final_answer": 42}', '{"Final Answer": "42"}', '{"reasoning": "6 by 7", "answer": 42,}',
        'A 5" wide one.\n```json\n{"steps": [1, 2,], "answer": "42",\n}\n```',
    ],
)  # fmt: skip
def test_json_is_read_as_models_write_it(said):
    assert read_reply(said)[:2] == ("42", "json")


def test_commas_inside_of_a_text_stay():
    assert read_reply('{"answer": "[1, 2,]"}').text == "[1, 2,]"
    assert read_reply('{"answer": "[1, 2,]",}').text == "[1, 2,]"
