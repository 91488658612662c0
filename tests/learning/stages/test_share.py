"""Shared rollouts: the worked totals, and that a row that was received is the receiver's own."""

from __future__ import annotations

import pytest

from palaestra.errors import InputError
from palaestra.learning.stages.share import share
from palaestra.runs.inline import learn


def test_who_shares_finds_more() -> None:
    names = [f"node_{number}" for number in range(4)]
    base = {
        "env": {"make": "native/nodes", "options": {"questions": 8, "answers": 20}},
        "policies": {name: {"kind": "tabular", "options": {"capacity": 16}} for name in names},
        "team": {**{name: name for name in names}, "*": None},
        "credit": "dr_mas()",
        "train": {"iterations": 12, "groups": 8, "group_size": 8},
    }
    found = {}
    for local, external in ((4, 4), (8, 0)):
        done = learn(
            "world", base | {"stages": [f'share({local}, {external}, verify=\'same_text("action", "gold")\')']}
        )
        found[external] = sum(line["reward"] for line in done.lines)
        counts = done.lines[-1]["stages"]["share"]
        assert counts["local"] == 4 * local
        assert min(external, 1) <= counts["external"] <= 4 * external
    assert found[4] > 1.1 * found[0]


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="local=0"):
        share(0, 0)
