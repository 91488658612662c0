"""Reproductions of the family of teams."""
