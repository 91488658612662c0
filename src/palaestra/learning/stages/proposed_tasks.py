"""Tasks that an adviser names before training, from what the place is said to be; only these are played."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.judges.metering import Limits
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.play.plan import Plan

ASK = (
    "{place}\n\nPropose {number} tasks, one a line. Each must be unambiguous, checkable from the last observations, "
    "independent of time and of the user, and together they should be of diverse difficulty."
)
ENOUGH = 20
"""So many batches without an end are given up on."""


@stage
class proposed_tasks(Stage):
    """Stage: plays only tasks that an adviser proposed once, at the start, from the env's description of itself.

    PAE's proposer [175] (arXiv 2412.13194). The env says what it is, `describe() -> str`, and makes a reset seed of a
    task in words, `read_task(text) -> seed`, or says by a ValueError why it is none, also of a task that is held out.
    The adviser is asked for `batch` lines at a time until there are `number` different tasks. Its metrics, in the first
    iteration: `lines`, `tasks`, `repeated` and `refused`; every iteration: `played`, how many different tasks.

    Args:
        adviser: A policy of the recipe without a seat, or `module:name` of a function of a request.
        number: Tasks; fewer if twenty batches have no more.
        batch: Lines that are asked for at once.
        budget: Most calls, or {"tokens": …}, {"price": …}.

    Raises:
        InputError: A number is below 1; when it plans: the env describes nothing, or no proposal is a task.
    """

    notes = ()

    def __init__(self, adviser: str, *, number: int = 64, batch: int = 25, budget: Limits = None) -> None:
        if min(number, batch) < 1:
            raise InputError(f"proposed_tasks: number={number} and batch={batch} must be at least 1")
        self.adviser, self.number, self.batch = Adviser(adviser, budget=budget), number, batch
        self.asks = self.adviser.asks
        self.tasks: dict[str, int] = {}
        """Accepted tasks and their reset seeds."""
        self.refused: Counter[str] = Counter()
        """Reasons of the refused lines."""

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with a drawn task for each group; all tasks are played once before one comes again."""
        if not self.tasks:
            self._propose(context)
        groups, seeds = len(plan.numbers), list(self.tasks.values())
        drawn: list[int] = []
        while len(drawn) < groups:
            drawn += [seeds[place] for place in context.rng.permutation(len(seeds))]
        context.metrics["played"] = float(len(set(drawn[:groups])))
        return dataclasses.replace(plan, env_seeds=drawn[:groups])

    def _propose(self, context: Context) -> None:
        env: Any = context.env()
        while not hasattr(env, "describe") and hasattr(env, "env"):  # what a workflow goes around
            env = env.env
        if not (hasattr(env, "describe") and hasattr(env, "read_task")):
            raise InputError(
                f"proposed_tasks: {type(env).__name__} has no describe() -> str and read_task(text) -> seed"
            )
        text, policy = ASK.format(place=env.describe(), number=self.batch), self.adviser.begin(context)
        lines = repeated = 0
        for _ in range(ENOUGH):
            (said,) = policy.act([Request(Observation(text), "proposer", context.rng)])
            for line in filter(None, map(str.strip, str(said.action).splitlines())):
                lines += 1
                try:
                    seed = int(env.read_task(line))
                except ValueError as error:
                    self.refused[str(error)] += 1
                    continue
                if seed in self.tasks.values():
                    repeated += 1
                elif len(self.tasks) < self.number:
                    self.tasks[line] = seed
            if len(self.tasks) >= self.number:
                break
        if not self.tasks:
            reason = self.refused.most_common(1)[0][0] if self.refused else "nothing was proposed"
            raise InputError(f"proposed_tasks: none of {lines} proposals is a task; most often: {reason}")
        context.metrics |= {
            "lines": float(lines), "tasks": float(len(self.tasks)), "repeated": float(repeated),
            "refused": float(self.refused.total()),
        }  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """State: tasks, reasons of refusals, and that of the adviser."""
        return {"tasks": dict(self.tasks), "refused": dict(self.refused), "adviser": self.adviser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.tasks = {str(text): int(seed) for text, seed in state["tasks"].items()}
        self.refused = Counter(state["refused"])
        self.adviser.load_state_dict(state["adviser"])
