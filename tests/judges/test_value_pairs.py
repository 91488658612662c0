"""Pairs by value: worked counts, against a plain loop, and no two answers that say nearly the same."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.pairs import PAIRINGS
from palaestra.judges.value_pairs import mine


def table(values: list[float], groups: list[int], texts: list[str] | None = None, **more: Any) -> Turns:
    rows = {
        "group": groups,
        "episode": list(range(len(values))),
        "reward": values,
        "action": texts or ["x"] * len(values),
    }
    return Turns(rows | more)


@pytest.mark.parametrize("per", ["all", "best_rest", "best_worst"])
def test_as_a_loop_over_the_episodes_of_each_group(per: Any) -> None:
    rng = np.random.default_rng(0)
    groups = np.sort(rng.integers(0, 30, 150)).tolist()
    values = (rng.integers(0, 6, 150) / 5).tolist()
    found, counts = mine(table(values, groups), per=per, min_gap=0.3, min_chosen=0.5, max_rejected=0.5)
    expected, candidates = set(), 0
    for group in set(groups):
        rows = [row for row, each in enumerate(groups) if each == group]
        best = max(rows, key=lambda row: (values[row], -row))
        worst = min(rows, key=lambda row: (values[row], row))
        both = combinations(rows, 2) if per == "all" else [(best, row) for row in rows if row != best]
        both = [(best, worst)] if per == "best_worst" and len(rows) > 1 else both
        for one, other in both:
            candidates += 1
            high, low = (one, other) if values[one] >= values[other] else (other, one)
            if values[high] - values[low] > 0.3 and values[high] > 0.5 and values[low] <= 0.5:
                expected.add((high, low))
    assert set(found.select("chosen", "rejected").rows()) == expected
    assert counts["candidates"] == candidates == sum(n for name, n in counts.items() if name != "candidates")


def test_the_pairs_of_the_worked_tree() -> None:
    """MALT: verifiers 2/3, 1/3, 0 and 1, 2/3, 1/3 of two generators give four pairs, their refinements eight."""
    verifiers = table([2 / 3, 1 / 3, 0, 1, 2 / 3, 1 / 3], [0] * 3 + [1] * 3)
    assert mine(verifiers, min_chosen=0.5, max_rejected=0.5)[1]["kept"] == 4
    leaves = [1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0]
    refined = table([float(leaf) for leaf in leaves], np.repeat(np.arange(6), 3).tolist())
    assert mine(refined, min_chosen=0.5, max_rejected=0.5)[1]["kept"] == 8
    anywhere = table([float(leaf) for leaf in leaves], [0] * 18)
    assert mine(anywhere, min_chosen=0.5, max_rejected=0.5)[1]["kept"] == 81, "of any parent"


def test_near_duplicates_are_no_pair_unless_the_other_failed() -> None:
    texts = ["look up the mill", "look up the mills", "add 3 and 4", "look up the mill("]
    turns = table([1.0, 0.0, 0.0, 0.0], [0] * 4, texts, error=[None, None, None, "SyntaxError"])
    found, counts = mine(turns, per="best_rest", distinct=0.8)
    assert found.select("chosen", "rejected").rows() == [(0, 2)]
    assert counts["dropped_distinct"] == 2
    found, _ = mine(turns, per="best_rest", distinct=0.8, failed="error")
    assert found.select("chosen", "rejected").rows() == [(0, 2), (0, 3)]


def test_a_recipe_names_it() -> None:
    build = PAIRINGS.build('value_pairs("reward", min_chosen=.5)')
    assert build(table([1.0, 0.0], [0, 0]))["chosen"].to_list() == [0]
    with pytest.raises(InputError, match="per='each'"):
        mine(table([], []), per="each")  # type: ignore[arg-type]
    rows = {"group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1, 1, 0], "reward": [1.0, 1.0, 0.0, 0.0]}
    turns = Turns(rows | {"agent": ["a"] * 4, "action": ["look", "take the key", "jump out", "look"]})
    assert len(mine(turns, distinct=0.8)[0]) == 1, "they begin alike and go on apart"
    same = turns.with_column(action=["look", "take the key", "take the key", "look"])
    assert not len(mine(same, distinct=0.8)[0])
    with pytest.raises(InputError, match="distinct=2"):
        mine(table([], []), distinct=2)
