"""What is said of a column that is missing."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra import columns
from palaestra.algebra.columns import origin
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import REGISTRY, col
from palaestra.algebra.turns import SCHEMA
from palaestra.credit import gae, igpo
from palaestra.errors import MissingColumnError
from palaestra.testing.examples import needs_arguments
from palaestra.testing.signal import sample_turns


def test_a_missing_column_is_never_mistaken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PROVIDERS", [])  # stages answer too once they are imported
    turns = sample_turns(np.random.default_rng(0))
    with pytest.raises(
        MissingColumnError, match="'gold_logprob' is missing: mean token log-probability of the true"
    ) as e:
        igpo().evaluate(turns)
    assert "did you mean" not in str(e.value)
    known = turns.with_column(logprob=np.zeros(len(turns)), quality=np.zeros(len(turns)))
    for name in ("my_logprob", "loss", "qualities", "act"):
        with pytest.raises(MissingColumnError, match="nothing here makes it") as e:
            col(name).evaluate(known)
        assert "did you mean" not in str(e.value)
    for name, right in {"qualty": "quality", "qualitty": "quality", "quailty": "quality", "Reward": "reward"}.items():
        with pytest.raises(MissingColumnError, match=f"did you mean '{right}'"):
            col(name).evaluate(known)


def test_providers_say_what_gives_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, knows = (lambda name: None), (lambda name: "add the stage critic()" if name == "value" else None)
    monkeypatch.setattr(columns, "PROVIDERS", [silent, knows])
    with pytest.raises(MissingColumnError, match=r"column 'value' is missing; add the stage critic\(\)$"):
        gae().evaluate(sample_turns(np.random.default_rng(0)))


def test_every_column_that_a_method_asks_for_by_default_is_explained() -> None:
    """What named methods read unless told otherwise, and no rollout fills."""
    pytest.importorskip("palaestra.runs.build")  # with it come the stages, which say what they give
    asked = {
        name
        for each in REGISTRY
        if each != "weighted" and not needs_arguments(each)
        for name in parse(f"{each}()").needs()
    }
    assert {"gold_logprob", "value", "q", "v", "prm_logprobs", "action_values"} <= asked
    unexplained = {name for name in asked - set(SCHEMA) if "nothing here makes it" in origin(name)}
    assert unexplained == set()
