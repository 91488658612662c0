"""Tournaments: what each topology costs and finds, worked numbers of [100], and groups of one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.turns import Turns
from palaestra.credit import arena_rl, by_group, tournament
from palaestra.credit.tournaments import Topology
from palaestra.errors import InputError, MissingColumnError
from palaestra.testing.signal import sample_turns

TOPOLOGIES: list[Topology] = [
    "anchor", "round_robin", "swiss", "single_elimination", "double_elimination", "seeded_single",
]  # fmt: skip


def judge(one: float, other: float) -> tuple[float, float]:
    return one, other


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 11])
def test_the_best_wins_and_one_number_each_comes_back(topology: Topology, number: int) -> None:
    quality = rng().permutation(number).astype(float)
    standing = tournament(quality.tolist(), judge, topology=topology, rng=rng())
    assert standing.score.shape == (number,)
    if topology != "anchor":  # the anchor's own score is a mean, so it may be misplaced
        assert np.argmax(standing.score) == np.argmax(quality)
    if "elimination" in topology or topology == "seeded_single":
        assert sorted(standing.score) == list(range(number))


@pytest.mark.parametrize(
    ("topology", "comparisons"),
    [("anchor", 7), ("round_robin", 28), ("swiss", 12), ("single_elimination", 7), ("seeded_single", 14)],
)
def test_what_a_tournament_of_eight_costs(topology: Topology, comparisons: int) -> None:
    assert tournament(list(range(8)), judge, topology=topology, rng=rng()).comparisons == comparisons


def test_everybody_but_the_winner_of_a_double_elimination_has_lost_twice() -> None:
    lost = np.zeros(9, int)

    def count(one: int, other: int) -> tuple[float, float]:
        lost[min(one, other)] += 1
        return one, other

    tournament(list(range(9)), count, topology="double_elimination", rng=rng())
    assert (lost[:-1] == 4).all()  # both orders are asked
    assert lost[-1] == 0


def test_a_round_robin_is_the_number_of_wins() -> None:
    score = tournament([3.0, 1.0, 3.0, 2.0], judge, topology="round_robin").score
    np.testing.assert_array_equal(score, [2.5, 0, 2.5, 1])


def test_the_bracket_keeps_the_best_apart_and_gives_them_the_byes() -> None:
    met: list[set[int]] = []

    def note(one: int, other: int) -> tuple[float, float]:
        met.append({one, other})
        return -one, -other  # item 0 is the best, so the anchor pass seeds by number

    tournament(list(range(6)), note)
    bracket = met[10::2]
    assert bracket == [{3, 4}, {2, 5}, {0, 3}, {1, 2}, {0, 1}]


def test_swiss_does_not_pair_anyone_twice_and_everyone_rests_once_at_most() -> None:
    met: list[tuple[int, int]] = []

    def note(one: int, other: int) -> tuple[float, float]:
        met.append((one, other))
        return one, other

    standing = tournament(list(range(5)), note, topology="swiss")
    assert len(met) == len(set(met)) == 2 * standing.comparisons == 12
    ties = standing.score.sum() - (6 + 3)  # a point for each pair, and for each who rested in one of three rounds
    assert 0 < ties < 5 / 2, "who met the better ones stands above equals, by less than half a point"


@given(st.integers(2, 13), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_swiss_has_no_rematch_whoever_wins(number: int, seed: int) -> None:
    draw, met = np.random.default_rng(seed), []

    def note(one: int, other: int) -> tuple[float, float]:
        met.append(frozenset((one, other)))
        return float(draw.integers(3)), 1.0

    assert tournament(list(range(number)), note, topology="swiss").comparisons == len(set(met))


def test_a_judge_that_prefers_what_it_sees_first_or_fails_calls_a_draw() -> None:
    def first(one: int, other: int) -> tuple[float, float]:
        return 1, 0

    def broken(one: int, other: int) -> tuple[float, float]:
        raise RuntimeError("no answer")

    for unfair in (first, broken):
        np.testing.assert_array_equal(tournament([1, 2, 3], unfair, topology="round_robin").score, [1, 1, 1])
    np.testing.assert_array_equal(tournament([1, 2, 3], broken, topology="anchor").score, [10, 10, 10])
    bracket = tournament([1, 2, 3, 4], broken, topology="seeded_single")
    np.testing.assert_array_equal(bracket.score, [3, 2, 1, 0], "the better seed goes through")


def test_worked_rewards_of_eight_ranks() -> None:
    keys = {"group": [0] * 8, "episode": list(range(8)), "turn": [0] * 8, "agent": ["a"] * 8}
    found = arena_rl("arena").evaluate(Turns(keys | {"arena": list(range(7, -1, -1))}))
    half = [1.4289, 1.0206, 0.6124, 0.2041]
    np.testing.assert_allclose(found, [*half, *[-x for x in reversed(half)]], atol=1e-4)


def test_equals_share_the_better_rank_and_all_equal_or_alone_is_zero() -> None:
    keys = {"group": [0] * 4 + [1] * 3 + [2], "episode": [0, 1, 2, 3, 0, 1, 2, 0], "turn": [0] * 8, "agent": ["a"] * 8}
    turns = Turns(keys | {"arena": [3.0, 3.0, 1.0, 0.0, 1, 1, 1, 1]})
    reward = np.array([1, 1, 1 / 3, 0])
    expected = (reward - reward.mean()) / reward.std(ddof=1)
    np.testing.assert_allclose(arena_rl("arena").evaluate(turns), [*expected, 0, 0, 0, 0], rtol=1e-4)


def test_a_column_by_group_takes_the_last_rows_in_the_order_of_episodes() -> None:
    turns = sample_turns(rng(), groups=(3, 2))
    seen = []

    def lengths(texts: list[str]) -> list[float]:
        seen.append(texts)
        return [float(number) for number in range(len(texts))]

    found = by_group(turns, lengths, name="place")
    assert [len(texts) for texts in seen] == [3, 2]
    np.testing.assert_array_equal(found["place"].to_numpy(), turns["episode"].to_numpy())
    last = turns.frame.filter(group=0, episode=1).sort("turn")["action"][-1]
    assert seen[0][1] == last


def test_an_episode_without_an_item_is_in_no_list_and_gets_no_number() -> None:
    keys = {"group": [0, 0, 0, 1], "episode": [0, 1, 2, 0], "turn": [0] * 4, "agent": ["a"] * 4}
    for items in ([2.0, None, 7.0, None], [2.0, np.nan, 7.0, np.nan], ["b", None, "c", None]):
        seen: list[list[object]] = []

        def places(given: list[object], seen: list[list[object]] = seen) -> list[float]:
            seen.append(given)
            return [float(number) for number in range(len(given))]

        found = by_group(Turns(keys | {"item": items}), places, name="place", column="item")
        assert seen == [[items[0], items[2]]]
        np.testing.assert_array_equal(found["place"].to_numpy().astype(float), [0, np.nan, 1, np.nan])


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'swiss'"):
        tournament([1, 2], judge, topology="swis")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="drawn at random: give rng"):
        tournament([1, 2], judge, topology="double_elimination")
    with pytest.raises(InputError, match=r"'x' has shape \(1,\) for 3 episodes"):
        by_group(sample_turns(rng(), groups=(3,)), lambda texts: [1.0], name="x")
    for column in ("group", "turn", "action"):
        with pytest.raises(MissingColumnError, match=f"by_group: column '{column}' is missing"):
            by_group(Turns(sample_turns(rng()).frame.drop(column)), lambda texts: [1.0] * len(texts), name="x")
    assert math.isclose(len(tournament([], judge).score), 0)
