"""Looking into a signal: its tree, what each statistic ranged over, and which term did the work."""

from __future__ import annotations

import numpy as np

from palaestra.algebra.binding import bound
from palaestra.algebra.kernels import Evaluation
from palaestra.algebra.signals import Signal, short
from palaestra.algebra.text import LARGEST
from palaestra.algebra.turns import Ragged, Turns

_HIDDEN = {"over", "where", "name", "value", "expr"}


@bound
def explain(signal: Signal, turns: Turns | None = None) -> str:
    """Text tree of a signal, one node a line; see `Signal.explain`."""
    evaluation = None if turns is None else Evaluation(turns)
    lines: list[str] = []
    _draw(signal, "", "", evaluation, lines, set() if signal.size > LARGEST else None)
    return "\n".join(lines)


def _draw(
    node: Signal, first: str, rest: str, evaluation: Evaluation | None, lines: list[str], seen: set[bytes] | None
) -> None:
    """seen: nodes that were drawn before, in a tree that is too large to be drawn whole."""
    notes = "" if evaluation is None else _notes(node, evaluation)
    label = f"{node.label} = " if node.label else ""
    lines.append(f"{first}{label}{_head(node)}{notes}")
    if seen is not None and node.inputs:
        if node.digest in seen:
            lines[-1] += "   [as above]"
            return
        seen.add(node.digest)
    below = list(node.inputs)
    if node.options.get("where") is not None:
        below.append(node.options["where"])
    for number, child in enumerate(below):
        last = number == len(below) - 1
        _draw(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), evaluation, lines, seen)


def _head(node: Signal) -> str:
    if not node.inputs:
        return node.text
    parts = [node.op]
    if "over" in node.options:
        keys = ", ".join(str(key) for key in node.options["over"])
        parts.append(f"over ({keys})" if keys else "over the batch")
    parts += [f"{k}={v}" for k, v in node.options.items() if k not in _HIDDEN and v is not None]
    if node.options.get("where") is not None:
        parts.append("where")
    return " ".join(parts)


def _notes(node: Signal, evaluation: Evaluation) -> str:
    if "unit" not in node.options:
        return ""
    value = evaluation(node)
    values = value.values if isinstance(value, Ragged) else value.astype(float)
    samples = evaluation.samples(node)
    counts = samples.counts
    counts = counts[counts > 0]
    if not len(counts):
        return "   [no samples]"
    sizes = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}–{counts.max()}"
    constant = _share(samples.stds(0)[samples.counts > 0] == 0)
    note = f"   [{len(counts):,} keys, {sizes} samples each, {constant} constant"
    if node.op in ("standardise", "centre", "leave_one_out"):
        note += f", {_share(counts == 1)} with one sample, {_share(values == 0)} of rows zero"
    return note + "]"


def _share(mask: np.ndarray) -> str:
    return f"{np.mean(mask):.0%}" if len(mask) else "0%"


def terms(signal: Signal) -> list[Signal]:
    """List of the additive terms of a `Signal`: a + b - c gives a, b, -c; a huge one is a single term."""
    if signal.size > LARGEST:
        return [signal]
    if signal.op == "add":
        return [term for child in signal.inputs for term in terms(child)]
    if signal.op == "sub":
        return [*terms(signal.inputs[0]), *(-term for term in terms(signal.inputs[1]))]
    return [signal]


@bound
def contributions(signal: Signal, turns: Turns) -> dict[str, float]:
    """Dict {term: share} of a `Signal`'s additive terms in the sum of their mean absolute values on `Turns`.

    A term with a label (a named method) goes by it.
    """
    evaluation = Evaluation(turns)
    sizes: dict[str, float] = {}
    for term in terms(signal):
        value = evaluation(term)
        flat = value.values if isinstance(value, Ragged) else value.astype(float)
        flat = flat[~np.isnan(flat)]
        name = short(term)
        sizes[name] = sizes.get(name, 0.0) + (float(np.abs(flat).mean()) if len(flat) else 0.0)
    whole = sum(sizes.values())
    return {name: size / whole if whole else 0.0 for name, size in sizes.items()}
