"""One signature: a judge, a verifier, labels and an ensemble score the same rows, and a judge's calls are rows."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from palaestra.agents import Decision, Request
from palaestra.errors import DamagedFileError, ExpressionError, InputError, MissingColumnError
from palaestra.judges import (
    SCORERS,
    VERDICTS,
    Ensemble,
    HumanLabels,
    Judge,
    Judged,
    PolicyAsker,
    Scorer,
    StubJudge,
    Verifier,
    order_balance,
)  # fmt: skip
from palaestra.judges.rubric import items_of
from palaestra.judges.scorers import build

ROWS = pl.DataFrame({"prompt": ["Say hello."] * 3, "response": ["hello", "hello there", "no"], "truth": [1, 1, 0]})
ITEMS = items_of({"kind": "Is it kind?", "brief": {"question": "Is it brief?", "weight": 0.5}})


class Reader:
    """Finds "hello" kind and one word brief; prefers the longer answer; fails on what it is told to."""

    name = "reader"

    def __init__(self, fails: str = "never", first: bool = False) -> None:
        self.fails, self.first, self.prompts = fails, first, list[str]()

    def act(self, requests: list[Request]) -> list[Decision]:
        """Answers with tokens and a price."""
        found = []
        for request in requests:
            text = request.observation.text
            self.prompts.append(text)
            shown = re.findall(r"(?s)(={5} \d{20} ={5})\n(.*?)\n\1", text)
            texts = [each[1] for each in shown][1:]
            if "VERDICT: A" in text:
                a, b = (len(each) for each in texts[:2])
                said = "A" if self.first else "tie" if a == b else "A" if a > b else "B"
            else:
                said = ("yes" if "hello" in texts[0] else "no") if "kind?" in text else f"{1 / len(texts[0].split()):g}"
            error = "HTTP 500" if self.fails in text else None
            answer = f"So.\nVERDICT: {said}"
            found.append(Decision(answer, tokens_in=len(text), tokens_out=2, cost=0.5, error=error))
        return found


def judge(policy: Reader, **options: object) -> Judged:
    return Judged(ITEMS, PolicyAsker(policy), **options)  # type: ignore[arg-type]


def test_a_rubric_is_asked_about_each_row_and_weighed() -> None:
    made = judge(Reader())
    assert made.score(ROWS).to_list() == [1.5, 1.25, 0.5]
    table = made.verdicts(ROWS)
    assert dict(table.schema) == {"item": pl.UInt32} | VERDICTS
    assert table["judge"].unique().to_list() == ["reader"]
    assert table.filter(pl.col("item") == 1)["value"].to_list() == [1.0, 0.5]


def test_what_failed_is_missing_and_leaves_the_others() -> None:
    found = judge(Reader(fails="hello there")).score(ROWS)
    assert found.to_list() == [1.5, None, 0.5]


def test_a_pair_is_shown_in_both_orders_and_the_balance_tells_who_loves_the_first() -> None:
    other = pl.DataFrame({"response": ["hell", "hello world", "yes!"]})
    policy = Reader()
    made = judge(policy)
    assert made.score(ROWS, reference=other).to_list() == [1.0, 0.5, 0.0]
    assert len(policy.prompts) == 2 * 2 * 3
    biased = judge(Reader(first=True))
    assert biased.score(ROWS, reference=other).to_list() == [0.5] * 3
    balance = order_balance(biased.verdicts(ROWS, reference=other))
    assert balance["first"].to_list() == [1.0, 1.0]
    assert balance["consistent"].to_list() == [0.0, 0.0]
    assert judge(Reader(fails="yes!")).score(ROWS, reference=other).to_list() == [1.0, 0.5, None]


def test_its_calls_are_turns_of_the_role_judge_with_their_price() -> None:
    made = judge(Reader(fails="hello there"))
    made.verdicts(ROWS, samples=2)
    calls = made.calls.frame
    assert len(calls) == 3 * 2 * 2
    assert calls["agent"].cast(pl.String).unique().to_list() == ["judge"]
    assert calls.group_by("group", maintain_order=True).agg(pl.col("cost").sum())["cost"].to_list() == [2.0, 2.0, 2.0]
    assert calls["error"].is_not_null().sum() == 4
    assert calls["valid"].to_list() == [error is None for error in calls["error"]]
    assert (calls["tokens_in"] > 0).all()
    again = made.verdicts(ROWS.head(1))  # known by now
    assert again["tokens"].to_list() == [0, 0]


def test_what_it_is_told_stands_in_the_prompt() -> None:
    policy = Reader()
    judge(policy).score(ROWS, condition=pl.DataFrame({"told": ["Be strict.", "Be lenient.", None]}))
    assert sum("Be strict." in each for each in policy.prompts) == 2
    assert sum("Consider also" in each for each in policy.prompts) == 4
    with pytest.raises(InputError, match="3 rows and 1 of the condition"):
        judge(policy).score(ROWS, condition=pl.DataFrame({"told": ["x"]}))
    with pytest.raises(MissingColumnError, match="no column 'response' or 'action'"):
        judge(policy).score(pl.DataFrame({"text": ["x"]}))


def test_a_verifier_is_an_expression_of_columns() -> None:
    rows = ROWS.with_columns(gold=pl.Series(["hello", "hi", "no"]))
    assert SCORERS.build("verifier(\"1.0 * (col('truth') == 1)\")").score(rows).to_list() == [1, 1, 0]
    reference = pl.DataFrame({"truth": [1, 0, 1]})
    assert Verifier("col('truth') - col('reference.truth')").score(ROWS, reference=reference).to_list() == [0, 1, -1]
    with pytest.raises(MissingColumnError, match="gold"):
        Verifier("col('gold')").score(ROWS)


def test_labels_come_from_a_file_by_key(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("item,value\n2,0.5\n0,1\n9,0\n")
    rows = ROWS.with_columns(item=pl.Series([0, 1, 2], dtype=pl.UInt32))
    assert SCORERS.build(f"labels({str(path)!r})").score(rows).to_list() == [1.0, None, 0.5]
    path.write_text("item,value\n0,1\n0,0\n")
    with pytest.raises(InputError, match="several labels"):
        HumanLabels(path)
    path.write_text("item,value\n0,good\n")
    with pytest.raises(InputError, match="expected a number"):
        HumanLabels(path)
    with pytest.raises(MissingColumnError, match=r"no column 'vlaue'.*'value'"):
        HumanLabels(path, value="vlaue")
    with pytest.raises(DamagedFileError, match="cannot be read as labels"):
        HumanLabels(tmp_path / "none.csv")


def test_keys_of_labels_are_text_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "labels[1].csv"
    names = [f"{number:03d}" for number in range(120)] + ["1.1", "1.10"]
    path.write_text("item,value\n" + "".join(f"{name},{n / 200 if n > 110 else 1}\n" for n, name in enumerate(names)))
    rows = pl.DataFrame({"item": names})
    assert HumanLabels(path).score(rows).to_list() == [n / 200 if n > 110 else 1 for n in range(len(names))]
    with pytest.warns(UserWarning, match=r"labels none of these rows: they are like .*'7'.*its keys like .*'\d\d\d|1"):
        assert HumanLabels(path).score(pl.DataFrame({"item": [7]})).to_list() == [None]
    other = tmp_path / "labels.jsonl"
    other.write_text("".join(f'{{"item": {n}.0, "value": {n and 0.5}}}\n' for n in range(120)))
    assert HumanLabels(other).score(pl.DataFrame({"item": range(120)})).to_list() == [0, *[0.5] * 119]


def test_an_ensemble_is_a_scorer_and_its_members_errors_stay_apart() -> None:
    right, silent = StubJudge([[1, 0], [0, 1]], name="right"), StubJudge(parse_failure=1.0, name="silent")
    wrong = StubJudge([[0, 1], [1, 0]], name="wrong")
    assert Ensemble([right, silent], "mean").score(ROWS).to_list() == [1, 1, 0]
    assert Ensemble([right, silent], "mean", least=2).score(ROWS).to_list() == [None] * 3
    assert Ensemble([right, wrong], "unanimous").score(ROWS).to_list() == [None] * 3
    weights = {"right": 3.0, "wrong": 1.0}
    assert Ensemble([right, wrong], "weighted", weights=weights).score(ROWS).to_list() == [0.75, 0.75, 0.25]
    both = Ensemble([right, Verifier("col('truth')", name="rule")])
    table = both.verdicts(ROWS)
    assert table["judge"].to_list() == ["right"] * 3 + ["rule"] * 3
    for text in (
        "ensemble(['stub(right=1)', 'stub(right=0)'], method='min')",
        "ensemble([stub(right=1), stub(right=0)], 'min')",
    ):
        assert build(text).score(ROWS).to_list() == [0] * 3
    with pytest.raises(ExpressionError, match=r"unknown scorer 'stbu'.*'stub'"):
        build("ensemble([stbu()])")
    with pytest.raises(ExpressionError, match=r"howe.*ensemble\(members"):
        build("ensemble([stub()], howe='min')")


def test_all_have_the_signature() -> None:
    for scorer in (judge(Reader()), StubJudge(), Verifier("col('truth')"), Ensemble([StubJudge()])):
        assert isinstance(scorer, Scorer)
        assert scorer.score(ROWS.head(0)).to_list() == []
    assert isinstance(judge(Reader()), Judge)


def test_a_judge_without_anybody_to_ask_says_so() -> None:
    with pytest.raises(InputError, match=r"policy 'grader' is not here"):
        SCORERS.build('judged(question="Good?", policy="grader")').score(ROWS)
    with pytest.raises(InputError, match="give policy=…, or model=…"):
        SCORERS.build('judged(question="Good?")')
    with pytest.raises(InputError, match="one of rubric, items and question"):
        SCORERS.build('judged(policy="x")')
    with pytest.raises(ExpressionError, match="verdict"):
        SCORERS.build("verdict()")


def test_an_ensemble_of_nobody_is_named() -> None:
    with pytest.raises(InputError, match="least=1 of 0 members"):
        build("ensemble([])")
