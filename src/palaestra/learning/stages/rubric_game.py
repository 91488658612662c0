"""A rubric that is written in a game while the policy learns from its verdicts ([104])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import load_object
from palaestra.judges.metering import Limits
from palaestra.judges.rubric_game import Planted, Players, RubricGame
from palaestra.judges.rubric_players import PolicyPlayers
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.stage import Context, Stage, stage

SIDES = ("writer", "judge")


@stage
class rubric_game(Stage):
    """Stage: column `verdict`, 1 where a judge finds no fault under a rubric that rounds of `RubricGame` write, else 0.

    Each iteration plays `rounds` of them with the labelled answers of the turns (column `label`, of which at most 200
    that were met last are kept), then judges every turn. Metrics: `rules`, `accuracy` on the turns, `missed`,
    `flipped`.

    Args:
        answer: The column that is judged: text, or a list of marks for the default players.
        label: The column of labels.
        players: A policy of the recipe that has both sides, or `{"writer": NAME, "judge": NAME}`: `PolicyPlayers`,
            with rules in words. `module:name`: a function that makes other `Players`. Default: marks, `Planted`.
        flaws: Marks that make an answer bad, for the default players.
        rules: The rubric at the start.
        rounds: Rounds of the game in each iteration.
        queries: Planted answers per round.
        checked: Labelled answers per round; 0: adversarial play alone.
        task: What the answers are answers to, one sentence for policies.
        budget: Most calls of each policy in the run, or {"tokens": …}, {"price": …}.
        instructions: Jinja templates of what policies are asked, `plant`, `find`, `reflect` and `rewrite`, or files.

    Raises:
        InputError: A number is out of range, a side of the players is unknown or missing, or flaws, a task or a budget
            are given to players that have none.
    """

    adds = {"verdict": "the judge finds nothing to blame"}

    def __init__(
        self, answer: str = "marks", *, label: str = "good", players: str | Mapping[str, str] | None = None,
        flaws: int | None = None, rules: Sequence[Any] = (), rounds: int = 1, queries: int = 4, checked: int = 4,
        task: str | None = None, budget: Limits = None, instructions: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        if rounds < 0:
            raise InputError(f"rubric_game: rounds={rounds} must not be negative")
        if flaws is not None and (flaws < 1 or players is not None):
            raise InputError(f"rubric_game: flaws={flaws} must be at least 1, and none with players of your own")
        self.advisers = _advisers(players, budget)
        if not self.advisers and (task is not None or budget is not None or instructions is not None):
            raise InputError(
                f"rubric_game: task={task!r}, budget={budget} and instructions are for players that are policies"
            )
        self.asks = tuple(dict.fromkeys(name for each in self.advisers.values() for name in each.asks))
        made: Players
        if self.advisers:
            made = PolicyPlayers("Answer the question." if task is None else task, instructions=instructions)
        elif isinstance(players, str):
            made = load_object(players, "players")()
        else:
            made = Planted() if flaws is None else Planted(tuple(range(flaws)))
        self.answer, self.label, self.rounds, self.checked = answer, label, rounds, checked
        self.game = RubricGame(made, [((), True)], tuple(rules), queries=queries, checked=checked)
        self.game.labelled = []
        self.needs = {answer, label}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `verdict`; null where the judge gave none."""
        if self.advisers:
            self._bind(context)
        answers, labels = turns[self.answer].to_list(), turns[self.label].to_list()
        met = [(answer, bool(good)) for answer, good in zip(answers, labels, strict=True) if None not in (answer, good)]
        self.game.labelled = [*self.game.labelled, *met][-200:]
        for _ in range(self.rounds):
            self.game.round(context.rng)
        said = iter(self.game.verdicts([answer for answer in answers if answer is not None], context.rng))
        found = [None if answer is None else next(said) for answer in answers]
        verdict = np.array([np.nan if each is None else float(each[0]) for each in found])
        if not self.advisers:
            context.spent.add(calls=len(answers) + self.rounds * (self.game.queries + self.checked))
        right = [each[0] == good for each, good in zip(found, labels, strict=True) if each is not None]
        context.metrics |= {"rules": float(len(self.game.judge)), "accuracy": float(np.mean(right)) if right else 0.0}
        if self.game.history:
            context.metrics |= {name: float(self.game.history[-1][name]) for name in ("missed", "flipped")}
        return turns.with_column(verdict=verdict)

    def _bind(self, context: Context) -> None:
        """Give the players their policies of this iteration."""
        asked = {id(each): each.begin(context) for each in self.advisers.values()}
        writer, judge = (asked[id(self.advisers[side])] for side in SIDES)
        self.game.players.bind(writer, judge, context.seed)  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """State: both sides' rules, labelled answers, the history, and of policies what they spent and answered."""
        game = self.game
        labelled = [(answer if isinstance(answer, str) else list(answer), good) for answer, good in game.labelled]
        state = {"judge": list(game.judge), "hide": list(game.hide), "labelled": labelled, "history": game.history}
        if not self.advisers:
            return state
        asked = {side: adviser.state_dict() for side, adviser in self.advisers.items()}
        return state | {"asked": asked, "answers": dict(game.players.cache.answers)}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.game.judge, self.game.hide = tuple(state["judge"]), tuple(state["hide"])
        self.game.labelled = [(answer, good) for answer, good in state["labelled"]]
        self.game.history = list(state["history"])
        for side, spent in state.get("asked", {}).items():
            self.advisers[side].load_state_dict(spent)
        if "answers" in state:
            self.game.players.cache.answers |= state["answers"]  # type: ignore[attr-defined]


def _advisers(players: str | Mapping[str, str] | None, budget: Limits) -> dict[str, Adviser]:
    """Policies of the two sides by name; none for players that are no policies."""
    if players is None or (isinstance(players, str) and ":" in players):
        return {}
    named = dict.fromkeys(SIDES, players) if isinstance(players, str) else dict(players)
    for side in named:
        if side not in SIDES:
            raise InputError(f"rubric_game: players: {side!r}{nearest(side, SIDES)}")
    if missing := [side for side in SIDES if side not in named]:
        raise InputError(f"rubric_game: players: no {missing[0]}; name a policy for each of {', '.join(SIDES)}")
    made = {name: Adviser(name, budget=budget) for name in named.values()}
    return {side: made[name] for side, name in named.items()}
