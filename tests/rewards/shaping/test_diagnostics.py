"""[176]: the card's worked numbers in both forms, and loops."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError
from palaestra.rewards.shaping.diagnostics import lanser_reward


def turns(after: list[int], start: int, **facts: list[float]) -> Turns:
    n = len(after)
    columns = {
        "diagnostics": after,
        "diagnostics_before": [start, *after[:-1]],
        "safe": [1] * n,
        "confidence": [1.0] * n,
    }
    return Turns({"episode": [0] * n, "turn": range(n)} | columns | facts)


@pytest.mark.parametrize(
    ("before", "after", "safe", "confidence", "published", "potential"),
    [(5, 2, 1, 0.94, 1.894, 1.494), (3, 2, 1, 0.72, 0.872, 0.472), (7, 7, 0, 0.62, -0.038, -0.438)],
)
def test_worked_numbers(
    before: int, after: int, safe: int, confidence: float, published: float, potential: float
) -> None:
    table = turns([after], before, safe=[safe], confidence=[confidence])
    np.testing.assert_allclose(np.asarray(lanser_reward(method="published").evaluate(table)), published, atol=1e-12)
    np.testing.assert_allclose(np.asarray(lanser_reward().evaluate(table)), potential, atol=1e-12)


def test_a_loop_earns_nothing_as_a_potential() -> None:
    table = turns([3, 0] * 5, 0)
    assert np.asarray(lanser_reward().evaluate(table)).sum() == pytest.approx(0)
    assert np.asarray(lanser_reward(method="published").evaluate(table)).sum() == pytest.approx(0.8 * 5)


def test_a_step_that_makes_nothing_worse_is_never_punished() -> None:
    rng = np.random.default_rng(0)
    after = np.sort(rng.integers(0, 9, 30))[::-1].tolist()
    table = turns(after, 9, safe=np.sort(rng.integers(0, 2, 30)).tolist(), confidence=np.sort(rng.random(30)).tolist())
    assert (np.asarray(lanser_reward().evaluate(table))[1:] >= 0).all()


def test_the_sum_telescopes_with_a_discount() -> None:
    table = turns([4, 6, 1], 5)
    rewards, gamma = np.asarray(lanser_reward(gamma=0.9).evaluate(table)), 0.9
    phi = 0.4 - 0.5 * np.array([5, 4, 6, 1])
    assert (rewards * gamma ** np.arange(3)).sum() == pytest.approx(gamma**3 * phi[3] - phi[0])


def test_recipe_text_and_its_mistakes() -> None:
    table = turns([2], 5)
    signal = parse("lanser_reward(method='published', weights=(1, 0, 0))")
    assert np.asarray(signal.evaluate(table)) == pytest.approx([3.0])
    with pytest.raises(ExpressionError, match="method='publisehd'; did you mean 'published'"):
        lanser_reward(method="publisehd")  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="2 weights"):
        lanser_reward(weights=(1, 2))  # type: ignore[arg-type]
