"""Reproductions of evaluation."""
