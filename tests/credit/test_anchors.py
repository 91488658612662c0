"""Anchors: which texts share a state [62]."""

from __future__ import annotations

import difflib

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import centre, gigpo, return_to_go, similar
from palaestra.errors import ExpressionError, InputError, MissingColumnError
from palaestra.learning.stages import STAGES


def greedy(groups: list[int], texts: list[str | None], threshold: float) -> list[tuple[int, int]]:
    """The released code's loop: the first cluster of the group that is similar enough. Missing texts are alone."""
    clusters: dict[int, list[str]] = {}
    found: list[tuple[int, int]] = []
    for group, text in zip(groups, texts, strict=True):
        known = clusters.setdefault(group, [])
        if text is None:
            found.append((group, -len(found) - 1))
            continue
        ratios = [difflib.SequenceMatcher(None, text, each).ratio() for each in known]
        place = next((place for place, ratio in enumerate(ratios) if ratio >= threshold), len(known))
        if place == len(known):
            known.append(text)
        found.append((group, place))
    return found


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9, 1.0])
def test_clusters_are_those_of_the_greedy_loop(threshold: float) -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 60).tolist()
    texts = ["".join(rng.choice(list("abc "), size=8)) if rng.random() < 0.9 else None for _ in groups]
    state = similar(Turns({"group": groups, "observation": texts}), threshold=threshold)["state"].to_list()
    expected = greedy(groups, texts, threshold)
    pairs = set(zip(state, expected, strict=True))
    assert len(pairs) == len(set(state)) == len(set(expected))  # the same partition under other names
    assert any(place < 0 for _, place in expected), "or there is nothing missing to test"


def test_gigpo_compares_steps_whose_texts_are_nearly_equal() -> None:
    turns = Turns({
        "group": [0] * 4, "episode": [0, 1, 2, 3], "turn": [0] * 4, "agent": ["a"] * 4, "reward": [1.0, 0.0, 1.0, 1.0],
        "observation": [f"You stand before a door. Steps left: {n}" for n in (12, 13)] + ["A wall.", "a dark wood"],
    })  # fmt: skip
    anchored = STAGES.build("anchors(threshold=0.95)")(turns, None)
    step = np.asarray((gigpo(scale=False) - centre("reward", over="group")).evaluate(anchored))
    np.testing.assert_allclose(step, [0.5, -0.5, 0, 0], atol=1e-12)
    assert np.asarray(centre(return_to_go(), over=("group", "observation")).evaluate(turns)).any() == 0


def test_what_cannot_be_clustered_is_named() -> None:
    with pytest.raises(InputError, match=r"threshold=0 is outside \(0, 1\]"):
        STAGES.build("anchors(threshold=0)")
    with pytest.raises(ExpressionError, match="'x'"):
        STAGES.build("anchors(threshold='x')")
    with pytest.raises(MissingColumnError, match="similar: column 'text' is missing"):
        similar(Turns({"group": [0], "observation": ["a"]}), column="text")
    assert len(similar(Turns({"group": [], "observation": []}))) == 0
