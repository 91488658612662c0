"""Protocols of benchmarks: what a tie is worth, what is missing."""

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.scorers import (
    best_of_k_accuracy,
    comparisons,
    pair_accuracy,
    protocols,
    reciprocal_rank,
    strict_accuracy,
)


def scored(*groups: tuple[float | None, ...], right: int = 1) -> pl.DataFrame:
    """Groups of scores whose first `right` candidates are right."""
    rows = [
        {"group": g, "score": score, "correct": i < right}
        for g, each in enumerate(groups)
        for i, score in enumerate(each)
    ]
    return pl.DataFrame(rows, schema={"group": pl.Int64, "score": pl.Float64, "correct": pl.Boolean})


@pytest.mark.parametrize(
    ("scores", "credit"),
    [((9, 7, 7, 1), 1.0), ((7, 7, 3, 1), 0.5), ((7, 7, 7, 1), 1 / 3), ((7, 7, 7, 7), 0.25), ((6, 7, 1, 1), 0.0)],
)
def test_a_tie_is_worth_its_share_as_in_rewardbench_2(scores, credit):
    assert best_of_k_accuracy(scored(scores)).mean == pytest.approx(credit)


def test_what_a_tie_is_worth_is_named():
    rows = scored((5, 5, 3, 1))
    assert strict_accuracy(rows).mean == 0
    assert strict_accuracy(rows, ties="for").mean == 1
    assert strict_accuracy(rows, ties="half").mean == 0.5
    assert reciprocal_rank(rows).mean == 0.5
    assert reciprocal_rank(rows, ties="for").mean == 1
    assert reciprocal_rank(rows, ties="half").mean == pytest.approx(1 / 1.5)
    assert [pair_accuracy(rows, ties=t).mean for t in ("against", "half", "for")] == pytest.approx([2 / 3, 5 / 6, 1])
    assert [best_of_k_accuracy(rows, credit=c).mean for c in ("strict", "any")] == [0, 1]
    assert best_of_k_accuracy(scored((1, 3, 2)), credit="any").mean == 0, "the best one is wrong"


def test_several_right_answers():
    rows = scored((3, 1, 2, 0), right=2)  # right: 3 and 1; wrong: 2 and 0
    assert pair_accuracy(rows).mean == pytest.approx(3 / 4)
    assert strict_accuracy(rows).mean == 0
    assert best_of_k_accuracy(rows).mean == 1
    assert reciprocal_rank(rows).mean == 1


def test_a_group_that_lacks_a_score_leaves_and_is_counted():
    rows = scored((3, 1), (None, 1), (1, None), (0, 2))
    for protocol in (best_of_k_accuracy, strict_accuracy, reciprocal_rank, pair_accuracy):
        found = protocol(rows)
        assert found.n == 2
        assert found.mean < 1
        assert "2 of 4 groups lack a score" in found.caution


def test_the_rule_of_rewardbench_2_for_ratings_that_could_not_be_read():
    rows = scored((None, None, None, None), (3, None, None, None), (None, 3, 1, 1))
    assert best_of_k_accuracy(rows, missing="last").mean == pytest.approx((0.25 + 1 + 0) / 3)


def test_groups_without_a_wrong_answer_leave():
    assert strict_accuracy(scored((3, 1), right=2)).n == 0


def test_all_protocols_at_once_agree_with_each_alone():
    rows = scored((5, 5, 3, 1), (4, 2, 1, 0))
    table = protocols(rows)
    assert table["mean"].to_list() == pytest.approx([0.75, 0.5, 1.0, 0.75, 11 / 12])
    assert (table["low"] <= table["mean"]).all()
    assert (table["mean"] <= table["high"]).all()


def test_a_pairwise_judge_has_to_win_every_comparison():
    table = comparisons(pl.DataFrame({"group": [0, 0, 1, 1, 2, 2], "value": [1.0, 1.0, 1.0, 0.0, 1.0, None]}))
    assert dict(zip(table["protocol"], table["mean"])) == {"strict": 0.5, "reciprocal_rank": 0.75, "pairs": 0.75}
    lost = comparisons(pl.DataFrame({"group": [2, 2], "value": [1.0, None]}), missing="last")
    assert lost["mean"].to_list() == [0.0, 0.5, 0.5]


def test_errors_name_what_is_wrong():
    rows = scored((3, 1))
    with pytest.raises(MissingColumnError, match="no column 'scor'; did you mean 'score'"):
        best_of_k_accuracy(rows, score="scor")
    with pytest.raises(InputError, match="credit='fractions'"):
        best_of_k_accuracy(rows, credit="fractions")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected numbers"):
        strict_accuracy(rows.with_columns(score=pl.lit("high")))
