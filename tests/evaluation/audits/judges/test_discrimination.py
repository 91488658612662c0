"""A judge that tells nothing apart is an alarm, whatever it always says."""

from __future__ import annotations

import polars as pl
import pytest
from tests.evaluation.audits.judges.simulated import compared, rated, scored

from palaestra.evaluation.audits.judges import accuracy, audit_judge, discrimination, parse_failures


def ties(table: pl.DataFrame) -> tuple[str, str]:
    found = discrimination(table)
    return found.verdict, found.sentence


@pytest.mark.parametrize("always", [0.5, 1.0, 7.0, 0.0])
def test_one_rating_for_everything_fails(always: float) -> None:
    table = rated(0, truth=False).with_columns(value=pl.lit(always))
    verdict, sentence = ties(table)
    assert (verdict, "the judge tells nothing apart" in sentence) == ("fail", True)
    assert f"items are {always:g}" in sentence
    assert "fail" in {f.verdict for f in audit_judge(table)}


def test_a_tie_for_every_pair_fails_and_is_no_judge_without_a_preferred_place() -> None:
    found = {f.audit: f for f in audit_judge(compared(0).with_columns(value=pl.lit(0.5)))}
    assert (found["ties"].verdict, "are ties" in found["ties"].sentence) == ("fail", True)
    assert (found["position"].verdict, found["order"].verdict) == ("cannot tell", "cannot tell")
    assert "no winner" in found["position"].sentence
    assert "consistent" not in found["order"].numbers


def test_nearly_always_yes_fails_and_mostly_yes_is_looked_at() -> None:
    def yes(share: float) -> str:
        table = pl.DataFrame({"item": range(1000)})
        return discrimination(table.with_columns(value=(pl.col("item") % 100 < 100 * share).cast(pl.Float64))).verdict

    assert [yes(share) for share in (0.5, 0.8, 0.93, 0.99)] == ["pass", "pass", "warn", "fail"]


def test_one_side_may_win_every_pair() -> None:
    assert ties(compared(0).with_columns(value=pl.lit(1.0)))[0] == "pass"


def test_one_criterion_of_one_value_is_named_and_one_judge_of_two_fails() -> None:
    table = rated(0)
    one = table.with_columns(value=pl.when(pl.col("criterion") == "clear").then(1.0).otherwise("value"))
    verdict, sentence = ties(one)
    assert verdict == "warn"
    assert "of clear on 120 items are 1: this criterion tells nothing apart" in sentence
    two = pl.concat([table.with_columns(judge=pl.lit("a")), table.with_columns(judge=pl.lit("b"), value=pl.lit(3.0))])
    assert ties(two)[0] == "fail"


def test_a_coin_has_another_winner_in_every_second_pair() -> None:
    coin = compared(0, pairs=600, noise=1e6)
    verdict, sentence = ties(coin)
    assert (verdict, "as good as a coin" in sentence) == ("warn", True)
    assert discrimination(coin).numbers["same"] == pytest.approx(0.5, abs=0.06)
    assert ties(compared(0, pairs=600))[0] == "pass"


def test_tied_answers_to_one_prompt_are_counted() -> None:
    rows = {"item": range(12), "prompt": ["a"] * 4 + ["b"] * 8, "value": [1.0, 1, 2, 3] + [1.0] * 2 + [2.0] * 6}
    assert discrimination(pl.DataFrame(rows)).numbers["tied"] == pytest.approx((1 + 1 + 15) / (6 + 28))


def test_few_items_cannot_tell() -> None:
    assert ties(rated(0).with_columns(value=1.0).filter(pl.col("item") < 9))[0] == "cannot tell"


def test_ties_of_whole_numbers_are_no_fault_and_those_that_decide_most_groups_are() -> None:
    (fair,) = [f for f in audit_judge(scored(0)) if f.audit == "ties"]
    assert fair.numbers["tied"] > 0.05
    assert fair.verdict == "pass"
    coarse = scored(0, groups=200).with_columns(score=(pl.col("score") > 9).cast(pl.Int64))
    (found,) = [f for f in audit_judge(coarse) if f.audit == "ties"]
    assert (found.verdict, found.numbers["low"] > 0.5) == ("fail", True)


def test_ratings_are_not_right_or_wrong_by_a_truth_of_another_scale() -> None:
    (found,) = [f for f in audit_judge(rated(0)) if f.audit == "accuracy"]
    assert found.verdict == "cannot tell"
    assert "values go from 1 to 10 and 'truth' is 0 or 1" in found.sentence


def test_intervals_count_prompts_and_not_their_answers() -> None:
    table = rated(0).with_columns(value=(pl.col("value") > 5).cast(pl.Float64))
    alone = table.drop("prompt")
    for run in (accuracy, parse_failures):
        assert run(table).numbers.keys() == run(alone).numbers.keys()
    assert accuracy(table).numbers["accuracy"] == pytest.approx(accuracy(alone).numbers["accuracy"])
    assert accuracy(table).numbers["low"] != pytest.approx(accuracy(alone).numbers["low"])
    grouped = table.rename({"prompt": "group"})
    assert accuracy(table).numbers == pytest.approx(accuracy(grouped).numbers)


def test_ten_items_are_enough_and_nine_are_not() -> None:
    def verdict(items: int) -> str:
        return ties(pl.DataFrame({"item": range(items), "value": [1.0, 2.0] * (items // 2) + [1.0] * (items % 2)}))[0]

    assert [verdict(items) for items in (9, 10)] == ["cannot tell", "pass"]
