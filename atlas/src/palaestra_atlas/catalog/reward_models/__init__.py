"""Reproductions of reward models, judges and the loops around them."""
