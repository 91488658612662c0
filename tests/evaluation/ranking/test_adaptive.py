"""ResponseGraphUCB against OpenSpiel's, fed with the same outcomes."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.ranking import (
    PayoffEstimate,
    ResponseGraph,
    alpha_rank_draws,
    next_match,
    plays_needed,
    response_graph_ucb,
)

CHANCE = np.array([[0.5, 0.85], [0.15, 0.5]])


def play(profile: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    won = float(rng.random() < CHANCE[profile])
    return np.array([won, 1 - won])


class Scripted:
    """OpenSpiel's sampler, but each profile's outcomes are a fixed sequence."""

    def __init__(self, means: np.ndarray, outcomes: dict[tuple[int, ...], np.ndarray]) -> None:
        self.strategy_spaces, self.n_players, self.means = list(means.shape[1:]), len(means), means
        self.outcomes, self.played = outcomes, dict.fromkeys(outcomes, 0)

    def observe_result(self, profile: tuple[int, ...]) -> np.ndarray:
        self.played[profile] += 1
        return self.outcomes[profile][self.played[profile] - 1]


@pytest.mark.parametrize(
    ("ours", "theirs"), [("hoeffding", "ucb-standard"), ("clopper_pearson", "clopper-pearson-ucb")]
)
@pytest.mark.parametrize("split", [False, True])
def test_same_outcomes_same_plays_same_graph(ours: str, theirs: str, split: bool) -> None:
    module = pytest.importorskip("open_spiel.python.algorithms.response_graph_ucb")
    rng = np.random.default_rng(0)
    means = rng.uniform(0.1, 0.9, (2, 2, 3))
    outcomes = {v: (rng.random((4000, 2)) < means[(slice(None), *v)]).astype(float) for v in np.ndindex(2, 3)}
    sampler = Scripted(means, outcomes)
    learner = module.ResponseGraphUCB(
        sampler,
        exploration_strategy="count-weighted",
        confidence_method=theirs,
        delta=0.2,
        per_payoff_confidence=not split,
    )
    learner.run(verbose=False, max_total_iterations=1200)
    mirror = Scripted(means, outcomes)
    found = response_graph_ucb(
        lambda v, _: mirror.observe_result(v),
        (2, 3),
        method="count",
        interval=ours,
        delta=0.2,
        split=split,
        most=1200,  # type: ignore[arg-type]
    )
    assert found.plays == pytest.approx(learner.total_interactions, abs=1)
    assert np.abs(found.estimate.n - learner.count[0]).max() <= 1
    learner.compute_graph()
    assert {(worse, better) for worse, better, _ in found.order} == set(learner.directed_edges)
    for v in np.ndindex(2, 3):
        n, total = found.estimate.n[v], found.estimate.total[(slice(None), *v)]
        assert total.tolist() == outcomes[v][:n].sum(0).tolist()


@pytest.mark.parametrize("rule", ["uniform_exhaustive", "uniform", "valence", "count"])
def test_every_rule_settles_correctly_with_fewer_plays_than_equal_shares(rule: str) -> None:
    plays = {}
    for interval in ("hoeffding", "clopper_pearson"):
        found = [
            response_graph_ucb(play, (2, 2), method=rule, interval=interval, delta=0.05, seed=s)  # type: ignore[arg-type]
            for s in range(4)
        ]
        assert all(each.settled == each.edges == 4 for each in found)
        first = {((1, 0), (0, 0), 0), ((1, 1), (0, 1), 0)}
        second = {((0, 1), (0, 0), 1), ((1, 1), (1, 0), 1)}
        assert all(set(each.order) == first | second
                   for each in found)  # fmt: skip
        plays[interval] = np.mean([each.plays for each in found])
    assert plays["clopper_pearson"] < plays["hoeffding"] < 4 * plays_needed(0.35, (2, 2))


def test_bounds_cover_each_payoff() -> None:
    rng = np.random.default_rng(1)
    for interval, most in (("hoeffding", 0.05), ("clopper_pearson", 0.07)):
        missed = 0
        for _ in range(400):
            estimate = PayoffEstimate.empty((1, 1), interval=interval, delta=0.05)  # type: ignore[arg-type]
            for won in rng.random(25) < 0.3:
                estimate.add((0, 0), np.array([won, 1 - won], float))
            low, high = estimate.bounds()
            missed += not low[0, 0, 0] <= 0.3 <= high[0, 0, 0]
        assert missed / 400 <= most


def test_nothing_left_and_bad_input() -> None:
    estimate, graph = PayoffEstimate.empty((2, 2)), ResponseGraph((2, 2))
    graph.open.clear()
    assert next_match(graph, estimate, np.random.default_rng(0)) is None
    with pytest.raises(InputError, match="did you mean 'uniform'"):
        next_match(graph, estimate, np.random.default_rng(0), "unifrm")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 numbers in"):
        estimate.add((0, 0), np.array([2.0, 0.0]))
    assert alpha_rank_draws(estimate, resamples=5).shape == (5, 2, 2)
    assert response_graph_ucb(play, (2, 2), most=6).plays == 6


def test_slack_lets_intervals_overlap_from_both_sides() -> None:
    total, n = np.array([[3.0, 6.0]]), np.array([10, 10])
    plain, slack = (PayoffEstimate(total, n, "hoeffding", slack=each).bounds() for each in (0.0, 0.1))
    np.testing.assert_allclose(slack[0] - plain[0], 0.1)
    np.testing.assert_allclose(slack[1] - plain[1], -0.1)


def test_by_valence_a_profile_is_played_by_the_square_of_its_open_edges() -> None:
    graph, estimate = ResponseGraph((2, 3)), PayoffEstimate.empty((2, 3))
    rng, open_edges = np.random.default_rng(0), dict(zip(graph.profiles, [3, 1, 0, 0, 0, 0], strict=True))
    graph.valence = np.array(list(open_edges.values()))
    drawn = [next_match(graph, estimate, rng, "valence") for _ in range(600)]
    assert abs(drawn.count((0, 0)) / 600 - 0.9) < 0.04
