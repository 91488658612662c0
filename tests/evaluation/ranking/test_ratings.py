"""Bradley-Terry, Elo and voting rules against evalica and OpenSpiel."""

from __future__ import annotations

import warnings
from itertools import pairwise, permutations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.ranking import (
    Matches,
    ballots,
    bradley_terry,
    draw_parameter,
    elo,
    matches,
    plurality,
    rank,
    vote,
)
from palaestra.evaluation.ranking.elo import elo_resampled
from palaestra.evaluation.ranking.voting import RULES, widest_paths


def played(rng: np.random.Generator, strengths: np.ndarray, number: int, draws: float = 0.15) -> Matches:
    n = len(strengths)
    a = rng.integers(0, n, number)
    b = (a + rng.integers(1, n, number)) % n
    score = (rng.random(number) < 1 / (1 + np.exp(strengths[b] - strengths[a]))).astype(float)
    score[rng.random(number) < draws] = 0.5
    names = np.array([f"s{i}" for i in range(n)])
    return matches(list(names[a]), list(names[b]), score)


PLAY = played(np.random.default_rng(0), np.array([1.0, 0.5, 0.0, -0.4, -1.2]), 600)


def as_evalica(play: Matches) -> tuple[list[str], list[str], list[object]]:
    evalica = pytest.importorskip("evalica")
    kinds = {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y, 0.5: evalica.Winner.Draw}
    names = np.array(play.names)
    return list(names[play.a]), list(names[play.b]), [kinds[s] for s in play.score]


def test_a_table_without_draws_or_with_nothing_else_is_not_changed_by_its_neighbours() -> None:
    """A bootstrap has such tables; Davidson's ν is 0 there, or infinite."""
    wins = np.array([[0.0, 5, 6], [2, 0, 4], [1, 3, 0]])
    ties = np.array([[0.0, 1, 2], [1, 0, 0], [2, 0, 0]])
    none = np.zeros((3, 3))
    batch = np.stack([wins, wins, none]), np.stack([ties, none, ties])
    found = bradley_terry(*batch, model="davidson", prior=1.0)
    np.testing.assert_allclose(found[0], bradley_terry(wins, ties, model="davidson", prior=1.0), atol=1e-9)
    np.testing.assert_allclose(found[1], bradley_terry(wins, prior=1.0), atol=1e-9)
    assert found[2].tolist() == [0, 0, 0]
    assert draw_parameter(*batch, prior=1.0)[1:].tolist() == [0, np.inf]


