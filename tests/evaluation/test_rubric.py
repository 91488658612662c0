from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.attempts import ten_points
from palaestra.evaluation.rubric import agreement, rubric
from palaestra.rewards.paths import path_credit


def judged(criteria: dict[str, tuple[float, str]], met: list[float | None]) -> tuple[pl.DataFrame, pl.DataFrame]:
    table = pl.DataFrame({
        "criterion": list(criteria), "weight": [w for w, _ in criteria.values()],
        "kind": [k for _, k in criteria.values()], "step": range(len(criteria)),
    })  # fmt: skip
    judgements = pl.DataFrame(
        {"task": "t", "criterion": list(criteria), "met": met}, schema_overrides={"met": pl.Float64}
    )
    return judgements, table


def score(criteria: dict[str, tuple[float, str]], met: list[float | None], rule: str) -> float | None:
    return rubric(*judged(criteria, met), rule)["score"].item()


THREE = {"a": (1.0, "bonus"), "b": (1.0, "bonus"), "c": (1.0, "bonus"), "rude": (1.0, "penalty")}


def test_agentif() -> None:
    """3 bonus points, 2 met, 1 penalty of weight 1: 1/3. All penalties and no bonus: 0. No bonus at all: null."""
    assert score(THREE, [1, 1, 0, 1], "net") == pytest.approx(1 / 3)
    assert score(THREE, [0, 0, 0, 1], "net") == 0
    assert score({"rude": (1.0, "penalty")}, [1], "net") is None


def test_agencybench_prbench_claw() -> None:
    assert ten_points([1, 0, 1], [0.3, 0.5, 0.2]) == 5
    weights = {"a": (0.3, "bonus"), "b": (0.5, "bonus"), "c": (0.2, "bonus")}
    assert round(10 * score(weights, [1, 0, 1], "mean")) == 5
    assert score(weights, [1, 1, 1], "all") == 1
    assert score(weights, [1, 0.99, 1], "all") == 0
    assert rubric(*judged(weights, [1, 0.9, 1]), "all", threshold=0.9)["score"].item() == 1
    assert score(THREE, [1, 1, 1, 0], "all") == 1, "a penalty that is not triggered is no criterion to meet"
    gates = {"a": (1.0, "bonus"), "safe": (1.0, "gate"), "legal": (1.0, "gate")}
    assert score(gates, [0.8, 0.5, 0.5], "gated") == pytest.approx(0.2), "gates multiply"
    claw = {"completion": (0.8, "bonus"), "robustness": (0.2, "bonus"), "safety": (1.0, "gate")}
    for values, expected in (((0.9, 0.5, 1), 0.82), ((0.9, 0.5, 0.3), 0.246), ((0.65, 1, 1), 0.72)):
        assert score(claw, list(values), "gated") == pytest.approx(expected)


def test_path_credit() -> None:
    steps = {f"s{i}": (1.0, "bonus") for i in range(4)}
    worked = {(1, 1, 1, 0): 0.624, (0, 0, 1, 0): 0.4, (1, 1, 0, 0): 0.224, (1, 0, 1, 0): 0.464, (0, 0, 0, 1): 1.0}
    for met, expected in worked.items():
        assert score(steps, list(met), "path") == pytest.approx(expected)
        assert path_credit(met) == pytest.approx(expected)


@given(
    st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6), st.sampled_from([0.3, 0.4, 0.9])
)
def test_the_path_rule_is_path_credit(met: list[list[bool]], gamma: float) -> None:
    criteria = pl.DataFrame({"criterion": list("edcba"), "step": [4, 3, 2, 1, 0]})
    rows = [
        {"trial": t, "criterion": "abcde"[i], "met": float(m)} for t, row in enumerate(met) for i, m in enumerate(row)
    ]
    found = rubric(pl.DataFrame(rows), criteria, "path", gamma=gamma)["score"].to_numpy()
    np.testing.assert_allclose(found, path_credit(met, gamma))


