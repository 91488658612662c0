"""`Retries`: an actor that nobody trains tries a task again and again; between tries a reflector says why it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _RetriesState:
    cause: int
    luck: float
    progress: float
    tries: tuple[int, ...] = ()
    advice: int | None = None
    due: bool = False
    over: bool = False


@ENVS.register("native/retries")
class Retries(NativeEnv):
    """Env of retries to a success, at most `tries`: `actor` tries a fix; after each failure `reflector` advises.

    One of `causes` fixes is right.

    Retroformer's game [37] (arXiv 2308.02151): the right fix succeeds with the chance `skill`, any other by `luck`,
    which is drawn for each task from (low, high): tasks differ in how hard they are. A success ends the episode,
    so do `tries` of them. heard: the advice is in what the actor reads from then on. progress: every try of a task
    scores a part that is drawn for the task, evenly up to this; a success scores 1 - progress more. With 0 a try scores
    1 or 0, and as advice follows a failure, the rise of the score is the next score.

    facts: score, of the actor's turns; cause, its number; advised, whether the reflector named it; try, its number.
    """

    agents: tuple[str, ...] = ("actor", "reflector")
    facts = {"score": float, "cause": int, "advised": float, "try": int}

    def __init__(
        self,
        *,
        causes: int = 6,
        tries: int = 3,
        skill: float = 0.9,
        luck: tuple[float, float] = (0.0, 0.6),
        heard: bool = True,
        progress: float = 0.0,
    ) -> None:
        if causes < 2 or tries < 2 or not 0 <= skill <= 1 or len(luck) != 2 or not 0 <= luck[0] <= luck[1] <= 1:
            raise InputError(
                f"Retries: causes={causes} and tries={tries} must be at least 2, 0 <= skill={skill}, luck={luck} <= 1"
            )
        if not 0 <= progress < 1:
            raise InputError(f"Retries: progress={progress} must be in [0, 1)")
        self.progress = float(progress)
        self.causes, self.tries, self.skill, self.luck, self.heard = causes, tries, skill, tuple(luck), heard
        self.fixes = tuple(f"fix {number}" for number in range(causes))

    def begin(self) -> tuple[str, _RetriesState]:
        """Draw a task's cause of failure, its chance to succeed by luck, and what every try of it scores."""
        cause, luck = int(self.rng.integers(self.causes)), float(self.rng.uniform(self.luck[0], self.luck[1]))
        name = f"task {int(self.rng.integers(2**31))}"
        return name, _RetriesState(cause, luck, self.progress * float(self.rng.random()) if self.progress else 0.0)

    def look(self) -> dict[str, Observation]:
        """The actor sees the advice, or the reflector how the last try failed."""
        state = self.state
        if state.over:
            return {}
        if state.due:
            return {"reflector": Observation(f"it failed like {state.cause}", choices=self.fixes)}
        told = f", advice: {self.fixes[state.advice]}" if self.heard and state.advice is not None else ""
        return {"actor": Observation(f"task{told}", choices=self.fixes)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take a try, or advice; an invalid choice counts as the first."""
        ((agent, action),) = chosen.items()
        number, state = action if isinstance(action, int) else 0, self.state
        info: dict[str, Any] = {"cause": state.cause, "try": len(state.tries)}
        if agent == "reflector":
            state.advice, state.due = number, False
            return {agent: 0.0}, info | {"advised": float(number == state.cause)}
        solved = bool(self.rng.random() < (self.skill if number == state.cause else state.luck))
        state.tries = (*state.tries, number)
        state.over = solved or len(state.tries) == self.tries
        state.due = not state.over
        if state.over:
            info["success"] = solved
        score = state.progress + (1 - self.progress) * solved
        return {agent: score}, info | {"score": score}