def test_who_is_missing_from_a_draw_of_the_bootstrap_leaves_only_that_draw() -> None:
    few = matches([*"aabbc"], [*"bcccd"], np.array([1, 1, 1, 0, 1.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rank(few, "average_win_rate", resamples=300).table
    assert np.isfinite(found.select("low", "high").to_numpy()).all()


def test_bradley_terry_and_davidson_are_evalicas() -> None:
    evalica = pytest.importorskip("evalica")
    for function, model in ((evalica.bradley_terry, "half"), (evalica.newman, "davidson")):
        found = function(*as_evalica(PLAY), tolerance=1e-12, limit=10_000)
        theirs = np.log(found.scores.sort_index().to_numpy())
        ours = bradley_terry(PLAY.wins(), PLAY.ties(), model=model)
        assert np.abs(ours - (theirs - theirs.mean())).max() < 1e-6
    assert draw_parameter(PLAY.wins(), PLAY.ties()) == pytest.approx(2 * found.v, abs=1e-6)


@pytest.mark.parametrize(("won", "lost", "drawn"), [(4, 1, 6), (1, 1, 600), (1000, 1, 1000), (1, 10_000, 10_000)])
def test_two_systems_are_as_far_apart_as_their_odds_however_often_they_draw(won: int, lost: int, drawn: int) -> None:
    """Davidson's ratio of wins is e^gap and drawn² / (won · lost) is ν²: three shares, two parameters, an exact fit."""
    wins, ties = np.array([[0.0, won], [lost, 0]]), np.array([[0.0, drawn], [drawn, 0]])
    gap = np.log(won / lost)
    assert bradley_terry(wins, ties, model="davidson") == pytest.approx(np.array([gap, -gap]) / 2, abs=1e-6)
    assert draw_parameter(wins, ties) == pytest.approx(drawn / np.sqrt(won * lost), rel=1e-6)


def test_elo_is_evalicas() -> None:
    evalica = pytest.importorskip("evalica")
    for k in (4.0, 30.0):
        theirs = evalica.elo(*as_evalica(PLAY), k=k).scores.sort_index().to_numpy()
        assert np.abs(elo(PLAY, k=k) - theirs).max() < 1e-6
    orders = elo(PLAY, orders=50)
    assert orders.shape == (50, 5)
    assert orders.sum(1) == pytest.approx(5000.0)
    assert (np.diff(orders.mean(0)) < 0).all()


def test_the_weight_of_a_match_scales_what_it_moves() -> None:
    light, whole = (matches(["a"], ["b"], np.ones(1), np.array([weight])) for weight in (0.2, 1.0))
    assert elo(whole).tolist() == [1015.0, 985.0]
    assert elo(light).tolist() == elo(light, orders=1)[0].tolist() == [1003.0, 997.0], "who wins never loses points"
    drawn = elo_resampled(light, 2, np.random.default_rng(0))
    assert drawn.tolist() == [[1003.0, 997.0]] * 2


def test_average_win_rate_is_evalicas() -> None:
    evalica = pytest.importorskip("evalica")
    theirs = evalica.average_win_rate(*as_evalica(PLAY)).scores.sort_index().to_numpy()
    assert vote(PLAY.wins() + PLAY.ties() / 2, "average_win_rate") == pytest.approx(theirs, abs=1e-9)


def test_a_batch_is_its_parts_and_a_prior_keeps_the_unbeaten_finite() -> None:
    wins, ties = PLAY.resampled(20, np.random.default_rng(1))
    together = bradley_terry(wins, ties, prior=0.5)
    assert np.allclose(together, [bradley_terry(w, t, prior=0.5) for w, t in zip(wins, ties, strict=True)])
    unbeaten = np.array([[0, 5, 5], [0, 0, 3], [0, 2, 0]])
    assert np.isfinite(bradley_terry(unbeaten, prior=0.5)).all()
    with pytest.raises(InputError, match=r"2 groups have no finite distance: systems \[0\] and"):
        bradley_terry(unbeaten)


def test_resampling_by_cluster_keeps_clusters_together() -> None:
    rng = np.random.default_rng(2)
    play = Matches(PLAY.names, PLAY.a, PLAY.b, PLAY.score, PLAY.weight, np.arange(600) // 10)
    spread = [x.resampled(400, rng)[0][:, 0, 1].std() for x in (PLAY, play)]
    assert spread[0] == pytest.approx(np.sqrt(PLAY.wins()[0, 1]), rel=0.15)
    wins, ties = play.resampled(50, rng)
    assert (wins.sum((1, 2)) + ties.sum((1, 2)) / 2 == 600).all()
    assert wins.mean(0) == pytest.approx(play.wins(), rel=0.25, abs=3)


def spiel_rule(name: str) -> object:
    voting = pytest.importorskip(f"open_spiel.python.voting.{name}")
    kind = {"kemeny_young": "KemenyYoungVoting", "ranked_pairs": "RankedPairsVoting"}.get(name, f"{name.title()}Voting")
    return getattr(voting, kind)()


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("borda", "borda"), ("copeland", "copeland"), ("schulze", "schulze"), ("ranked_pairs", "ranked_pairs"),
        ("kemeny", "kemeny_young"),
    ],
)  # fmt: skip
def test_voting_rules_order_as_openspiels(rule: str, name: str) -> None:
    base = pytest.importorskip("open_spiel.python.voting.base")
    for seed in range(8):
        rng = np.random.default_rng(seed)
        scores = rng.permuted(np.tile(np.arange(5.0), (31, 1)), axis=1) + np.linspace(0.6, 0, 5)
        scores = scores.argsort(1).argsort(1).astype(float)
        profile = base.PreferenceProfile(alternatives=list("abcde"))
        for row in scores:
            profile.add_vote(["abcde"[i] for i in np.argsort(-row)])
        outcome = spiel_rule(name).run_election(profile)  # type: ignore[attr-defined]
        ours = vote(ballots(scores), rule)
        if rule == "schulze":  # a partial order: theirs sorts the rest by chance, so what is strict must agree
            votes = ballots(scores)
            path = widest_paths(np.where(votes > votes.T, votes, 0.0))
            place = ["abcde".index(a) for a in outcome.ranking]
            strict = [(i, j) for i in range(5) for j in range(5) if path[i, j] > path[j, i]]
            assert all(ours[i] > ours[j] for i, j in strict)
            assert all(path[i, j] >= path[j, i] for i, j in pairwise(place))
            continue
        value = dict(zip("abcde", ours, strict=True))
        placed = [value[a] for a in outcome.ranking]
        assert all(x >= y - 1e-9 for x, y in pairwise(placed)), (rule, seed)


def test_kemeny_is_the_best_of_all_orders_and_a_winner_of_all_wins_everywhere() -> None:
    preferred = np.random.default_rng(3).integers(0, 20, (5, 5)).astype(float)
    np.fill_diagonal(preferred, 0)

    def agreement(order: tuple[int, ...]) -> float:
        return sum(preferred[order[i], order[j]] for i in range(5) for j in range(i + 1, 5))

    found = tuple(np.argsort(-vote(preferred, "kemeny")))
    assert agreement(found) == max(agreement(order) for order in permutations(range(5)))
    preferred[2], preferred[:, 2] = 21.0, 1.0
    preferred[2, 2] = 0
    for rule in RULES:
        if rule != "borda":
            assert vote(preferred, rule).argmax() == 2, rule
    assert plurality(np.array([[1.0, 2, 2], [3, 0, 0]])).tolist() == [1.0, 0.5, 0.5]
    with pytest.raises(InputError, match="did you mean 'schulze'"):
        vote(preferred, "schulz")
