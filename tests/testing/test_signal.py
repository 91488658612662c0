"""The conformance test finds what is wrong with a signal, and says it in one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.kernels import KERNELS, Evaluation
from palaestra.algebra.signals import (
    REGISTRY,
    Signal,
    as_signal,
    centre,
    col,
    count,
    fill_missing,
    mean,
    per_token,
    register,
    shift,
    standardise,
    std,
    total,
    where,
)
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo, rloo
from palaestra.testing import check_signal
from palaestra.testing.signal import sample_tables, sample_turns, shuffled


@pytest.fixture
def node() -> Iterator[Any]:
    """Gives a signal with a kernel and a name of its own, as an extension may add one."""
    added: list[str] = []

    def make(name: str, kernel: Any, *inputs: Signal, **options: Any) -> Signal:
        KERNELS[name] = kernel
        added.append(name)
        register(name)(lambda *given, **kept: Signal(name, *map(as_signal, given), **kept))
        return Signal(name, *inputs, **options)

    yield make
    for name in added:
        del KERNELS[name]
        REGISTRY.remove(name)


def test_a_users_own_signal_passes() -> None:
    surprise = -per_token(grpo(), like="entropies") * col("entropies")
    check_signal(surprise, promises=["unscored"])
    check_signal(standardise("my_quality", over=("group", "agent")) + 0.1 * as_signal(pl.col("cost").sqrt()))
    check_signal(centre("helpfulness", over="group"), promises=["linear", "unscored"], column="helpfulness")


def test_a_signal_with_a_division_by_zero_is_caught() -> None:
    with pytest.raises(Exception, match="divides by zero"):
        check_signal(centre("reward", over="group") / std("reward", over="group"))


def test_infinities_are_caught(node: Any) -> None:
    broken = node("blow_up", lambda ev, n: np.asarray(ev(n.inputs[0])) * np.inf, col("duration"))
    with pytest.raises(AssertionError, match=r"on the table 'one row': infinite at \[0\]"):
        check_signal(broken)


def test_values_that_go_missing_are_caught_unless_they_may() -> None:
    broken = shift("reward", n=1)
    with pytest.raises(AssertionError, match=r"'one row': missing at \[0\]; nothing is missing"):
        check_signal(broken)
    check_signal(broken, complete=False)
    check_signal(where(col("valid"), "reward"), complete=False)


def test_a_wrong_number_of_values_is_caught(node: Any) -> None:
    broken = node("short_by_one", lambda ev, n: np.asarray(ev(n.inputs[0]))[1:], col("reward"))
    with pytest.raises(AssertionError, match="'one row': 0 values for 1 rows"):
        check_signal(broken)


def test_chance_is_caught(node: Any) -> None:
    calls = itertools.count()

    def noisy(evaluation: Evaluation, n: Signal) -> np.ndarray:
        return np.asarray(evaluation(n.inputs[0])) + next(calls)

    with pytest.raises(AssertionError, match="evaluated twice, it gives two answers"):
        check_signal(node("noisy", noisy, col("reward")))


def test_dependence_on_the_order_of_rows_is_caught(node: Any) -> None:
    broken = node("running", lambda ev, n: np.cumsum(np.asarray(ev(n.inputs[0]))), col("duration"))
    with pytest.raises(AssertionError, match="depends on the order of rows: row"):
        check_signal(broken)


def test_dependence_on_the_numbers_of_groups_and_episodes_is_caught() -> None:
    with pytest.raises(AssertionError, match="depends on how groups are numbered"):
        check_signal(as_signal(pl.col("group") * 2))
    with pytest.raises(AssertionError, match="depends on how episodes are numbered"):
        check_signal(col("reward") + col("episode"))


def test_mixing_runs_is_caught(node: Any) -> None:
    def batch_mean(evaluation: Evaluation, n: Signal) -> np.ndarray:
        x = np.asarray(evaluation(n.inputs[0]))
        return np.full(len(x), x.mean() if len(x) else 0.0)

    with pytest.raises(AssertionError, match="mixes runs"):
        check_signal(node("mean_of_all", batch_mean, col("duration")))


def test_text_that_cannot_be_read_back_is_caught(node: Any) -> None:
    odd = Signal(
        "standardise",
        col("reward"),
        over=("group",),
        unit="row",
        where=None,
        ddof=1,
        eps=0.1,
        singleton="zero",
        note="x",
    )
    with pytest.raises(AssertionError, match=r"its text cannot be parsed: .*note"):
        check_signal(odd)
    REGISTRY.add("liar", lambda x: as_signal(x) + 1)
    KERNELS["liar"] = lambda ev, n: ev(n.inputs[0])
    try:
        with pytest.raises(AssertionError, match=r"its text is parsed as another signal, col\('reward'\) \+ 1.0"):
            check_signal(Signal("liar", col("reward")))
    finally:
        REGISTRY.remove("liar")
        del KERNELS["liar"]


def test_undeclared_and_needless_columns_are_caught(node: Any) -> None:
    hidden = node("hidden", lambda ev, n: ev.turns["cost"].to_numpy() * 1.0, col("reward"))
    with pytest.raises(AssertionError, match=r"needs\(\) does not tell of a column: .*column 'cost' is missing"):
        check_signal(hidden)

    def optional(evaluation: Evaluation, n: Signal) -> np.ndarray:
        x = np.asarray(evaluation(n.inputs[0]))
        return x + 1 if "cost" in evaluation.turns.columns else x

    with pytest.raises(AssertionError, match=r"uses columns that needs\(\) does not tell of"):
        check_signal(node("optional", optional, col("reward")))

    def lazy(evaluation: Evaluation, n: Signal) -> np.ndarray:
        return np.zeros(len(evaluation.turns))

    with pytest.raises(AssertionError, match=r"needs.. names 'reward', but it can do without"):
        check_signal(node("lazy", lazy, col("reward")))


def test_broken_promises_are_caught() -> None:
    raw = standardise("reward", over="group", singleton="raw")
    with pytest.raises(AssertionError, match=r"not 0 but .* where reward is 0.35"):
        check_signal(raw, promises=["constant"])
    with pytest.raises(AssertionError, match="changes when a constant is added to reward"):
        check_signal(col("reward") * 2, promises=["shift"])
    with pytest.raises(AssertionError, match="changes when reward is multiplied"):
        check_signal(centre("reward", over="group"), promises=["scale"])
    with pytest.raises(AssertionError, match="is not multiplied when reward is"):
        check_signal(standardise("reward", over="group"), promises=["linear"])
    not_scored_is_zero = mean(fill_missing("reward", 0.0), over="group")
    with pytest.raises(AssertionError, match="counts rows without a reward"):
        check_signal(not_scored_is_zero, promises=["unscored"])
    with pytest.raises(AssertionError, match="counts rows without a reward"):
        check_signal(total("reward", over="group") / count(over="group"), promises=["unscored"])


def test_the_tables_are_as_awkward_as_they_say() -> None:
    tables = sample_tables()
    assert len(tables["no rows"]) == 0
    assert len(tables["one row"]) == 1
    assert tables["unequal groups"].frame.group_by("group").agg(pl.col("episode").n_unique())["episode"].n_unique() == 4
    assert tables["equal rewards"]["reward"].n_unique() == 1
    together = tables["simultaneous turns"].frame
    assert len(together.group_by("group", "episode", "turn").len().filter(pl.col("len") == 2)) > 0
    assert tables["unsorted rows"].segments("episode").order is not None
    unscored = tables["unscored rows"]
    assert unscored["agent"].null_count() == 1
    assert unscored["error"].drop_nulls().to_list() == ["env: ValueError: no"]
    assert 0 < unscored["reward"].null_count() < len(unscored)
    assert (unscored.frame.group_by("group", "episode").agg(pl.col("reward").count())["reward"] == 0).any()
    idle = tables["an agent that hardly acts"].frame.filter(pl.col("agent") == "idle")
    assert idle["episode"].unique().to_list() in ([0], [])
    assert tables["two iterations"]["iteration"].n_unique() == 2
    again = sample_tables()
    assert all(again[name].frame.equals(turns.frame) for name, turns in tables.items()), "a seed is a table"
    assert not sample_tables(1)["unequal groups"].frame.equals(tables["unequal groups"].frame)


def test_shuffling_moves_the_rows_of_a_turn_too() -> None:
    turns = sample_turns(np.random.default_rng(0), groups=(3, 4), simultaneous=True)
    other = shuffled(turns.with_column(row=np.arange(len(turns))), np.random.default_rng(1))
    assert sorted(other["row"].to_list()) == list(range(len(turns)))
    first = [agents[0] for agents in other.frame.group_by("group", "episode", "turn").agg("agent")["agent"].to_list()]
    assert {"a", "b"} == set(first)
    bare = Turns({"episode": [0, 0], "reward": [1.0, 2.0]})
    assert shuffled(bare, np.random.default_rng(0)) is bare, "without turns the order is all there is"


def test_own_tables_can_be_given() -> None:
    tables = {"mine": Turns({"group": [0, 0], "episode": [0, 1], "agent": ["a", "a"], "reward": [1.0, 2.0]})}
    check_signal(rloo(), tables=tables, promises=["shift"])
    with pytest.raises(AssertionError, match="on the table 'mine'"):
        check_signal(rloo(), tables=tables, promises=["scale"])
