"""Rewards: signals that score turns. The first ones; shaping, rubrics and audits have their own files as they come."""

from palaestra.rewards.basic import penalty_invalid, success_reward
from palaestra.rewards.graded import (
    block_share,
    edge_closeness,
    gui_g1_reward,
    hit,
    iou,
    milestones,
    ml_engineering_reward,
    sweet_spot,
    tier,
)

__all__ = [
    "block_share",
    "edge_closeness",
    "gui_g1_reward",
    "hit",
    "iou",
    "milestones",
    "ml_engineering_reward",
    "penalty_invalid",
    "success_reward",
    "sweet_spot",
    "tier",
]
