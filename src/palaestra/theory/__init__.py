"""Exact game theory: what a policy is worth, and what the best reply to it would gain."""

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

__all__ = [
    "InformationState",
    "average_policy",
    "best_response_values",
    "expected_returns",
    "exploitability",
    "information_states",
    "nash_conv",
    "policy_table",
    "team_optimum",
    "uniform_policy",
]
