"""`SimulatedUser`: somebody with a feeling that every reply changes (RLVER [194], SAGE's simulator).

The user has a profile, appraises each reply by a whole number from -10 to 10, and says something. The scripted user has
a need that can be heard in what it says; `ModelUser` asks a model for both. Left out: the 500 published scenarios.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

NEEDS = {
    "listen": "I just have to tell somebody about it.",
    "comfort": "I feel so small today.",
    "advise": "I do not know what to do next.",
    "encourage": "I am about to give up.",
    "ask": "Nobody wants to know what really happened.",
    "distract": "I cannot stop thinking about it.",
}
"""What a scripted user may need, and how it shows."""
DIFFICULTIES = {"moderate": (10, -3), "hard": (10, -10), "harder": (5, -10)}
"""Change of emotion by what was needed, and by anything else."""
LIMIT = 10


class User(Protocol):
    """Protocol of a simulated user of `roles/user`: `appraise` -> change of emotion, `reply` -> its next message."""

    @property
    def profiles(self) -> Sequence[str]:
        """Names of the user's possible profiles."""

    @property
    def replies(self) -> tuple[str, ...] | None:
        """Names of the helper's kinds of reply; None for free text."""

    def appraise(self, profile: str, dialogue: Sequence[str], emotion: int) -> int:
        """Change of the user's emotion by the helper's last reply."""

    def reply(self, profile: str, dialogue: Sequence[str], emotion: int) -> str:
        """The user's next message."""


@dataclass(frozen=True)
class NeedyUser:
    """Scripted user with one need: the right kind of reply raises its emotion, any other lowers it.

    >>> user = NeedyUser("hard")
    >>> user.appraise("comfort", ["I feel so small today.", "advise"], 40)
    -10
    """

    difficulty: str = "moderate"
    profiles: tuple[str, ...] = tuple(NEEDS)
    replies: tuple[str, ...] = tuple(NEEDS)

    def __post_init__(self) -> None:
        if self.difficulty not in DIFFICULTIES:
            raise InputError(f"NeedyUser: difficulty={self.difficulty!r}{nearest(self.difficulty, DIFFICULTIES)}")

    def appraise(self, profile: str, dialogue: Sequence[str], emotion: int) -> int:
        """Change of the emotion by the table of difficulties, for the right or a wrong kind of reply."""
        return DIFFICULTIES[self.difficulty][dialogue[-1] != profile]

    def reply(self, profile: str, dialogue: Sequence[str], emotion: int) -> str:
        """The cue sentence of the profile's need, always the same."""
        return NEEDS[profile]


@dataclass(frozen=True)
class ModelUser:
    """Simulated user of given `profiles`, played by a language model: the function `ask` from prompts to answers.

    Such a function is `palaestra.judges.writer`.

    Such an env is only as repeatable as its model. An answer without a number changes nothing.
    """

    ask: Callable[[Sequence[str]], list[str]]
    profiles: tuple[str, ...]
    replies: tuple[str, ...] | None = None

    def appraise(self, profile: str, dialogue: Sequence[str], emotion: int) -> int:
        """Change of the emotion that the model states: the last whole number in its answer, 0 without one."""
        asked = (
            f"{self._shown(profile, dialogue, emotion)}\n\nHow does the last reply change your emotion? Think about "
        )
        answer = self.ask([f"{asked}what you need, then end with a whole number from -{LIMIT} to {LIMIT}."])[0]
        numbers = re.findall(r"[-+]?\d+", answer)
        return int(numbers[-1][:6]) if numbers else 0

    def reply(self, profile: str, dialogue: Sequence[str], emotion: int) -> str:
        """The user's next message, by the model."""
        return self.ask([f"{self._shown(profile, dialogue, emotion)}\n\nWhat do you say next? Only your words."])[0]

    def _shown(self, profile: str, dialogue: Sequence[str], emotion: int) -> str:
        lines = "\n".join(f"{('You', 'They')[number % 2]}: {text}" for number, text in enumerate(dialogue))
        return f"You are a person with this profile:\n{profile}\n\nYour emotion is {emotion} of 100.\n{lines}"


def level(emotion: int) -> str:
    """SAGE's grade of an emotion in 0 … 100 as a letter: S 100, A from 70, B from 40, C from 10, F below.

    >>> [level(e) for e in (100, 70, 40, 10, 9)]
    ['S', 'A', 'B', 'C', 'F']
    """
    return "SABCF"[sum(emotion < edge for edge in (100, 70, 40, 10))]


@dataclass
class _UserState:
    profile: str
    emotion: int
    dialogue: list[str] = field(default_factory=list)
    over: bool = False


@ENVS.register("roles/user")
class SimulatedUser(NativeEnv):
    """Emotional support env: `helper` talks to a simulated user; paid the user's final emotion / 100 at the end.

    facts: delta (the clipped change), emotion, level. Success: the user leaves satisfied, at 100.
    """

    prompt = "roles/user"
    agents: tuple[str, ...] = ("helper",)
    facts = {"delta": float, "emotion": float, "level": str}

    def __init__(
        self,
        user: User | str = "moderate",
        *,
        turns: int = 8,
        start: int = 40,
        leaves: int = 0,
    ) -> None:
        """Set up the dialogue.

        Args:
            user: who is talked to; a text is the difficulty of a `NeedyUser`.
            turns: replies at most.
            start: emotion at first, 0 to 100.
            leaves: the user leaves at this emotion or below: 0 in training; SAGE's simulator says 9.
        """
        if not (turns >= 1 and 0 <= leaves < start < 100):
            raise InputError(f"SimulatedUser: need turns={turns} >= 1 and 0 <= leaves={leaves} < start={start} < 100")
        self.user: User = NeedyUser(user) if isinstance(user, str) else user
        self.turns, self.start, self.leaves = turns, start, leaves

    def begin(self) -> tuple[str, _UserState]:
        """Draw a profile; the user speaks first."""
        number = int(self.rng.integers(len(self.user.profiles)))
        state = _UserState(self.user.profiles[number], self.start)
        state.dialogue.append(self.user.reply(state.profile, [], state.emotion))
        return f"user:{number}", state

    def look(self) -> dict[str, Observation]:
        """Observation of the helper: the dialogue so far, without the user's emotion and profile."""
        if self.state.over:
            return {}
        lines = self.state.dialogue
        text = "\n".join(f"{('user', 'helper')[number % 2]}: {line}" for number, line in enumerate(lines))
        return {"helper": Observation(text, choices=self.user.replies)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """The user appraises the reply, then answers or leaves; an invalid reply counts as an empty one."""
        state, action = self.state, chosen["helper"]
        said = self.user.replies[action] if self.user.replies and isinstance(action, int) else str(action or "")
        state.dialogue.append(said)
        delta = max(-LIMIT, min(LIMIT, int(self.user.appraise(state.profile, state.dialogue, state.emotion))))
        state.emotion = max(0, min(100, state.emotion + delta))
        state.over = state.emotion in (0, 100) or state.emotion <= self.leaves or len(state.dialogue) >= 2 * self.turns
        info: dict[str, Any] = {"delta": delta, "emotion": state.emotion, "level": level(state.emotion)}
        if not state.over:
            state.dialogue.append(self.user.reply(state.profile, state.dialogue, state.emotion))
            return {}, info
        return {"helper": state.emotion / 100}, info | {"success": state.emotion == 100}
