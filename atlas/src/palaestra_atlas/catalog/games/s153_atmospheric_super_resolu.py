"""[153] Atmospheric super-resolution (arXiv 2506.22780): one learned prior, fused with several sources at test time.

Smooth fields of one dimension, coarse averages of a part of them and point sensors. Left out: ERA5 and radiosondes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.learning.score_models import (
    GaussianScore,
    NoiseSchedule,
    Prior,
    Source,
    fuse,
    kalman_fuse,
    posterior_samples,
)
from palaestra.learning.score_models.files import fit_prior, fuse_readings, read_sources
from palaestra_atlas.reproductions import Outcome, exact, reproduction

if TYPE_CHECKING:
    from palaestra_atlas.verification.measures import Left

CELLS, NOISE = 16, 0.1
NAMES = [f"c{cell}" for cell in range(CELLS)]
AVERAGES = {"averages": ["c0 c1 c2 c3", "c4 c5 c6 c7"], "points": ["c10", "c14"]}
PAIR = np.array([[1.0, 0.8], [0.8, 1.0]])
SCHEDULE = NoiseSchedule()


def fields(n: int, rng: np.random.Generator) -> np.ndarray:
    """Smooth random fields of mean 0 and variance 1, float64[n, cells]."""
    at = np.arange(CELLS)
    covariance = np.exp(-0.5 * ((at[:, None] - at) / 2.5) ** 2)
    return np.asarray(rng.multivariate_normal(np.zeros(CELLS), covariance, size=n, method="eigh"))


def readings(truth: np.ndarray, rng: np.random.Generator) -> pl.DataFrame:
    """Readings of each field by both kinds of sensors."""
    rows = []
    for item, field in enumerate(truth):
        for source, reads in AVERAGES.items():
            for each in reads:
                value = field[[NAMES.index(name) for name in each.split()]].mean() + NOISE * rng.normal()
                rows.append({"item": str(item), "source": source, "reads": each, "value": value, "noise": NOISE})
    return pl.DataFrame(rows)


def weather(seed: int, folder: Path) -> None:
    """Writes a prior of 500 fields, `prior`, readings of 6 others, `readings.csv`, and these, `truth.json`."""
    rng = np.random.default_rng(seed)
    pl.DataFrame(fields(500, rng), schema=NAMES).write_parquet(folder / "fields.parquet")
    fit_prior(folder / "fields.parquet", folder / "prior", hidden=(64, 64), steps=1500, seed=seed)
    truth = fields(6, rng)
    readings(truth, rng).write_csv(folder / "readings.csv")
    (folder / "truth.json").write_text(json.dumps(truth.tolist()))


def rmse() -> Callable[[Left], list[float]]:
    """Measure: root mean square error of the means that a command printed."""

    def measured(left: Left) -> list[float]:
        truth = np.array(json.loads((left.directory / "truth.json").read_text()))
        found = np.array([row["mean"] for row in json.loads(left.stdout)]).reshape(truth.shape)
        return [float(np.sqrt(((found - truth) ** 2).mean()))]

    return measured


def sensor(place: int, reading: float, noise: float, weight: float = 1.0) -> Source:
    """One that reads one of two coordinates."""
    return Source(np.eye(2)[[place]], np.array([reading]), noise, weight)


def sampled(*sources: Source, n: int = 10_000) -> np.ndarray:
    """Samples of the pair with correlation .8, given sources; float64[n, 2]."""
    score = fuse(GaussianScore(np.zeros(2), PAIR, SCHEDULE), sources, SCHEDULE)
    return posterior_samples(score, n, 2, np.random.default_rng(0), schedule=SCHEDULE)


@exact
def worked_posterior() -> None:
    """A sensor on x_1 with deviation .3 reads 1: mean (.9174, .7339), covariance [[.0826, .0661], [.0661, .4128]]."""
    mean, covariance = kalman_fuse(np.zeros(2), PAIR, [sensor(0, 1.0, 0.3)])
    assert mean.round(4).tolist() == [0.9174, 0.7339]
    assert covariance.round(4).tolist() == [[0.0826, 0.0661], [0.0661, 0.4128]]
    found = sampled(sensor(0, 1.0, 0.3))
    assert np.isfinite(found).all()
    assert np.abs(found.mean(0) - mean).max() < 0.03
    assert np.abs(np.cov(found.T) - covariance).max() < 0.03


@exact
def the_noisier_counts_less() -> None:
    """Two sensors of x_1 contradict each other; the one with a tenth of the noise decides, or the one with weight."""
    for sources in (
        [sensor(0, 1.0, 0.2), sensor(0, -1.0, 2.0)],
        [sensor(0, 1.0, 2.0), sensor(0, -1.0, 0.2)],
        [sensor(0, 1.0, 0.5), sensor(0, -1.0, 0.5, weight=0.1)],
    ):
        mean, _ = kalman_fuse(np.zeros(2), PAIR, sources)
        assert np.abs(sampled(*sources, n=4000).mean(0) - mean).max() < 0.05
        assert abs(mean[0]) > 0.5


@exact
def learned_once_from_samples() -> None:
    """A prior learned from pairs says of x_2, which no sensor reads, about what the exact one says."""
    rows = np.random.default_rng(1).multivariate_normal(np.zeros(2), PAIR, size=1000)
    prior = Prior(["one", "two"], hidden=(32, 32))
    prior.fit(rows, steps=1200, lr=3e-3)
    found = prior.belief([sensor(0, 1.0, 0.3)], 3000, np.random.default_rng(0))
    assert abs(found[:, 1].mean() - 0.7339) < 0.12
    assert np.cov(found.T)[0, 1] > 0.03
    assert abs(prior.belief([], 3000, np.random.default_rng(0))[:, 1].mean()) < 0.12


@exact
def intervals_cover() -> None:
    """The 90 % interval of x_2 is 2 · 1.645 · .6425 wide, and covers what was drawn from the exact posterior."""
    low, high = np.quantile(sampled(sensor(0, 1.0, 0.3))[:, 1], [0.05, 0.95])
    assert abs(high - low - 2 * 1.645 * np.sqrt(0.4128)) < 0.1
    drawn = np.random.default_rng(3).normal(0.7339, np.sqrt(0.4128), 4000)
    assert 0.86 < ((drawn > low) & (drawn < high)).mean() < 0.94


@exact
def the_commands_say_the_same() -> None:
    """Files: a prior in a folder and a table of readings give the exact means; a source can be left out."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = fields(400, rng)
        pl.DataFrame(rows, schema=NAMES).write_parquet(place / "fields.parquet")
        told = fit_prior(place / "fields.parquet", place / "prior", "gaussian")
        assert (told["rows"], told["columns"]) == (400, NAMES)
        table = readings(fields(1, rng), rng)
        table.write_csv(place / "readings.csv")
        for only in ((), ("points",)):
            found = fuse_readings(place / "prior", place / "readings.csv", only=only, samples=400)
            sources = read_sources(table, NAMES, only)["0"]
            assert len(sources) == (2 if only else 4)
            mean, covariance = kalman_fuse(rows.mean(0), np.cov(rows.T, bias=True) + 1e-9 * np.eye(CELLS), sources)
            assert np.abs(found["mean"].to_numpy() - mean).max() < 0.2
            assert np.abs(found["sd"].to_numpy() - np.sqrt(covariance.diagonal())).max() < 0.15


