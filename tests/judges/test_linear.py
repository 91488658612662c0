"""The linear scorer that goes on from what it was, and how an answer stands to the right one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize

from palaestra.errors import InputError, MissingColumnError
from palaestra.judges.base import SCORERS, Scorer
from palaestra.judges.linear import online_linear, overlap
from palaestra.judges.pairs import TABLE
from palaestra.learning.stages import Stages
from palaestra.runs.recipe import load


def pairs(chosen: list[int], rejected: list[int], **more: object) -> pl.DataFrame:
    size = len(chosen)
    given = {
        "group": range(size), "chosen": chosen, "rejected": rejected, "criterion": [None] * size,
        "weight": [1.0] * size,
        "margin": [None] * size, "source": ["test"] * size, "tie": [False] * size,
    }  # fmt: skip
    return pl.DataFrame(given | more, schema_overrides=TABLE)


def test_a_fit_is_the_minimum_that_scipy_finds_and_zero_is_half_way() -> None:
    rng = np.random.default_rng(0)
    x, old = rng.normal(size=(40, 3)), np.array([1.0, -1.0, 0.5])
    rows, found = pl.DataFrame({"features": x}), pairs(list(range(20)), list(range(20, 40)), weight=rng.random(20))
    model = online_linear(weights=old, inertia=0.3)
    told = model.fit(rows, found)
    gap, weight = x[:20] - x[20:], found["weight"].to_numpy() / found["weight"].sum()
    best = minimize(lambda w: weight @ np.logaddexp(0, -gap @ w) + 0.15 * ((w - old) ** 2).sum(), old, tol=1e-12).x
    assert model.weights == pytest.approx(best, abs=1e-6)
    scores = model.score(rows).to_numpy()
    assert weight @ (scores[:20] + scores[20:]) == pytest.approx(0, abs=1e-12)
    assert told["accuracy"] == pytest.approx((gap @ old > 0).mean())
    assert told["pair_loss"] == pytest.approx(weight @ np.logaddexp(0, -gap @ old))


def test_ties_are_left_out_and_so_are_rows_with_a_missing_feature() -> None:
    rows = pl.DataFrame({"features": [[1.0], [0.0], [None], [5.0]]})
    alone, more = online_linear(), online_linear()
    alone.fit(rows, pairs([0], [1]))
    more.fit(rows, pairs([0, 3, 2], [1, 1, 1], tie=[False, True, False]))
    assert more.weights == pytest.approx(alone.weights)
    assert more.score(rows).null_count() == 1
    with pytest.raises(InputError, match="no pair"):
        more.fit(rows, pairs([2], [1]))
    with pytest.raises(MissingColumnError, match="nothing"):
        online_linear("nothing").score(rows)


def test_a_criterion_is_the_condition_of_both_sides() -> None:
    def towards(rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
        assert condition is not None
        return (rows["x"] * condition["criterion"].cast(pl.Float64)).to_numpy()[:, None]

    model = online_linear(towards)
    model.fit(pl.DataFrame({"x": [1.0, -1.0]}), pairs([0, 1], [1, 0], criterion=["1", "-1"]))
    asked = pl.DataFrame({"criterion": ["1", "-1"]})
    found = model.score(pl.DataFrame({"x": [2.0, 2.0]}), condition=asked).to_list()
    assert found[0] > 0 > found[1]


def test_state_goes_out_and_in_again() -> None:
    model, rows = online_linear(), pl.DataFrame({"features": [[1.0, 2.0], [0.0, 1.0]]})
    model.fit(rows, pairs([0], [1]))
    other = online_linear()
    other.load_state_dict(model.state_dict())
    assert other.score(rows).to_list() == model.score(rows).to_list()
    assert isinstance(SCORERS.build("online_linear(inertia=0.5)"), Scorer)
    with pytest.raises(InputError, match="inertia=0"):
        online_linear(inertia=0)


def test_an_answer_beside_the_right_one() -> None:
    said = ["7", "Seven", "0 1 2 3 4 5 6 7", "3", "1 + 6 = 7", ""]
    found = overlap(pl.DataFrame({"response": said}), pl.DataFrame({"response": ["7"] * 6}), None)
    assert found[:, 0].tolist() == [1, 1, 1, 0, 1, 0]
    assert found[:, 1] == pytest.approx([1, 1, 1 / 8, 0, 1 / 3, 0])
    assert found[:, 2] == pytest.approx(np.log1p([1, 1, 8, 1, 3, 0]))
    with pytest.raises(InputError, match="reference"):
        overlap(pl.DataFrame({"response": said}), None, None)


def test_worked_solutions_against_bare_wrong_answers_make_the_model_that_the_recipe_starts_from() -> None:
    """It likes lists that hold everything better than the right answer alone; nobody told it to."""
    sums = [(a, b) for a in (1, 2) for b in (1, 2)]
    answers = [str(a + b) for a, b in sums]
    chosen = [f"{a} + {b} = {a + b}" for a, b in sums]
    wrong = [str((a + b + 1) % 5) for a, b in sums]
    model = online_linear(overlap, inertia=0.02)
    model.fit(
        pl.DataFrame({"response": chosen + wrong}), pairs([0, 1, 2, 3], [4, 5, 6, 7]),
        reference=pl.DataFrame({"response": answers * 2}),
    )  # fmt: skip
    stage = Stages(load("cooper").stages)[0]
    assert stage.model.weights == pytest.approx(model.weights, abs=0.01)
    assert stage.model.bias == pytest.approx(model.bias, abs=0.01)
    asked = pl.DataFrame({"response": ["0 1 2 3 4", "4", "four", "3"]})
    recited, digit, word, other = model.score(asked, reference=pl.DataFrame({"response": ["4"] * 4}))
    assert recited > digit == word > other
