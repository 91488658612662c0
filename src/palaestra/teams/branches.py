"""`branches`: an episode is a tree; at every turn several answers, and each is gone on from.

    branches(3, 3, 3)      three drafts, three checks of each, three answers to each check: 27 leaves

It goes around an env of single turns that can be gone back to (every native world). All nodes of a level act at once,
so a level costs one call of a policy. `backup`, `keep(unit="row")` and `pairs(by="parent", unit="turn")` read the tree.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError
from palaestra.play.monte_carlo import Restartable

DRAWS = 22
"""Number of the stream from which later chance of a branch is drawn."""


class Branch(NamedTuple):
    """Data of a node of the tree whose turn is to be answered: its name, the acting seat, what it sees, a snapshot."""

    name: str
    agent: str
    seen: Observation
    snapshot: Any


class Branches:
    """Env that plays a tree of turns of `env` in one episode: `widths[d]` answers per turn at depth d, one seat each.

    The copies of seat `a` are `a-1`, `a-2`, …, in the order of the tree. Each is paid
    what its own step pays the seat that made it. Chance that is to come is drawn anew after every answer. An env whose
    `split` is "test" is played once from beginning to end, by `a-1`.

    facts: those of the env; node, `1.2.3`, the third answer to the second answer to the first; parent, null at a root;
    leaf, whether the episode ended there.

    Raises:
        InputError: a width is below 1, or the env cannot be gone back to.
        EnvError: when it is played, several agents act at once.
    """

    def __init__(self, env: EnvFactory, widths: tuple[int, ...]) -> None:
        self.env: Env = env()
        if not widths or any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in widths):
            raise InputError(f"branches{widths}: say how many answers at each depth, whole numbers of at least 1")
        if not isinstance(self.env, Restartable):
            raise InputError(f"branches: {type(self.env).__name__} cannot be gone back to: no snapshot() and restore()")
        self.widths = (1,) if getattr(self.env, "split", "") == "test" else widths
        most = math.prod(widths)
        self.agents: tuple[str, ...] = tuple(f"{name}-{k}" for name in self.env.agents for k in range(1, most + 1))
        self.facts: dict[str, Any] = {**facts_of(self.env), "node": str, "parent": str, "leaf": bool}
        self.task = ""
        self._asked: dict[str, tuple[Branch, int]] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin with the first turn, once for each of its answers."""
        seen = self.env.reset(seed)
        self.task, self._depth, self._rng = self.env.task, 0, np.random.default_rng([seed, DRAWS])
        return self._ask([self._branch("", seen)])

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Make a node of every answer; nodes that are not over are asked next."""
        if actions.keys() != self._asked.keys():
            due = sorted(self._asked)
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {due}")
        rewards: dict[str, float | None] = {}
        info: dict[str, Any] = {}
        onward: list[Branch] = []
        truncated = False
        for seat, (branch, number) in self._asked.items():
            name = f"{branch.name}.{number}" if branch.name else str(number)
            self.env.restore(branch.snapshot, seed=int(self._rng.integers(2**63)))  # type: ignore[attr-defined]
            result = self.env.step({branch.agent: actions[seat]})
            told = {key: _own(value, branch.agent) for key, value in result.info.items()}
            told |= {"node": name, "parent": branch.name or None, "leaf": not result.observations}
            for key, value in told.items():
                info.setdefault(key, {})[seat] = value
            rewards[seat] = result.rewards.get(branch.agent, 0.0)
            truncated |= result.truncated
            if result.observations:
                onward.append(self._branch(name, result.observations))
        self._depth += 1
        over = not onward
        return StepResult(self._ask(onward), rewards, terminated=over and not truncated, truncated=over and truncated,
                          info=info)  # fmt: skip

    def _branch(self, name: str, seen: Mapping[str, Observation]) -> Branch:
        if len(seen) != 1:
            raise EnvError(f"branches: {sorted(seen)} act at once; a tree needs an env of single turns")
        ((agent, each),) = seen.items()
        return Branch(name, agent, each, self.env.snapshot())  # type: ignore[attr-defined]

    def _ask(self, branches: list[Branch]) -> dict[str, Observation]:
        width = self.widths[self._depth] if self._depth < len(self.widths) else 1
        self._asked, count = {}, dict.fromkeys(self.env.agents, 0)
        for branch in branches:
            for number in range(1, width + 1):
                count[branch.agent] += 1
                self._asked[f"{branch.agent}-{count[branch.agent]}"] = (branch, number)
        return {seat: branch.seen for seat, (branch, _) in self._asked.items()}


def _own(value: Any, agent: str) -> Any:
    """What the env told of one agent's turn."""
    return value.get(agent) if isinstance(value, Mapping) else value


def branches(env: EnvFactory, *widths: int) -> EnvFactory:
    """Env factory from another, `env`: an episode plays a tree, `widths[d]` answers a turn at depth d (`Branches`)."""
    factory = functools.partial(Branches, env, widths)
    factory()
    return factory
