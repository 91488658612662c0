"""The least and the greatest value that each option of a team and of its rules may have, as its refusal says them."""

from __future__ import annotations

import pytest
from tests.bounds import kept, registered, table

from palaestra.envs.worlds import Cups, PlacesGrid

WORKFLOWS = """
advantage_feedback(World): max_queries >= 1
audited(World): agents >= 2; attempts >= 1; pass_rate in (0., 1.]; least in [0, 5]
chain(World): roles >= 1
checked_chain(World): retries >= 0
conducted(World): workers >= 1; tries >= 1; price >= 0.
context_window(World): budget >= 1 with down_to=1; down_to in [1, 2000]; keep >= 1
coordinator(Grid): messages >= 1; noise in [0., 1.]
debate(World): debaters >= 1
directed(World): agents >= 3; rounds >= 2; keep in [1, 5]; first >= 1
handover(Grid, "walker_0", "b"): after >= 0
mean_field(Grid): centres >= 2; bandwidth > 0.; low < 1.; high > -1.
options(Grid): longest >= 1; gamma in (0., 1.]
orchestrated(World, {"a": "chain(2)", "b": "single()"}): price >= 0.
pipeline(World): longest >= 1
proposer(World): given in [0., 1.]; controls >= 0; longest >= 1
self_consistency(World): samples >= 1
self_organized(World): agents >= 2; least in [0., 1.]
self_summary(World): window >= 0; longest >= 1
strategy_auction(World): weight >= 0.
switching(Grid): cost >= 0.; budget >= 0
tree(World): branch >= 2; depth >= 1
tree_search(World): branch >= 1; depth in [1, 14]; budget >= 3; price >= 0.
"""
RULES = {
    "gate": "best(): most >= 1\nkept(): share in (0., 1.]\ntop(): most >= 1",
    "route": "agreeing(2): start >= 2; above >= 0\nawarded([1.0]): weight >= 0.\nsampled(): most >= 1",
    "aggregate": "quorum(): least >= 1\nweighted({}): default >= 0.",
    "verifier": "accepts(): tpr in [0., 1.]; fpr in [0., 1.]\nnoisy(): deviation >= 0.",
    "stop": "agree(): share in (0., 1.]; least >= 1",
}
KINDS = {"workflow": table(WORKFLOWS)} | {kind: table(text) for kind, text in RULES.items()}
EVERY = [pytest.param(kind, word, id=word) for kind, words in KINDS.items() for word in words]


@pytest.mark.parametrize(("kind", "word"), EVERY)
def test_an_option_may_have_its_bounds_and_nothing_beyond(kind: str, word: str) -> None:
    make = registered(kind, word, {"World": Cups, "Grid": PlacesGrid})
    kept((lambda **more: make(**more)()) if kind == "workflow" else make, KINDS[kind][word])
