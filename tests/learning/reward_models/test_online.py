"""The linear scorer that goes on from what it was, and how an answer stands to the right one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize

from palaestra.errors import InputError, MissingColumnError
from palaestra.judges.answer_features import overlap
from palaestra.judges.protocol import Scorer
from palaestra.judges.scorers import build
from palaestra.learning.reward_models import OnlineLinearReward, Preferences
from palaestra.learning.reward_models.reward_model import REWARD_MODELS
from palaestra.learning.reward_models.reward_model import load as load_model
from palaestra.learning.stages import Stages
from palaestra.runs.recipe import load
from palaestra.runs.trust import code_in


def pairs(chosen: object, rejected: object, **more: object) -> Preferences:
    return Preferences(pl.DataFrame({"features": chosen}), pl.DataFrame({"features": rejected}), **more)  # type: ignore[arg-type]


def test_a_fit_is_the_minimum_that_scipy_finds_and_zero_is_half_way() -> None:
    rng = np.random.default_rng(0)
    x, old, weight = rng.normal(size=(40, 3)), np.array([1.0, -1.0, 0.5]), rng.random(20)
    model = OnlineLinearReward(weights=old.tolist(), inertia=0.3)
    told = model.fit(pairs(x[:20], x[20:], weight=weight))
    gap, weight = x[:20] - x[20:], weight / weight.sum()
    best = minimize(lambda w: weight @ np.logaddexp(0, -gap @ w) + 0.15 * ((w - old) ** 2).sum(), old, tol=1e-12).x
    assert model.weights == pytest.approx(best, abs=1e-6)
    scores = model.score(pl.DataFrame({"features": x})).to_numpy()
    assert weight @ (scores[:20] + scores[20:]) == pytest.approx(0, abs=1e-12)
    assert told["accuracy"] == pytest.approx((gap @ old > 0).mean())
    assert told["loss"] == pytest.approx(weight @ np.logaddexp(0, -gap @ old))


def test_rows_with_a_missing_feature_are_left_out() -> None:
    alone, more = OnlineLinearReward(), OnlineLinearReward()
    alone.fit(pairs([[1.0]], [[0.0]]))
    more.fit(pairs([[1.0], [None]], [[0.0], [0.0]]))
    assert more.weights == pytest.approx(alone.weights)
    assert more.score(pl.DataFrame({"features": [[1.0], [None]]})).null_count() == 1
    with pytest.raises(InputError, match="no pair"):
        more.fit(pairs([[None]], [[0.0]], weight=np.ones(1)))
    with pytest.raises(MissingColumnError, match="nothing"):
        OnlineLinearReward("nothing").score(pl.DataFrame({"x": [1.0]}))
    with pytest.raises(InputError, match="inertia=0"):
        OnlineLinearReward(inertia=0)


def test_a_criterion_is_the_condition_of_both_sides() -> None:
    def towards(rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
        assert condition is not None
        return (rows["x"] * condition["criterion"].cast(pl.Float64)).to_numpy()[:, None]

    model = OnlineLinearReward(towards)
    one, other = pl.DataFrame({"x": [1.0, -1.0]}), pl.DataFrame({"x": [-1.0, 1.0]})
    asked = pl.DataFrame({"criterion": ["1", "-1"]})
    model.fit(Preferences(one, other, condition=asked))
    found = model.score(pl.DataFrame({"x": [2.0, 2.0]}), condition=asked).to_list()
    assert found[0] > 0 > found[1]


def test_it_is_a_folder_and_a_scorer(tmp_path: Path) -> None:
    model, rows = OnlineLinearReward(), pl.DataFrame({"features": [[1.0, 2.0], [0.0, 1.0]]})
    model.fit(pairs([[1.0, 2.0]], [[0.0, 1.0]]))
    model.save(tmp_path)
    assert OnlineLinearReward.load(tmp_path).score(rows).to_list() == model.score(rows).to_list()
    assert isinstance(REWARD_MODELS.build("online_linear(inertia=0.5)"), Scorer)


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
    model = OnlineLinearReward(overlap, inertia=0.02)
    one, other = (pl.DataFrame({"response": each}) for each in (chosen, wrong))
    model.fit(Preferences(one, other, reference=pl.DataFrame({"response": answers})))
    stage = Stages(load("cooper").stages)[0]
    assert stage.model.weights == pytest.approx(model.weights, abs=0.01)
    assert stage.model.bias == pytest.approx(model.bias, abs=0.01)
    asked = pl.DataFrame({"response": ["0 1 2 3 4", "4", "four", "3"]})
    recited, digit, word, other = model.score(asked, reference=pl.DataFrame({"response": ["4"] * 4}))
    assert recited > digit == word > other


def doubled(rows: pl.DataFrame, *_: object) -> np.ndarray:
    return np.array(rows["x"].to_list(), float)[:, None] * 2


@pytest.mark.parametrize("kind", ["linear", "online_linear"])
def test_a_saved_model_imports_only_what_the_reader_names_himself(kind: str, tmp_path: Path) -> None:
    rows, own = pl.DataFrame({"x": [1.0, 3.0]}), f"{__name__}:doubled"
    model = REWARD_MODELS.build(f"{kind}({own!r})")
    model.fit(Preferences(rows, pl.DataFrame({"x": [0.0, 1.0]})))
    model.save(tmp_path)
    with pytest.raises(InputError, match=f"names code .*{own}.*name it yourself, features='{own}'"):
        build(f"reward_model({str(tmp_path)!r})")
    trusted = build(f"reward_model({str(tmp_path)!r}, features={own!r})")
    assert trusted.score(rows).to_list() == model.score(rows).to_list()
    said = {"evaluation": {"scorers": {"s": f"reward_model('rm', features={own!r})"}}}
    assert [each.text for each in code_in(said)] == [own]  # so that a recipe cannot name it unasked, either


def test_features_of_this_package_load_without_asking(tmp_path: Path) -> None:
    model = OnlineLinearReward("palaestra.judges.answer_features:overlap", weights=[1.0, 2.0, 3.0])
    model.save(tmp_path)
    assert np.array_equal(getattr(load_model(tmp_path), "weights", None), [1.0, 2.0, 3.0])  # type: ignore[arg-type]


def test_only_a_reward_model_is_registered_as_one() -> None:
    class Alike:
        """It has the verbs, and no `agrees`, on which a fit would have failed at its end."""

        fit = score = save = load = None

    for each in (Alike, lambda: OnlineLinearReward()):
        with pytest.raises(InputError, match=r"'alike'.*derived from RewardModel"):
            REWARD_MODELS.register("alike")(each)
    assert "alike" not in REWARD_MODELS
