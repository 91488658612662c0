"""`Exchange`: two speakers know a number each and must tell it; every sentence has its length [81]."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SENTENCES = (
    "my number is {}",
    "#{}",
    "thank you for asking and let me tell you that my number is {}",
    "let me think about it for a while please",
    "we are done",
)
"""A sentence, a code, a long sentence, a filler, and the end; the first three tell the number."""


@dataclass
class _ExchangeState:
    numbers: tuple[int, int]
    told: list[bool] = field(default_factory=lambda: [False, False])
    turns: int = 0
    words: int = 0
    over: bool = False


@ENVS.register("native/exchange")
class Exchange(NativeEnv):
    """Dialogue env: `ann` and `bob` each know a number and talk in turn; both paid 1 if both end up with both numbers.

    Information asymmetry of Optima [81] (arXiv 2410.08115): a number can be told in a sentence, a code or a long
    sentence. A number that was not told is guessed, right with the chance 1 / `values`, so that a single silent
    conversation may succeed. The end is "we are done" or the turn limit. Success: reward 1.

    facts: words, of the conversation so far.

    Args:
        values: numbers that can be drawn. turns: most sentences.
        split: "test" for held-out conversations, which `turn_tree` plays once.

    Raises:
        InputError: an option is below 2.
    """

    agents: tuple[str, ...] = ("ann", "bob")
    facts = {"words": int}

    def __init__(self, *, values: int = 4, turns: int = 8, split: str = "train") -> None:
        if values < 2 or turns < 2:
            raise InputError(f"Exchange: values={values} and turns={turns} must be at least 2")
        self.values, self.turns, self.split = values, turns, split

    def begin(self) -> tuple[str, _ExchangeState]:
        """Draw the two numbers."""
        ann, bob = (int(each) for each in self.rng.integers(self.values, size=2))
        return f"question {int(self.rng.integers(2**31))}", _ExchangeState((ann, bob))

    def look(self) -> dict[str, Observation]:
        """The agent whose turn it is sees its number and which numbers were told."""
        state = self.state
        if state.over:
            return {}
        me = state.turns % 2
        told = [("not told", "told")[state.told[who]] for who in (me, 1 - me)]
        text = f"my number is {state.numbers[me]}: {told[0]}; the other number: {told[1]}"
        choices = tuple(each.format(state.numbers[me]) for each in SENTENCES)
        return {self.agents[me]: Observation(text, choices=choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Say one sentence; an invalid choice is the filler."""
        ((agent, said),) = chosen.items()
        state, number = self.state, said if isinstance(said, int) else 3
        state.turns += 1
        state.words += len(SENTENCES[number].split())
        if number < 3:
            state.told[self.agents.index(agent)] = True
        state.over = number == 4 or state.turns == self.turns
        told: dict[str, Any] = {"words": state.words}
        if not state.over:
            return {}, told
        known = all(each or self.rng.integers(self.values) == 0 for each in state.told)
        return dict.fromkeys(self.agents, float(known)), told | {"success": known}
