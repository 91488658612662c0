"""Shaping: potentials, and rewards that are designed or learned so that a known goal is reached sooner."""
