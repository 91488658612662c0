"""Stages: what stands between play and learning."""
