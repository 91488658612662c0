"""`Errands`: sub-goals one after the other, a plan that goes stale, and experts for several kinds of action.

Before each sub-goal the manager keeps its plan or makes it anew, which has a price; what is carried out on a stale plan
often fails. How it may decide is a rule (`replan`), or its own choice. Each sub-goal has a kind; the router sends it to
an expert. Tasks may come again, and be remembered. Left out: screens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest
from palaestra.foundation.archive import Archive, Entry

Replan = Literal["chosen", "never", "on_failure", "after_each"]
KINDS = ("visual", "text", "sheet")
SHARES = (0.5, 0.3, 0.2)
EXPERTS = ((0.95, 0.45, 0.3), (0.3, 0.9, 0.5), (0.2, 0.3, 0.85))
"""[experts][kinds]; with the shares above the best single expert is right in .67 of actions, the fitting one .915."""


@dataclass
class _ErrandsState:
    done: int = 0
    steps: int = 0
    stale: bool = False
    failed: bool = False
    kind: int = 0
    turn: str = "manager"
    plans: int = 1
    task: int = 0
    goals_of: np.random.Generator | None = None


@ENVS.register("native/errands")
class Errands(NativeEnv):
    """Plan-and-act env: `manager` keeps or replans, `router` picks experts; both paid 1 if all in time, less replans.

    Reward for both: 1 for all in time, less `price` for each plan after the first.

    facts: plans, so far; kind; failed, the sub-goal. Success: all in time. The manager reads how many are done and
    whether the last one failed or was done; a stale plan is not seen.

    Args:
        goals: sub-goals. budget: steps. fresh: how often a step succeeds on a fresh plan; stale: times so much on a
            stale one. drift: how often a step makes the plan stale. replan: "chosen" by the manager; "never",
            "on_failure" (reactive), "after_each" (proactive), and the manager is not asked. experts: [experts][kinds],
            how often each is right; without any the router is not asked. price: of a plan. tasks: different ones, each
            with sub-goals of its own; 0: every task is a new one. memory: is read and written by all envs that have
            it; of a task, how it went, which the manager reads when it begins; of a kind of sub-goal, the expert that
            did it, which the router reads. Each is written once.

    Raises:
        InputError: an option is out of range.
    """

    agents: tuple[str, ...]
    facts = {"plans": int, "kind": int, "failed": bool}

    def __init__(
        self,
        *,
        goals: int = 5,
        budget: int = 7,
        fresh: float = 0.95,
        stale: float = 0.4,
        drift: float = 0.3,
        replan: Replan = "chosen",
        experts: Sequence[Sequence[float]] = (),
        price: float = 0.0,
        tasks: int = 0,
        memory: Archive | None = None,
    ) -> None:
        if replan not in get_args(Replan):
            raise InputError(f"Errands: replan={replan!r}{nearest(str(replan), get_args(Replan))}")
        shares = (fresh, stale, drift)
        if not 1 <= goals <= budget or any(not 0 <= share <= 1 for share in shares) or price < 0:
            raise InputError(f"Errands: {goals=} from 1 to {budget=}; shares {shares} from 0 to 1; {price=}")
        self.skills = np.array(experts, float)
        if len(experts) and self.skills.shape[1:] != (len(KINDS),):
            raise InputError(f"Errands: experts of shape {self.skills.shape}, expected [experts][{len(KINDS)} kinds]")
        if not len(experts) and replan != "chosen":
            raise InputError(f"Errands: replan={replan!r} without experts, and nobody acts; give experts")
        self.goals, self.budget, self.fresh, self.stale, self.drift = goals, budget, fresh, stale, drift
        if tasks < 0:
            raise InputError(f"Errands: {tasks=} of at least 0")
        self.replan, self.price, self.tasks, self.memory = replan, price, tasks, memory
        self.agents = (("manager",) if replan == "chosen" else ()) + (("router",) if len(experts) else ())
        self.routes = tuple(f"expert {number}" for number in range(len(experts)))

    def begin(self) -> tuple[str, _ErrandsState]:
        """Start an episode with a fresh plan."""
        state = _ErrandsState(task=int(self.rng.integers(self.tasks)) if self.tasks else -1)
        state.goals_of = np.random.default_rng(state.task) if self.tasks else None
        state.kind = self._kind(state)
        if not self.tasks:
            state.task = int(self.rng.integers(2**40))
        state.turn = "manager" if self.replan == "chosen" else "router"
        return f"errands:{state.task}", state

    def _kind(self, state: _ErrandsState) -> int:
        return int((state.goals_of or self.rng).choice(len(KINDS), p=SHARES))

    def _recalled(self, key: str) -> str:
        """What the memory says of a task or a kind, after a separator; nothing if it does not know it."""
        entries = self.memory.entries if self.memory is not None else ()
        return next((f" | {entry.content}" for entry in entries if entry.key == key), "")

    def _remember(self, key: str, content: str) -> None:
        if self.memory is not None and not self._recalled(key):
            self.memory.add(Entry(key, content), [1.0])

    def look(self) -> dict[str, Observation]:
        """The manager sees how the last sub-goal went, the router the kind of the next one."""
        state = self.state
        if state.done == self.goals or state.steps >= self.budget:
            return {}
        if state.turn == "router":
            kind = KINDS[state.kind]
            return {"router": Observation(kind + self._recalled(kind), self.routes)}
        how = "begun" if state.steps == 0 else "failed" if state.failed else "done"
        if state.steps == 0:
            how += self._recalled(f"task {state.task}")
        return {"manager": Observation(how, ("keep", "replan"))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take the manager's decision, or let the router's expert try the sub-goal."""
        state = self.state
        expert = 0
        if state.turn == "manager":
            if chosen["manager"] == 1:
                state.stale, state.plans = False, state.plans + 1
            if self.routes:
                state.turn = "router"
                return {}, {"plans": state.plans}
        elif chosen["router"] is None:
            return self._over({"kind": state.kind}, tried=False)
        else:
            expert = chosen["router"]
        if state.steps and (self.replan == "after_each" or (self.replan == "on_failure" and state.failed)):
            state.stale, state.plans = False, state.plans + 1
        skill = self.skills[expert, state.kind] if self.routes else 1.0
        done = bool(self.rng.random() < skill * self.fresh * (self.stale if state.stale else 1.0))
        state.stale |= bool(self.rng.random() < self.drift)
        state.done, state.failed = state.done + done, not done
        told = {"kind": state.kind, "plans": state.plans, "failed": not done}
        if done and self.routes:
            self._remember(KINDS[state.kind], self.routes[expert])
        state.kind = self._kind(state)
        state.turn = "manager" if self.replan == "chosen" else "router"
        return self._over(told, tried=True)

    def _over(self, told: dict[str, Any], *, tried: bool) -> tuple[dict[str, float], dict[str, Any]]:
        state = self.state
        state.steps = state.steps + 1 if tried else self.budget
        if state.done < self.goals and state.steps < self.budget:
            return {}, told
        success = state.done == self.goals
        self._remember(f"task {state.task}", f"{state.done} done in {state.steps} steps, {state.plans} plans")
        worth = success - self.price * (state.plans - 1)
        return dict.fromkeys(self.agents, worth), told | {"success": success}


def planner(when: str = "after_each") -> Callable[[Any], str]:
    """Makes a policy function (request -> action): the manager replans never, on_failure or after_each, by `when`.

    Otherwise it keeps its plan. after_each: after every sub-goal, failed or done.
    """
    replan = {"never": (), "on_failure": ("failed",), "after_each": ("failed", "done")}
    if when not in replan:
        raise InputError(f"planner: when={when!r}{nearest(when, replan)}")
    return lambda request: "replan" if request.observation.text in replan[when] else "keep"
