"""Exact game theory: what a policy is worth, what the best reply to it would gain, and which strategies last."""

from palaestra.theory.alpha_rank import alpha_rank, marginals
from palaestra.theory.exploitability import (
    InformationState,
    average_policy,
    best_response_values,
    expected_returns,
    exploitability,
    information_states,
    nash_conv,
    policy_table,
    team_optimum,
    uniform_policy,
)
from palaestra.theory.nash_averaging import NashAverage, nash_averaging, scale_tasks
from palaestra.theory.stationary import stationary_distribution

__all__ = [
    "InformationState",
    "NashAverage",
    "alpha_rank",
    "average_policy",
    "best_response_values",
    "expected_returns",
    "exploitability",
    "information_states",
    "marginals",
    "nash_averaging",
    "nash_conv",
    "policy_table",
    "scale_tasks",
    "stationary_distribution",
    "team_optimum",
    "uniform_policy",
]
