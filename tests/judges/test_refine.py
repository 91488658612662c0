"""Which tokens are learned from, worked by hand; and refinement that keeps what a judge prefers."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.judges.refine import label_mask, refine


def test_a_fifth_of_seven_thinking_tokens_is_one() -> None:
    """[105]."""
    tokens = list("<1234567>ab")
    for seed in range(20):
        mask = label_mask(tokens, "<", ">", method="fraction", p=0.2, rng=np.random.default_rng(seed))
        assert (~mask).sum() == 1
        assert 1 <= int(np.flatnonzero(~mask)[0]) <= 7
    assert label_mask(tokens, "<", ">", method="fraction", p=0.1).all()


def test_only_what_stands_behind_the_last_closing_mark() -> None:
    assert label_mask(list("<a>b<c>de"), "<", ">").tolist() == [False] * 7 + [True] * 2
    assert label_mask(list("abc"), "<", ">").all()
    assert label_mask([1, 2, 9, 9, 3], [1], [9, 9]).tolist() == [False] * 4 + [True]
    assert label_mask(list("<ab"), "<", ">", method="fraction", p=1.0).all()  # never closed
    with pytest.raises(InputError, match="method='last'"):
        label_mask("a", "<", ">", method="last")  # type: ignore[arg-type]


def test_the_best_by_a_judge_the_last_or_what_is_made_of_all() -> None:
    drafts = iter(["1", "3", "2"])

    def answer(question: str, thinking: str | None) -> tuple[str, str]:
        assert (thinking is None) == (question == "?" and not seen)
        seen.append(thinking)
        return "thought", next(drafts)

    seen: list[str | None] = []
    found = refine(answer, lambda question, thought, said: thought + said, "?", best_by=lambda q, said: float(said))
    assert found.answer == "3"
    assert found.answers == ("1", "3", "2")
    assert seen == [None, "thought1", "thought3"]
    same = [refine(lambda q, t: ("", "x" if t is None else "y"), lambda q, t, s: "z", "?", rounds=2, **how).answer
            for how in ({}, {"merge": lambda q, all_: "+".join(all_)}, {"best_by": lambda q, said: 0.0})]  # fmt: skip
    assert same == ["y", "x+y", "x"]
    with pytest.raises(InputError, match="rounds=0"):
        refine(answer, lambda q, t, s: t, "?", rounds=0)
