"""Teams as data: who was worth what, how many are different, what coordination costs, when a team can help at all."""

from palaestra.agents.allocation import allocate
from palaestra.evaluation.teamwork.attribution import cosine_contribution, hindsight_credit, importance_flow
from palaestra.evaluation.teamwork.auctions import Weights, award, contrast, fit_weights
from palaestra.evaluation.teamwork.collaboration import collaboration_gap, order_effect
from palaestra.evaluation.teamwork.composition import (
    competitive_ratio,
    compose,
    offline,
    retrieve,
    threshold,
    threshold_knapsack,
)
from palaestra.evaluation.teamwork.contest import contest, factor_reward, recent_scores
from palaestra.evaluation.teamwork.coordination import coordination, flips, turn_law
from palaestra.evaluation.teamwork.decisions import action_quality, decision_quality
from palaestra.evaluation.teamwork.designs import Surrogate, climb, guided_search, propose, training_designs
from palaestra.evaluation.teamwork.diversity import (
    added_channels,
    channels,
    diverse_members,
    effective_channels,
    vote_accuracy,
)
from palaestra.evaluation.teamwork.edges import EdgeScores
from palaestra.evaluation.teamwork.modules import (
    coalition_table,
    module_interactions,
    module_utility,
    module_values,
    removals,
)
from palaestra.evaluation.teamwork.personas import (
    contains_any,
    persona_turns,
    scored_personas,
    set_recall,
    transcript,
)
from palaestra.evaluation.teamwork.price import (
    best_of_n,
    best_settings,
    cheapest,
    cost_at_score,
    cost_over_levels,
    economy,
    play_cost,
    score_at_cost,
    workflow_cost,
)
from palaestra.evaluation.teamwork.scaling_law import ScalingLaw, advise
from palaestra.evaluation.teamwork.synergy import (
    BestTeam,
    Synergy,
    averaging_floor,
    best_team,
    best_tree,
    majority_gain,
    synergy,
    tree_signal,
    tree_step,
)

__all__ = [
    "BestTeam",
    "EdgeScores",
    "ScalingLaw",
    "Surrogate",
    "Synergy",
    "Weights",
    "action_quality",
    "added_channels",
    "advise",
    "allocate",
    "averaging_floor",
    "award",
    "best_of_n",
    "best_settings",
    "best_team",
    "best_tree",
    "channels",
    "cheapest",
    "climb",
    "coalition_table",
    "collaboration_gap",
    "competitive_ratio",
    "compose",
    "contains_any",
    "contest",
    "contrast",
    "coordination",
    "cosine_contribution",
    "cost_at_score",
    "cost_over_levels",
    "decision_quality",
    "diverse_members",
    "economy",
    "effective_channels",
    "factor_reward",
    "fit_weights",
    "flips",
    "guided_search",
    "hindsight_credit",
    "importance_flow",
    "majority_gain",
    "module_interactions",
    "module_utility",
    "module_values",
    "offline",
    "order_effect",
    "persona_turns",
    "play_cost",
    "propose",
    "recent_scores",
    "removals",
    "retrieve",
    "score_at_cost",
    "scored_personas",
    "set_recall",
    "synergy",
    "threshold",
    "threshold_knapsack",
    "training_designs",
    "transcript",
    "tree_signal",
    "tree_step",
    "turn_law",
    "vote_accuracy",
    "workflow_cost",
]
