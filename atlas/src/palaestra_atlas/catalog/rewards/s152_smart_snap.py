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

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.judges import Item, judge
from palaestra.judges.scripted import mentions
from palaestra.rewards import judge_votes, smart_snap_reward
from palaestra.rewards.match.evidence import semi_join
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

LATE = 30
"""Last iterations whose reward counts. Four tasks in each, 70 % of which can be done: ten would be forty draws."""


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


def submission(
    tools: Sequence[str], evidence: Sequence[int], success: Sequence[float | None], valid: Sequence[float | None]
) -> float:
    """What an episode is paid that called these tools and cited this evidence at its end, by these votes."""
    size = len(tools)
    keys = {"episode": [0] * size, "turn": range(size), "agent": ["a"] * size, "tool": tools}
    cited = pl.Series([None] * (size - 1) + [list(evidence)], dtype=pl.List(pl.Int64))
    kind = pl.List(pl.Float64)
    votes = {
        "success_votes": pl.Series([list(success)] * size, dtype=kind),
        "valid_votes": pl.Series([list(valid)] * size, dtype=kind),
    }
    paid = np.asarray(smart_snap_reward("evidence").evaluate(Turns(keys | {"evidence": cited} | votes)))
    assert (paid[:-1] == 0).all()
    return float(paid[-1])


LOOKED = ["look"] * 7 + ["submit"]
YES, NO = (1.0, 1.0, 0.0), (1.0, 0.0, 0.0)


@exact
def worked() -> None:
    """The card's rewards: 1 for success, .7 with six pieces, 0 for valid evidence without success, else -1."""
    assert submission(LOOKED, [0, 1], YES, YES) == 1.0
    np.testing.assert_allclose(submission(LOOKED, [*range(6)], YES, YES), 0.7)
    assert submission(LOOKED, [0, 1], NO, YES) == 0.0
    assert submission(LOOKED, [0, 1], NO, NO) == -1.0


@exact
def gates() -> None:
    """Nothing submitted, twice, not at the end, or a row that does not exist: -1 whatever the votes."""
    for tools, evidence in (
        (["look"] * 8, [0]), (["submit", *LOOKED[1:]], [0]), (["submit", *["look"] * 7], [0]), (LOOKED, [0, 99]),
    ):  # fmt: skip
        assert submission(tools, evidence, YES, YES) == -1.0, (tools, evidence)


@exact
def majority() -> None:
    """More than half of the votes that came back: one of two is none, and no vote at all is none."""
    assert submission(LOOKED, [0], (1.0, 0.0, None), (1.0, 0.0, None)) == -1.0
    assert submission(LOOKED, [0], (None, None, None), (None, None, None)) == -1.0
    turns = Turns({"votes": [[1.0, 0.0], [1.0, 1.0, 0.0]]})
    np.testing.assert_array_equal(np.asarray(judge_votes("votes").evaluate(turns)), [0, 1])


@exact
def sees_evidence_alone() -> None:
    """A judge is shown the rows that are cited; a proof that is not among them proves nothing."""
    texts = ["a proof", "other", "other", "submit"]
    keys = {"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4, "observation": texts, "action": ["keep"] * 4}
    for cited, verdict in (([1], 0.0), ([0], 1.0)):
        evidence = pl.Series([None] * 3 + [cited], dtype=pl.List(pl.Int64))
        turns = Turns(keys | {"evidence": evidence})
        shown = semi_join(turns)
        asked = ScriptedPolicy(mentions(["proof"], tag="VERDICT"))
        found = judge(turns, [Item("valid", "Is there evidence?")], asked, shown=shown).frame
        assert found["value"].to_list() == [verdict], f"{len(shown)} of {len(turns)} rows were shown"


def rows_read(least: float = 0.8) -> Measure:
    """Rows that the judge reads for each task that was truly done with the decisive row in hand, per seed.

    Not finite if less than the share `least` of the tasks that can be done is done: reading nothing is no gain then.
    """

    def measured(left: Left) -> list[float]:
        alone = "evidence=" in (left.directory / "run" / "recipe.yaml").read_text(encoding="utf-8")
        found = []
        for seed in left.seeds():
            turns = Turns.load(seed / "turns")
            shown = len(semi_join(turns)) if alone else len(turns)
            done = float(turns.frame.filter(pl.col("tool") == "submit")["success"].sum())
            could = turns.frame.filter(pl.col("observation") == "proof, it worked").height
            found.append(shown / done if done >= max(least * could, 1.0) else np.nan)
        return found

    return measured


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
    criterion="in every seed at most 3 rows are submitted and the reward is above 0.5 in the second half of training; "
    "the judge is shown at most a fifth of the rows; with a price on every piece the precision is at least 0.9 (of the "
    "reward the last ten iterations were asked at first, which are forty tasks, and a fresh block of three failed)",
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
