"""Teams as data: who was worth what, how many are different, what coordination costs, when a team can help at all."""

from palaestra.evaluation.teamwork.attribution import cosine_contribution, hindsight_credit, importance_flow
from palaestra.evaluation.teamwork.coordination import coordination, flips, turn_law
from palaestra.evaluation.teamwork.decisions import action_quality, decision_quality
from palaestra.evaluation.teamwork.diversity import channels, effective_channels, vote_accuracy
from palaestra.evaluation.teamwork.personas import (
    contains_any,
    persona_turns,
    scored_personas,
    set_recall,
    transcript,
)
from palaestra.evaluation.teamwork.price import best_of_n, cost_at_score, score_at_cost, workflow_cost
from palaestra.evaluation.teamwork.synergy import (
    Synergy,
    averaging_floor,
    best_tree,
    majority_gain,
    synergy,
    tree_signal,
    tree_step,
)

__all__ = [
    "Synergy",
    "action_quality",
    "averaging_floor",
    "best_of_n",
    "best_tree",
    "channels",
    "contains_any",
    "coordination",
    "cosine_contribution",
    "cost_at_score",
    "decision_quality",
    "effective_channels",
    "flips",
    "hindsight_credit",
    "importance_flow",
    "majority_gain",
    "persona_turns",
    "score_at_cost",
    "scored_personas",
    "set_recall",
    "synergy",
    "transcript",
    "tree_signal",
    "tree_step",
    "turn_law",
    "vote_accuracy",
    "workflow_cost",
]
