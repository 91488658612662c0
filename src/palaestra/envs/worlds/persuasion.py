"""`Persuasion`: a seller who knows the quality of today's good advises a buyer who does not, day after day (GLEE).

References: `worlds.exact.economics.persuasion_commitment`, and trade at the prior where nothing said is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.economics import persuasion_commitment, persuasion_scores
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.envs.worlds.speech import ask, spoken
from palaestra.errors import InputError, nearest

MOVES = ("recommend", "warn", "buy", "pass")


@dataclass
class _PersuasionState:
    good: list[bool]
    said: str | None = None  # today's advice, until the buyer has decided
    days: list[tuple[str, bool]] = field(default_factory=list)  # advice, bought


@ENVS.register("native/persuasion")
class Persuasion(NativeEnv):
    """Persuasion env: each day `seller` sees the good's quality and sends a message; `buyer` buys at price 1 or passes.

    A deal pays the seller 1 / rounds, the buyer (v - 1) / rounds if the good was good, else (c - 1) / rounds. In the
    end info has `self_gain`, `efficiency`, `fairness` and `reference`.
    """

    prompt = "native/persuasion"
    agents: tuple[str, ...] = ("seller", "buyer")
    facts = {"self_gain": float, "efficiency": float, "fairness": float, "reference": float}

    def __init__(
        self,
        q: float = 1 / 3,
        *,
        value: float = 2.0,
        bad_value: float = 0.0,
        rounds: int = 20,
        memory: str = "statistics",
        talk: bool = False,
        published: bool = False,
    ) -> None:
        """Set up the game.

        Args:
            q: chance of a good good.
            value: what a good one is worth to the buyer; its price is 1.
            bad_value: what a bad one is worth to the buyer.
            rounds: days.
            memory: what a buyer remembers: "statistics" of past sales (a new, short-sighted buyer each day), "all"
                that happened (one buyer who lives on), or "none".
            talk: advice is free text instead of recommend or warn.
            published: the buyer's gain in info counts as the released script does.
        """
        if memory not in ("statistics", "all", "none"):
            raise InputError(f"Persuasion: memory={memory!r}{nearest(memory, ['statistics', 'all', 'none'])}")
        if not (0 <= q <= 1 and bad_value < 1 < value and rounds >= 1):
            raise InputError(f"Persuasion: q={q} in [0, 1], bad_value={bad_value} < 1 < value={value}, rounds={rounds}")
        self.q, self.value, self.bad_value, self.rounds = q, value, bad_value, rounds
        self.memory, self.talk, self.published = memory, talk, published

    def begin(self) -> tuple[str, _PersuasionState]:
        """Draw the goods of all days."""
        good = (self.rng.random(self.rounds) < self.q).tolist()
        return "persuasion:" + "".join("gb"[not g] for g in good), _PersuasionState(good)

    def look(self) -> dict[str, Observation]:
        """The seller sees the good first, then the buyer hears the seller."""
        state = self.state
        day = len(state.days)
        if day == self.rounds:
            return {}
        past = self._past()
        if state.said is None:
            text = f"seller day {day + 1}/{self.rounds} good is {'good' if state.good[day] else 'bad'}{past}"
            if self.talk:
                return {"seller": Observation(f"{text}\nWhat do you tell the buyer?")}
            return {"seller": ask(text, MOVES, [True, True, False, False], talk=False)}
        when = f"day {day + 1}/{self.rounds} " if self.memory == "all" else ""
        text = f"buyer {when}hears {state.said}{past}"
        return {"buyer": ask(text, MOVES, [False, False, True, True], talk=False)}

    def _past(self) -> str:
        state = self.state
        if self.memory == "none" or not state.days:
            return ""
        goods = state.good[: len(state.days)]
        if self.memory == "all":
            days = (
                f"{said}/{'bought' if b else 'passed'}/{'good' if g else 'bad'}"
                for (said, b), g in zip(state.days, goods, strict=True)
            )
            return " | " + " ".join(days)
        sold = [good for (_, bought), good in zip(state.days, goods, strict=True) if bought]
        return f" | sold {len(sold)}, good {sum(sold)}"

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take the seller's message, or the buyer's decision; an invalid move says nothing, or passes."""
        state = self.state
        ((actor, action),) = chosen.items()
        if actor == "seller":
            free = " ".join(str(action or "").split())
            state.said = free if self.talk else "nothing" if action is None else MOVES[action]
            return {}, {}
        move, _ = spoken(action, MOVES)
        bought, day = move == 2, len(state.days)
        state.days.append((str(state.said), bought))
        state.said = None
        worth = (self.value if state.good[day] else self.bad_value) - 1
        rewards = {"seller": bought / self.rounds, "buyer": bought * worth / self.rounds}
        if len(state.days) < self.rounds:
            return rewards, {}
        scores = persuasion_scores(
            state.good,
            [bought for _, bought in state.days],
            value=self.value,
            bad_value=self.bad_value,
            published=self.published,
        )
        gains = {"seller": scores.pop("seller_gain"), "buyer": scores.pop("buyer_gain")}
        reference = persuasion_commitment(self.q, self.value, self.bad_value)
        return rewards, {"self_gain": gains, **scores, "reference": reference}
