"""`Assistance`: a helper with work of its own, and in some episodes a person with other goals.

Made for RLHG ([154]): what the person reaches without help is to be told from what it reaches thanks to the helper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

COLOURS = ("red", "blue")
HELPS = ("work", "open red", "open blue", "wait")
WALKS = ("pick", "go")


@dataclass
class _AssistanceState:
    wants: int | None
    done: int = 0
    steps: int = 0
    opened: tuple[bool, bool] = (False, False)
    picked: bool = False
    passed: bool = False


@ENVS.register("native/assistance")
class Assistance(NativeEnv):
    """Two-agent env: `helper` is paid for work and may open gates, at a cost, for a `person` with other goals.

    `work` units are to be done in `steps` steps; the person is there with the chance `human`.

    The helper works, opens one of two gates, or waits. A unit pays 1 / `work`, an opened gate costs `cost`. The person
    has two goals, each once: to pick something, which `pick` succeeds with the chance `pick`, and to pass the gate of
    its colour: `go` passes an open one, a closed one with the chance `alone`. Both act at once. Success: the work is
    done. facts: `present`, `opened` (the helper opened the person's gate in this step), `picked` and `passed` (on the
    person's row: reached in this step), `person_done` at the end: share of its goals, null without a person.

    Args:
        shown: the helper sees whether there is a person, and what colour it wants.

    Raises:
        InputError: an option is out of range.
    """

    prompt = "native/assistance"
    agents: tuple[str, ...] = ("helper", "person")
    facts = {"present": float, "opened": float, "picked": float, "passed": float, "person_done": float}

    def __init__(
        self,
        *,
        steps: int = 6,
        work: int = 3,
        human: float = 0.5,
        pick: float = 0.5,
        alone: float = 0.1,
        cost: float = 0.05,
        shown: bool = True,
    ) -> None:
        if not 1 <= work <= steps or not all(0 <= share <= 1 for share in (human, pick, alone)) or not cost >= 0:
            raise InputError(
                f"Assistance: {work=} of 1 to {steps=}; {human=}, {pick=} and {alone=} of 0 to 1; {cost=} at least 0"
            )
        self.steps, self.work, self.human, self.shown = steps, work, human, shown
        self.pick, self.alone, self.cost = pick, alone, float(cost)

    def begin(self) -> tuple[str, _AssistanceState]:
        """Draw whether there is a person, its colour, and the day, which names the episode's random draws."""
        present, colour, day = self.rng.random() < self.human, int(self.rng.integers(2)), int(self.rng.integers(10_000))
        guest = f"a person for {COLOURS[colour]}" if present else "nobody"
        return f"{guest}, day {day}", _AssistanceState(colour if present else None)

    def look(self) -> dict[str, Observation]:
        """The helper sees work and gates, the person its goals and its own gate."""
        state = self.state
        if state.steps == self.steps:
            return {}
        left = f"{self.steps - state.steps} steps left"
        gates = ", ".join(f"{colour} {'open' if up else 'closed'}" for colour, up in zip(COLOURS, state.opened))
        there = state.wants is not None
        guest = f"a person who wants {COLOURS[state.wants]}" if there and self.shown else "nobody"
        seen = {"helper": Observation(f"{left}, {self.work - state.done} to do, {gates}, {guest}", choices=HELPS)}
        if there:
            gate = "open" if state.opened[state.wants] else "closed"
            reached = f"picked {'yes' if state.picked else 'no'}, passed {'yes' if state.passed else 'no'}"
            seen["person"] = Observation(f"{left}, {COLOURS[state.wants]} {gate}, {reached}", choices=WALKS)
        return seen

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move the person through the gates as they were, then let the helper act."""
        state, action, reward = self.state, chosen["helper"], 0.0
        luck, present = self.rng.random(), state.wants is not None
        before = state.picked, state.passed
        if chosen.get("person") == 0:
            state.picked |= luck < self.pick
        elif chosen.get("person") == 1:
            state.passed |= state.opened[state.wants] or luck < self.alone
        if action == 0 and state.done < self.work:
            state.done += 1
            reward = 1 / self.work
        helped = False
        if action in (1, 2):
            gate = action - 1
            helped = gate == state.wants and not state.opened[gate]
            state.opened = tuple(up or number == gate for number, up in enumerate(state.opened))
            reward = -self.cost
        state.steps += 1
        facts: dict[str, Any] = {"present": float(present), "opened": float(helped)}
        if present:
            facts["picked"] = {"person": float(state.picked and not before[0])}
            facts["passed"] = {"person": float(state.passed and not before[1])}
        if state.steps == self.steps:
            facts["success"] = state.done == self.work
            if present:
                facts["person_done"] = (state.picked + state.passed) / 2
        return {"helper": reward}, facts
