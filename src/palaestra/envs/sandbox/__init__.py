"""Untrusted programs in a process of their own: no network, no files, limited CPU, memory, time and output.

Rewards that a model wrote, and what an agent has a tool run.

A program is looked at first (`screen`: imports, names, attributes), then run in a worker that has locked itself in
(`confine`). What it does, whatever it does, is an `CallOutcome`. Left out: languages other than Python, and platforms
other than Linux, where programs are refused.
"""

from palaestra.envs.sandbox.process import CallOutcome, Limits, containment, run_program, run_table
from palaestra.envs.sandbox.screen import MODULES, ScreenFinding, read, screen

__all__ = [
    "MODULES",
    "CallOutcome",
    "Limits",
    "ScreenFinding",
    "containment",
    "read",
    "run_program",
    "run_table",
    "screen",
]
