"""Audits: what can be known of a reward from a table of play, before anything is trained on it.

Each returns a `Finding`: a verdict, a sentence, numbers, and the rows that prove it. `audit` runs all of them on a
table; `cheap` is what `palaestra train` runs on its first batch. `starc`, `epic` and `dard` compare rewards exactly,
where the transition probabilities are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, PalaestraError, nearest
from palaestra.evaluation.audits.components import (
    component_columns,
    component_farming,
    component_sum,
    reward_shares,
    scale_sensitivity,
)
from palaestra.evaluation.audits.cycles import cycle_gain, max_mean_cycle
from palaestra.evaluation.audits.distance import (
    canonical_on_table,
    canonicalise,
    dard,
    epic,
    optimal_policy,
    regret,
    starc,
    table_starc,
)
from palaestra.evaluation.audits.finding import Finding, per_turn, require
from palaestra.evaluation.audits.order import compare_rewards, order_audit, value_order_correlation
from palaestra.evaluation.audits.outcome import outcome_audit
from palaestra.evaluation.audits.repeats import insert_copies, repeat_insertion
from palaestra.evaluation.audits.telescoping import telescopes

__all__ = [
    "AUDITS",
    "LOOKED_AT",
    "Finding",
    "audit",
    "canonical_on_table",
    "canonicalise",
    "cheap",
    "compare_rewards",
    "component_columns",
    "component_farming",
    "component_sum",
    "cycle_gain",
    "dard",
    "epic",
    "insert_copies",
    "max_mean_cycle",
    "optimal_policy",
    "order_audit",
    "outcome_audit",
    "regret",
    "repeat_insertion",
    "reward_shares",
    "scale_sensitivity",
    "starc",
    "table_starc",
    "telescopes",
    "value_order_correlation",
]

AUDITS: dict[str, Callable[..., Finding]] = {
    "telescoping": telescopes,
    "repeats": repeat_insertion,
    "cycles": cycle_gain,
    "scale": scale_sensitivity,
    "order": order_audit,
    "outcome": outcome_audit,
    "farming": component_farming,
}
LOOKED_AT = (
    "run", "iteration", "group", "episode", "turn", "agent", "state", "action", "reward", "success", "truncated",
)  # fmt: skip
"""Columns that audits look at besides components and what a reward reads."""
DISCOUNTED = ("telescoping", "repeats", "cycles", "order", "outcome", "distance")


def audit(
    turns: Turns,
    reward: Signal,
    *,
    gamma: float = 1.0,
    only: tuple[str, ...] = (),
    against: Signal | Sequence[Signal] | None = None,
    canonical: bool = True,
) -> list[Finding]:
    """List of `Finding`: all audits (or those in `only`) of a reward `Signal` on `Turns`; `distance` to `against`.

    An audit that lacks a column, or on whose made-up play the reward fails, says so, and the others go on. gamma: of
    the return that is learned from, and so of shaping. against: one reward or several; of several each `distance`
    names the one that it is to. canonical: False compares with the others as they are.

    Raises:
        InputError: an unknown audit, or an empty table.
        MissingColumnError, RewardError, ExpressionError: a reward fails on the table itself.
    """
    others = (against,) if isinstance(against, Signal) else tuple(against or ())
    for name in only:
        if name not in AUDITS and not (name == "distance" and others):
            raise InputError(f"audit {name!r} is unknown{nearest(name, AUDITS)}")
    require(turns)
    for signal in (reward, *others):
        for name in sorted(signal.needs()):
            turns._require(name, f"{signal}: ")
        per_turn(turns, signal)
    chosen = [(name, partial(AUDITS[name], turns, reward)) for name in only or AUDITS if name in AUDITS]
    for other in others:
        chosen.append(("distance", partial(compare_rewards, turns, reward, other, canonical=canonical)))
    findings = []
    for name, run in chosen:
        try:
            findings.append(run(gamma=gamma) if name in DISCOUNTED else run())
        except PalaestraError as error:
            findings.append(Finding(name, "cannot tell", str(error)))
    if len(others) > 1:
        named = [
            replace(found, sentence=f"{other}: {found.sentence}")
            for other, found in zip(others, findings[-len(others) :])
        ]
        findings[-len(others) :] = named
    return findings


def cheap(turns: Turns, reward: Signal) -> list[Finding]:
    """List of failed `Finding`s of a reward `Signal` on `Turns` by two cheap audits, for training: repeats, cycles."""
    return [finding for finding in audit(turns, reward, only=("repeats", "cycles")) if finding.verdict == "fail"]
