"""A rubric that is written in a game while the policy learns from its verdicts ([104])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.foundation.registry import load_object
from palaestra.judges.rubric_game import Planted, Players, RubricGame
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class rubric_game(Stage):
    """Stage: column `verdict`, 1 where a judge finds no fault under a rubric that rounds of `RubricGame` write, else 0.

    Each iteration plays `rounds` of them with the labelled answers of the turns (column `label`, of which at most 200
    that were met last are kept), then judges every turn. Metrics: `rules`, `accuracy` on the turns, `missed`,
    `flipped`.

    Args:
        answer: the column that is judged. players: `module:name` of something that makes `Players` of its own; default
            marks, `Planted`, for columns of lists of whole numbers. rules: the rubric at the start. checked: labelled
            answers per round; 0: adversarial play alone.

    Raises:
        InputError: a number is out of range.
    """

    adds = {"verdict": "the judge finds nothing to blame"}

    def __init__(
        self, answer: str = "marks", *, label: str = "good", players: str | None = None, flaws: int | None = None,
        rules: Sequence[Any] = (), rounds: int = 1, queries: int = 4, checked: int = 4,
    ) -> None:  # fmt: skip
        if rounds < 0:
            raise InputError(f"rubric_game: rounds={rounds} must not be negative")
        if flaws is not None and (flaws < 1 or players is not None):
            raise InputError(f"rubric_game: flaws={flaws} must be at least 1, and none with players of your own")
        planted = Planted() if flaws is None else Planted(tuple(range(flaws)))
        made: Players = planted if players is None else load_object(players, "players")()
        self.answer, self.label, self.rounds, self.checked = answer, label, rounds, checked
        self.game = RubricGame(made, [((), True)], tuple(rules), queries=queries, checked=checked)
        self.game.labelled = []
        self.needs = {answer, label}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `verdict`; null where the judge gave none."""
        answers, labels = turns[self.answer].to_list(), turns[self.label].to_list()
        met = [(answer, bool(good)) for answer, good in zip(answers, labels, strict=True) if None not in (answer, good)]
        self.game.labelled = [*self.game.labelled, *met][-200:]
        for _ in range(self.rounds):
            self.game.round(context.rng)
        found = [
            None if answer is None else self.game.players.judge(self.game.judge, answer, context.rng)
            for answer in answers
        ]
        verdict = np.array([np.nan if each is None else float(each[0]) for each in found])
        context.spent.add(calls=len(answers) + self.rounds * (self.game.queries + self.checked))
        right = [each[0] == good for each, good in zip(found, labels, strict=True) if each is not None]
        context.metrics |= {"rules": float(len(self.game.judge)), "accuracy": float(np.mean(right)) if right else 0.0}
        if self.game.history:
            context.metrics |= {name: float(self.game.history[-1][name]) for name in ("missed", "flipped")}
        return turns.with_column(verdict=verdict)

    def state_dict(self) -> dict[str, Any]:
        """State: both sides' rules, labelled answers, and the history."""
        game = self.game
        labelled = [(list(answer), good) for answer, good in game.labelled]
        return {"judge": list(game.judge), "hide": list(game.hide), "labelled": labelled, "history": game.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.game.judge, self.game.hide = tuple(state["judge"]), tuple(state["hide"])
        self.game.labelled = [(answer, good) for answer, good in state["labelled"]]
        self.game.history = list(state["history"])
