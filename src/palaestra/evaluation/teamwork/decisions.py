"""Decision quality of [144] (arXiv 2511.15755), and whether an answer depends on its question at all.

The score is the released scorer's. What it cannot see is that a system's actions are constants: in the released service
they are written in the source, and by the card of [144] their parts give .4 + .3 · .5567 + .3 · .4167 = .692, with no
variance. So every system is also asked whether its answers
differ between cases, and what it would score on other cases' truths. Left out: judges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

WEIGHTS = (0.4, 0.3, 0.3)
_SPECIFIC = ((("v2.", "version"), 1.0), (("rollback", "auth", "database"), 0.67), (("deployment", "service"), 0.33))
_OVERLAP = ((0.7, 1.0), (0.5, 0.75), (0.3, 0.5), (0.1, 0.25))


def action_quality(actions: Sequence[str], truth: str) -> tuple[float, float, float]:
    """(validity, specificity, correctness), each 0 to 1, of proposed actions against `truth`, by rules on their words.

    Without actions (0, 0, 0).

    validity: there is one. specificity: mean over actions, by what they name. correctness: mean over actions, by the
    share of the truth's words that they have: .7 → 1, .5 → .75, .3 → .5, .1 → .25.

    >>> action_quality(["Rollback auth-service to v2.3.0"], "rollback auth-service to v2.3.0")
    (1.0, 1.0, 1.0)
    """
    if not actions:
        return 0.0, 0.0, 0.0
    gold = _words(truth)
    specific, right = [], []
    for action in actions:
        text = action.casefold()
        specific.append(next((value for words, value in _SPECIFIC if any(word in text for word in words)), 0.0))
        share = len(_words(action) & gold) / max(len(gold), 1)
        right.append(next((value for least, value in _OVERLAP if share >= least), 0.0))
    return 1.0, float(np.mean(specific)), float(np.mean(right))


def decision_quality(frame: pl.DataFrame, *, threshold: float = 0.5) -> pl.DataFrame:
    """Table per system of rows system, case, actions, truth: decision quality, its parts, checks for constant answers.

    With the share above the threshold.

    frame: system, case, actions (a list, or lines of one text), truth. quality = .4 validity + .3 specificity + .3
    correctness. elsewhere: the mean correctness against the truths of all other cases; an honest system is right less
    often there. constant: the same actions for every case (of at least two), in
    whatever order: what it scores is no evidence. variance: of the quality over cases.
    """
    rows = []
    for (system,), own in frame.group_by("system", maintain_order=True):
        said = [_listed(each) for each in own["actions"]]
        truths = own["truth"].cast(pl.String).fill_null("").to_list()
        parts = np.array([action_quality(actions, truth) for actions, truth in zip(said, truths)])
        quality = parts @ WEIGHTS
        others = [
            action_quality(actions, truth)[2]
            for at, actions in enumerate(said)
            for truth in truths
            if truth != truths[at]
        ]
        cases = own["case"].n_unique()
        rows.append(
            {
                "system": system,
                "cases": cases,
                "quality": quality.mean(),
                "validity": parts[:, 0].mean(),
                "specificity": parts[:, 1].mean(),
                "correctness": parts[:, 2].mean(),
                "actionable": (quality > threshold).mean(),
                "variance": quality.var(),
                "elsewhere": float(np.mean(others)) if others else None,
                "constant": cases > 1 and len({tuple(sorted(actions)) for actions in said}) == 1,
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _listed(actions: Any) -> list[str]:
    if isinstance(actions, str):
        return [line.strip() for line in actions.splitlines() if line.strip()]
    return [str(each) for each in actions] if actions is not None else []


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.-]+", text.casefold()))
