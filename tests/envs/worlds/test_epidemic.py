"""A disease on a graph of contacts."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds.epidemic import Epidemic, Health, contact_graph, transition
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


def test_a_day_by_hand():
    """Seven people, a chance of 1/2 by a contact, .4 to become infectious, .2 to recover; draws are their expectations.

    The first meets two who are infectious, 3/4; the second does, too, and stays at home; the sixth meets one, 1/2, as
    the other one, the last, stays at home. The third is exposed, the fourth, fifth and last are infectious.
    """
    health = Health(*np.array([[1, 1, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 1], [0.0] * 7]))
    contacts = np.array([[3, 4], [3, 4], [0, 1], [0, 5], [0, 1], [3, 6], [5, 2]])
    out = np.array([1, 0, 1, 1, 1, 1, 0])
    found = transition(health, out, contacts, (0.5, 0.4, 0.2), lambda chance, event: chance)
    np.testing.assert_allclose(found.susceptible, [0.25, 1, 0, 0, 0, 0.5, 0])
    np.testing.assert_allclose(found.exposed, [0.75, 0, 0.6, 0, 0, 0.5, 0])
    np.testing.assert_allclose(found.infectious, [0, 0, 0.4, 0.8, 0.8, 0, 0.8])
    np.testing.assert_allclose(found.recovered, [0, 0, 0, 0.2, 0.2, 0, 0.2])


def test_infections_by_age_add_up_to_all():
    env = Epidemic(number=200, horizon=8, infects=0.3)
    env.start(0)
    while not env.over:
        told = env.advance(np.full(200, 0.1))[1]
    ages = env.people["age"]
    assert told["infected"] > 0.1
    assert told["infected_by_age"][2] == pytest.approx(1 - env.state.health.susceptible[ages == 2].mean())
    shares = np.bincount(ages, minlength=6) / 200
    assert np.dot(shares, told["infected_by_age"]) == pytest.approx(told["infected"])


def test_what_cannot_be_is_named():
    for options in ({"number": 5}, {"contacts": 3}, {"infects": 1.5}, {"cost": -1.0}, {"levels": 1}, {"spread": 2.0}):
        with pytest.raises(InputError, match="Epidemic"):
            Epidemic(**options)


@pytest.mark.parametrize(("beds", "success"), [(0.1, True), (0.0999, False)])
def test_it_went_well_if_there_were_beds_for_all_at_the_peak(beds, success):
    """One of ten is ill from the first day on, nobody falls ill and nobody gets well: a peak of .1."""
    env = Epidemic(number=10, horizon=2, contacts=2, infects=0.0, recovers=0.0, begins=0.1, beds=beds, cost=0.5)
    env.start(0)
    paid, _ = env.advance(np.ones(10))
    assert paid.tolist() == [-0.5] * 10
    told = env.advance(np.zeros(10))[1]
    assert (told["day"], told["ill"], told["home"], told["success"]) == (2, 0.1, 0.0, success)
    assert told["infected"] == pytest.approx(0.1)
