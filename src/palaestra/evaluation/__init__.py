"""Statistics of proof: trials, intervals, paired differences, and when an improvement was first significant."""

from palaestra.evaluation.comparison import SystemResult, comparison_table, holm, verdict
from palaestra.evaluation.difference import (
    Difference,
    detectable_difference,
    paired_difference,
    runs_needed,
    sign_flip_pvalue,
)
from palaestra.evaluation.intervals import Estimate, mean_interval, pass_at_k, pass_hat_k, success_interval
from palaestra.evaluation.sequential import first_proof
from palaestra.evaluation.trials import trials

__all__ = [
    "Difference",
    "Estimate",
    "SystemResult",
    "comparison_table",
    "detectable_difference",
    "first_proof",
    "holm",
    "mean_interval",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "runs_needed",
    "sign_flip_pvalue",
    "success_interval",
    "trials",
    "verdict",
]
