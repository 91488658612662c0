"""Reproductions of rewards."""
