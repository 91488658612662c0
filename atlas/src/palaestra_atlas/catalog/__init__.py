"""Reproductions: one file per system, in a folder per family."""
