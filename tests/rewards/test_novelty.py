"""Novelty: worked bonuses, elliptical bonuses against their definition, what is remembered."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.tables import values

from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, MissingColumnError, SchemaError
from palaestra.rewards import (
    RunningScale,
    VisitCounts,
    cap,
    count_bonus,
    cum_count,
    elliptical,
    episodic_global_bonus,
    novelty_difference,
    oni_reward,
    scaled,
    voc,
)


def walk(states: list[int], episodes: list[int] | None = None, **columns: object) -> Turns:
    n = len(states)
    episode = episodes or [0] * n
    turn = [episode[:i].count(e) for i, e in enumerate(episode)]
    return Turns({"group": [0] * n, "episode": episode, "turn": turn, "agent": ["a"] * n, "state": states} | columns)


def test_worked_elliptical_bonuses() -> None:
    turns = walk([0] * 5, features=[[1, 0], [1, 0], [1, 0], [0, 1], [0.6, 0.8]])
    np.testing.assert_allclose(values(elliptical("features"), turns), [10, 0.90909, 0.47619, 10, 0.69795], atol=1e-5)
    assert values(elliptical("features", skip_first=True), turns)[0] == 0


def test_elliptical_is_what_it_is_defined_as() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 12)
    episode = np.repeat(np.arange(12), lengths)
    turns = walk([0] * len(episode), episode.tolist(), features=rng.normal(size=(len(episode), 3)).tolist())
    order = rng.permutation(len(turns)).tolist()
    found = values(elliptical("features", ridge=0.5), Turns(turns.frame[order]))
    phi = np.array(turns["features"].to_list())
    right = []
    for number in range(12):
        c = 0.5 * np.eye(3)
        for x in phi[episode == number]:
            right.append(x @ np.linalg.inv(c) @ x)
            c += np.outer(x, x)
    np.testing.assert_allclose(found, np.array(right)[order], rtol=1e-4)


def test_a_missing_feature_is_skipped() -> None:
    turns = walk([0] * 3, features=[[1.0, 0.0], None, [1.0, 0.0]])
    np.testing.assert_allclose(values(elliptical("features"), turns), [10, np.nan, 0.90909], atol=1e-4)


def test_worked_message_bonuses() -> None:
    turns = walk([0] * 5, message=["m"] * 5, label=[1] * 5, reward=[0] * 5)
    cubed = values(oni_reward("label", "message"), turns)
    np.testing.assert_allclose(cubed[[0, 1, 2, 4]], [0.4, 0.05, 0.01481, 0.0032], atol=1e-5)
    plain = values(oni_reward("label", "message", beta=1.0), turns)
    np.testing.assert_allclose(plain[[0, 1, 2, 4]], [0.4, 0.2, 0.13333, 0.08], atol=1e-5)


def test_a_message_without_a_label_has_no_bonus() -> None:
    turns = walk([0, 1], message=["m", "n"], label=[None, 1.0], reward=[2.0, 2.0])
    np.testing.assert_allclose(values(oni_reward("label", "message", c_ext=10), turns), [20, 20.4])


def test_corridors_that_an_episodic_count_cannot_tell_apart() -> None:
    cell, episode = np.tile(np.arange(4), 8), np.repeat(np.arange(8), 4)
    same, rotating = (walk((cell + 4 * shift).tolist(), episode.tolist()) for shift in (episode * 0, episode % 4))
    assert values(count_bonus("state"), same).sum() == values(count_bonus("state"), rotating).sum() == 32
    everywhere = count_bonus("state", scope="all", method="inv_sqrt")
    totals = [values(everywhere, turns).sum() for turns in (same, rotating)]
    np.testing.assert_allclose(totals, [17.49, 27.31], atol=0.01)
    np.testing.assert_allclose(values(episodic_global_bonus("state", before=0.0), rotating).sum(), 27.31, atol=0.01)


def test_counts_of_several_iterations_go_on() -> None:
    turns = walk([1, 1, 2])
    counts = VisitCounts("state")
    assert counts.add(turns)["count_before"].to_list() == [0, 0, 0]
    other = VisitCounts("state")
    other.load_state_dict(counts.state_dict())
    again = other.add(turns)
    assert again["count_before"].to_list() == [2, 2, 1]
    total = values(cum_count("state", scope="all", before="count_before"), again)
    assert total.tolist() == [3, 4, 2]
    assert counts.add(Turns.concat([turns, turns]))["count_before"].to_list() == [2, 2, 1] * 2
    assert counts.add(turns)["count_before"].to_list() == [6, 6, 3]


def test_counts_of_several_columns_and_runs() -> None:
    counts = VisitCounts(("state", "agent"))
    two = walk([1, 1]).with_column(run=["0", "1"])
    counts.add(two)
    assert counts.add(two)["count_before"].to_list() == [1, 1]
    with pytest.raises(SchemaError, match="so far"):
        counts.add(walk([1]))


def test_counts_of_other_types() -> None:
    counts = VisitCounts("room")
    counts.add(Turns({"room": pl.Series([1, 2], dtype=pl.Int32)}))
    assert counts.add(Turns({"room": [1]}))["count_before"].to_list() == [1]
    with pytest.raises(SchemaError, match=r"counted \(room Int32\) so far, now \(room String\)"):
        counts.add(Turns({"room": ["hall"]}))


def test_turns_that_start_below_zero_or_are_not_known() -> None:
    keys = {"episode": [0, 0, 0], "state": [1, 1, 1]}
    assert values(cum_count("state"), Turns(keys | {"turn": [1, -1, 0]})).tolist() == [3, 1, 2]
    assert values(cum_count("state"), Turns(keys | {"turn": [None, 1, 0]})).tolist() == [3, 2, 1]


def test_the_third_visit_of_a_run_pays_what_the_third_is_worth() -> None:
    counts, visit = VisitCounts("state"), walk([1])
    paid = [float(values(episodic_global_bonus("state"), counts.add(visit))[0]) for _ in range(3)]
    assert paid == pytest.approx([1, 2**-0.5, 3**-0.5])
    with pytest.raises(MissingColumnError, match="'count_before' is missing"):
        values(episodic_global_bonus("state"), visit)


def test_the_running_scale_is_the_deviation_of_all() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(5, 2, size) for size in (3, 1, 40)]
    scale = RunningScale()
    for batch in batches[:2]:
        scale.add(batch)
    again = RunningScale()
    again.load_state_dict(scale.state_dict())
    assert again.add(np.append(batches[2], np.nan)) == pytest.approx(np.concatenate(batches).std())
    assert RunningScale().add(np.array([np.nan])) == 0


def test_scaling_and_differences() -> None:
    turns = walk([0] * 3, surprise=[4.0, 1.0, 3.0])
    np.testing.assert_allclose(values(novelty_difference("surprise"), turns), [0, 2.5, 0])
    np.testing.assert_allclose(
        values(scaled("surprise", coefficient=2), turns), np.array([8, 2, 6]) / np.std([4, 1, 3])
    )
    assert not values(scaled("surprise", 0.0), turns).any()


def test_unknown_options() -> None:
    with pytest.raises(ExpressionError, match="scope='epsode'"):
        cum_count("state", scope="epsode")  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="method='sqrt'"):
        count_bonus("state", method="sqrt")  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="ridge=0"):
        elliptical("features", ridge=0)


def test_who_meets_it_in_the_same_turn_shares_the_bonus() -> None:
    keys = {"episode": [0] * 3, "turn": [0, 0, 1], "agent": ["b", "a", "a"], "state": [7, 7, 7]}
    turns = Turns(keys)
    assert values(cum_count("state"), turns).tolist() == [1.5, 1.5, 3]
    assert values(count_bonus("state"), turns).tolist() == [0.5, 0.5, 0]
    side = Turns({"episode": [0, 1], "turn": [0, 0], "state": [7, 7]})
    np.testing.assert_allclose(values(count_bonus("state", scope="all", method="inv_sqrt"), side), (1 + 0.5**0.5) / 2)


def test_bounds_hold_for_a_team_that_acts_at_once() -> None:
    keys = {"episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["b", "a"] * 2, "reward": [1.0, 1.5, 1.0, -2.0]}
    assert values(cap("reward", limit=2, over="episode"), Turns(keys)).sum() == pytest.approx(1.5)
    assert values(voc("reward", over="episode"), Turns(keys)).max() <= 1
