"""Rewards: signals that score turns. The first ones; shaping, rubrics and audits have their own files as they come."""

from palaestra.rewards.basic import penalty_invalid, success_reward

__all__ = ["penalty_invalid", "success_reward"]
