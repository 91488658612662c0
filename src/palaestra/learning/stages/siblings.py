"""Nodes of a tree of answers by their backed-up values: which are correct, and pairs of siblings that differ [22]."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit.attempt_trees import backup
from palaestra.judges.pairs import marked
from palaestra.judges.value_pairs import mine
from palaestra.learning.stages.stage import Context, Stage, stage

TREE = ("group", "episode")
"""Key in which names of nodes are unique."""


@stage
class correct_nodes(Stage):
    """Stage: column `correct`, whether `value` (reward), backed up from the leaves to a tree's node, is above one half.

    MALT's labels (arXiv 2412.01928).

    Learn from it by `clone(column="correct")`: each role from its own correct nodes. With leaves=True a node is correct
    if a leaf below it is, as one that filters whole episodes has it. Stands on the env of `branches(…)`, or on any
    table with node and parent. Its metrics: share of rows that are correct, by policy.

    Args:
        value: of a leaf. above: a node's value is correct above it; at it, not.
    """

    adds = {"correct": "the node's backed-up value is above one half"}

    def __init__(self, value: str = "reward", *, above: float = 0.5, leaves: bool = False) -> None:
        text = parse(value, columns=(value,))
        self.value = backup(text, over=TREE, method="max") if leaves else backup(text, over=TREE)
        self.above, self.needs = above, {"policy", *TREE, *self.value.needs()}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `correct`, null where no leaf is known."""
        found = np.asarray(evaluate(turns, self.value)[0], float)
        correct = pl.Series(found).fill_nan(None) > self.above
        made = turns.with_column(correct=correct)
        for policy, share in made.frame.group_by("policy").agg(pl.col("correct").mean()).sort("policy").iter_rows():
            context.metrics[str(policy)] = float("nan") if share is None else float(share)
        return made


@stage
class sibling_pairs(Stage):
    """Stage: `pair` and `chosen` of each correct with each incorrect child of a node; a row repeats for each pair.

    A node whose children agree has no pairs, nor has a root, which has no parent: the role that begins is not compared.
    The stage `correct_nodes` stands before it. Its metrics count candidates and pairs; rows of several pairs stand once
    for each.
    """

    adds = {"pair": "number of the comparison", "chosen": "this side was preferred"}
    needs = ("correct", "parent", *TREE)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with pairs."""
        below = pl.when(pl.col("parent").is_not_null()).then(pl.col("correct").cast(float))
        label = turns.with_column(_label=turns.frame.select(below)["correct"])
        found, counts = mine(label, "_label", by=(*TREE, "parent"), per="all", unit="row")
        context.metrics |= {name: float(number) for name, number in counts.items()}
        return marked(turns, found, unit="row")
