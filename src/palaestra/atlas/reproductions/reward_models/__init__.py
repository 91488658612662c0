"""Reproductions of the family of reward models, preferences and judges."""
