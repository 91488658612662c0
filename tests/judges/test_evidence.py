"""A linear judge of decisions that sees a part of the evidence, fitted to records with random parts of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.judges.evidence import EvidenceJudge, fit_evidence_judge
from palaestra.learning.stages.evidence import evidence

WEIGHTS = np.array([[1.0, -1.0, 0.5], [-0.5, 1.0, 0.0], [0.0, 0.0, -1.0]])
NAMES = ("a", "b", "c")


def records(count: int = 3000, seed: int = 0) -> pl.DataFrame:
    """Decisions by Bradley-Terry with known weights."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(count, 3))
    pair = np.array([rng.permutation(3)[:2] for _ in range(count)])
    gap = ((WEIGHTS[pair[:, 0]] - WEIGHTS[pair[:, 1]]) * s).sum(axis=1)
    first = rng.random(count) < 1 / (1 + np.exp(-gap))
    chosen, other = np.where(first, pair[:, 0], pair[:, 1]), np.where(first, pair[:, 1], pair[:, 0])
    names = np.array(NAMES)
    return pl.DataFrame({"features": s.tolist(), "decision": names[chosen], "alternative": names[other]})


def test_weights_are_found_up_to_what_all_decisions_share() -> None:
    judge = fit_evidence_judge(records(), revealed=None, draws=1, ridge=1e-6)
    assert judge.decisions == NAMES
    centred = judge.weights - judge.weights.mean(axis=0)
    np.testing.assert_allclose(centred, WEIGHTS - WEIGHTS.mean(axis=0), atol=0.2)


def test_lead_is_the_difference_of_weights_times_the_feature() -> None:
    judge = EvidenceJudge(NAMES, WEIGHTS)
    lead = judge.lead(np.array([[2.0, 1.0, 1.0]]), pl.Series(["a"]), pl.Series(["b"]))
    np.testing.assert_allclose(lead, [[3.0, -2.0, 0.5]])
    with pytest.raises(InputError, match="no recorded decision 'd'"):
        judge.lead(np.ones((1, 3)), pl.Series(["d"]), pl.Series(["b"]))
    with pytest.raises(InputError, match="features of shape"):
        judge.lead(np.ones((1, 2)), pl.Series(["a"]), pl.Series(["b"]))


def test_masks_reveal_as_many_features_as_said() -> None:
    """A feature and its exact copy share the weight; one that is hidden counts for nothing."""
    rows = records()
    twice = rows.with_columns(features=pl.concat_list("features", pl.col("features")))
    one, both = fit_evidence_judge(twice, revealed=1, draws=4), fit_evidence_judge(twice, revealed=None)
    np.testing.assert_allclose(both.weights[:, :3], both.weights[:, 3:], atol=1e-6)
    assert np.abs(one.weights[0, :3]).sum() > 1.3 * np.abs(both.weights[0, :3]).sum(), "nothing else is revealed"


def test_the_stage_argues_for_the_action_against_its_alternative(tmp_path: Path) -> None:
    file = tmp_path / "recorded.parquet"
    records().write_parquet(file)
    rows = {"action": ["a", "c", None], "features": [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], None], "rival": ["b", "a", "a"]}
    stage = evidence(str(file), alternative="rival", revealed=2)
    found = stage(Turns(rows), None)["lead"].to_list()  # type: ignore[arg-type]
    assert found[0][0] > 0.5
    assert found[1][2] < -0.5
    assert found[2] is None
    with pytest.raises(InputError, match="3 recorded decisions"):
        evidence(str(file), revealed=2)
    two = records().filter(pl.col("decision") != "c", pl.col("alternative") != "c")
    two.write_parquet(file)
    both = Turns({"action": ["a", "b"], "features": [[1.0, 1.0, 1.0]] * 2})
    first, second = evidence(str(file), revealed=2)(both, None)["lead"]  # type: ignore[arg-type]
    np.testing.assert_allclose(first.to_numpy(), -second.to_numpy())


def test_bad_records_are_refused() -> None:
    with pytest.raises(MissingColumnError, match="alternative"):
        fit_evidence_judge(records(5).drop("alternative"))
    with pytest.raises(InputError, match="revealed=4"):
        fit_evidence_judge(records(5))
    with pytest.raises(InputError, match="one length"):
        fit_evidence_judge(
            pl.DataFrame({"features": [[1.0], [1.0, 2.0]], "decision": ["a", "b"], "alternative": ["b", "a"]})
        )
