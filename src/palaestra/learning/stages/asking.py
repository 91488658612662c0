"""Base class of stages that ask a model: the policy, its cost, and the budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra.agents.policy import Policy
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import load_object
from palaestra.judges.asking import AnswerCache
from palaestra.judges.judged import PolicyAsker, endpoints_of
from palaestra.judges.metering import Limits, Meter, Metered
from palaestra.judges.protocol import Scorer
from palaestra.learning.stages.stage import Context

TOLD = "endpoints:told"
"""Key of the state of endpoints beside those of policies, whose names have no colon."""


class Adviser:
    """Access of a stage to a policy: by name in the recipe, by `module:name`, or as an object; with budget and cache.

    budget: most calls of the whole run, or {"tokens": …}, {"price": …} (`judges.metering`); what is asked beyond it
    fails, which is a missing verdict, not 0. cache: a file in which answers are kept; left out, they are part of the
    checkpoint. Equal questions are asked once; of a policy that learns, once at a time, and its answers are not kept.

    Raises:
        InputError: the budget is unknown or below 1.
    """

    def __init__(self, policy: str | Policy, *, budget: Limits = None, cache: str | None = None) -> None:
        self.policy, self.meter = policy, Meter(budget)
        self.cache = AnswerCache(cache)

    @property
    def asks(self) -> tuple[str, ...]:
        """Names of the recipe's policies that are needed."""
        return (self.policy,) if isinstance(self.policy, str) and ":" not in self.policy else ()

    def begin(self, context: Context) -> Policy:
        """The policy for this iteration, with every call counted in `context.spent`.

        Raises:
            InputError: the recipe has no such policy.
        """
        return Metered(_found(self.policy, context), self.meter, context.spent.add)

    def known(self, context: Context) -> AnswerCache:
        """The answers that are known; none of a policy that learns, which may say something else by now."""
        policy = _found(self.policy, context)
        learning = getattr(context.team, "trainable", ())  # who calls a stage with a table alone has no team
        return AnswerCache() if any(each is policy for each in learning) else self.cache

    def state_dict(self) -> dict[str, Any]:
        """Amounts spent so far, and the answers unless a file has them."""
        return {**self.meter.totals(), "answers": {} if self.cache.path else dict(self.cache.answers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.meter.load(state)
        self.cache.answers |= state["answers"]


def bind(scorer: Scorer, advisers: Mapping[str, Adviser], context: Context) -> None:
    """Bind a scorer in place to `advisers` {policy: `Adviser`} for an iteration; endpoint calls are cached, counted."""

    def find(policy: str) -> PolicyAsker:
        adviser = advisers[policy]
        return PolicyAsker(adviser.begin(context), cache=adviser.known(context), attempts=2, seed=context.seed)

    if context.kept_calls is not None:
        context.kept_calls.attach(scorer)
    for endpoint in endpoints_of(scorer):
        endpoint.counted = context.spent.add
    if advisers:
        scorer.bind(find)  # type: ignore[attr-defined]


def state_of(scorer: Scorer, advisers: Mapping[str, Adviser]) -> dict[str, Any]:
    """State of those whom a scorer asks: of `advisers`, and what endpoints told of their cost."""
    told = [{key: list(each) for key, each in endpoint.told.items()} for endpoint in endpoints_of(scorer)]
    return {policy: adviser.state_dict() for policy, adviser in advisers.items()} | ({TOLD: told} if told else {})


def load_state(scorer: Scorer, advisers: Mapping[str, Adviser], state: Mapping[str, Any]) -> None:
    """Inverse of `state_of`."""
    for policy, adviser in advisers.items():
        adviser.load_state_dict(state[policy])
    for endpoint, told in zip(endpoints_of(scorer), state.get(TOLD, [])):
        endpoint.told |= {key: (int(tokens), float(cost)) for key, (tokens, cost) in told.items()}


def _found(policy: str | Policy, context: Context) -> Policy:
    if not isinstance(policy, str):
        return policy
    if ":" in policy:
        return ScriptedPolicy(load_object(policy, "policy"), name=policy)
    known = {**context.advisers, **context.team.policies}
    if policy not in known:
        raise InputError(f"no policy {policy!r} in the recipe{nearest(policy, known)}; add policies.{policy}")
    return known[policy]