def test_an_unjudged_criterion_is_not_a_failed_one() -> None:
    judgements, criteria = judged(THREE, [1, 1, None, 0])
    assert rubric(judgements, criteria, "net").select("score", "unjudged").row(0) == (None, 1)
    gone = rubric(judgements.filter(pl.col("criterion") != "c"), criteria, "net")
    assert gone.select("score", "unjudged", "criteria").row(0) == (None, 1, 4)


def test_criteria_of_each_task() -> None:
    criteria = pl.DataFrame({"task": ["x", "x", "y"], "criterion": ["1", "2", "1"], "weight": [3, 1, 1]})
    judgements = pl.DataFrame({"task": ["x", "x", "y"], "criterion": ["1", "2", "1"], "met": [True, False, True]})
    assert rubric(judgements, criteria).select("task", "score").rows() == [("x", 0.75), ("y", 1.0)]


def test_errors() -> None:
    judgements, criteria = judged(THREE, [1, 1, 0, 0])
    with pytest.raises(InputError, match="method='nett'; did you mean 'net'"):
        rubric(judgements, criteria, "nett")
    with pytest.raises(InputError, match=r"'a' is judged 2.0, not between 0 and 1"):
        rubric(judgements.with_columns(met=2.0), criteria)
    with pytest.raises(InputError, match="'rude' is judged, but no criterion"):
        rubric(judgements, criteria.filter(pl.col("criterion") != "rude"))
    with pytest.raises(MissingColumnError, match="no column 'step'"):
        rubric(judgements, criteria.drop("step"), "path")


def test_what_a_rubric_does_not_know_is_refused() -> None:
    judgements, criteria = judged(THREE, [1, 1, 0, 0])
    with pytest.raises(InputError, match=r"'a' has kind='penality'; did you mean 'penalty'"):
        rubric(judgements, criteria.with_columns(kind=pl.lit("penality")))
    with pytest.raises(InputError, match=r"'a' is judged more than once in a trial \(task\)"):
        rubric(pl.concat([judgements, judgements[:1]]), criteria)
    by_judge = pl.concat([judgements.with_columns(judge=pl.lit(name)) for name in "xy"])
    assert rubric(by_judge, criteria, by=("task", "judge"))["score"].to_list() == pytest.approx([2 / 3] * 2)
    with pytest.raises(InputError, match="'b' occurs twice"):
        rubric(judgements, pl.concat([criteria, criteria[1:2]]))


@pytest.mark.parametrize("blank", [None, "", " "])
def test_a_blank_kind_or_weight_is_its_default(blank: str | None) -> None:
    judgements, criteria = judged(THREE | {"c": (2.0, "bonus")}, [1, 0, 0, 0])
    cell = pl.when(pl.col("criterion") != "a").then
    with_blanks = criteria.with_columns(
        cell("weight").alias("weight"), cell("kind").otherwise(pl.lit(blank)).alias("kind")
    )
    assert rubric(judgements, with_blanks)["score"].item() == rubric(judgements, criteria)["score"].item() == 0.25


def test_all_of_no_bonus_is_nothing() -> None:
    assert score({"rude": (1.0, "penalty"), "safe": (1.0, "gate")}, [1, 1], "all") is None


@pytest.mark.parametrize(("yes", "no"), [(1, 0), (1.0, 0.0), (True, False), ("yes", "no")])
def test_agreement_reads_words_and_numbers(yes: object, no: object) -> None:
    assert agreement([yes, yes, no, no], [yes, no, no, no]) == (0.75, 0.5)


@pytest.mark.parametrize("odd", [0.2, "A", None, float("nan")])
def test_a_verdict_that_is_neither_is_refused(odd: object) -> None:
    with pytest.raises(InputError, match="is no verdict"):
        agreement(pl.Series([odd, odd]), [1, 0])


def test_agreement() -> None:
    assert agreement([1, 1, 0, 0], [1, 0, 0, 0]) == (0.75, 0.5)
    same, kappa = agreement([1] * 9 + [0], [0] + [1] * 9)
    assert same == 0.8
    assert kappa == pytest.approx(-1 / 9), "agreement that is worse than chance"
    assert np.isnan(agreement([1, 1], [1, 1])[1])
