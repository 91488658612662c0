"""`Negotiation`: a seller and a buyer agree on the price of one good, or do without (GLEE).

Reference: `palaestra.envs.worlds.exact.economics.negotiation_price`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.economics import negotiation_fairness, negotiation_price
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.envs.worlds.speech import ask, spoken
from palaestra.errors import InputError

VALUES = (0.8, 1.0, 1.2, 1.5)
PRICES = tuple(n / 10 for n in range(6, 18))


@dataclass
class _NegotiationState:
    seller: float
    buyer: float
    round: int = 1
    offer: int | None = None
    log: list[str] = field(default_factory=list)
    over: bool = False


@ENVS.register("native/negotiation")
class Negotiation(NativeEnv):
    """Price bargaining env: `seller` and `buyer` know their own value, alternate offers, and are paid their gain.

    `seller` proposes in odd rounds, `buyer` in even ones; `leave` ends it without a trade.

    A trade at price p pays p - s and b - p, all in units of the price order. In the end info has `self_gain`,
    `efficiency` (1 iff they trade exactly when b >= s; where b = s both are efficient), `fairness` and `reference`.
    """

    prompt = "native/negotiation"
    agents: tuple[str, ...] = ("seller", "buyer")
    facts = {"self_gain": float, "efficiency": float, "fairness": float, "price": float, "reference": float}

    def __init__(
        self,
        values: tuple[float, float] | None = (1.0, 1.5),
        *,
        rounds: int = 3,
        prices: Sequence[float] = PRICES,
        complete: bool = True,
        talk: bool = False,
    ) -> None:
        """Set up the game.

        Args:
            values: of the good to seller and buyer; None draws each of 0.8, 1, 1.2, 1.5 by the seed.
            rounds: offers that can be made.
            prices: that can be proposed.
            complete: whether a player knows what the good is worth to the other.
            talk: actions are speech with the move on the last line, and the other reads the speech.
        """
        if rounds < 1 or not len(prices):
            raise InputError(f"Negotiation: rounds={rounds} must be at least 1, and there must be prices")
        if values is not None and np.shape(values) != (2,):
            raise InputError(f"Negotiation: values={values}, expected two: the seller's and the buyer's")
        self.values = None if values is None else (float(values[0]), float(values[1]))
        self.rounds, self.complete, self.talk = rounds, complete, talk
        self.prices = [round(float(price), 6) for price in prices]
        self.moves = (*(f"price {price:g}" for price in self.prices), "accept", "reject", "leave")

    def begin(self) -> tuple[str, _NegotiationState]:
        """Draw the values if they are to be drawn."""
        seller, buyer = self.values or tuple(float(v) for v in self.rng.choice(VALUES, 2))
        return f"negotiation:{self.rounds}:{seller:g}:{buyer:g}", _NegotiationState(seller, buyer)

    def look(self) -> dict[str, Observation]:
        """The proposer sees its value and the round, or the responder the offer."""
        state = self.state
        if state.over:
            return {}
        actor = (state.round - 1) % 2 if state.offer is None else state.round % 2
        own, other = (state.seller, state.buyer) if actor == 0 else (state.buyer, state.seller)
        known = f"worth {own:g} other {other:g}" if self.complete else f"worth {own:g}"
        text = f"{self.agents[actor]} round {state.round}/{self.rounds} {known}" + "".join(f" | {x}" for x in state.log)
        offering = state.offer is None
        legal = [offering] * len(self.prices) + [not offering] * 2 + [True]
        return {self.agents[actor]: ask(text, self.moves, legal, talk=self.talk)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take an offer, an answer or a departure; an invalid move offers nothing, or refuses."""
        state = self.state
        ((actor, action),) = chosen.items()
        move, said = spoken(action, self.moves)
        offering, count = state.offer is None, len(self.prices)
        if move is not None and move < count + 2 and (move < count) != offering:
            move = None
        name = self.moves[move] if move is not None else "nothing"
        state.log.append(f"{actor}: {said + ' / ' if said else ''}{name}")
        info: dict[str, Any] = {"valid": {actor: move is not None}}
        if move == count + 2:
            return self._end(None, info)
        if offering and move is not None:
            state.offer = move
            return {}, info
        if not offering and move == count:
            return self._end(self.prices[state.offer], info)
        state.round, state.offer = state.round + 1, None
        return self._end(None, info) if state.round > self.rounds else ({}, info)

    def _end(self, price: float | None, info: dict[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
        state = self.state
        state.over = True
        gains = {
            "seller": 0.0 if price is None else price - state.seller,
            "buyer": 0.0 if price is None else state.buyer - price,
        }
        info |= {
            "self_gain": gains,
            "efficiency": float(state.buyer == state.seller or (price is not None) == (state.buyer > state.seller)),
            "fairness": negotiation_fairness(price, state.seller, state.buyer),
            "price": price,
            "reference": negotiation_price(state.seller, state.buyer, self.rounds),
        }
        return gains, info
