"""What a batch must not be cut by, read off the keys."""

from __future__ import annotations

import pytest

from palaestra.algebra.kernels import KERNELS, RANGES, kernel
from palaestra.algebra.parse import parse
from palaestra.algebra.partition import ROW_BY_ROW, collectable, iteration_nodes, partition, passes
from palaestra.algebra.signals import REGISTRY, Signal, col, mean, quantile, standardise, walk, where
from palaestra.credit import dr_mas, gigpo, grpo, mars, reinforce, reinforce_plus_plus
from palaestra.errors import InputError
from palaestra.testing.examples import ELSEWHERE, example

BATCH, GROUP, ROW = ("run", "iteration"), ("run", "iteration", "group"), ("row",)


@pytest.mark.parametrize(
    ("signal", "parts"),
    [
        (0.5 * col("reward") + where("valid", 1.0, 0.0), ROW),
        (mean("logprobs", over=("row", "agent")), ROW),
        (grpo(), GROUP),
        (dr_mas(), GROUP),
        (gigpo(gamma=0.95), GROUP),
        (mean("reward", over=("agent", "episode")), GROUP),
        (reinforce(), BATCH),
        (mean("reward", over="agent"), BATCH),
        (grpo() + 0.1 * mean("reward", over=()), BATCH),
        (mean("reward", over="group", where=col("reward") > mean("reward", over=())), BATCH),
        (mean("reward", over=("group", mean("reward", over="agent"))), BATCH),
        (Signal("from elsewhere", col("reward")), BATCH),
    ],
)
def test_partition_is_the_largest_key_of_all_nodes_masks_and_computed_keys_included(
    signal: Signal, parts: tuple[str, ...]
) -> None:
    assert signal.partition() == parts
    assert partition(signal, col("reward")) == parts


def test_a_statistic_of_a_statistic_waits_for_the_inner_one() -> None:
    whole = mean("reward", over=())
    assert passes(grpo()) == 0
    assert passes(whole) == 1
    assert passes(standardise("reward", over=())) == 2
    assert passes(reinforce_plus_plus()) == 2
    assert passes(standardise(col("reward") - whole, over="agent")) == 3
    inner, outer = iteration_nodes(standardise(col("reward") - whole, over="agent"))
    assert (inner.op, outer.op) == ("mean", "standardise")


def test_what_needs_all_values_at_once_cannot_be_collected() -> None:
    assert all(collectable(node) for node in iteration_nodes(reinforce()))
    assert not collectable(quantile("reward", q=0.5, over=()))
    assert not all(collectable(node) for node in iteration_nodes(mars()))  # its samples are distinct values


def test_every_kernel_without_a_key_is_declared() -> None:
    """A kernel that nobody declared is taken to range over the batch, which is safe and slow."""
    used = {node.op: node for n in REGISTRY if n not in ELSEWHERE for node in walk(parse(example(n)))}
    keyless = {op for op, node in used.items() if node.options.get("over") is None}
    assert keyless - {op for op, span in RANGES.items() if span != "key"} <= ROW_BY_ROW
    assert RANGES.keys() == KERNELS.keys()


def test_an_operator_of_ones_own_says_what_it_ranges_over() -> None:
    """One registration; nothing in this package names it."""
    ranges = {"own_row": ("row",), "own_key": ("run", "iteration", "group"), "own_batch": ("run", "iteration")}
    for name, span in ranges.items():
        kernel(name, range=name.removeprefix("own_"))(lambda evaluation, node: evaluation(node.inputs[0]))
        try:
            assert partition(Signal(name, col("reward"), over=("group",))) == span
        finally:
            del KERNELS[name], RANGES[name]
    with pytest.raises(InputError, match=r"kernel 'shapley' is taken by palaestra\.credit\.teams\._shapley"):
        kernel("shapley")(lambda evaluation, node: 0)
