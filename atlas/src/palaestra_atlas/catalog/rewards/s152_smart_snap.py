"""[152] SmartSnap (arXiv 2512.22322): an agent that submits its evidence learns to submit little, and the right rows.

The world `sieve`: twelve rows; one shows the final state, two come near, nine are something else, and every row is kept
or left. By the recipe `world` with the stage `judge`: three votes that see the kept rows alone, on whether they prove
success and whether they are evidence at all, scripted, each with 5 % error and failing at times. Three pieces are free,
so that a second row does no harm; with a price on every piece only the decisive row is left. Left out: real screens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.rewards.match.evidence import semi_join
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

LATE = 10


def verifier(*words: str) -> dict[str, Any]:
    """A scripted judge who looks for these words."""
    options = {"words": list(words), "tag": "VERDICT", "errs": 0.05, "silent": 0.02}
    return {"kind": "script", "options": {"script": "palaestra.judges.scripted:mentions", **options}}


def votes(name: str, question: str) -> str:
    """The stage that asks one of them three times, shown the evidence alone."""
    return f'judge("{name}", question="{question}", policy="{name}", evidence="evidence", votes=3)'


VOTES = 'success="judge.success.success.votes", valid="judge.valid.valid.votes"'
WORLD: dict[str, Any] = {
    "env": {
        "make": "native/sieve",
        "options": {"rows": {"proof": 1, "near": 2, "other": 9}, "accuracy": 1, "worked": 0.7},
    },
    "policies": {"success": verifier("proof, it worked"), "valid": verifier("proof")},
    "stages": [votes("success", "Does this prove that it worked?"), votes("valid", "Is this evidence at all?")],
    "train": {"iterations": 60},
}
ARMS = {
    "published": {**WORLD, "reward": f'smart_snap_reward("evidence", {VOTES})'},
    "every_piece": {**WORLD, "reward": f'smart_snap_reward("evidence", {VOTES}, free=0)'},
}


def submitted(learned: TrainingResult) -> dict[str, float]:
    """Rows that the trained policy submits, share of them that is decisive, share of the text that a judge is shown."""
    turns = learned.play(groups=100, seed=1)
    ended = turns.frame.filter(pl.col("tool") == "submit")
    decisive = ended["evidence"].list.set_intersection(ended["gold"]).list.len().to_numpy().sum()
    pieces = ended["evidence"].list.len().to_numpy().sum()
    return {
        "rows": float(pieces / len(ended)),
        "precision": float(decisive / max(pieces, 1)),
        "shown": len(semi_join(turns)) / len(turns),
    }


@reproduction(
    152,
    claim="Judged on the evidence that it submits, at a price per piece, an agent learns to submit the decisive row.",
    baseline="the whole trajectory as evidence; and a price on the first three pieces as well",
    criterion="in every seed at most 3 rows are submitted and the reward is above 0.5 at the end; the judge is "
    "shown at most a fifth of the rows; with a price on every piece the precision is at least 0.9 (so in both fresh "
    "blocks of three that were tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """What is submitted after training."""
    paid: dict[str, list[float]] = {name: [] for name in ARMS}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        paid[arm].append(float(turns.frame.filter(pl.col("tool") == "submit")["reward"].mean()))  # type: ignore[arg-type]

    arms = train_arms("world", ARMS, seeds, submitted, on_turns=watch)
    ends = {name: np.reshape(each, (len(seeds), -1))[:, -LATE:].mean(axis=1) for name, each in paid.items()}
    measured = arms.measured() | {f"reward_{name}": float(each.mean()) for name, each in ends.items()}
    ours, strict = arms.values["published"], arms.values["every_piece"]
    good = (ours["rows"] <= 3).all() and (ours["shown"] <= 0.2).all() and (ends["published"] > 0.5).all()
    return Outcome(measured, bool(good and (strict["precision"] >= 0.9).all()))
