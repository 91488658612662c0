"""A tree whose nodes are chosen from everywhere: what search over answers and over designs has in common.

Nodes have a parent, a first opinion and how sure it is, and what was sent back to them. Trees of an env that is played
from a state on are `palaestra.judges.search.TreeSearch`. Left out: merging nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError


class SearchTree:
    """Search tree as arrays: nodes by number, 0 the root, with priors, confidences, visits and totals.

    >>> tree = SearchTree("question")
    >>> child = tree.add("step", 0, prior=0.8, confidence=1.0)
    >>> tree.back(child, 0.0)
    >>> tree.visits.tolist(), tree.ancestors(child)
    ([1.0, 1.0], [0])
    """

    def __init__(self, root: Any) -> None:
        self.items: list[Any] = [root]
        self.parents: list[int] = [-1]
        self.prior, self.confidence = np.zeros(1), np.zeros(1)
        self.visits, self.total = np.zeros(1), np.zeros(1)

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: Any, parent: int, *, prior: float = 0.0, confidence: float = 0.0) -> int:
        """Add a node below a parent; returns its number."""
        if not 0 <= parent < len(self):
            raise InputError(f"SearchTree: parent {parent} of {len(self)} nodes")
        self.items.append(item)
        self.parents.append(parent)
        self.prior, self.confidence = np.append(self.prior, prior), np.append(self.confidence, confidence)
        self.visits, self.total = np.append(self.visits, 0.0), np.append(self.total, 0.0)
        return len(self) - 1

    def ancestors(self, node: int) -> list[int]:
        """Ancestors of a node, from its parent to the root."""
        found = []
        while (node := self.parents[node]) >= 0:
            found.append(node)
        return found

    def back(self, node: int, value: float) -> None:
        """Add a visit and a value to a node and all its ancestors."""
        way = [node, *self.ancestors(node)]
        self.visits[way] += 1
        self.total[way] += value

    def table(self) -> pl.DataFrame:
        """The tree as a table, a row per node: node, parent (null: the root), prior, confidence, visits, total."""
        return pl.DataFrame(
            {"node": np.arange(len(self)), "parent": self.parents, "prior": self.prior, "confidence": self.confidence,
             "visits": self.visits.astype(int), "total": self.total}
        ).with_columns(parent=pl.when(pl.col("parent") >= 0).then("parent"))  # fmt: skip


Select = Callable[[SearchTree], np.ndarray]
"""An index for each node; of siblings the one with the largest is next."""


def confidence_uct(tree: SearchTree, *, c: float = 0.3, trust: float = 2.0) -> np.ndarray:
    """MASTER's score of each `SearchTree` node ([12]), float64[nodes]: Q + c·√(ln(N + 1)/(n + 1)), N the root's visits.

    Q = (k·c0·r0 + Σ r)/(k·c0 + n).

    r0, c0: a node's own opinion of its reward and how sure it is of it, as k·c0 visits; n, Σ r: what was sent back.
    N: of the whole tree. The paper (arXiv 2501.14304) does not give its constants: the form is a reconstruction.
    """
    weight = trust * tree.confidence
    known = weight + tree.visits
    q = np.where(known > 0, (weight * tree.prior + tree.total) / np.where(known > 0, known, 1.0), 0.0)
    return np.asarray(q + c * np.sqrt(np.log(tree.visits[0] + 1) / (tree.visits + 1)))


def soft_mixed(
    score: np.ndarray | Sequence[float],
    surprise: np.ndarray | Sequence[float],
    *,
    alpha: float = 10.0,
    beta: float = 0.3,
    mix: float = 0.2,
) -> np.ndarray:
    """AgentSwift's selection probabilities ([70]) from `score` and `surprise`, float64[n]: uniform + softmax of both.

    P_i = λ/n + (1 - λ)·softmax_i α((1 - β)·s_i + β·u_i) (arXiv 2506.06017).

    score: s, what a node was worth. surprise: u, by how much that was not foreseen. mix: λ.

    >>> soft_mixed([0.5, 0.6, 0.7], [0.1, 0, 0]).round(4).tolist()
    [0.2122, 0.2838, 0.504]
    """
    value = (1 - beta) * np.asarray(score, float) + beta * np.asarray(surprise, float)
    weight = np.exp(alpha * (value - value.max()))
    return np.asarray(mix / len(value) + (1 - mix) * weight / weight.sum())


@dataclass(frozen=True)
class Candidate:
    """Data of a proposed child in `search`: item, own estimate, confidence, and whether it is an answer."""

    item: Any
    prior: float
    confidence: float
    terminal: bool = False


@dataclass(frozen=True)
class SearchResult:
    """Result data of `search`: the answer (None: none was met), whether it passed, nodes made, and the tree."""

    item: Any
    passed: bool
    made: int
    tree: SearchTree


def search(
    root: Any,
    expand: Callable[[Any], Sequence[Candidate]],
    validate: Callable[[Any], bool],
    *,
    budget: int,
    select: Select = confidence_uct,
    backup: Literal["on_failure", "never"] = "on_failure",
) -> SearchResult:
    """`SearchResult` of MASTER's tree search ([12]): first answer to pass `validate`, or best of `budget` nodes.

    `expand` gives the `Candidate`s below an item.

    arXiv 2501.14304.

    Answers that fail validation correct them.

    There are no rollouts.

    From the root on the child of the largest index is taken, of those below which something is open. It is expanded, or
    if it is an answer validated: if it passes, it is the answer; if not, 0 is sent back to it and all above it, so that
    a sibling of theirs comes next. At most `budget` nodes are made; if all answers among them failed, the one with
    the best opinion of itself stands. The paper speaks of the largest index of all nodes that can be
    expanded; but what is sent to the nodes above, which are expanded already, would change nothing then.

    Raises:
        InputError: budget is below 1.
    """
    steps = searching(root, validate, budget=budget, select=select, backup=backup)
    item = next(steps)
    try:
        while True:
            item = steps.send(expand(item))
    except StopIteration as end:
        found: SearchResult = end.value
        return found


def searching(
    root: Any,
    validate: Callable[[Any], bool],
    *,
    budget: int,
    select: Select = confidence_uct,
    backup: Literal["on_failure", "never"] = "on_failure",
) -> Generator[Any, Sequence[Candidate], SearchResult]:
    """`search` of `budget` nodes as a generator: yields an item, is sent `Candidate`s, returns a `SearchResult`.

    Raises:
        InputError: budget is below 1.
    """
    if budget < 1:
        raise InputError(f"search: budget={budget}, expected at least one node")
    tree, opened, terminal = SearchTree(root), {0}, set[int]()
    below: dict[int, list[int]] = {}
    while opened:
        ready = sorted(at for at in opened if at in terminal or len(tree) <= budget)
        if not ready:
            break
        index, at = select(tree), 0
        alive = set(ready).union(*(tree.ancestors(each) for each in ready))
        while at not in opened:
            at = max((each for each in below[at] if each in alive), key=lambda each: index[each])
        opened.discard(at)
        if at in terminal:
            if validate(tree.items[at]):
                return SearchResult(tree.items[at], True, len(tree) - 1, tree)
            if backup == "on_failure":
                tree.back(at, 0.0)
            continue
        for child in list((yield tree.items[at]))[: budget - (len(tree) - 1)]:
            made = tree.add(child.item, at, prior=child.prior, confidence=child.confidence)
            opened.add(made)
            below.setdefault(at, []).append(made)
            terminal |= {made} if child.terminal else set()
    best = max(sorted(terminal), key=lambda at: tree.prior[at], default=None)  # all of them failed
    return SearchResult(None if best is None else tree.items[best], False, len(tree) - 1, tree)
