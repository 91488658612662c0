"""How good is a scorer? Protocols of benchmarks, agreement beyond chance, and what a metric predicts.

Whether a judge can be trusted at all is in `palaestra.evaluation.audits.judges`.
"""

from palaestra.evaluation.scorers.agreement import cohen_kappa, krippendorff_alpha
from palaestra.evaluation.scorers.files import read_scores
from palaestra.evaluation.scorers.groups import (
    best_of_k_accuracy,
    comparisons,
    pair_accuracy,
    protocols,
    reciprocal_rank,
    strict_accuracy,
)
from palaestra.evaluation.scorers.rewardbench import DOMAINS, TiesScore, domain_scores, ties_score
from palaestra.evaluation.scorers.verdict_table import Confusion, confusion, rank_correlation

__all__ = [
    "DOMAINS",
    "Confusion",
    "TiesScore",
    "best_of_k_accuracy",
    "cohen_kappa",
    "comparisons",
    "confusion",
    "domain_scores",
    "krippendorff_alpha",
    "pair_accuracy",
    "protocols",
    "rank_correlation",
    "read_scores",
    "reciprocal_rank",
    "strict_accuracy",
    "ties_score",
]
