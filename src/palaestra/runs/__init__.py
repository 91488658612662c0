"""Runs: a recipe, resolved once at the door into objects; seeds in parallel; the proof."""
