"""Improvement on the row that caused it, values backed up a tree, and weights of cloning."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.signals import Signal, col, is_in, total
from palaestra.algebra.turns import Turns
from palaestra.credit import along, backup, exp_weight, improvement, keep, retroformer, signed, waltz_reward
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import by_role, complement, neutral

NAN = float("nan")


def values(signal: Signal, turns: Turns) -> np.ndarray:
    return np.asarray(signal.evaluate(turns), float)


def test_consecutive_returns_of_trials_in_any_order_of_rows() -> None:
    turns = Turns({"task": ["x"] * 4, "trial": [2, 0, 3, 1], "episode": [0, 1, 2, 3], "ret": [0.5, 0.2, 0.4, 0.5]})
    found = values(improvement("ret", over="task", order="trial"), turns)
    np.testing.assert_allclose(found, [-0.1, 0.3, NAN, 0.0], atol=1e-12)
    after = values(improvement("ret", over="task", order="trial", of="result"), turns)
    np.testing.assert_allclose(after, [0.0, NAN, -0.1, 0.3], atol=1e-12)
    turns = Turns({"episode": [0] * 4, "turn": [2, 0, 3, 1], "ret": [0.5, 0.2, 0.4, 0.5]})
    np.testing.assert_allclose(values(improvement("ret"), turns), [-0.1, 0.3, NAN, 0.0], atol=1e-12)


def test_feedback_between_two_answers_is_paid_and_nobody_else() -> None:
    rows = {
        "episode": [0, 0, 0, 1, 1],
        "turn": [0, 1, 2, 0, 1],
        "agent": ["talker", "critic", "talker", "talker", "critic"],
    }
    turns = Turns(rows | {"right": [0.0, None, 1.0, 1.0, None]})
    paid = values(improvement("right", at=is_in("agent", "critic")), turns)
    np.testing.assert_array_equal(paid, [NAN, 1.0, NAN, NAN, NAN])
    gated = values(improvement("right", gate=0.0, at=is_in("agent", "critic")), turns)
    np.testing.assert_array_equal(gated, [NAN, 0.0, NAN, NAN, NAN])


@pytest.mark.parametrize("reflections", [1, 2])
def test_a_reflection_is_paid_by_the_next_trial_however_many_turns_are_between(reflections: int) -> None:
    agents = ["actor", "actor", *["reflector"] * reflections, "actor", "actor"]
    rows = {"episode": np.repeat([0, 1], len(agents)), "turn": [*range(len(agents))] * 2, "agent": agents * 2}
    score = [None, 0.25, *[None] * reflections, None, 1.0]
    turns = Turns(rows | {"score": [*score, *score[:-1], 0.5]})
    for difference in (True, False):
        paid = values(retroformer(difference=difference), turns)
        assert paid[~np.isnan(paid)].tolist() == [0.25] * reflections + [-0.25] * reflections
        assert (np.isnan(paid) == (turns["agent"] != "reflector").to_numpy()).all()


def test_as_part_of_the_return_it_pays_for_failing_first_and_on_its_own_row_it_does_not() -> None:
    """SCoRe's bonus with α = 10: (0, 1), (1, 0), (1, 1) and (0, 0) in two attempts."""
    first, second = [0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]
    rows = {"episode": [0, 0, 1, 1, 2, 2, 3, 3], "turn": [0, 1] * 4, "agent": ["a"] * 8, "group": [0] * 8}
    turns = Turns(rows | {"score": [each for pair in zip(first, second, strict=True) for each in pair]})
    bonus = improvement("score", of="result")
    own = values(10.0 * bonus, turns)
    np.testing.assert_array_equal(own[1::2], [10.0, -10.0, 0.0, 0.0])
    shaped = by_turn(own, turns)
    np.testing.assert_array_equal(shaped[1::2], [11.0, -10.0, 1.0, 0.0])
    leaked = values(total("x", over="episode"), turns.with_column(x=shaped))
    assert leaked[0] > leaked[4], "summed over the episode, failing first beats being right twice"
    assert shaped[0] < shaped[4], "on its own row it does not"


def by_turn(bonus: np.ndarray, turns: Turns) -> np.ndarray:
    return np.asarray(turns["score"].to_numpy() + np.nan_to_num(bonus))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=20))
def test_against_a_loop(rows: list[tuple[int, int | None]]) -> None:
    key, value = [k for k, _ in rows], [v for _, v in rows]
    turns: Any = {"task": key, "episode": [0] * len(rows), "turn": list(range(len(rows)))}
    turns = Turns(turns | {"v": pl.Series(value, dtype=pl.Float64)})
    found = values(improvement("v", over="task", order="turn"), turns)
    for i, each in enumerate(found):
        before = [v for k, v in rows[: i + 1] if k == key[i] and v is not None]
        after = [v for k, v in rows[i + 1 :] if k == key[i] and v is not None]
        expected = after[0] - before[-1] if before and after else NAN
        np.testing.assert_equal(each, expected)


