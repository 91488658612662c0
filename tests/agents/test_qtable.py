"""Sampled values of a Q-table: how sure it is of an estimate, and how often each action draws the largest value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from palaestra.agents import QTablePolicy
from palaestra.envs.protocol import Observation


def test_a_variance_follows_the_outcomes_and_their_rate() -> None:
    """At rate .5 two outcomes leave k = 1/4: v = 1/16 + (3/4)²/2; a third one k = 1/2: v/4 + 1/4.

    The action of no outcome has v = 1. With noise 2 the largest of two drawn values is the first one's with the chance
    that a normal number of variance 4 · (v + 1) is below the difference of the estimates.
    """
    policy, seen = QTablePolicy(2, decay=1e9, least=0.0, noise=2.0), Observation("here", choices=("a", "b"))
    policy.count()
    place = policy.places([seen.key()])
    v = 1.0
    for targets, v in (([1.0, 3.0], 1 / 16 + 9 / 32), ([4.0], (1 / 16 + 9 / 32) / 4 + 1 / 4)):
        policy.learn(np.repeat(place, len(targets)), np.zeros(len(targets), int), np.array(targets), 0.5)
        worth = policy.values(place)[0]
        wanted = 0.5 * (1 + math.erf((worth[0] - worth[1]) / math.sqrt(2 * 4 * (v + 1))))
        assert policy.choice_probabilities([seen])[0][0, 0] == pytest.approx(wanted, abs=2e-3)
    assert policy.values(place)[0].tolist() == [0.5 * 4 + 0.5 * 0.75 * 2, 0.0]
