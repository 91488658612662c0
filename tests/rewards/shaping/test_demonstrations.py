"""Demonstrations: cuts of [199], its step rewards, and the pairs of frames of [14]."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.rewards import hop, hop_model, hop_pairs, segment, step_rewards
from palaestra_atlas.catalog.rewards.s199_perceptual import CUTS, FRAMES, look


def test_demonstrations_are_cut_where_they_change() -> None:
    film = look(np.searchsorted(CUTS, np.arange(FRAMES), side="right"), np.random.default_rng(0))
    assert segment(film, 3, shortest=15) == segment(film, 3, by_length=True) == CUTS
    assert segment(film, 3) != CUTS  # as published, a segment of two frames has the smallest deviation
    assert segment(film, 1) == ()
    with pytest.raises(InputError, match="cannot be cut into 31 steps"):
        segment(film, 31)


def test_cuts_minimise_what_they_say() -> None:
    x = np.random.default_rng(0).normal(size=(9, 2))

    def cost(cuts: tuple[int, ...]) -> float:
        return float(sum(part.std(axis=0).sum() for part in np.split(x, cuts)))

    every = [(a, b) for a in range(2, 6) for b in range(a + 2, 8)]
    assert segment(x, 3) == min(every, key=cost)


def test_steps_are_found_in_demonstrations() -> None:
    rng = np.random.default_rng(3)
    films = [look(np.searchsorted(CUTS, np.arange(FRAMES), side="right"), rng) for _ in range(5)]
    assert all(segment(film, 3, by_length=True) == CUTS for film in films)
    model = step_rewards(films, 3, most=4, by_length=True)
    for step in (1, 2):
        assert {2 * step, 2 * step + 1} <= set(model.kept[step].tolist())
    scores = model.score(look(np.array([0, 1, 2]), np.random.default_rng(4)))
    assert scores.shape == (3, 2)
    assert scores[:, 0].argmax() == 1
    assert scores[:, 1].argmax() == 2


@pytest.mark.parametrize("alpha", [0.3, 5.0])
def test_step_rewards_are_their_formulas(alpha: float) -> None:
    """Three films of unlike length, six features of unlike mean and deviation by step: by loops over frames."""
    rng = np.random.default_rng(7)
    means, sizes = rng.normal(scale=3.0, size=(3, 6)), rng.uniform(0.3, 2.0, size=(3, 6))
    films = []
    for lengths in ((5, 3, 4), (4, 7, 3), (3, 4, 6)):
        step = np.repeat([0, 1, 2], lengths)
        films.append(means[step] + sizes[step] * rng.normal(size=(len(step), 6)))
    cuts = [segment(film, 3, shortest=3) for film in films]
    assert cuts != [segment(film, 3) for film in films]
    pieces = [np.split(film, cut) for film, cut in zip(films, cuts, strict=True)]
    of_step = [np.concatenate([piece[step] for piece in pieces]) for step in range(3)]
    model = step_rewards(films, 3, most=2, alpha=alpha, shortest=3)
    seen, expected = rng.normal(size=(4, 6)), np.ones((4, 2))
    for step in range(3):
        inside = of_step[step]
        outside = np.concatenate([of_step[other] for other in range(3) if other != step])
        lead = [
            alpha * abs(inside[:, k].mean() - outside[:, k].mean()) - (inside[:, k].std() + outside[:, k].std())
            for k in range(6)
        ]
        kept = sorted(range(6), key=lambda k: -lead[k])[:2]
        assert model.kept[step].tolist() == kept
        if step > 0:
            gaps = [((seen[:, k] - inside[:, k].mean()) / inside[:, k].std()) ** 2 for k in kept]
            expected[:, step - 1] = np.exp(-0.5 * (gaps[0] + gaps[1]) / 2)
    np.testing.assert_allclose(model.score(seen), expected)


def test_pairs_are_spread_over_hops_and_gaps() -> None:
    progress = np.linspace(0, 1, 60) ** 4  # most pairs of frames are far apart as hops, few as progress
    found = hop_pairs(progress, 20_000, np.random.default_rng(0))
    still = found[:, 0] == found[:, 1]
    assert abs(still.mean() - 0.05) < 0.01

    def shares(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Of the cells of hops and gaps."""
        size = np.asarray(hop("p", "q").evaluate(Turns({"p": progress[before], "q": progress[after]})))
        gap = (np.abs(after - before) - 1) * 4 // 59
        cells = np.minimum(((size + 1) / 2 * 25).astype(int), 24) + 25 * gap
        return np.bincount(cells, minlength=100) / len(cells)

    drawn = shares(*found[~still].T)
    every = shares(*np.nonzero(~np.eye(60, dtype=bool)))
    assert ((drawn > 0) == (every > 0)).all()
    assert np.ptp(drawn[drawn > 0]) < 0.02 < np.ptp(every[every > 0])
    with pytest.raises(InputError, match="two frames"):
        hop_pairs(progress[:1], 5, np.random.default_rng(0))


def test_the_ends_of_a_demonstration_are_its_first_and_last_frame() -> None:
    frames = np.array([[3.0, 1.0], [4.0, 5.0], [9.0, 2.0]])
    first, last = hop_model(frames, np.random.default_rng(0), pairs=20).ends
    np.testing.assert_allclose(first, [3.0, 1.0])
    np.testing.assert_allclose(last, [9.0, 2.0])
