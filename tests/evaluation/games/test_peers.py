"""Peer scores: what counts, what is forgotten, and what a search finds."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games.peers import PeerScore, Topic, counterexample, decayed, simulate

PLAIN = {"w1": 0.5, "mesh_cap": 4, "w2": 1.0, "first_cap": 3, "w3": -1.0, "threshold": 2.0, "w3b": -2.0, "w4": -10.0}
NO_DECAY = {"decay": (1.0, 1.0, 1.0, 1.0)}


def of(**options):
    return PeerScore.of({"topics": {"t": {**PLAIN, **NO_DECAY}}, "cap": 100.0, **options})


def test_a_score_by_hand():
    score = of()
    for kind in ("join", "first", "delivered", "invalid"):
        score.event("a", "t", kind)
    score.interval()
    assert score.score("a") == 0.5 + 1.0 - 0.0 - 10.0
    score.event("a", "t", "behaviour")
    assert score.score("a") == pytest.approx(-8.5 - 15.92)
    assert score.score("a", application=3.0, at_address=11) == pytest.approx(-8.5 - 15.92 + 3 - 35.11)
    assert score.score("nobody") == 0.0


def test_a_deficit_counts_only_once_active_and_sticks_at_a_prune():
    score = of()
    score.event("a", "t", "join")
    assert score.score("a") == 0.0
    score.interval()
    assert score.score("a") == 0.5 - 4.0
    score.event("a", "t", "prune")
    assert score.score("a") == -8.0
    assert of(reading="model").topics["t"].score(
        {"mesh": 1, "first": 0, "delivered": 0, "failures": 0, "invalid": 0}, "model"
    ) == pytest.approx(0.5 - 4 - 8)


def test_what_is_bad_counts_squared_and_what_an_application_says_by_its_weight():
    """Two invalid messages cost 10 · 2², two penalties 15.92 · 2², a later one 15.92 · (2 · .5 + 1)²."""
    score = of(application=0.5, behaviour_decay=0.5)
    for kind in ("invalid", "invalid", "behaviour", "behaviour"):
        score.event("a", "t", kind)
    assert score.score("a") == pytest.approx(-40 - 15.92 * 4)
    assert score.score("a", application=3.0, at_address=13) == pytest.approx(-40 - 15.92 * 4 + 1.5 - 35.11 * 9)
    score.interval()
    score.event("a", "t", "behaviour")
    assert score.score("a") == pytest.approx(-40 - 15.92 * 4)
    score.interval()
    assert score.score("a") == pytest.approx(-40 - 15.92)


def test_deficits_of_several_prunes_add_up():
    """Deficits of 2 and 1 are 4 + 1; a prune before activation and one without a deficit add nothing."""
    score = of()
    for delivered, failures in ((0, 4.0), (1, 5.0)):
        score.event("a", "t", "join")
        for _ in range(delivered):
            score.event("a", "t", "first")
        score.interval()
        score.event("a", "t", "prune")
        assert score.counters["a"]["t"]["failures"] == failures
        score.interval()
        assert score.counters["a"]["t"]["mesh"] == 0.0
    score.event("a", "t", "first")
    assert score.counters["a"]["t"]["delivered"] == 1.0, "it is no member"
    score.event("a", "t", "join")
    score.event("a", "t", "prune")
    assert score.counters["a"]["t"]["failures"] == 5.0
    score.event("a", "t", "join")
    for _ in range(4):
        score.event("a", "t", "delivered")
    score.interval()
    score.event("a", "t", "prune")
    assert score.counters["a"]["t"]["failures"] == 5.0
    assert score.score("a") == 2 - 2 * 5


def test_borders_are_strict():
    """A counter at the limit stays, and a score at a threshold is not below it."""
    assert decayed(1.0, 0.5, 0.5) == 0.5
    assert [of().standing(each) for each in (-4000.0, -8000.0, -16000.0)] == ["pruned", "no gossip", "no publish"]


def test_the_model_counts_the_deficit_of_now_among_the_sticky_ones():
    """A deficit of 2 costs 4 in the specification and 4 + 2 · 4 in the model, by events as in the search."""
    for reading, paid in (("specification", 4.0), ("model", 12.0)):
        score = of(reading=reading)
        score.event("a", "t", "join")
        score.interval()
        assert score.score("a") == 0.5 - paid
        assert counterexample(score, "t")[0] == pytest.approx(2.0 - paid, abs=1e-6)


def test_deliveries_are_counted_up_to_their_caps_and_of_members_only():
    """As implementations of GossipSub do: a burst decays from the cap, and buys no time."""
    score = of(topics={"t": PLAIN | {"decay": (0.5,) * 4, "delivered_cap": 4}})
    for _ in range(100):
        score.event("a", "t", "first")
    assert score.counters["a"]["t"] == {**dict.fromkeys(score.counters["a"]["t"], 0.0), "first": 3.0}
    score.event("a", "t", "join")
    for kind in ("first", "delivered") * 50:
        score.event("a", "t", kind)
    assert (score.counters["a"]["t"]["first"], score.counters["a"]["t"]["delivered"]) == (3.0, 4.0)
    score.interval()
    assert score.score("a") == 0.5 + 1.5
    score.interval()
    assert score.score("a") == pytest.approx(1.0 + 0.75 - 1.0)


def test_counters_are_forgotten():
    score = PeerScore(topics={"t": Topic(decay=(0.5, 0.5, 0.5, 0.5))}, snap=0.3)
    score.event("a", "t", "first")
    score.interval()
    assert score.counters["a"]["t"]["first"] == 0.5
    score.interval()
    assert score.counters["a"]["t"]["first"] == 0.0
    assert decayed(1.0, 0.9, 0.95) == 0.0


def test_a_search_keeps_the_best_and_stays_in_its_bounds():
    two = PeerScore.of({"topics": {"t": PLAIN, "u": PLAIN}, "cap": 100.0})
    value, behaviour = counterexample(two, "t", tries=600)
    assert value == pytest.approx((2.0 - 4.0) + (2.0 + 3.0), abs=1e-6)
    assert behaviour["t.first"] == 0.0
    assert counterexample(two, "t", tries=600)[0] >= counterexample(two, "t", tries=50)[0]


def test_honest_nodes_stay():
    mesh, reached = simulate(of(), ~np.eye(3, dtype=bool), [False] * 3, "t", intervals=3)
    assert mesh.sum() == 6
    assert reached == 1.0


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(InputError, match="w9"):
        PeerScore.of({"topics": {"t": {"w9": 1}}})
    with pytest.raises(InputError, match="topics"):
        PeerScore.of({})
    with pytest.raises(InputError, match="event 'sang'"):
        of().event("a", "t", "sang")
    file = tmp_path / "weights.json"
    file.write_text(json.dumps({"topics": {"t": PLAIN}}))
    with pytest.raises(InputError, match="none of the topics"):
        analyze("buying_off('u')", file)


def test_intervals_without_events_pass(tmp_path):
    (tmp_path / "weights.json").write_text(json.dumps({"topics": {"t": PLAIN}, "cap": 100.0}))
    rows = {"interval": [0, 3], "peer": ["a", "a"], "topic": ["t", "t"], "event": ["join", "first"]}
    pl.DataFrame(rows).write_csv(tmp_path / "events.csv")
    found = analyze("peer_score", tmp_path / "weights.json", tmp_path / "events.csv")
    assert found["score"].to_list() == pytest.approx([4 * 0.5 + 0.99 - (2 - 0.97) ** 2])
    assert found["standing"].to_list() == ["mesh"]


def test_who_falls_silent_is_pruned_at_the_end_of_that_interval():
    """Of 6 messages an interval leaves 3, and one without any leaves 1.5 of the 2 that are expected."""
    score = PeerScore.of({"topics": {"t": PLAIN | {"w1": 0.0, "w2": 0.0, "decay": (0.5,) * 4}}, "cap": 100.0})
    adjacent, bad = ~np.eye(3, dtype=bool), [False, False, True]
    for intervals, links in ((1, 6), (2, 2)):
        mesh, reached = simulate(score, adjacent, bad, "t", honest=1, intervals=intervals)
        assert mesh.sum() == links
        assert reached == pytest.approx(4 / 6 if links == 6 else 1)


def test_another_weight_of_the_deficit_leaves_that_of_the_sticky_one(tmp_path):
    """A credit of 2 and a deficit of 2: 2 - 3 · 4 - 2 · 4 by the model; a score of exactly 0 is enough to stay."""
    (tmp_path / "model.json").write_text(json.dumps({"topics": {"t": PLAIN}, "cap": 100.0, "reading": "model"}))
    found = analyze("buying_off('t', w3=-3.0)", tmp_path / "model.json")
    assert found.select("score", "possible").row(0) == (pytest.approx(-18.0), False)
    (tmp_path / "plain.json").write_text(json.dumps({"topics": {"t": PLAIN}, "cap": 100.0}))
    found = analyze("buying_off('t', w3=-0.5)", tmp_path / "plain.json")
    assert found.select("score", "possible").row(0) == (0.0, True)
