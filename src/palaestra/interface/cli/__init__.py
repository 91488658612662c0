"""The command line. Results go to stdout, progress and errors to stderr; exit codes: 0 done, 1 failure, 2 bad input.

A command lives in a file of its own and joins by being imported here.
"""

from palaestra.interface.cli import (
    analyze,
    apply,
    attack,
    audit,
    audit_judge,
    evaluate,
    export,
    fit_reward,
    judge,
    names,
    prior,
    rank,
    solve,
    train,
    triage,
)
from palaestra.interface.cli.app import main

__all__ = [
    "analyze",
    "apply",
    "attack",
    "audit",
    "audit_judge",
    "evaluate",
    "export",
    "fit_reward",
    "judge",
    "main",
    "names",
    "prior",
    "rank",
    "solve",
    "train",
    "triage",
]
