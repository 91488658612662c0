"""Debate as reward: what can be argued for in front of a judge, by evidence that both sides choose."""

from __future__ import annotations

from typing import Literal

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.exact.debate import at_random, greedy, minimax, one_sided
from palaestra.errors import InputError, nearest
from palaestra.learning.stages.stage import Context, Stage, stage

PLAYS = ("minimax", "greedy", "random", "one_sided")


@stage
class debate(Stage):
    """Stage: column `debate_won`, 1 where the decision wins a game of revealing evidence whose sum decides, else 0.

    Source: arXiv 2402.15826 [162]. The game is played by rules, without a model; the evidence is the column `lead`.

    `length` pieces of evidence are revealed, in turn by a side for the decision and one for its alternative; the judge
    sums them. Who begins is drawn. play: both sides at their best ("minimax", at most 12 pieces), each its strongest
    piece ("greedy"), and for comparison pieces at random, or all by the side for the decision ("one_sided"). A draw is
    not won. The paper's reward, λ = .25: `0.75 * reward + 0.25 * 10 * col("debate_won")`.

    Args:
        lead: a column of lists of one length, how much each piece speaks for the decision: what the judge's score of it
            gains over that of the alternative.

    Raises:
        InputError: length is not above 0, or more than there are pieces; play is unknown.
    """

    adds = {"debate_won": "the turn's decision wins the debate about it"}

    def __init__(
        self,
        lead: str = "lead",
        *,
        length: int = 4,
        play: Literal["minimax", "greedy", "random", "one_sided"] = "minimax",
    ) -> None:
        if length < 1 or play not in PLAYS:
            raise InputError(f"debate: length={length} must be above 0, play={play!r}{nearest(str(play), PLAYS)}")
        self.lead, self.length, self.play, self.needs = lead, length, play, {lead}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `debate_won`; null where there is no evidence."""
        known = turns.frame[self.lead].is_not_null().to_numpy()
        rows, case = np.unique(np.array(turns.frame[self.lead].drop_nulls().to_list()), axis=0, return_inverse=True)
        won = np.full(len(turns), np.nan)
        if len(rows):
            first = context.rng.random(int(known.sum())) < 0.5
            won[known] = self._outcome(rows, case.reshape(-1), first, context.rng) > 0
        return turns.with_column(debate_won=won)

    def _outcome(self, rows: np.ndarray, case: np.ndarray, first: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.play == "random":
            return at_random(rows[case], self.length, rng)
        if self.play == "one_sided":
            return np.asarray(one_sided(rows, self.length)[case])
        solve = minimax if self.play == "minimax" else greedy
        mine, theirs = (solve(rows, self.length, first=begins)[case] for begins in (True, False))
        return np.asarray(np.where(first, mine, theirs))