def malt() -> Turns:
    """Two generators of three verifiers with three refinements each; values of the leaves as in the worked example."""
    leaves = {"A": [[1, 1, 0], [1, 0, 0], [0, 0, 0]], "B": [[1, 1, 1], [1, 1, 0], [0, 1, 0]]}
    rows: list[tuple[str, str | None, float | None]] = []
    for name, verifiers in leaves.items():
        rows.append((name, None, None))
        for v, outcomes in enumerate(verifiers):
            rows.append((f"{name}{v}", name, None))
            rows += [(f"{name}{v}{r}", f"{name}{v}", float(outcome)) for r, outcome in enumerate(outcomes)]
    node, parent, value = (list(each) for each in zip(*rows, strict=True))
    count = len(node)
    return Turns({"group": [0] * count, "episode": list(range(count)), "node": node, "parent": parent, "reward": value})


def test_means_of_means_decide_which_generator_is_kept() -> None:
    turns = malt()
    value = dict(zip(turns["node"], values(backup("reward"), turns), strict=True))
    thirds = [value[name] * 3 for name in ("A", "A0", "A1", "A2", "B", "B1")]
    assert thirds == pytest.approx([1, 2, 1, 0, 2, 2])
    best = dict(zip(turns["node"], values(backup("reward", method="max"), turns), strict=True))
    assert (best["A"], best["A2"], best["B"]) == (1, 0, 1)
    kept = values(keep(backup("reward"), between=(0.5, None), closed="right", unit="row"), turns)
    assert [name for name in ("A", "B") if kept[turns["node"].to_list().index(name)]] == ["B"]


def test_a_node_is_worth_the_mean_of_all_rollouts_below_it() -> None:
    rows = {"group": [0] * 5, "node": ["r", "a", "a", "b", "c"], "parent": [None, "r", "r", "r", "b"]}
    turns = Turns(rows | {"reward": [9.0, 1.0, 0.0, 9.0, 0.5]})
    np.testing.assert_allclose(values(backup(method="rollouts"), turns), [0.5, 0.5, 0.5, 0.5, 0.5])
    turns = Turns(rows | {"reward": [None, 1.0, 1.0, None, 0.1]})
    np.testing.assert_allclose(values(backup(method="rollouts"), turns), [0.7, 1, 1, 0.1, 0.1])
    assert values(backup(), turns)[0] == pytest.approx(0.55)


def test_sums_and_maxima_along_the_way_from_the_root() -> None:
    rows = {"group": [0] * 4 + [1], "node": ["r", "a", "a", "b", "b"], "parent": [None, "r", "r", "a", "a"]}
    turns = Turns(rows | {"x": [1.0, 2.0, 4.0, 5.0, 7.0]})
    np.testing.assert_allclose(values(along("x"), turns), [1, 3, 5, 9, 7])
    np.testing.assert_allclose(values(along("x", method="max"), turns), [1, 2, 4, 5, 7])
    some = Turns(rows | {"x": [None, 2.0, 4.0, None, None]})
    np.testing.assert_array_equal(values(along("x", method="max"), some), [NAN, 2, 4, 3, NAN])
    many = {name: turns[name].to_list() * 9 for name in ("node", "parent", "x")}
    groups = {"group": [2 * number + group for number in range(9) for group in rows["group"]]}
    found = values(along("x"), Turns(many | groups))  # names are unique within a group only
    np.testing.assert_allclose(found, [1, 3, 5, 9, 7] * 9)


@pytest.mark.parametrize("node", [pl.Int64, pl.UInt32, pl.Float64, pl.String])
@pytest.mark.parametrize("parent", [pl.Int64, pl.Int8, pl.Float64, "nan", pl.String])
def test_names_of_nodes_may_have_two_types(node: Any, parent: Any) -> None:
    """Pandas' parents are floats, with NaN at the root."""
    above: list[Any] = [NAN if parent == "nan" else None, 0, 0, 2, 2]
    kind = pl.Float64 if parent == "nan" else parent
    columns = {"node": pl.Series([0, 1, 2, 3, 4]).cast(node), "parent": pl.Series(above, strict=False).cast(kind)}
    turns = Turns(pl.DataFrame(columns | {"group": [0] * 5, "reward": [None, 1.0, None, 0.0, 1.0]}))
    np.testing.assert_allclose(values(backup("reward"), turns), [0.75, 1, 0.5, 0, 1])
    np.testing.assert_allclose(values(along("reward"), turns), [0, 1, 0, 0, 1])


