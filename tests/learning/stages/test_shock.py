from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.learning.stages.tasks import shock
from palaestra.play.plan import Plan
from palaestra.play.streams import Streams
from palaestra.runs.inline import learn


def test_the_second_bit_of_every_seed_says_whether_it_has_come():
    for iteration, bit in ((1, 0), (4, 0), (5, 2), (9, 2)):
        plan = shock(at_step=5).plan(Plan(groups=6, iteration=iteration), None)
        assert {seed & 2 for seed in plan.env_seeds} == {bit}
        fresh = [Streams(0, iteration).env_seed(group) for group in range(6)]
        assert [seed & ~2 for seed in plan.env_seeds] == [seed & ~2 for seed in fresh]
    with pytest.raises(InputError, match="at least 1"):
        shock(at_step=0)


def test_a_bandit_finds_its_way_after_it():
    changes = {"stages": ["shock(at_step=40)"], "train": {"iterations": 80}}
    forgets = np.mean([learn("routing", changes, seed=seed).curve() for seed in range(4)], axis=0)
    assert forgets[30:39].mean() > 0.7
    assert forgets[39:43].mean() < forgets[30:39].mean() - 0.1
    assert forgets[60:].mean() > 0.65
