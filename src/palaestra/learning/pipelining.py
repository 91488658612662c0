"""Overlap: iterations are played ahead of learning, by a rule that knows no clock.

With a lag of k, iteration i is played with the weights that iteration max(0, i - 1 - k) left. So it is planned, with
what stages knew then, and given to a player as soon as those weights are there, and the learner comes to it k updates
later. Play in between depends on nothing that the learner does meanwhile: who is faster changes how long one waits, and
no number. With `inflight` there is a clock in it: whatever is being played goes on with the weights of each update as
soon as that is made, which only servers can do. Left out: learning from rows as they come.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.protocol import Inflight, Served
from palaestra.play.plan import Plan

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.envs.protocol import EnvFactory
    from palaestra.play.executors import Executor

Weights = Mapping[str, Mapping[str, Any]]
"""States of the policies that learn, by name."""


@dataclasses.dataclass
class Ahead:
    """Data of an iteration that is planned and may be played already.

    notes: of its stages. weights: those it is played with. mismatch: of policies that a server answered for, by name.
    """

    plan: Plan
    notes: Any
    weights: Weights
    played: Future[tuple[Turns, float]] | None = None
    mismatch: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)


class Overlap:
    """Queue of iterations that are played ahead of the learner, in order, by a copy of the team in its own thread.

    One plays at a time, in order. Where the executor has workers of its own the thread only waits for them.

    inflight: play with the newest weights, also those that come while it lasts (`renew`), not with those of the plan.
    """

    def __init__(self, env: EnvFactory, team: Team, executor: Executor, *, inflight: bool = False) -> None:
        self.env, self.executor, self.player = env, executor, team.twin()
        self.inflight = inflight
        self._newest: tuple[Weights, int] | None = None
        self._renewing, self._playing = threading.Lock(), False
        for policy in self.player.learnable.values():
            if inflight and isinstance(policy, Inflight):
                policy.inflight = True
        self.queue: deque[Ahead] = deque()
        self._orders: SimpleQueue[Ahead | None] | None = None  # of the thread that plays; None: it is told to end
        self._thread: threading.Thread | None = None

    def add(self, ahead: Ahead, *, play: bool) -> None:
        """Append the next iteration and play it; one beyond the end of the run is kept unplayed (`play` False)."""
        self.queue.append(ahead)
        if play:
            if self._orders is None:
                self._orders = SimpleQueue()
                given = self._orders, self._thread
                self._thread = threading.Thread(target=self._play, args=given, name="palaestra-player", daemon=True)
                self._thread.start()
            ahead.played = Future()
            self._orders.put(ahead)

    def renew(self, weights: Weights, version: int) -> None:
        """The learner has new weights, after `version` updates: whatever is being played goes on with them.

        Raises:
            PolicyError: a server could not take them.
        """
        with self._renewing:
            self._newest = weights, version
            for name, state in weights.items() if self._playing else ():
                policy = self.player.learnable[name]
                assert isinstance(policy, Inflight), "a trainer has looked"
                policy.renew(state, version)

    def _begin(self, ahead: Ahead) -> None:
        """Give the player the weights of an iteration; those of now, if they may change."""
        with self._renewing:
            if self.inflight and self._newest is not None:
                ahead.weights, version = self._newest
                ahead.plan = dataclasses.replace(ahead.plan, version=version)
            for name, state in ahead.weights.items():
                self.player.learnable[name].load_state_dict(dict(state))
            self._playing = self.inflight

    def next(self) -> tuple[Ahead, Turns, float, float]:
        """Wait for the oldest iteration; returns it, its table, seconds waited, and CPU-seconds of workers.

        Raises:
            whatever playing it raised.
        """
        ahead = self.queue.popleft()
        assert ahead.played is not None, "only what lies within the run is asked for"
        began = time.perf_counter()
        turns, spent = ahead.played.result()
        return ahead, turns, time.perf_counter() - began, spent

    def _play(self, orders: SimpleQueue[Ahead | None], earlier: threading.Thread | None) -> None:
        """Play what is ordered, one by one, once the `earlier` thread has ended: both play with the same team."""
        if earlier is not None:
            earlier.join()
        while (ahead := orders.get()) is not None:
            played = ahead.played
            if played is None or not played.set_running_or_notify_cancel():
                continue
            try:
                self._begin(ahead)
                before = spent_by(self.executor)
                turns, ahead.mismatch = play(self.executor, self.env, self.player, ahead.plan)
                played.set_result((turns, spent_by(self.executor) - before))
            except BaseException as error:  # it is for the learner's thread to raise it
                played.set_exception(error)
            finally:
                with self._renewing:
                    self._playing = False

    def close(self) -> None:
        """Cancel iterations that were not begun, wait for the one that is being played, and forget all of them.

        Whoever goes on with the run would else share its servers with it, and change their weights under it; and a
        trainer that goes on itself plans them anew, or finds them in its checkpoint.
        """
        for ahead in self.queue:
            if ahead.played is not None:
                ahead.played.cancel()
        orders, self._orders = self._orders, None
        self.queue.clear()
        if orders is not None:
            orders.put(None)
        if self._thread is not None:
            self._thread.join()  # whoever is interrupted here leaves nothing that the next run would trip over

    def state_dict(self) -> list[dict[str, Any]]:
        """Plans, notes and weights of the queue; None for those of the newest one, and for all if `inflight`."""
        now = self.queue[-1].weights if self.queue else None
        return [
            {
                "plan": _told(ahead.plan),
                "notes": ahead.notes,
                "weights": None
                if self.inflight or ahead.weights is now
                else {name: dict(each) for name, each in ahead.weights.items()},
            }
            for ahead in self.queue
        ]

    @staticmethod
    def again(state: list[dict[str, Any]], now: Weights) -> list[Ahead]:
        """Queue entries restored from `state_dict`. now: the weights that the run goes on with."""
        return [Ahead(_plan(each["plan"]), each["notes"], each["weights"] or now) for each in state]


def check_inflight(inflight: bool, lag: int, policies: Mapping[str, Any]) -> None:
    """Raise InputError if `inflight` with `lag` 0, or with a policy whose weights cannot change while it answers."""
    if inflight and not lag:
        raise InputError("inflight: with lag 0 nothing is played while the learner learns: write lag: 1 or more")
    for name, policy in policies.items():
        if inflight and not isinstance(policy, Inflight):
            raise InputError(
                f"inflight: policy {name!r} answers here, with the weights that it has when it is asked; only a served "
                "policy (kind: served) can be given others while it answers"
            )


def play(executor: Executor, env: EnvFactory, team: Team, plan: Plan) -> tuple[Turns, dict[str, dict[str, float]]]:
    """Play a plan by an executor, of an env factory and a team: pair (`Turns`, {served policy: dict of its mismatch}).

    Their servers have the weights of the team before the first request, and keep them until the last one is answered.
    """
    served = {name: each for name, each in team.learnable.items() if isinstance(each, Served)}
    with contextlib.ExitStack() as held:
        for policy in served.values():
            held.enter_context(policy.held())
            policy.sync(plan.version)
        turns = executor.play(env, team, plan)
    return turns, {name: each.mismatch(turns.frame) for name, each in served.items()}


def spent_by(executor: Executor) -> float:
    """CPU-seconds that an executor's workers used so far for this thread; 0 if it does not count them."""
    return float(getattr(executor, "cpu_seconds", 0.0))


def _told(plan: Plan) -> dict[str, Any]:
    told = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    listed = {
        name: [None if n is None else int(n) for n in told[name]]
        for name in ("group_size", "env_seeds")
        if told[name] is not None and not isinstance(told[name], int)
    }
    return told | listed | {"groups": [plan.numbers.start, plan.numbers.stop]}


def _plan(told: dict[str, Any]) -> Plan:
    return Plan(**told | {"groups": range(*told["groups"])})
