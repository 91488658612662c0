"""What stages that ask a model share: whom they ask, what it costs, and when the budget is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.agents.base import Decision, Policy, Request
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.algebra.registry import load_object
from palaestra.errors import InputError, nearest
from palaestra.judges.asking import AnswerCache
from palaestra.judges.base import Scorer
from palaestra.judges.judged import PolicyAsker
from palaestra.learning.stages.base import Context


class Adviser:
    """A policy that a stage asks: of the recipe by name, `module:name` of a function of a `Request`, or an object.

    budget: most requests of the whole run; what is asked beyond it fails, which is a missing verdict, not 0. cache: a
    file in which answers are kept; left out, they are part of the checkpoint. Equal questions are asked once.

    Raises:
        InputError: the budget is below 1.
    """

    def __init__(self, policy: str | Policy, *, budget: int | None = None, cache: str | None = None) -> None:
        if budget is not None and budget < 1:
            raise InputError(f"budget={budget}: at least one call is needed")
        self.policy, self.budget, self.calls = policy, budget, 0
        self.cache = AnswerCache(cache)

    @property
    def asks(self) -> tuple[str, ...]:
        """The policies of the recipe that are needed."""
        return (self.policy,) if isinstance(self.policy, str) and ":" not in self.policy else ()

    def begin(self, context: Context) -> Policy:
        """The policy, every call of which is counted in `context.spent`.

        Raises:
            InputError: the recipe has no such policy.
        """
        return _Counted(_found(self.policy, context), self, context)

    def state_dict(self) -> dict[str, Any]:
        """Calls so far, and the answers unless a file has them."""
        return {"calls": self.calls, "answers": {} if self.cache.path else dict(self.cache.answers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.calls = int(state["calls"])
        self.cache.answers |= state["answers"]


def bind(scorer: Scorer, advisers: Mapping[str, Adviser], context: Context) -> None:
    """Let a scorer ask its policies in this iteration, by name."""

    def find(policy: str) -> PolicyAsker:
        adviser = advisers[policy]
        return PolicyAsker(adviser.begin(context), cache=adviser.cache, attempts=2, seed=context.seed)

    if advisers:
        scorer.bind(find)  # type: ignore[attr-defined]


def _found(policy: str | Policy, context: Context) -> Policy:
    if not isinstance(policy, str):
        return policy
    if ":" in policy:
        return ScriptedPolicy(load_object(policy, "policy"), name=policy)
    known = {**context.advisers, **context.team.policies}
    if policy not in known:
        raise InputError(f"no policy {policy!r} in the recipe{nearest(policy, known)}; add policies.{policy}")
    return known[policy]


class _Counted:
    """The policy as long as there is budget."""

    def __init__(self, policy: Policy, adviser: Adviser, context: Context) -> None:
        self.policy, self.adviser, self.spent, self.name = policy, adviser, context.spent, policy.name

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Ask for what the budget allows."""
        budget = self.adviser.budget
        left = len(requests) if budget is None else max(budget - self.adviser.calls, 0)
        found = self.policy.act(requests[:left]) if left else []
        self.adviser.calls += len(found)
        for each in found:
            tokens = (each.tokens_in or 0) + (each.tokens_out or 0)
            self.spent.add(calls=1, tokens=tokens, cost=each.cost or 0.0)
        return [*found, *(Decision("", error="the budget of calls is spent") for _ in requests[left:])]
