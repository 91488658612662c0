"""[142] LLM Swiss Round (arXiv 2512.21010): points in Swiss rounds over benchmarks, and what dropping the last does.

Worked example, exact; then a generalist against a specialist that fails on two benchmarks, with and without
elimination, among six others of our own choice. Left out: the published score table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.ranking import failure_sensitivity, swiss
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

WORKED = np.array([[4, 1], [3, 4], [2, 3], [1, 2]])
SPECIALIST = (0.05, 0.95, 0.95, 0.05, 0.95, 0.95)
OTHERS, BENCHMARKS, SIMULATIONS = 6, 6, 500


def expected(scores: np.ndarray, **options: int | bool) -> np.ndarray:
    """Expected points that `palaestra analyze swiss(…)` prints, in the order of the rows."""
    words = ", ".join(f"{name}={value}" for name, value in options.items())
    with tempfile.TemporaryDirectory() as folder:
        names = [f"s{n}" for n in range(len(scores))]
        table = pl.DataFrame({"system": names, **{f"b{k}": scores[:, k] for k in range(scores.shape[1])}})
        table.write_csv(Path(folder) / "scores.csv")
        return analyze(f"swiss({words})", Path(folder) / "scores.csv").sort("system")["expected"].to_numpy()


@exact
def worked_tournament() -> None:
    """The card's four models on two benchmarks, enumerated and simulated; the other order gives other points."""
    for scores, points in ((WORKED, (1, 5 / 3, 4 / 3, 0)), (WORKED[:, ::-1], (1, 2, 2 / 3, 1 / 3))):
        np.testing.assert_allclose(expected(scores, exact=True), points, atol=1e-9)
        np.testing.assert_allclose(expected(scores, simulations=20000), points, atol=0.02)


@exact
def simulated_as_enumerated() -> None:
    """With one model out after each round, simulations lie within three standard errors of the enumeration."""
    scores = np.random.default_rng(0).random((5, 3))
    found = swiss(scores, eliminate=1, simulations=20000)
    exact_points = swiss(scores, eliminate=1, exact=True)["expected"].to_numpy()
    error = (found["high"] - found["expected"]).to_numpy() / 1.96
    gap = np.abs(found["expected"].to_numpy() - exact_points)
    assert (gap <= 3 * error + 1e-9).all(), gap


def field(seed: int) -> np.ndarray:
    """A generalist, a specialist that fails on two benchmarks, and six others."""
    rng = np.random.default_rng(seed)
    return np.array([[0.72] * BENCHMARKS, SPECIALIST, *rng.uniform(0.4, 1.0, (OTHERS, BENCHMARKS))])


@exact
def early_failure() -> None:
    """The specialist's expected points fall more steeply with the number that drop out, and so the order turns."""
    scores = field(1)
    slopes = failure_sensitivity(scores, eliminate=(0, 1, 2), simulations=2000)["slope"].to_numpy()
    assert slopes[1] < slopes[0] - 0.3, slopes
    out = expected(scores, eliminate=2, simulations=2000)
    assert out[0] > out[1] + 0.5, out


def made(seed: int, folder: Path) -> None:
    """Scores of the generalist, the specialist and six others, of whom each tenth from .4 to 1 has one per benchmark.

    With all of them drawn alike, as in `field`, it is chance how many on a benchmark are above the specialist.
    """
    rng = np.random.default_rng(seed)
    tenths = 0.4 + 0.1 * np.arange(OTHERS)
    others = np.array([rng.permutation(tenths + rng.uniform(0, 0.1, OTHERS)) for _ in range(BENCHMARKS)]).T
    scores = np.array([[0.72] * BENCHMARKS, SPECIALIST, *others])
    names = ["generalist", "specialist", *(f"other {n}" for n in range(OTHERS))]
    pl.DataFrame({"system": names, **{f"b{k}": scores[:, k] for k in range(BENCHMARKS)}}).write_csv(
        folder / "scores.csv"
    )


def generalist_leads() -> Measure:
    """Expected points of the generalist less those of the specialist."""

    def measured(left: Left) -> list[float]:
        points = {row["system"]: row["expected"] for row in json.loads(left.stdout)}
        return [points["generalist"] - points["specialist"]]

    return measured


@reproduction(
    142,
    claim="Who drops out changes who is ahead: a specialist leads without elimination, a generalist with it.",
    baseline="The same tournament without elimination.",
    criterion="Worked expectations 1, 5/3, 4/3, 0 exactly, and by simulation within 3 standard errors; on average "
    "over seeds the specialist is ahead at T = 0 and the generalist at T = 1 and 2, by over 2 standard errors, and "
    "the generalist's slope is flatter in nine seeds of ten.",
    seeds=tuple(range(200)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Other systems score uniformly between .4 and 1, drawn per seed."""
    exact = swiss(WORKED, exact=True)["expected"].to_numpy()
    drawn = swiss(WORKED, simulations=100_000, seed=seeds[0])
    error = (drawn["high"] - drawn["expected"]).to_numpy() / 1.96
    off = np.abs(drawn["expected"].to_numpy() - exact)
    measured = {
        "worked_error": float(np.abs(exact - [1, 5 / 3, 4 / 3, 0]).max()),
        "simulation_in_standard_errors": float((off / np.where(error > 0, error, 1)).max()),
    }
    tables = []
    for seed in seeds:
        others = np.random.default_rng(seed).uniform(0.4, 1.0, (OTHERS, BENCHMARKS))
        scores = np.vstack([np.full(BENCHMARKS, 0.72), SPECIALIST, others])
        tables.append(failure_sensitivity(scores, eliminate=range(3), simulations=SIMULATIONS, seed=seed))
    ahead = np.array([[found[f"T={t}"][0] - found[f"T={t}"][1] for t in range(3)] for found in tables])
    slopes = np.array([[found["slope"][0], found["slope"][1]] for found in tables])
    measured |= {f"generalist_minus_specialist_T{t}": float(ahead[:, t].mean()) for t in range(3)}
    measured |= {"slope_generalist": float(slopes[:, 0].mean()), "slope_specialist": float(slopes[:, 1].mean())}
    z = ahead.mean(axis=0) / (ahead.std(axis=0, ddof=1) / np.sqrt(len(seeds)))
    measured["flatter"] = float((slopes[:, 0] > slopes[:, 1]).mean())
    holds = (
        measured["worked_error"] < 1e-12
        and measured["simulation_in_standard_errors"] < 3.5
        and z[0] < -2
        and bool((z[1:] > 2).all())
        and measured["flatter"] >= 0.9
    )
    return Outcome(measured, holds)
