"""Statistics of proof: trials, intervals, paired differences, what systems can and how reliably, and who is better.

Rankings are in `palaestra.evaluation.ranking`.
"""

from palaestra.evaluation.aggregates import (
    bootstrap_interval,
    improvement_interval,
    interquartile_mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    score_matrix,
)
from palaestra.evaluation.calibration import Calibration, calibration, calibration_pvalue
from palaestra.evaluation.comparison import SystemResult, advice, changed_tasks, comparison_table, holm, verdict
from palaestra.evaluation.consistency import consistency, outcome_consistency, resource_consistency, sequence_similarity
from palaestra.evaluation.difference import Difference, paired_difference, sign_flip_pvalue
from palaestra.evaluation.dominance import (
    cost_per_success,
    eum,
    frontier,
    hypervolume,
    nondominated,
    pareto,
    scalarise,
    simplex_weights,
)
from palaestra.evaluation.intervals import Estimate, mean_interval, pass_at_k, pass_hat_k, success_interval
from palaestra.evaluation.pivot import matrix_table, wide
from palaestra.evaluation.power import (
    detectable_difference,
    mcnemar_power,
    mcnemar_tasks,
    more_units,
    runs_needed,
    t_power,
)
from palaestra.evaluation.reducers import RunSpread, k_estimate, per_task, run_spread
from palaestra.evaluation.robustness import (
    Robustness,
    call_robustness,
    gated_score,
    robustness,
    safety_score,
    sensitivity,
)
from palaestra.evaluation.sequences import divergences, first_divergence, sequence_tests
from palaestra.evaluation.sequential import first_significant
from palaestra.evaluation.trials import trials
from palaestra.evaluation.variance import variance_components

__all__ = [
    "Calibration",
    "Difference",
    "Estimate",
    "Robustness",
    "RunSpread",
    "SystemResult",
    "advice",
    "bootstrap_interval",
    "calibration",
    "calibration_pvalue",
    "call_robustness",
    "changed_tasks",
    "comparison_table",
    "consistency",
    "cost_per_success",
    "detectable_difference",
    "divergences",
    "eum",
    "first_divergence",
    "first_significant",
    "frontier",
    "gated_score",
    "holm",
    "hypervolume",
    "improvement_interval",
    "interquartile_mean",
    "k_estimate",
    "matrix_table",
    "mcnemar_power",
    "mcnemar_tasks",
    "mean_interval",
    "more_units",
    "nondominated",
    "optimality_gap",
    "outcome_consistency",
    "paired_difference",
    "pareto",
    "pass_at_k",
    "pass_hat_k",
    "per_task",
    "performance_profile",
    "probability_of_improvement",
    "resource_consistency",
    "robustness",
    "run_spread",
    "runs_needed",
    "safety_score",
    "scalarise",
    "score_matrix",
    "sensitivity",
    "sequence_similarity",
    "sequence_tests",
    "sign_flip_pvalue",
    "simplex_weights",
    "success_interval",
    "t_power",
    "trials",
    "variance_components",
    "verdict",
    "wide",
]
