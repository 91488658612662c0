"""Markov games, auctions, hiring and walks: what the rows of the atlas do not check, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games import zero_sum
from palaestra.evaluation.games.auctions import assign, virtual_values
from palaestra.evaluation.games.hiring import scoring_rule
from palaestra.evaluation.games.markov import MarkovGame, cce_gap
from palaestra.evaluation.games.walks import SelfRepellentSampler, descend, metropolis

EVEN = np.full(3, 1 / 3)


def test_one_step_of_a_markov_game_is_a_matrix_game() -> None:
    rng = np.random.default_rng(0)
    payoff = rng.normal(size=(3, 2))
    game = MarkovGame(np.stack([payoff, -payoff])[:, None], np.ones((1, 3, 2, 1)), np.ones(1), 1)
    flat = [[rng.dirichlet(np.ones(size)) for size in (3, 2)] for _ in range(4)]
    profiles = [[x[None, None] for x in profile] for profile in flat]
    expected = zero_sum(payoff).cce_gap(flat, [1, 2, 3, 4])
    for deviations in ("history", "markov"):
        assert cce_gap(game, profiles, [1, 2, 3, 4], deviations)[0] == pytest.approx(expected)  # type: ignore[arg-type]


def test_memory_never_hurts_a_deviator() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        game = MarkovGame(
            rng.normal(size=(2, 2, 2, 2)), rng.dirichlet(np.ones(2), size=(2, 2, 2)), np.array([0.5, 0.5]), 2
        )
        profiles = [[rng.dirichlet(np.ones(2), size=(2, 2)) for _ in range(2)] for _ in range(3)]
        history, markov = (cce_gap(game, profiles, deviations=each)[1] for each in ("history", "markov"))  # type: ignore[arg-type]
        assert (history >= markov - 1e-12).all()
        one = [cce_gap(game, profiles[:1], deviations=each)[0] for each in ("history", "markov")]  # type: ignore[arg-type]
        assert one[0] == pytest.approx(one[1])


def test_so_many_deviations_are_named() -> None:
    """Of two actions in two states of ten steps: 2^20."""
    half = np.full((10, 2, 2), 0.5)
    game = MarkovGame(np.zeros((2, 2, 2, 2)), np.full((2, 2, 2, 2), 0.5), np.array([0.5, 0.5]), 10)
    with pytest.raises(InputError, match=r"2\^20 Markov deviations are too many"):
        cce_gap(game, [[half, half]], deviations="markov")


def test_a_sampler_without_a_graph_visits_tasks_in_their_shares() -> None:
    target = np.array([0.5, 0.3, 0.2])
    sampler = SelfRepellentSampler(target, 10.0, walks=20)
    visits = np.zeros((20, 3))
    for _ in range(200):
        visits[np.arange(20), sampler.next()] += 1
    assert np.abs(visits / 200 - target).max() < 0.03, "every walk, not only their mean"


def test_an_iterate_follows_two_walks_to_the_mean() -> None:
    """Values 0 and 4 less their mean of 3; walks at 1, 1 and at 1, 0; rates 1/2 and 1/3.

    From 0 the one goes to 1/2 and 2/3, the other to 1/2 and then 1/2 + (-3 - 1/2) / 3 = -2/3.
    """

    class Walks(SelfRepellentSampler):
        def next(self) -> np.ndarray:
            self.steps += 1
            return np.array([1, 1]) if self.steps == 1 else np.array([1, 0])

    walks = Walks(np.array([0.25, 0.75]), 1.0, walks=2)
    found = descend(np.array([0.0, 4.0]), walks, 2, exponent=1.0)
    assert found == pytest.approx(np.var([2 / 3, -2 / 3], ddof=1) / (1 / 3))


def test_walks_begin_in_shares_of_the_target_and_with_even_visits() -> None:
    """The measure then moves by 1/2 and by 1/3; every second of its weights is that of the site that was reached."""
    target = np.array([0.9, 0.1])
    sampler = SelfRepellentSampler(target, 1.0, walks=4000)
    assert np.mean(sampler.at == 0) == pytest.approx(0.9, abs=0.02)
    assert (sampler.measure == 0.5).all()
    first, second = sampler.next().copy(), sampler.next()
    shares = np.eye(2)[first] / 3 + np.eye(2)[second] / 3 + 1 / 6
    np.testing.assert_allclose(sampler.measure, shares)


def test_a_large_graph_is_connected_however_far_apart_its_ends_are() -> None:
    """Powers of the adjacency matrix overflowed, and the graph was called not connected."""
    sites = np.arange(300)
    side = np.where(sites < 50, 1, np.where(sites >= 250, 2, 0))  # two crowds at the ends of a long line
    adjacent = (np.abs(sites[:, None] - sites) == 1) | ((side[:, None] == side) & (side > 0))
    metropolis(adjacent, np.full(300, 1 / 300))
    with pytest.raises(InputError, match="not connected"):
        metropolis(adjacent & ((sites[:, None] < 150) == (sites < 150)), np.full(300, 1 / 300))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MarkovGame(np.zeros((2, 1, 2, 2)), np.ones((1, 2, 2, 2)), np.ones(1), 1), "do not fit"),
        (lambda: MarkovGame(np.zeros((2, 1, 2, 2)), np.zeros((1, 2, 2, 1)), np.ones(1), 1), "transitions must be"),
        (lambda: assign(np.array([1.0]), np.ones((2, 2))), r"\[n\] and \[n, slots\]"),
        (lambda: assign(np.array([1.0, np.nan]), np.ones((2, 2))), "finite"),
        (lambda: virtual_values(np.ones(1), np.array([])), "a sample"),
        (lambda: scoring_rule(np.array([0.5, 0.5]), np.ones((2, 2)), [np.zeros(2)], np.eye(2)), "do not fit"),
        (lambda: metropolis(np.zeros((3, 3), bool), EVEN), "not connected"),
        (lambda: metropolis(np.triu(np.ones((3, 3), bool)), EVEN), "symmetric"),
        (lambda: SelfRepellentSampler(EVEN, -1.0), "alpha"),
        (lambda: SelfRepellentSampler(EVEN, 1.0, np.eye(3)[[1, 2, 1]]), "not stationary"),
    ],
)
def test_bad_input_is_named(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_bad_files_are_named(tmp_path: Path) -> None:
    game, profiles = tmp_path / "game.json", tmp_path / "profiles.json"
    with pytest.raises(InputError, match=r"game.json: there is no such file"):
        analyze("cce_gap", game, profiles)
    game.write_text('{"rewards": []}')
    with pytest.raises(InputError, match=r"game.json.*transitions, start, horizon missing"):
        analyze("cce_gap", game, profiles)
    payoff = np.eye(2)
    told = {
        "rewards": np.stack([payoff, -payoff])[:, None].tolist(),
        "transitions": np.ones((1, 2, 2, 1)).tolist(),
        "start": [1.0],
        "horizon": 1,
    }
    game.write_text(json.dumps(told))
    profiles.write_text('{"profiles": [[[[[1, 0]]], [[[0.5, 0.2]]]]]}')
    with pytest.raises(InputError, match="profile 0, player 1"):
        analyze("cce_gap", game, profiles)
    pl.DataFrame({"site": ["x", "y"], "target": [0.5, 0.5], "value": [0, 1]}).write_csv(tmp_path / "sites.csv")
    pl.DataFrame({"a": ["x"], "b": ["z"]}).write_csv(tmp_path / "edges.csv")
    with pytest.raises(InputError, match="edge x - z: there is no such site"):
        analyze("self_repellent", tmp_path / "sites.csv", tmp_path / "edges.csv")