@reproduction(
    153,
    claim="A field is recovered better from both kinds of sensors than from one of them, by one prior.",
    baseline="the same prior with the averages alone, with the points alone; a normal prior with both",
    criterion="root mean square error of both at most .7 of the better single kind's; 90 % intervals cover .8 to .97",
    seeds=(40, 41),
    slow=True,
    name="both_sensors",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Root mean square errors, and the share of cells inside the 90 % interval."""
    errors: dict[str, list[float]] = {"averages": [], "points": [], "both": [], "normal": []}
    covered = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            weather(seed, place)
            fit_prior(place / "fields.parquet", place / "normal", "gaussian")
            truth = np.array(json.loads((place / "truth.json").read_text())).ravel()
            for name, every in errors.items():
                prior = place / ("normal" if name == "normal" else "prior")
                only = (name,) if name in AVERAGES else ()
                found = fuse_readings(prior, place / "readings.csv", only=only, samples=100, steps=60)
                every.append(float(((found["mean"].to_numpy() - truth) ** 2).mean()))
                if name == "both":
                    inside = (found["low"].to_numpy() < truth) & (truth < found["high"].to_numpy())
                    covered.append(float(inside.mean()))
    measured = {name: float(np.sqrt(np.mean(every))) for name, every in errors.items()}
    measured["covered"] = float(np.mean(covered))
    fine = measured["both"] <= 0.7 * min(measured["averages"], measured["points"])
    return Outcome(measured, fine and 0.8 <= measured["covered"] <= 0.97)
