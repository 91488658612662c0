"""`Bargaining`: two players divide a sum by alternating offers while time makes it smaller (GLEE, Rubinstein 1982).

Reference: `worlds.exact.economics.bargaining_share`. Left out: sums that matter (shares are all that is paid).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.economics import bargaining_fairness, bargaining_share
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.envs.worlds.speech import ask, spoken
from palaestra.errors import InputError

DISCOUNTS = (0.8, 0.9, 0.95, 1.0)


@dataclass
class _BargainingState:
    discounts: tuple[float, float]
    round: int = 1
    offer: int | None = None  # what the proposer of this round wants to keep
    log: list[str] = field(default_factory=list)
    over: bool = False


@ENVS.register("native/bargaining")
class Bargaining(NativeEnv):
    """Alternating-offers bargaining env: two players propose shares in turn, paid the agreed share discounted by round.

    `first` proposes in odd rounds, `second` in even ones; after the last round nobody gets anything.

    A share p of the first player agreed in round t pays p δ₁^(t-1) and (1 - p) δ₂^(t-1). In the end info has
    `self_gain` by agent, `efficiency` (their sum), `fairness` and `reference`, the first player's equilibrium share.
    """

    prompt = "native/bargaining"
    agents: tuple[str, ...] = ("first", "second")
    facts = {"self_gain": float, "efficiency": float, "fairness": float, "agreed": float, "reference": float}

    def __init__(
        self,
        discounts: tuple[float, float] | None = (0.9, 0.8),
        *,
        rounds: int = 2,
        offers: int = 21,
        complete: bool = True,
        talk: bool = False,
    ) -> None:
        """Set up the game.

        Args:
            discounts: of first and second, in (0, 1]; None draws each of 0.8, 0.9, 0.95, 1 by the seed.
            rounds: offers that can be made.
            offers: shares that one may propose to keep, evenly from 0 to 100 percent.
            complete: whether a player knows the other's discount.
            talk: actions are speech with the move on the last line, and the other reads the speech.
        """
        two = (1, 1) if discounts is None else discounts
        if rounds < 1 or offers < 2 or np.shape(two) != (2,) or not all(0 < d <= 1 for d in two):
            raise InputError(
                f"Bargaining: rounds={rounds} >= 1, offers={offers} >= 2, discounts={discounts}: two in (0, 1]"
            )
        self.discounts = None if discounts is None else (float(discounts[0]), float(discounts[1]))
        self.rounds, self.complete, self.talk = rounds, complete, talk
        self.shares = [number / (offers - 1) for number in range(offers)]
        self.moves = (*(f"keep {100 * share:g}" for share in self.shares), "accept", "reject")

    def begin(self) -> tuple[str, _BargainingState]:
        """Draw the discounts if they are to be drawn."""
        d1, d2 = self.discounts or tuple(float(d) for d in self.rng.choice(DISCOUNTS, 2))
        return f"bargaining:{self.rounds}:{d1:g}:{d2:g}", _BargainingState((d1, d2))

    def look(self) -> dict[str, Observation]:
        """The proposer sees the round and discounts, or the responder the offer."""
        state = self.state
        if state.over:
            return {}
        proposer = (state.round - 1) % 2
        actor = proposer if state.offer is None else 1 - proposer
        own, other = state.discounts[actor], state.discounts[1 - actor]
        known = f"discounts {own:g} other {other:g}" if self.complete else f"discount {own:g}"
        text = f"{self.agents[actor]} round {state.round}/{self.rounds} {known}" + "".join(f" | {x}" for x in state.log)
        offering = state.offer is None
        legal = [offering] * len(self.shares) + [not offering] * 2
        return {self.agents[actor]: ask(text, self.moves, legal, talk=self.talk)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Record an offer, or an answer to one; an invalid move offers nothing, or refuses."""
        state = self.state
        ((actor, action),) = chosen.items()
        move, said = spoken(action, self.moves)
        offering, count = state.offer is None, len(self.shares)
        if move is not None and (move < count) != offering:
            move = None
        name = self.moves[move] if move is not None else "nothing"
        state.log.append(f"{actor}: {said + ' / ' if said else ''}{name}")
        info: dict[str, Any] = {"valid": {actor: move is not None}}
        if offering and move is not None:
            state.offer = move
            return {}, info
        if not offering and move == count:
            kept = self.shares[state.offer]
            return self._end(kept if state.round % 2 else 1 - kept, info)
        state.round, state.offer = state.round + 1, None
        return self._end(None, info) if state.round > self.rounds else ({}, info)

    def _end(self, share: float | None, info: dict[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
        state = self.state
        state.over = True
        parts = (0.0, 0.0) if share is None else (share, 1 - share)
        gains = {
            agent: part * discount ** (state.round - 1)
            for agent, part, discount in zip(self.agents, parts, state.discounts, strict=True)
        }
        info |= {
            "self_gain": gains,
            "efficiency": sum(gains.values()),
            "fairness": None if share is None else bargaining_fairness(share),
            "agreed": share,
            "reference": bargaining_share(state.discounts, self.rounds),
        }
        return gains, info


def equilibrium() -> Callable[[Any], str]:
    """Makes a policy function (request -> action), no arguments, that bargains by backward induction, without talk.

    The observation must tell both discounts.

    Offers the other one step of the grid more than refusing is worth to it (all, where that is all), and accepts what
    is worth at least as much.
    """
    facts = re.compile(r"(\w+) round (\d+)/(\d+) discounts ([\d.]+) other ([\d.]+)(?:.*keep ([\d.]+)$)?")

    def play(request: Any) -> str:
        seen = request.observation
        found = facts.match(seen.text)
        if found is None:
            raise InputError(f"equilibrium: this is no bargaining with known discounts and numbered moves: {seen.text}")
        round_, rounds, own, other = int(found[2]), int(found[3]), float(found[4]), float(found[5])
        left = rounds - round_
        if "accept" in seen.legal:
            refusing = own * bargaining_share((own, other), left) if left else 0.0
            return "accept" if 1 - float(found[6]) / 100 >= refusing - 1e-9 else "reject"
        share = bargaining_share((own, other), left + 1)
        offers = [move for move in seen.legal if float(move[5:]) / 100 < share - 1e-9]
        return str(max(offers or ["keep 0"], key=lambda move: float(move[5:])))

    return play
