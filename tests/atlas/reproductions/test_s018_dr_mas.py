"""[18]: the check fails when the key is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.signals import standardise
from palaestra_atlas.catalog.credit import s018_dr_mas
from palaestra_atlas.reproductions import reproduce


def test_another_seed_holds_too_and_the_formula_is_what_the_rewards_imply() -> None:
    (result,) = reproduce(18, seeds=[7])
    assert result.holds
    # variance of the pooled rewards: (0.01 + 0.16) / 2 within agents, 0.09 between them
    np.testing.assert_allclose(result.measured["formula_confident"], (0.01 + 0.09) / 0.175)
    np.testing.assert_allclose(result.measured["formula_hesitant"], (0.16 + 0.09) / 0.175)


def test_it_fails_without_the_agent_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s018_dr_mas, "dr_mas", lambda score="reward", **_: standardise(score, over="group"))
    assert not reproduce(18)[0].holds
