"""`Market`: customers with wishes, sellers with menus, proposals that arrive one by one (Magentic Marketplace).

Sellers set prices, a search says which sellers a customer hears from, their proposals come in an order that has nothing
to do with how good they are, and a customer pays one of them or waits for the next. Reference: the welfare of the best
matches. Sellers may be allowed to claim what they do not have or to order more than the price that they named; orders
are checked for that. Left out: free text between the parties, lexical search on descriptions, persuasion in words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.economics import optimal_welfare
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

SEARCHES = ("simple", "filtered", "optimal")
TRICKS = ("claim", "overcharge")


@dataclass
class _MarketState:
    menus: np.ndarray  # bool[sellers, items]
    amenity: np.ndarray  # bool[sellers]
    costs: np.ndarray  # list price of each seller per item
    wishes: np.ndarray  # bool[customers, items]
    needs: np.ndarray  # bool[customers], the amenity
    heard: list[list[int]]  # sellers by customer, in order of arrival
    markup: np.ndarray | None = None  # by seller, once set
    trick: list[str | None] = field(default_factory=list)  # by seller, once set
    refused: int = 0  # orders that were wrong
    arrived: list[int] = field(default_factory=list)  # proposals so far, by customer
    paid: list[int | None] = field(default_factory=list)  # position of the paid proposal; -1: left; None: still there


@ENVS.register("native/market")
class Market(NativeEnv):
    """Market env: sellers choose markups at once, then customers see proposals in order of arrival and pay or wait.

    Customers get their wishes' worth less payments, sellers what they are paid.

    A customer's wishes are worth twice their list prices, counted once if one paid order has all of them and the
    amenity, times patience^(proposals waited for); payments are subtracted. A seller earns what it is paid. In the end
    info has `welfare`, `optimal`, `welfare_ratio`, and by customer `position` (of the paid proposal, from 1; null:
    none). Success: welfare is at least `success` of the optimum.

    With `tricks` a seller may also, at list price, "claim" that it meets every need, or "overcharge": its order asks
    for twice the price that its proposal names. With `checked` orders of an item or amenity that the seller does not
    have, and wrong totals, are refused when a customer pays them, who goes on as if waiting. Then info also has
    `refused`, the number of such orders, and by customer `seller`, the number of the one who was paid.
    """

    facts = {"welfare": float, "optimal": float, "welfare_ratio": float, "position": int}

    def __init__(
        self,
        *,
        customers: int = 2,
        sellers: int = 3,
        items: int = 3,
        search: str = "simple",
        proposals: int = 3,
        patience: float = 1.0,
        markups: Sequence[float] = (0.75, 1.0, 1.5),
        success: float = 0.9,
        tricks: Sequence[str] = (),
        checked: bool = True,
    ) -> None:
        """Set up the market.

        Args:
            customers: how many customers.
            sellers: how many sellers.
            items: how many kinds of item.
            search: "simple" hears from sellers at random, "filtered" from those that have all wished items, "optimal"
                from those that meet every need, cheapest first; the order of arrival is random but for "optimal".
            proposals: most that a customer hears.
            patience: by which the wishes' worth shrinks with each proposal that one waits for.
            markups: what sellers can multiply their list prices by.
            success: see above.
            tricks: manipulations that sellers may choose, of "claim" and "overcharge".
            checked: whether wrong orders are refused.
        """
        if search not in SEARCHES:
            raise InputError(f"Market: search={search!r}{nearest(search, SEARCHES)}")
        if min(customers, sellers, items, proposals, len(markups)) < 1 or not 0 < patience <= 1:
            raise InputError("Market: at least one customer, seller, item, proposal and markup; patience in (0, 1]")
        if len(set(markups)) < len(markups) or not all(0 <= markup < np.inf for markup in markups):
            raise InputError(f"Market: markups={list(markups)} must differ, and be at least 0")
        for trick in tricks:
            if trick not in TRICKS:
                raise InputError(f"Market: tricks={list(tricks)}: {trick!r} is none{nearest(trick, TRICKS)}")
        self.tricks, self.checked = tuple(tricks), checked
        if tricks:
            self.facts = {**self.facts, "refused": int, "seller": int}
        self.search, self.patience, self.success, self.items = search, patience, success, items
        self.proposals = min(proposals, sellers)
        self.markups = tuple(float(m) for m in markups)
        self.sellers = tuple(f"seller_{number}" for number in range(sellers))
        self.customers = tuple(f"customer_{number}" for number in range(customers))
        self.agents = self.sellers + self.customers
        self.ways = len(self.markups) + len(self.tricks)
        self.moves = (
            *(f"markup {m:g}" for m in self.markups),
            *self.tricks,
            "wait",
            *(f"pay {n + 1}" for n in range(self.proposals)),
        )

    def begin(self) -> tuple[str, _MarketState]:
        """Draw menus, prices, wishes and orders of arrival."""
        rng, sellers, customers = self.rng, len(self.sellers), len(self.customers)
        menus = rng.random((sellers, self.items)) < 0.7
        menus[np.arange(sellers), rng.integers(self.items, size=sellers)] = True
        amenity, costs = rng.random(sellers) < 0.7, rng.integers(2, 5, size=sellers).astype(float)
        wishes = rng.random((customers, self.items)) < 0.5
        wishes[np.arange(customers), rng.integers(self.items, size=customers)] = True
        needs = rng.random(customers) < 0.5
        state = _MarketState(menus, amenity, costs, wishes, needs, [])
        meets = self._meets(state)
        for customer in range(customers):
            order = rng.permutation(sellers)
            if self.search == "filtered":
                order = order[(menus[order] | ~wishes[customer]).all(axis=1)]
            elif self.search == "optimal":
                order = np.argsort(costs, kind="stable")
                order = order[meets[customer, order]]
            state.heard.append([int(seller) for seller in order[: self.proposals]])
        state.arrived, state.paid = [1] * customers, [None if heard else -1 for heard in state.heard]
        facts = (*(x.tobytes() for x in (menus, amenity, costs, wishes, needs)), repr(state.heard).encode())
        return f"market:{hashlib.blake2b(b''.join(facts), digest_size=6).hexdigest()}", state

    def _meets(self, state: _MarketState) -> np.ndarray:
        """bool[customers, sellers]: the seller has all items and the amenity."""
        items = (state.menus[None] | ~state.wishes[:, None]).all(axis=-1)
        return np.asarray(items & (state.amenity[None] | ~state.needs[:, None]))

    def _worth(self, state: _MarketState) -> np.ndarray:
        """float64[customers]: of the wishes, twice their list prices; the list price of an item is 3."""
        return np.asarray(2 * 3.0 * state.wishes.sum(axis=1))

    def look(self) -> dict[str, Observation]:
        """Observations by agent: at first of all sellers, then of all customers who have not decided yet."""
        state, seen = self.state, {}
        if state.markup is None:
            mask = np.array([True] * self.ways + [False] * (1 + self.proposals))
            for number, seller in enumerate(self.sellers):
                text = f"seller list {state.costs[number]:g} items {state.menus[number].sum()}"
                text += " amenity" * bool(state.amenity[number])
                seen[seller] = Observation(text, self.moves, mask)
            return seen
        meets, worth = self._meets(state), self._worth(state)
        for number, customer in enumerate(self.customers):
            if state.paid[number] is not None:
                continue
            arrived, heard = state.arrived[number], state.heard[number]
            offers = [
                f"{position + 1}: {'meets' if meets[number, seller] or state.trick[seller] == 'claim' else 'misses'} "
                f"{self._price(number, seller):g}"
                for position, seller in enumerate(heard[:arrived])
            ]
            text = f"customer worth {worth[number]:g} | " + " | ".join(offers)
            text += " | last" if arrived == len(heard) else ""
            mask = np.array([False] * self.ways + [True] + [n < arrived for n in range(self.proposals)])
            seen[customer] = Observation(text, self.moves, mask)
        return seen

    def _price(self, customer: int, seller: int) -> float:
        """Of those wished items that the seller has."""
        state = self.state
        count = (state.menus[seller] & state.wishes[customer]).sum()
        return float(state.costs[seller] * state.markup[seller] * count)

    def _wrong(self, customer: int, seller: int) -> bool:
        """Whether the seller's order has what it does not sell, or not the total of its proposal."""
        trick = self.state.trick[seller]
        return trick == "overcharge" or (trick == "claim" and not self._meets(self.state)[customer, seller])

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take all markups, or all customers' decisions; an invalid move keeps the list price, or waits."""
        state = self.state
        if state.markup is None:
            picked = [chosen[seller] for seller in self.sellers]
            prices = (*self.markups, *[1.0] * len(self.tricks))
            state.markup = np.array([1.0 if move is None else prices[move] for move in picked])
            honest = len(self.markups)
            state.trick = [None if move is None or move < honest else self.tricks[move - honest] for move in picked]
            return self._close({}) if None not in state.paid else ({}, {})
        rewards: dict[str, float] = {}
        meets, worth = self._meets(state), self._worth(state)
        for customer, move in chosen.items():
            number = self.customers.index(customer)
            position = -1 if move is None else move - self.ways - 1
            heard = state.heard[number]
            if position >= 0 and self.checked and self._wrong(number, heard[position]):
                state.refused, position = state.refused + 1, -1
            if position >= 0:
                seller = heard[position]
                price = self._price(number, seller) * (2 if state.trick[seller] == "overcharge" else 1)
                value = worth[number] * meets[number, seller] * self.patience ** (state.arrived[number] - 1)
                rewards[customer] = float(value - price)
                rewards[self.sellers[seller]] = rewards.get(self.sellers[seller], 0.0) + price
                state.paid[number] = position
            elif state.arrived[number] == len(heard):
                state.paid[number] = -1
            else:
                state.arrived[number] += 1
        return self._close(rewards) if None not in state.paid else (rewards, {})

    def _close(self, rewards: dict[str, float]) -> tuple[dict[str, float], dict[str, Any]]:
        """Welfare of the whole market: wishes that were met; payments only move money."""
        state, meets, worth = self.state, self._meets(self.state), self._worth(self.state)
        welfare = 0.0
        for number, position in enumerate(state.paid):
            if position >= 0:
                waited = self.patience ** (state.arrived[number] - 1)
                welfare += worth[number] * meets[number, state.heard[number][position]] * waited
        optimal = optimal_welfare(worth[:, None] * meets)
        ratio = float(welfare / optimal) if optimal else 1.0
        positions = [None if position == -1 else position + 1 for position in state.paid]
        paid = [None if position == -1 else state.heard[number][position] for number, position in enumerate(state.paid)]
        told = {"refused": state.refused, "seller": dict(zip(self.customers, paid, strict=True))} if self.tricks else {}
        return rewards, told | {
            "welfare": float(welfare),
            "optimal": optimal,
            "welfare_ratio": ratio,
            "success": ratio >= self.success,
            "position": dict(zip(self.customers, positions, strict=True)),
        }


def first_proposal() -> Callable[[Any], str]:
    """Makes a policy function (request -> action), no arguments: pays the first proposal; as seller keeps its price."""
    return lambda request: "pay 1" if "pay 1" in request.observation.legal else "markup 1"


def careful() -> Callable[[Any], str]:
    """Makes a policy function (request -> action), no arguments: sees all proposals, pays the cheapest that fits.

    Sellers keep the list price.
    """

    def play(request: Any) -> str:
        seen = request.observation
        if seen.text.startswith("seller"):
            return "markup 1"
        if not seen.text.endswith("last"):
            return "wait"
        offers = [(float(price), move) for move, price in re.findall(r"(\d+): meets ([\d.]+)", seen.text)]
        return f"pay {min(offers)[1]}" if offers else "wait"

    return play
