"""Numbers that members of a team say: bids and marks. Left out: opinions of a step (`palaestra.teams.tree_search`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np

from palaestra.envs.task_scores import numbers_in


def number_in(text: str) -> float:
    """The first number of a text, of `8/10` the 8; minus infinity if there is none.

    >>> number_in("I bid 3.5"), number_in("nothing")
    (3.5, -inf)
    """
    return next(iter(numbers_in(text, divide=False)), -np.inf)


def marks_in(text: str, roles: Sequence[str]) -> list[float]:
    """Marks for roles: the numbers behind their names, 0 for who is not named; without names the numbers in order.

    >>> marks_in("b-2: 5, b-1: 3/5", ["b-1", "b-2"]), marks_in("3 and 5", ["b-1", "b-2"])
    ([3.0, 5.0], [3.0, 5.0])
    """
    names = "|".join(re.escape(role) for role in sorted(roles, key=len, reverse=True))
    first, *parts = re.split(rf"(?i)(?<!\w)({names})(?!\w)", text)
    said = [numbers_in(part, divide=False) for part in parts[1::2]]
    named = dict(zip(map(str.casefold, parts[::2]), said, strict=True))
    if named and all(named.values()):
        return [named.get(role.casefold(), [0.0])[0] for role in roles]
    return [*numbers_in(first, divide=False), *chain(*said)][: len(roles)]
