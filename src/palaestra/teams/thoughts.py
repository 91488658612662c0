"""`thoughts`: an agent says a reason with each action, so that reasons can be learned where choices are numbered.

    thoughts(["it is near", "it is safe"])

A reply is `<think>REASON</think>ACTION`, the form of ReAct with tags. Where the env has choices, each one stands once
without a reason and once with each of `reasons`: a table of logits learns reason and action together. Left out: envs
whose agents read arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import InputError

THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


def with_thought(reason: str, action: str) -> str:
    """Reply text `<think>reason</think>action`; the action alone if the reason is empty.

    >>> with_thought("it is near", "go left"), with_thought("", "go left")
    ('<think>it is near</think>go left', 'go left')
    """
    return f"<think>{reason}</think>{action}" if reason else action


def parted(reply: str) -> tuple[str, str]:
    """(reason, action) of a reply text `<think>reason</think>action`; the reason is empty if there is none.

    >>> parted("<think>it is near</think>go left")
    ('it is near', 'go left')
    """
    found = THOUGHT.match(reply)
    return (found.group(1).strip(), reply[found.end() :]) if found else ("", reply)


class Thoughts:
    """Env wrapper whose agents may say a reason with each action; the env is given the action alone.

    facts: those of the env; rationale, the reason that was said with the action, empty if there was none.

    Args:
        env: Factory of an env.
        reasons: Reasons that there are, where the env has choices; replies in words may give any.

    Raises:
        InputError: There is no reason, one is empty, or two are equal.
    """

    def __init__(self, env: EnvFactory, reasons: Sequence[str]) -> None:
        if not reasons or not all(reasons) or len(set(reasons)) < len(reasons):
            raise InputError(f"thoughts: reasons={list(reasons)} must be texts that differ, at least one")
        self.env: Env = env()
        self.reasons = ("", *reasons)
        self.agents, self.task = tuple(self.env.agents), ""
        self.facts: dict[str, Any] = {**facts_of(self.env), "rationale": str}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode."""
        seen = self.env.reset(seed)
        self.task = self.env.task
        return self._show(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions without their reasons in the env."""
        told: dict[str, str] = {}
        bare: dict[str, Action] = {}
        for agent, action in actions.items():
            seen = self._seen[agent]
            place = seen.index(action) if seen.choices is not None else None
            reply = seen.choices[place] if seen.choices is not None and place is not None else str(action)
            told[agent], rest = parted(reply)
            bare[agent] = rest if place is None else place % (len(seen.choices or ()) // len(self.reasons))
        result = self.env.step(bare)
        return dataclasses.replace(
            result, observations=self._show(result.observations), info={**result.info, "rationale": told}
        )

    def _show(self, seen: Mapping[str, Observation]) -> Mapping[str, Observation]:
        """The observations, with each choice once for each reason."""
        self._seen = {agent: self._choices(each) for agent, each in seen.items()}
        return dict(self._seen)

    def _choices(self, seen: Observation) -> Observation:
        if seen.choices is None:
            return seen
        choices = tuple(with_thought(reason, each) for reason in self.reasons for each in seen.choices)
        mask = None if seen.mask is None else np.tile(np.asarray(seen.mask, bool), len(self.reasons))
        return dataclasses.replace(seen, choices=choices, mask=mask)


def thoughts(tasks: EnvFactory, reasons: Sequence[str]) -> EnvFactory:
    """Env factory from another, `tasks`: agents may say one of these `reasons` with each action; see `Thoughts`."""
    Thoughts(tasks, reasons)
    return functools.partial(Thoughts, tasks, tuple(reasons))
