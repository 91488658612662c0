"""[176] Lanser-CLI (report of 24 October 2025): the published formula pays for breaking and fixing, its potential not.

A toy repository of twelve modules, some broken. A fixer repairs one a turn and is done; an oscillator breaks three and
repairs them, for ever; a breaker breaks. As published, safety is paid again every turn: who never ends wins. (A fixer
that idles to the end gets 18 to the oscillator's 16: it is the length that is paid, not the loop.) Diagnostics are
counted by `PythonSyntax`, so that no server is needed; the tests use real ones. Left out: a model that edits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.cycles import cycle_gain
from palaestra.judges import PythonSyntax, check_turns
from palaestra.rewards.shaping.diagnostics import lanser_reward
from palaestra_atlas.reproductions import Outcome, reproduction

MODULES, BROKEN, TURNS = 12, 4, 40
SOUND, UNSOUND = "x = 1\n", "x = (\n"
FORMS: dict[str, Signal] = {"published": lanser_reward(form="published"), "potential": lanser_reward()}
WORKED = (((5, 2, 1, 0.94), 1.894), ((3, 2, 1, 0.72), 0.872), ((7, 7, 0, 0.62), -0.038))


def edits(policy: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """bool[modules] before, bool[turns, modules] after each turn: which modules are broken."""
    broken = np.zeros(MODULES, bool)
    broken[rng.permutation(MODULES)[:BROKEN]] = True
    start, after = broken.copy(), []
    loop = rng.permutation(np.flatnonzero(~broken))[:3]
    for turn in range(TURNS):
        if policy == "fixer" and not broken.any():
            break
        if policy == "fixer":
            broken[rng.choice(np.flatnonzero(broken))] = False
        elif policy == "oscillator":
            broken[loop] = turn % 2 == 0
        elif policy == "breaker" and not broken.all():
            broken[rng.choice(np.flatnonzero(~broken))] = True
        after.append(broken.copy())
    return start, np.array(after)


def workspace(broken: np.ndarray) -> dict[str, str]:
    """Modules by path."""
    return {f"module_{number}.py": UNSOUND if bad else SOUND for number, bad in enumerate(broken)}


def played(policy: str, seed: int) -> Turns:
    """The turns of one episode, with the facts."""
    start, after = edits(policy, np.random.default_rng(seed))
    states = [int(np.packbits(row).view(np.uint16)[0]) for row in np.vstack([start, after[:-1]])]
    n = len(after)
    table = {"episode": [0] * n, "turn": range(n), "agent": [policy] * n, "state": states}
    files = [json.dumps(workspace(row)) for row in after]
    return check_turns(Turns(table | {"files": files}), PythonSyntax(), start=workspace(start))


@reproduction(
    176,
    claim="With levels in the reward a loop of breaking and fixing beats repairing once; the potential form pays it "
    "nothing.",
    baseline="the formula as published",
    criterion="worked examples to 1e-9; published: best loop .4 a step and the oscillator's 40 turns at least as "
    "good as the fixer's, in every seed; potential: the loop 0, fixer above oscillator above breaker",
    seeds=tuple(range(5)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked examples, loops, and the order of three policies."""
    names = ("diagnostics_before", "diagnostics", "safe", "confidence")
    error = 0.0
    for facts, expected in WORKED:
        turns = Turns({"episode": [0]} | {name: [value] for name, value in zip(names, facts, strict=True)})
        error = max(error, abs(float(np.asarray(FORMS["published"].evaluate(turns))[0]) - expected))
    tables = {policy: [played(policy, seed) for seed in seeds] for policy in ("fixer", "oscillator", "breaker")}
    measured, returns = {"worked_error": error}, {}
    for form, reward in FORMS.items():
        loops = [cycle_gain(turns, reward).numbers for turns in tables["oscillator"]]
        measured |= {f"loop_{form}": float(np.mean([loop["gain_per_lap"] / loop["length"] for loop in loops]))}
        for policy, played_by in tables.items():
            sums = np.array([np.asarray(reward.evaluate(turns)).sum() for turns in played_by])
            returns[form, policy] = sums
            measured[f"return_{form}_{policy}"] = float(sums.mean())
    holds = error <= 1e-9 and abs(measured["loop_published"] - 0.4) < 1e-9 and abs(measured["loop_potential"]) < 1e-9
    holds &= bool((returns["published", "oscillator"] >= returns["published", "fixer"]).all())
    order = [returns["potential", policy] for policy in ("fixer", "oscillator", "breaker")]
    return Outcome(measured, bool(holds and (order[0] > order[1]).all() and (order[1] > order[2]).all()))
