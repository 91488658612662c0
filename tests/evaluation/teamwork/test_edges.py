"""Edges that learn from exchanges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import EdgeScores
from palaestra.teams import Graph

DATA = Path(__file__).parents[2] / "atlas" / "data" / "exchanges.csv"
ABC = ["a", "b", "c"]


def test_scores_are_those_of_a_plain_loop_and_what_is_missing_does_not_count():
    rng = np.random.default_rng(0)
    rows = [(ABC[s], ABC[r], float(rng.random()) if rng.random() < 0.8 else None)
            for s, r in rng.integers(3, size=(60, 2)) if s != r]  # fmt: skip
    scores = EdgeScores(ABC, eta=0.3)
    expected = {(s, r): 0.5 for s in ABC for r in ABC if s != r}
    for s, r, quality in rows:
        if quality is not None:
            expected[s, r] += 0.3 * (quality - expected[s, r])
    frame = pl.DataFrame(rows, schema=["sender", "receiver", "quality"], orient="row")
    scores.update(frame[:20])
    scores.update(frame[20:])
    found = {(row["sender"], row["receiver"]): row["score"] for row in scores.table(1).iter_rows(named=True)}
    assert found == pytest.approx(expected)


def test_the_best_senders_are_heard_and_a_graph_takes_them():
    found = analyze("edges(keep=1)", DATA).filter("kept")
    assert dict(found.select("receiver", "sender").iter_rows()) == {
        "expert": "explainer", "explainer": "expert", "guesser": "expert",
    }  # fmt: skip
    scores = EdgeScores(ABC)
    assert scores.route(1) == {"a": ["b"], "b": ["a"], "c": ["a"]}  # equal ones in their order
    drawn = {tuple(scores.route(1, np.random.default_rng(seed))["a"]) for seed in range(20)}
    assert drawn == {("b",), ("c",)}
    assert Graph.of(ABC, edges=scores.route(2), rounds=2).heard["c"] == ("a", "b")


def test_what_cannot_be_is_named():
    assert EdgeScores(["a", "b"], eta=1).route(1) == {"a": ["b"], "b": ["a"]}
    for members, eta in ((ABC, 0), (["a"], 0.5), (["a", "a", "b"], 0.5)):
        with pytest.raises(InputError, match=f"eta={eta}"):
            EdgeScores(members, eta=eta)
    with pytest.raises(InputError, match="'d' is no member"):
        EdgeScores(ABC).update(pl.DataFrame({"sender": ["d"], "receiver": ["a"], "quality": [1.0]}))
    with pytest.raises(InputError, match="hears itself"):
        EdgeScores(ABC).update(pl.DataFrame({"sender": ["a"], "receiver": ["a"], "quality": [1.0]}))
    with pytest.raises(MissingColumnError, match="quality"):
        EdgeScores(ABC).update(pl.DataFrame({"sender": ["a"], "receiver": ["b"]}))
    with pytest.raises(InputError, match="3 of 2 senders"):
        EdgeScores(ABC).route(3)


def test_a_quality_that_is_nan_does_not_count():
    scores = EdgeScores(ABC, start=0.5)
    scores.update(pl.DataFrame({"sender": ["a"], "receiver": ["b"], "quality": [float("nan")]}))
    assert scores.scores[0, 1] == 0.5
