"""[116] Iterative agent decoding (arXiv 2504.01931): keep the best answer and change it, or draw n and choose.

Twelve parts, each right half of the time; a change redraws some of them, wrong ones rather if the feedback is faithful.
All through the workflow `refine` with its three conditions and verifiers with and without noise. A reconstruction: the
paper's code is not public. Left out: critiques in words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import best_of_n
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, reproduction

PARTS, TRIES, TASKS, REDRAWN, FAITHFUL = 12, 16, 60, 0.25, 0.8
WORKED = {(1.0, 0.0): (0.51, 0.76, 0.94), (0.8, 0.2): (0.425, 0.551, 0.619), (0.6, 0.4): (0.34, 0.376, 0.389)}


class Parts(TaskEnv):
    """Every part should be 1; who answers does not know it."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "twelve parts", lambda text: text.count("1") / PARTS, None)


def played(condition: str, fidelity: float, noise: float, seed: int) -> float:
    """Mean score of the answer that is chosen."""

    def say(request: Request) -> str:
        _, *own = request.observation.text.split(" | ")
        fresh = request.rng.random(PARTS) < 0.5
        if not own:
            return "".join("01"[int(part)] for part in fresh)
        before = np.array([part == "1" for part in own[0]])
        chance = REDRAWN * (1 - fidelity) + fidelity * ~before * 2 * REDRAWN
        changed = np.where(request.rng.random(PARTS) < chance, fresh, before)
        return "".join("01"[int(part)] for part in changed)

    env = workflows.refine(Parts, TRIES, condition=condition, stop="never()", verifier=f"noisy({noise})")
    turns = rollout(env, Team(solver=ScriptedPolicy(say, name="s")), groups=TASKS, seed=seed, timeout=None).frame
    return float(turns.sort("turn").group_by("group").last()["reward"].mean())  # type: ignore[arg-type]


@reproduction(
    116,
    claim="With faithful feedback and an exact verifier, to change the best answer so far beats changing the last one, "
    "and both beat best-of-n; with a verifier that is mostly noise, choosing by it loses to just going on.",
    baseline="best-of-n with as many tries; self-refinement without selection",
    criterion="mean over seeds, 16 tries: at fidelity .8 best > last > none by 0.02 each, exactly verified; at noise "
    ".3 last > best by 0.02; without feedback best > last by 0.1; worked curves of best-of-n to 0.003",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Conditions, feedback, noise."""
    cases = [(c, FAITHFUL, noise) for c in ("none", "last", "best") for noise in (0.0, 0.3)]
    cases += [("last", 0.0, 0.0), ("best", 0.0, 0.0)]
    found = {case: float(np.mean([played(*case, seed) for seed in seeds])) for case in cases}
    exact = max(
        abs(best_of_n(0.3, n, tpr=tpr, fpr=fpr) - value)
        for (tpr, fpr), row in WORKED.items() for n, value in zip((2, 4, 8), row, strict=True)
    )  # fmt: skip
    measured = {f"{c}_f{fidelity}_n{noise}": value for (c, fidelity, noise), value in found.items()}
    clear = found["best", FAITHFUL, 0.0] >= found["last", FAITHFUL, 0.0] + 0.02 >= found["none", FAITHFUL, 0.0] + 0.04
    crossed = found["last", FAITHFUL, 0.3] >= found["best", FAITHFUL, 0.3] + 0.02
    blind = found["best", 0.0, 0.0] >= found["last", 0.0, 0.0] + 0.1
    return Outcome(measured | {"curve_off": exact}, clear and crossed and blind and exact < 0.003)
