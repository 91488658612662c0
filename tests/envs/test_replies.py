from __future__ import annotations

import pytest

from palaestra.envs.replies import read_reply

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
