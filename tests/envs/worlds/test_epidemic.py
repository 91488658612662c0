"""A disease on a graph of contacts."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds.epidemic import Epidemic, contact_graph
from palaestra.errors import InputError


def test_contacts_are_mutual():
    graph = contact_graph(np.random.default_rng(0), 20, 4)
    counts = np.zeros((20, 20), int)
    np.add.at(counts, (np.repeat(np.arange(20), 4), graph.ravel()), 1)
    np.testing.assert_array_equal(counts, counts.T)
    assert (counts.sum(1) == 4).all()


def test_everybody_is_in_one_state():
    env = Epidemic(number=50, horizon=10)
    env.start(0)
    while not env.over:
        env.advance(np.full(50, 0.2))
        health = env.state.health
        total = health.susceptible + health.exposed + health.infectious + health.recovered
        np.testing.assert_array_equal(total, 1.0)


def test_what_cannot_be_is_named():
    for options in ({"number": 5}, {"contacts": 3}, {"infects": 1.5}, {"cost": -1.0}, {"levels": 1}, {"spread": 2.0}):
        with pytest.raises(InputError, match="Epidemic"):
            Epidemic(**options)
