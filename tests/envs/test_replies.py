from __future__ import annotations

import pytest

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
