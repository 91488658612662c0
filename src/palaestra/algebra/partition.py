"""Partition of a table into parts on which a signal can be computed one by one.

A table of many iterations is worked on part by part, and the parts give what the whole gives if no statistic ranges
over more than one of them. Every key is prefixed with run and iteration (`Turns`), so nothing ever ranges over more
than an iteration of a run; a key with `group` or `episode` ranges over no more than a group, the key `row` over no more
than a row. What ranges over a whole iteration can still be collected in passes if it is a sum, a count, an extreme or a
deviation (`collect`).
"""

from __future__ import annotations

from palaestra.algebra.binding import bound
from palaestra.algebra.kernels import BINARY, KERNELS, RANGES, UNARY
from palaestra.algebra.tree import Signal, children, walk

BATCH = ("run", "iteration")
GROUP = (*BATCH, "group")
ROW = ("row",)

ROW_BY_ROW = {
    *BINARY, *UNARY, "and", "or", "not", "where", "clip", "fill_missing", "ratio", "per_turn", "per_token",
    "lit", "col", "is_in", "expr",
}  # fmt: skip
"""Built-in operators whose value on a row depends on that row alone; others say so themselves (`kernels.kernel`)."""

ONE_PASS = {"mean", "total", "count", "lowest", "highest"}
TWO_PASSES = {"std", "standardise", "centre", "leave_one_out"}
"""Statistics that can be collected over parts; the second pass sums deviations from the mean of the first."""


def ranges_over(node: Signal) -> tuple[str, ...]:
    """`ROW`, `GROUP` or `BATCH`, tuples of names: rows alike in them decide a `Signal` node's value, inputs aside."""
    if node.op in ROW_BY_ROW or RANGES.get(node.op) == "row":
        return ROW
    over = node.options.get("over")
    if over is None or RANGES.get(node.op) == "batch":
        return BATCH
    names = {key for key in over if isinstance(key, str)}
    if "row" in names:
        return ROW
    return GROUP if names & {"group", "episode"} else BATCH


@bound
def partition(*signals: Signal) -> tuple[str, ...]:
    """Tuple of the columns by which a table may be cut: rows that agree in them must stay together for these signals.

    ("run", "iteration", "group"), or ("run", "iteration") if a statistic ranges over a whole iteration, or ("row",) if
    rows can be taken one by one.

    >>> from palaestra.credit import gigpo, reinforce
    >>> partition(gigpo()), partition(gigpo(), reinforce())
    (('run', 'iteration', 'group'), ('run', 'iteration'))
    """
    found = {ranges_over(node) for signal in signals for node in walk(signal)}
    return BATCH if BATCH in found else GROUP if GROUP in found else ROW


def iteration_nodes(signal: Signal) -> list[Signal]:
    """List of a `Signal`'s nodes whose values depend on a whole iteration, each after the nodes that it needs."""
    found: dict[bytes, Signal] = {}
    seen: set[bytes] = set()

    def visit(node: Signal) -> None:
        if node.digest not in seen:
            seen.add(node.digest)
            for child in children(node):
                visit(child)
            if ranges_over(node) == BATCH:
                found[node.digest] = node

    visit(signal)
    return [*found.values()]


def collectable(node: Signal) -> bool:
    """Whether a `Signal` node over a whole iteration is a statistic that can be collected over parts of it."""
    return node.op in ONE_PASS | TWO_PASSES and node.options["unit"] in ("row", "episode") and node.op not in KERNELS


def passes(signal: Signal) -> int:
    """Number of passes over parts of a table to collect a `Signal`'s wide statistics, before the one that applies them.

    A statistic of a statistic waits for the inner one.
    """
    done: dict[bytes, int] = {}

    def visit(node: Signal) -> int:
        if node.digest not in done:
            before = max(map(visit, children(node)), default=0)
            own = 0 if ranges_over(node) != BATCH else 1 if node.op in ONE_PASS else 2
            done[node.digest] = before + own
        return done[node.digest]

    return visit(signal)
