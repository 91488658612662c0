"""Score models: a prior learned from samples by denoising, and its fusion with what several sources read.

A judge of an ensemble is a source as a sensor is: it reads some of the coordinates, with a noise of its own.
"""

from palaestra.learning.score_models.denoising import (
    NoiseSchedule,
    ScoreFit,
    ScoreModel,
    denoising_losses,
    denoising_target,
)
from palaestra.learning.score_models.fusion import Source, fuse, kalman_fuse, posterior_samples
from palaestra.learning.score_models.prior import GaussianScore, Prior

__all__ = [
    "GaussianScore",
    "NoiseSchedule",
    "Prior",
    "ScoreFit",
    "ScoreModel",
    "Source",
    "denoising_losses",
    "denoising_target",
    "fuse",
    "kalman_fuse",
    "posterior_samples",
]
