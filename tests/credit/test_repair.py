"""Repair: what is injected where, and what hints weigh: [83] and [75]."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.tables import values

from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import adhint, hint_prefix, hint_ratio, inject, r3, reflections, remember, standardise
from palaestra.errors import InputError, MissingColumnError

RNG = np.random.default_rng


def table(groups: list[list[float]], tasks: list[str], iteration: int, **columns: object) -> Turns:
    """Groups of two-turn episodes whose last turn is rewarded."""
    rows = [(g, e, t, r * t) for g, rewards in enumerate(groups) for e, r in enumerate(rewards) for t in (0, 1)]
    group, episode, turn, reward = zip(*rows, strict=True)
    keys = {"iteration": [iteration] * len(rows), "group": group, "episode": episode, "turn": turn}
    own = {"agent": ["a"] * len(rows), "task": [tasks[g] for g in group], "reward": reward}
    actions = {"action": [f"{tasks[g]}-{e}-{t}" for g, e, t, _ in rows]}
    tokens = {"entropies": [[0.5]] * len(rows), "truncated": [False] * len(rows)}
    return Turns(keys | own | actions | tokens | columns)


BUFFER = table([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], ["x", "y", "z"], iteration=3)


def test_only_groups_without_variance_get_opposites_of_their_task() -> None:
    turns = table([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]], ["x", "y", "z", "x"], iteration=9)
    mixed = inject(turns, BUFFER, RNG(0), k=2)
    added = mixed.frame.filter("replayed")
    assert mixed.frame.filter(~mixed["replayed"]).drop("replayed").equals(turns.frame)
    assert added["iteration"].unique().to_list() == [9]
    whole = added.group_by("group", "episode").agg("turn", "action", "reward").sort("group", "episode")
    assert whole["group"].to_list() == [0, 0, 2, 2]  # x failed, y has no success to show, z succeeded
    assert whole["episode"].to_list() == [2, 3, 2, 3]  # new numbers
    assert whole["turn"].to_list() == [[0, 1]] * 4
    assert sorted(a[0] for a in whole["action"].to_list()) == ["x-0-0", "x-2-0", "z-1-0", "z-2-0"]
    assert [sum(r) for r in whole["reward"].to_list()] == [1, 1, 0, 0]


def test_a_replayed_episode_takes_no_number_of_an_unscored_one() -> None:
    turns = table([[0.0, 0.0, 0.0]], ["x"], iteration=9)
    unscored = turns.with_column(reward=pl.when(pl.col("episode") < 2).then("reward"))
    added = inject(unscored, BUFFER, RNG(0)).frame.filter("replayed")
    assert added["episode"].to_list() == [3, 3]


def test_one_is_drawn_and_the_draw_depends_on_the_seed_alone() -> None:
    turns = table([[0.0, 0.0]] * 20, ["x"] * 20, iteration=9)
    draws = [inject(turns, BUFFER, RNG(seed)).frame.filter("replayed")["action"].to_list() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert len(draws[0]) == 40
    assert set(draws[0]) == {"x-0-0", "x-0-1", "x-2-0", "x-2-1"}


def test_a_run_is_not_repaired_by_another() -> None:
    turns = table([[0.0, 0.0]], ["x"], iteration=9, run=["7"] * 4)
    other = BUFFER.with_column(run=["8"] * len(BUFFER))
    assert not inject(turns, other, RNG(0))["replayed"].any()
    assert inject(turns, BUFFER.with_column(run=["7"] * len(BUFFER)), RNG(0))["replayed"].sum() == 2


def test_injection_is_repeatable_and_names_what_it_lacks() -> None:
    turns = table([[0.0, 0.0]], ["x"], iteration=9)
    twice = inject(inject(turns, BUFFER, RNG(0)), BUFFER, RNG(0))
    assert twice["replayed"].sum() == 2  # the group has variance by now
    with pytest.raises(InputError, match="k=-1 is negative"):
        inject(turns, BUFFER, RNG(0), k=-1)
    with pytest.raises(MissingColumnError, match="inject: column 'task' is missing"):
        inject(turns, Turns(BUFFER.frame.drop("task")), RNG(0))


def test_the_buffer_keeps_the_last_of_each_outcome() -> None:
    buffer = None
    for iteration in range(5):
        turns = table([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], ["x", "y"], iteration, action=[str(iteration)] * 12)
        turns = turns.with_column(error=[None] * 10 + ["env: boom"] * 2, replayed=[True] * 2 + [False] * 10)
        buffer = remember(buffer, turns, last=3)
    assert buffer is not None
    whole = buffer.frame.group_by("task", "solved", "episode").agg("turn", pl.col("action").first()).sort("episode")
    assert whole["turn"].to_list() == [[0, 1]] * 6  # whole episodes, no success of x: it was replayed
    kept = whole.group_by("task", "solved", maintain_order=True).agg("action")
    assert sorted(kept.rows()) == [("x", False, ["3", "4", "4"]), ("y", False, ["3", "4", "4"])]
    broken = table([[1.0], [0.0]], ["x", "y"], 5).with_column(error=[None, "env: boom", None, None])
    late = broken.with_column(replayed=pl.Series([None] * 4, dtype=pl.Boolean))  # played further behind `replay()`
    assert remember(None, late)["task"].to_list() == ["y", "y"], "of an episode that broke off nothing stays"
    again = remember(remember(None, BUFFER), BUFFER)
    mixed = inject(table([[0.0, 0.0]], ["x"], iteration=9), again, RNG(0), k=9)
    assert mixed["replayed"].sum() == 4 * 2  # two successes of x, remembered twice


def test_r3_gives_replayed_rows_their_own_weight() -> None:
    mixed = inject(table([[0.0, 0.0, 0.0]], ["x"], iteration=9), BUFFER, RNG(0))
    full, half = values(r3(), mixed), values(r3(off_policy=0.5), mixed)
    np.testing.assert_allclose(full, [-0.5] * 6 + [1.5] * 2, atol=1e-5)
    np.testing.assert_allclose(half, [-0.5] * 6 + [0.75] * 2, atol=1e-5)
    np.testing.assert_array_equal(values(r3(), inject(table([[0.0, 0.0]], ["y"], 9), BUFFER, RNG(0))), 0)


def test_reflections_show_a_failure_of_hard_tasks() -> None:
    shown = reflections(BUFFER, RNG(0), below=0.5)
    assert set(shown) == {"y", "z"}
    assert "y-" in shown["y"]
    assert "z-1-1" in shown["z"] or "z-2-1" in shown["z"]


def test_who_scores_the_threshold_has_failed() -> None:
    half, whole = table([[0.5, 0.5]], ["x"], iteration=9), table([[1.0, 1.0]], ["x"], iteration=9)
    assert inject(half, BUFFER, RNG(0)).frame.filter("replayed")["reward"].to_list() == [0, 1]
    assert inject(whole, half, RNG(0)).frame.filter("replayed")["reward"].to_list() == [0, 0.5]
    assert remember(None, half)["solved"].to_list() == [False] * 4
    assert set(reflections(half, RNG(0), below=0.6)) == {"x"}
    assert reflections(half, RNG(0), below=0.5) == {}  # that is not below


# -- [75] ADHint ------------------------------------------------------------------------------------------------------


def test_hint_ratio_grows_with_difficulty() -> None:
    turns = table([[1.0, 0.0, 0.0, 0.0, 1.0]], ["x"], 0, hinted=[False] * 8 + [True] * 2)  # D = .75
    np.testing.assert_allclose(values(hint_ratio(), turns), 0.55)
    np.testing.assert_allclose(values(hint_ratio(noise=0.9), turns), 1.0)
    assert hint_prefix("abcdefgh", 0.55) == "abcd"
    with pytest.raises(InputError, match=r"ratio=1.2 is outside \[0, 1\]"):
        hint_prefix([1], 1.2)


def hints() -> Turns:
    """Two naive and two hinted episodes of three tokens; hinted ones were forced to say the first token."""
    return Turns(
        {
            "group": [0] * 4,
            "episode": range(4),
            "agent": ["a"] * 4,
            "reward": [1.0, 0.0, 1.0, 0.0],
            "hinted": [False, False, True, True],
            "hint": [[False] * 3] * 2 + [[True, False, False]] * 2,
            "entropies": [[0.2, 0.4, 0.6]] * 4,
        }
    )


def test_a_forced_prefix_is_never_unlearned_and_the_rest_is_unchanged() -> None:
    result = adhint().evaluate(hints())
    assert isinstance(result, Ragged)
    half = 0.5 / np.std([1, 0], ddof=1)
    expected = [[half] * 3, [-half] * 3, [half * np.exp(-0.3), half, half], [0, -half, -half]]
    np.testing.assert_allclose(result.values, np.ravel(expected), atol=1e-5)


def test_branches_are_compared_with_themselves_and_by_their_difficulty() -> None:
    turns = table(
        [[1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]], ["x"], 0, hinted=[False] * 8 + [True] * 8, hint=[False] * 16
    )
    plain = values(standardise("reward", over=("group", "hinted", "turn")), turns)[1::2]
    ours = adhint().evaluate(turns)
    assert isinstance(ours, Ragged)
    weight = np.where([1, 0, 0, 0, 0, 0, 0, 1], 1.5, 1.0)  # p_hinted - p_naive = .5
    np.testing.assert_allclose(ours.values[1::2], plain * weight, atol=1e-5)


def test_a_success_scores_above_the_limit_and_not_at_it() -> None:
    buffer = remember(None, table([[0.5, 0.51]], ["x"], iteration=0), solved=0.5)
    assert buffer.frame.unique("episode").sort("episode")["solved"].to_list() == [False, True]
