"""[144] MyAntFarm (arXiv 2511.15755): a score without variance is a warning, not a proof.

The released service's recommended actions are constants. Actions with the same tiers (specific 1, .67, 0; as right as
.75, .5, 0) have the reported .692 exactly. The audit names constants: they are the same in every case, and as right
elsewhere.
Left out: the service and its model; its own texts.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation.analyses import ANALYSES
from palaestra.evaluation.teamwork import action_quality, decision_quality
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

SERVICES, FAULTS = (
    ("auth", "billing", "search", "mail"),
    ("memory leak", "bad deployment", "full disk", "lost database"),
)
CONSTANT = ["Roll back to version v2.3.0", "Restart on the last version", "Compare with version v2.2.9"]
"""Specific whatever the case is."""

TRUTH = "roll auth-service back to v2.3.0"
TIERS = ["Deploy v2.3.0 to auth-service", "Check auth-service to confirm", "Notify customers"]
"""Actions of the tiers of the released constants, written for this file."""


def judged(*rows: tuple[str, str, list[str], str]) -> list[dict[str, object]]:
    """Rows of (system, case, actions, truth), as the command judges them."""
    schema = {"system": pl.String, "case": pl.String, "actions": pl.List(pl.String), "truth": pl.String}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.parquet"
        pl.DataFrame(rows, schema=schema, orient="row").write_parquet(path)  # type: ignore[arg-type]
        return ANALYSES.build("decisions()")(path).to_dicts()


@exact
def worked_quality() -> None:
    """.4 + .3 · .5567 + .3 · .4167 = .692 of actions in the tiers of the released constants."""
    validity, specificity, correctness = action_quality(TIERS, TRUTH)
    np.testing.assert_allclose(validity, 1.0)
    np.testing.assert_allclose(specificity, 0.5567, atol=5e-5)
    np.testing.assert_allclose(correctness, 0.4167, atol=5e-5)
    (found,) = judged(("s", "c", TIERS, TRUTH))
    np.testing.assert_allclose([found["quality"], found["specificity"]], [0.692, 0.5567], atol=1e-4)  # type: ignore[arg-type]


@exact
def no_actions() -> None:
    """Without any action everything is 0, and nothing is actionable."""
    (found,) = judged(("s", "c", [], TRUTH))
    assert [found[name] for name in ("quality", "validity", "actionable")] == [0.0, 0.0, 0.0]


@exact
def vague_actions() -> None:
    """An action that says nothing is valid and worth .4: not actionable; a specific one beside it makes half."""
    found = judged(("s", "1", ["Stay calm"], TRUTH), ("s", "2", ["Roll auth-service back to v2.3.0"], TRUTH))[0]
    named = ("quality", "actionable", "variance")  # of .4 and 1
    np.testing.assert_allclose([found[name] for name in named], [0.7, 0.5, 0.09], atol=1e-9)  # type: ignore[arg-type]


@exact
def constants_are_named() -> None:
    """A constant is as right on the other case as on its own; one that reads the case is right there alone."""
    truths = {"1": "restart mail", "2": "resize disk"}
    rows = [("same", case, ["restart it"], truth) for case, truth in truths.items()]
    rows += [("reads", case, [truth], truth) for case, truth in truths.items()]
    found = {row["system"]: row for row in judged(*rows)}
    assert [found[name]["constant"] for name in ("same", "reads")] == [True, False]
    np.testing.assert_allclose([found["same"]["correctness"], found["same"]["elsewhere"]], [0.375, 0.375], atol=1e-9)  # type: ignore[arg-type]
    np.testing.assert_allclose([found["reads"]["correctness"], found["reads"]["elsewhere"]], [1.0, 0.0], atol=1e-9)  # type: ignore[arg-type]


def written(seed: int, directory: Path) -> None:
    """Sixteen cases, answered by a system that reads them and is right on a quarter of them, and by constants."""
    rows = cases(0.2, np.random.default_rng(seed)).to_dicts()
    (directory / "decisions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def reader_chosen() -> Measure:
    """1 if the system of the best quality, of those that the command does not call constant, is the one that reads."""

    def measured(left: Left) -> list[float]:
        rows = sorted(json.loads(left.stdout), key=lambda row: row["quality"], reverse=True)
        return [float([row["system"] for row in rows if not row.get("constant")][:1] == ["reads"])]

    return measured


def cases(skill: float, rng: np.random.Generator) -> pl.DataFrame:
    """Sixteen cases; one system reads them and is right so often, one says the same always."""
    rows = []
    for service in SERVICES:
        for fault in FAULTS:
            truth = f"{service}: {fault}"
            other = f"{rng.choice(SERVICES)}: {rng.choice(FAULTS)}"
            rows.append(("reads", f"{service} {fault}", [truth if rng.random() < skill else other], truth))
            rows.append(("constant", f"{service} {fault}", CONSTANT, truth))
    return pl.DataFrame(rows, schema=["system", "case", "actions", "truth"], orient="row")


@reproduction(
    144,
    claim="Quality without variance comes from answers that do not depend on the case, and shuffling cases shows it.",
    baseline="a system that reads the case",
    criterion="the constant system has variance 0 and is flagged, and is as right on other cases' truths within 0.05; "
    "the other is not flagged and loses at least 0.3 there, in every seed; no actions score 0; the worked actions "
    "score .692",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both systems."""
    holds, rows = True, []
    for seed in seeds:
        found = decision_quality(cases(0.8, np.random.default_rng(seed)))
        by = {row["system"]: row for row in found.iter_rows(named=True)}
        fixed, honest = by["constant"], by["reads"]
        holds &= fixed["constant"] and fixed["variance"] < 1e-3 and not honest["constant"]
        holds &= abs(fixed["correctness"] - fixed["elsewhere"]) <= 0.05
        holds &= honest["correctness"] - honest["elsewhere"] >= 0.3
        rows.append([fixed["quality"], honest["quality"], honest["correctness"], honest["elsewhere"]])
    nothing = decision_quality(pl.DataFrame({"system": ["s"], "case": ["c"], "actions": [[]], "truth": ["x"]},
                                            schema_overrides={"actions": pl.List(pl.String)}))  # fmt: skip
    tiers = decision_quality(pl.DataFrame({"system": ["s"], "case": ["c"], "actions": [TIERS], "truth": [TRUTH]}))
    worked = float(tiers["quality"][0])
    holds &= abs(worked - 0.692) < 1e-9
    names = ("constant_quality", "honest_quality", "honest_correctness", "honest_elsewhere")
    measured = dict(zip(names, np.mean(rows, 0).tolist())) | {"worked": worked}
    return Outcome(measured, bool(holds and float(nothing["quality"][0]) == 0.0))
