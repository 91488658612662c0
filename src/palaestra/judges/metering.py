"""Metering of a policy's calls under a budget: a call beyond it fails, which is a missing verdict.

Left out: retries, rate limits and keys, which are the policy's; and a ledger that outlives the process, which is
`palaestra.judges.Endpoint`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.agents.policy import Decision, Policy, Request
from palaestra.errors import InputError, nearest
from palaestra.judges.endpoint import Budget

Limits = int | Mapping[str, float] | None
"""So many calls; or {"calls": …}, {"tokens": …} (read and written), {"price": …} as the policy tells its cost; or no
limit."""

UNITS = ("calls", "tokens", "price")


class Meter:
    """Counter and budget of calls, tokens and cost of those who ask through it; `refused` counts denied requests.

    What a call takes is known when it is over, so one is presumed to take what the dearest so far took, and requests
    go out in parts, each at most as many as went before it: tokens and price are exceeded by no more than what the
    calls of the last part took beyond that.

    Raises:
        InputError: a limit is unknown or not positive.
    """

    def __init__(self, budget: Limits = None) -> None:
        given = {"calls": budget} if isinstance(budget, int) else dict(budget or {})
        if isinstance(budget, bool):
            raise InputError(f"budget={budget}: a number of calls, or {{tokens: …}}, {{price: …}}")
        for name in given:
            if name not in UNITS:
                raise InputError(f"budget: {name!r}{nearest(name, UNITS)}")
        if any(value < 1 for name, value in given.items() if name != "price"):
            raise InputError(f"budget={budget}: at least one call is needed")
        Budget(**given)  # says what is no positive number
        self.calls, self.tokens, self.cost, self.refused = 0, 0, 0.0, 0
        self._dearest: dict[str, float] = {}
        self._limits = {name: float(given[name]) for name in UNITS if name in given}
        self._until = dict(self._limits)

    def share(self, parts: int) -> None:
        """Limit spending from now on to 1 / `parts` of what is left, so that `parts` users in turn get equal shares."""
        for name, limit in self._limits.items():
            self._until[name] = self._spent(name) + (limit - self._spent(name)) / parts

    def _spent(self, name: str) -> float:
        return {"calls": self.calls, "tokens": self.tokens, "price": self.cost}[name]

    def room(self, wanted: int) -> int:
        """How many of `wanted` requests the budget allows now."""
        for name, until in self._until.items():
            left, each = until - self._spent(name), 1.0
            if name != "calls":
                wanted = min(wanted, max(self.calls, 1))
                each = max(self._dearest.get(name, 0.0), self._spent(name) / max(self.calls, 1))
            if self.calls and not each:
                return 0  # the policy does not tell what a budget of it could be kept by
            wanted = min(wanted, int(left / each + 1e-9) if each else int(left > 0))
        return max(wanted, 0)

    def add(self, found: Sequence[Decision]) -> tuple[int, float]:
        """Add the amounts of answers to the totals; returns their tokens and cost."""
        tokens = [(each.tokens_in or 0) + (each.tokens_out or 0) for each in found]
        costs = [each.cost or 0.0 for each in found]
        self.calls, self.tokens, self.cost = self.calls + len(found), self.tokens + sum(tokens), self.cost + sum(costs)
        for name, values in (("tokens", tokens), ("price", costs)):
            self._dearest[name] = max([self._dearest.get(name, 0.0), *values])
        return sum(tokens), sum(costs)

    def totals(self) -> dict[str, Any]:
        """Amounts spent as plain values: calls, tokens, cost, refused."""
        return {"calls": self.calls, "tokens": self.tokens, "cost": self.cost, "refused": self.refused}

    def load(self, told: Mapping[str, Any]) -> None:
        """Set the totals to those that `totals` gave."""
        self.calls, self.tokens = int(told["calls"]), int(told["tokens"])
        self.cost, self.refused = float(told["cost"]), int(told["refused"])


class Metered:
    """Policy wrapper behind a `Meter`: requests that the budget does not allow get an error instead of an answer.

    counted: called after every part that was asked with calls, tokens, cost, how many of the calls were known from a
    file, how many failed, and why the last of these did.
    """

    def __init__(self, policy: Policy, meter: Meter, counted: Callable[..., None] | None = None) -> None:
        self.policy, self.meter, self.counted, self.name = policy, meter, counted, policy.name

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions of the policy as far as the budget goes; the remaining requests get an error."""
        found: list[Decision] = []
        while (left := len(requests) - len(found)) and (room := self.meter.room(left)):
            part = self.policy.act(requests[len(found) : len(found) + room])
            tokens, cost = self.meter.add(part)
            if self.counted is not None:
                errors = [each.error for each in part if each.error]
                known, why = sum(each.known for each in part), errors[-1] if errors else None
                self.counted(calls=len(part), tokens=tokens, cost=cost, known=known, failed=len(errors), why=why)
            found += part
        self.meter.refused += len(requests) - len(found)
        refused = [Decision("", error="the budget of the judge is spent") for _ in requests[len(found) :]]
        return [*found, *refused]
