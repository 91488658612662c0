"""A prior that is learned, kept and read again, and sources that are fused with it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.errors import InputError
from palaestra.learning.score_models import GaussianScore, Prior, Source, kalman_fuse, posterior_samples
from palaestra.learning.score_models.denoising import NoiseSchedule, ScoreModel, denoising_losses
from palaestra.learning.score_models.files import fit_prior, fuse_readings, read_sources


@pytest.fixture
def prior(tmp_path):
    rows = np.random.default_rng(0).multivariate_normal([1.0, -1.0], [[4.0, 1.6], [1.6, 1.0]], size=400)
    pl.DataFrame(rows, schema=["a", "b"]).write_csv(tmp_path / "samples.csv")
    fit_prior(tmp_path / "samples.csv", tmp_path / "prior", "gaussian")
    return tmp_path / "prior"


def test_beliefs_of_a_normal_prior_are_near_the_exact_ones(prior, tmp_path):
    pl.DataFrame({"reads": ["a", "a b"], "value": [3.0, 0.5], "noise": [0.5, 0.3]}).write_csv(tmp_path / "r.csv")
    found = fuse_readings(prior, tmp_path / "r.csv", samples=2000)
    read = [Source(np.array([[1.0, 0.0]]), np.array([3.0]), 0.5), Source(np.full((1, 2), 0.5), np.array([0.5]), 0.3)]
    learned = Prior.load(prior)
    covariance = learned.covariance * np.outer(learned.scale, learned.scale)
    mean, spread = kalman_fuse(learned.centre, covariance, read)
    assert found["mean"].to_numpy() == pytest.approx(mean, abs=0.2)
    assert found["sd"].to_numpy() == pytest.approx(np.sqrt(spread.diagonal()), abs=0.08)
    assert (found["low"] < found["high"]).all()


def test_samples_without_corrections_have_the_spread_of_the_prior() -> None:
    """Langevin steps repair what a denoising step does wrongly; alone it has to be right, up to its hundred steps."""
    covariance, schedule = np.array([[1.0, 0.8], [0.8, 1.5]]), NoiseSchedule()
    score = GaussianScore(np.array([1.0, -0.5]), covariance, schedule)
    found = posterior_samples(score, 4000, 2, np.random.default_rng(0), schedule=schedule, corrections=0)
    np.testing.assert_allclose(found.mean(0), [1.0, -0.5], atol=0.08)
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=0.12)


def test_a_network_is_kept_and_stopped(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    prior = Prior(["a", "b"], hidden=(16, 16))
    fit = prior.fit(rows, steps=60, every=10, patience=2, draws=1)
    assert fit.least == min(fit.losses)
    prior.save(tmp_path)
    again, rng = Prior.load(tmp_path), np.random.default_rng
    assert (again.belief([], 5, rng(0), steps=5) == prior.belief([], 5, rng(0), steps=5)).all()


def test_it_looks_every_so_many_steps_and_after_the_last():
    rows = np.random.default_rng(0).normal(size=(20, 1))
    fit = Prior(["a"], hidden=(4,)).fit(rows, steps=25, every=10, patience=None)
    assert (fit.steps, len(fit.losses)) == (25, 3)
    assert fit.kept == (10, 20, 25)[int(np.argmin(fit.losses))]


@pytest.mark.parametrize("draws", [None, 2])
def test_held_out_samples_are_looked_at_alone_and_the_best_parameters_stay(monkeypatch, draws):
    """Three of ten samples are set aside; the rate is so large that the last step is not the best one."""
    seen: dict[bool, set[float]] = {True: set(), False: set()}
    looks: list[tuple[float, list[torch.Tensor]]] = []

    def losses(score, x0, *others):
        found = denoising_losses(score, x0, *others)
        seen[torch.is_grad_enabled()] |= set(x0.ravel().tolist())
        if not torch.is_grad_enabled():
            looks.append((float(found.mean()), [each.clone() for each in score.network.parameters()]))
        return found

    monkeypatch.setattr("palaestra.learning.score_models.denoising.denoising_losses", losses)
    model, samples = ScoreModel(1, hidden=(4,)), np.arange(10.0)[:, None] / 5 - 1
    fit = model.fit(samples, np.random.default_rng(0), steps=12, every=2, lr=20.0, held_out=0.3, draws=draws)
    assert (len(seen[True]), len(seen[False])) == (7, 3)
    assert not seen[True] & seen[False]
    best = min(range(len(looks)), key=lambda look: looks[look][0])
    assert best < len(looks) - 1
    assert (fit.kept, fit.least) == (2 * best + 2, looks[best][0])
    assert all(torch.equal(one, two) for one, two in zip(model.network.parameters(), looks[best][1], strict=True))


def test_times_are_even_in_their_logarithm() -> None:
    """Half of the times from .005 to 3 are below √(.005 · 3)."""
    times = NoiseSchedule().draw(4000, np.random.default_rng(0)).numpy()
    assert times.min() >= 0.005
    assert times.max() <= 3
    assert np.mean(times < np.sqrt(0.005 * 3)) == pytest.approx(0.5, abs=0.03)


def test_what_cannot_be_read_is_named(prior, tmp_path):
    pl.DataFrame({"reads": ["aa"], "value": [3.0], "noise": [0.5]}).write_csv(tmp_path / "r.csv")
    with pytest.raises(InputError, match="no column 'aa'"):
        fuse_readings(prior, tmp_path / "r.csv")
    with pytest.raises(InputError, match="holds no prior"):
        Prior.load(tmp_path)
    with pytest.raises(InputError, match="noise"):
        Source(np.eye(2)[:1], np.array([1.0]), 0.0)


def test_readings_of_names_with_blanks_of_one_name_twice_and_of_nothing():
    rows = {"reads": ["wind speed", "a a", "a a wind", "a", "a"], "value": [1.0, 2.0, 3.0, None, float("nan")],
            "noise": [0.5] * 5}  # fmt: skip
    (sources,) = read_sources(pl.DataFrame(rows), ["wind speed", "a", "wind"]).values()
    operators = [source.operator.tolist() for source in sources]
    assert operators == [[[1, 0, 0]], [[0, 1, 0]], [[0, pytest.approx(2 / 3), pytest.approx(1 / 3)]]]
    for name, odd in (("value", "high"), ("noise", None), ("noise", "low"), ("weight", "much")):
        wrong = {"reads": ["a"], "value": [1.0], "noise": [0.5], name: [odd]}
        with pytest.raises(InputError, match=f"the {name} of a reading of 'a' is .*, expected a number"):
            read_sources(pl.DataFrame(wrong), ["a"])


def test_a_prior_learns_in_units_of_each_column() -> None:
    """Centre and deviation of the samples; the covariance is that of standardised columns: 1 in the diagonal."""
    rng = np.random.default_rng(1)
    samples = rng.normal(size=(200, 2)) @ np.array([[100.0, 0.005], [0.0, 0.01]])
    prior = Prior(["a", "b"], kind="gaussian")
    prior.fit(samples + 7.0)
    assert prior.centre == pytest.approx(samples.mean(0) + 7.0)
    assert prior.scale == pytest.approx(samples.std(0))
    assert prior.covariance == pytest.approx(np.corrcoef(samples.T))


def test_a_source_may_weigh_nothing_but_has_noise() -> None:
    assert Source(np.eye(1), np.zeros(1), 0.5, weight=0.0).weight == 0
    for noise, weight in ((0.5, -1e-9), (0.0, 1.0)):
        with pytest.raises(InputError, match="Source"):
            Source(np.eye(1), np.zeros(1), noise, weight=weight)


def test_the_loss_of_each_row_is_the_square_of_what_the_noise_was_missed_by() -> None:
    """σ² (s + z / σ)²: 0 for the label itself, z² for a score of 0, on average of the numbers of a row."""
    schedule, times = NoiseSchedule(), torch.tensor([0.1, 1.0], dtype=torch.float64)
    z = torch.tensor([[1.0, 3.0], [-2.0, 0.0]], dtype=torch.float64)
    noise = schedule.noise(times)
    for score, loss in (
        (lambda x, t: -z / noise[:, None], [0, 0]),
        (lambda x, t: 0 * x, [5, 2]),
        (lambda x, t: 1 - z / noise[:, None], noise.square().tolist()),
    ):
        assert denoising_losses(score, torch.ones(2, 2), times, z, schedule).tolist() == pytest.approx(loss)
    seen = []
    denoising_losses(lambda x, t: seen.append(x) or x, torch.full((2, 2), 3.0), times, z, schedule)
    mean, spread = np.exp(-0.1), np.sqrt(1 - np.exp(-0.2))
    assert seen[0][0].tolist() == pytest.approx([3 * mean + spread, 3 * mean + 3 * spread])
