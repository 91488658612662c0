"""Terms of objectives: pure functions of log-probabilities, advantage and columns, added up by a learner.

Write your own as a function that returns a `Term`, and register it with `TERMS.register()`; see docs/learning.md.
"""

from palaestra.learning.objective import TERMS, Term, objective
from palaestra.learning.terms.boosted import boosted
from palaestra.learning.terms.correction import corrected
from palaestra.learning.terms.guarded import stable
from palaestra.learning.terms.heads import ValueHead, auxiliary, value
from palaestra.learning.terms.held import pinned
from palaestra.learning.terms.imitation import clone, cpo, dpo, ipo, kto, orpo, simpo
from palaestra.learning.terms.latents import information, latent_information, task_classifier
from palaestra.learning.terms.ratio_regression import ratio_regression
from palaestra.learning.terms.regularisers import corridor, entropy, kl
from palaestra.learning.terms.surrogates import (
    cispo,
    clip_cov,
    dppo,
    dro,
    gmpo,
    gpg,
    gspo,
    kl_cov,
    luspo,
    reinforce,
    rloo,
    sapo,
    surrogate,
    vespo,
)
from palaestra.learning.terms.term import MicroBatch, Step

__all__ = [
    "TERMS",
    "MicroBatch",
    "Step",
    "Term",
    "ValueHead",
    "auxiliary",
    "boosted",
    "cispo",
    "clip_cov",
    "clone",
    "corrected",
    "corridor",
    "cpo",
    "dpo",
    "dppo",
    "dro",
    "entropy",
    "gmpo",
    "gpg",
    "gspo",
    "information",
    "ipo",
    "kl",
    "kl_cov",
    "kto",
    "latent_information",
    "luspo",
    "objective",
    "orpo",
    "pinned",
    "ratio_regression",
    "reinforce",
    "rloo",
    "sapo",
    "simpo",
    "stable",
    "surrogate",
    "task_classifier",
    "value",
    "vespo",
]