def test_deep_and_shuffled_trees_unknown_leaves_and_circles() -> None:
    depth = 400
    chain = {"node": [str(n) for n in range(depth)], "parent": [None, *(str(n) for n in range(depth - 1))]}
    mixed = np.random.default_rng(0).permutation(depth)
    rows: dict[str, Any] = {name: np.array(each, object)[mixed].tolist() for name, each in chain.items()}
    rows |= {"group": [0] * depth, "reward": np.where(mixed == depth - 1, 7.0, 0.0)}
    assert set(values(backup("reward"), Turns(rows))) == {7.0}
    some = Turns({"group": [0] * 3, "node": ["r", "a", "b"], "parent": [None, "r", "r"], "reward": [None, 1.0, None]})
    np.testing.assert_array_equal(values(backup("reward"), some), [1.0, 1.0, NAN])
    names = {"node": ["r", "r", "a", "a"], "parent": [None, None, "r", "r"]}
    two = Turns({"group": [0, 1, 0, 1], "reward": [0, 0, 1.0, 3.0]} | names)
    np.testing.assert_array_equal(values(backup("reward"), two), [1.0, 3.0, 1.0, 3.0])
    with pytest.raises(InputError, match="own ancestors"):
        backup("reward").evaluate(Turns({"group": [0, 0], "node": ["a", "b"], "parent": ["b", "a"], "reward": [0, 0]}))


def test_failures_weigh_no_more_than_the_successes_of_their_task() -> None:
    won = [True, True, False, False, False, False, True]
    turns = Turns({"task": ["a"] * 5 + ["b", "c"], "episode": list(range(7)), "success": won})
    found = values(signed("success"), turns)
    np.testing.assert_allclose(found, [1, 1, -2 / 3, -2 / 3, -2 / 3, NAN, 1])
    assert np.nansum(found[:5]) == pytest.approx(0)
    plain = values(signed("success", balanced=False), turns)
    np.testing.assert_array_equal(plain, [1, 1, -1, -1, -1, NAN, 1])


def test_exponential_weights_are_cut() -> None:
    turns = Turns({"reward": [-1.0, 0.0, 3.0, None]})
    np.testing.assert_allclose(values(exp_weight("reward", temperature=0.5, most=4), turns), [np.exp(-2), 1, 4, NAN])


def test_roles_are_paid_by_what_each_is_there_for() -> None:
    """CoMAS: τ = 3, 2, 1 pay the solver 1, .5, 0 and the evaluator the rest; the scorer has no stake."""
    rows = {"agent": ["solver", "critic", "scorer"] * 3, "tau": [3] * 3 + [2] * 3 + [1] * 3}
    turns = Turns(rows | {"valid": [True] * 8 + [False]})
    score = (col("tau") - 1.0) / 2.0
    paid = values(by_role(("solver", score), ("critic", complement(score)), ("scorer", neutral())), turns)
    np.testing.assert_array_equal(paid, [1, 0, 0, 0.5, 0.5, 0, 0, 1, -1])
    alone = values(by_role((("solver", "scorer"), 1.0)), turns)
    np.testing.assert_array_equal(alone[:3], [1, NAN, 1])


def test_feedback_is_paid_by_the_rise_a_right_label_and_form_and_a_speaker_by_being_right() -> None:
    """α = 2, λ = .5, γ = .1: 2 · 1 + .5 + .1, nothing for a false alarm, .5 - and no rise - before no answer."""
    rows = {"episode": [0, 0, 0, 0, 0, 0], "turn": range(6), "agent": ["speaker", "feedback"] * 3}
    known = {"right": [0.0, None, 1.0, None, 0.0, None], "label": [None, 1.0, None, 0.0, None, 1.0]}
    turns = Turns(rows | known | {"formatted": [None, 1.0, None, 0.0, None, 0.0]})
    paid = values(waltz_reward(alpha=2.0), turns)
    np.testing.assert_allclose(paid, [0, 2.6, 1, 0, 0, 0.5])
    np.testing.assert_allclose(values(waltz_reward(weight=0.0), turns), [0, 1.1, 1, 0, 0, 0])


def test_bad_options_are_refused() -> None:
    bad: Any = "all"
    trees = (partial(backup, method=bad), partial(along, method=bad))
    for make in (partial(improvement, of=bad), *trees, partial(exp_weight, temperature=0)):
        with pytest.raises(ExpressionError):
            make("x")
