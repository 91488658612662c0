"""`supervisor`: a seat picks who works next, by name, and says on what, until it says FINISH.

    supervisor({"coder": "You write programs.", "checker": "You look for mistakes."}, turns=8)

The pick is a turn with a log-probability, so a language model, a table or a bandit may sit there. `orchestrated`
chooses a team once, before it works; here the choice is made anew after every message. Left out: several workers at
once (`graph` has branches), and workers that call each other.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.envs.conversations import Conversation
from palaestra.envs.protocol import Action, EnvFactory, Observation
from palaestra.envs.replies import read_reply
from palaestra.errors import InputError, nearest
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.instructions import ASKS
from palaestra.teams.rules import Draw, Message

FINISH = "FINISH"
"""Choice that ends the work."""


class Supervised(Deliberation):
    """Team env (of a `TaskEnv` factory): `Deliberation`; `seat` picks the role of each turn and tells it what to do.

    facts: its own; assigned, whom the seat picked, or FINISH, null on all other turns and where its reply named nobody.

    Args:
        seat: role that assigns. closing: whether it gives the team's answer itself in the end, instead of the workers'
            answers being aggregated.
    """

    facts = {**Deliberation.facts, "assigned": str}

    def __init__(self, tasks: EnvFactory, graph: Graph, *, seat: str, closing: bool = False, **options: Any) -> None:
        super().__init__(tasks, graph, **options)
        self.seat, self.closing = seat, closing
        self.workers = tuple(role for role in self.agents if role != seat)
        self._choices = (*self.workers, FINISH)
        self._route, self._verdict, self._counted = self._next_role, self._stop, self._aggregate
        self._stop, self._aggregate = self._stops, self._final
        self._assigned: str | None = None
        self._closed = False
        self._unread = False
        self._known: dict[str, int] = {}
        self._orders: set[int] = set()

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin, and ask the supervising seat whom it picks first."""
        self._assigned, self._closed, self._unread = None, False, False
        self._known, self._orders = {}, set()
        return super().reset(seed)

    # -- whose turn it is ---------------------------------------------------------------------------------------------

    def _next_role(self, roles: Sequence[str], said: Sequence[Message], draw: Draw) -> Sequence[str]:
        if self._step == 0:
            self._assigned = None
            return (self.seat,)
        return (self._assigned,) if self._assigned in self.workers else ()

    def _next(self) -> dict[str, Observation]:
        """The next turn; the last one is the seat's answer, if it gives one."""
        if self._assigned != FINISH and not self._closed and (observations := super()._next()):
            return observations
        if not self.closing or self._closed:
            return {}
        self._round, self._step, self._closed = self._round + (self._assigned == FINISH), 0, True
        return self._ask()

    def _stops(self, said: Sequence[Message]) -> bool:
        answers = self._answers(said)
        over = self._assigned == FINISH or bool(answers and self._verdict(answers))
        return over and not self.closing

    def _final(self, said: Sequence[Message], draw: Draw) -> Message:
        return self._counted(self._answers(said) or said, draw)

    def _answers(self, said: Sequence[Message]) -> list[Message]:
        """Messages that answer the question: not those that only assign."""
        return [each for each in said if each.role != self.seat or each.turn not in self._orders]

    def _asked_for(self, role: str) -> str:
        return "answer" if self._closed else super()._asked_for(role)

    # -- what is read -------------------------------------------------------------------------------------------------

    def _coming(self, role: str) -> list[Message]:
        """What was said since the role's last turn by those whom it hears, and what it is told to do now."""
        begun = self._known.get(role, 0) if role in self._talks else 0
        self._known[role] = len(self._every)
        heard = self.graph.heard[role]
        coming = [each for each in self._every[begun:] if each.role in heard and each.role != self.seat]
        order = self._said.get(self.seat)
        return [*coming, order] if role != self.seat and order is not None and order.reply else coming

    def _observation(self, role: str, own: Message | None, heard: list[Message]) -> Observation:
        """As plain text everything so far with its names, since nothing else is remembered there."""
        seen = super()._observation(role, own, heard)
        every = [each for each in self._every if each.role in self.graph.heard[role] and each.role != self.seat]
        order = [each for each in heard if each.role == self.seat]
        lines = [f"{each.role}: {self._shown[each.text]}" for each in (*every, *order)]
        notes = [note for _, note in self._notes(role, own)]
        text = self._separator.join([self._questions[role], *lines, *notes])
        if role != self.seat or self._closed:
            return dataclasses.replace(seen, text=text)
        return dataclasses.replace(seen, text=text, choices=self._choices, mask=self._mask)

    @property
    def _mask(self) -> np.ndarray | None:
        """The work cannot be finished before there is an answer."""
        if self.closing or any(each.role != self.seat for each in self._every):
            return None
        return np.array([choice != FINISH for choice in self._choices])

    def _conversation(self, role: str, ask: str, own: Message | None, heard: list[Message]) -> Conversation:
        return super()._conversation(role, ask, None if role == self.seat else own, heard)

    def _notes(self, role: str, own: Message | None) -> list[tuple[str, str]]:
        if role != self.seat:
            return []
        away = [each for each in self._absence.down if each != self.seat]
        notes = [("Could not be reached", ", ".join(away))] if away else []
        if self._unread and not self._closed:
            legal = Observation("", self._choices, mask=self._mask).legal
            notes.append(("Your last choice was none of", ", ".join(legal)))
        return notes

    # -- what is said -------------------------------------------------------------------------------------------------

    def _reply(self, role: str, action: Action) -> str:
        chosen = isinstance(action, int) and role == self.seat and 0 <= action < len(self._choices)
        return self._choices[int(action)] if chosen else super()._reply(role, action)

    def _read(self, role: str, reply: str) -> Message:
        self._acting[role] = [each for each in self._acting[role] if each.role != self.seat]  # no answer to accept
        if role != self.seat or self._closed:
            return super()._read(role, reply)
        if role in self._talks:
            self._talks[role] = (self._talks[role][0], reply)
        found = Observation("", self._choices, mask=self._mask, fields=ASKS["assign"]).index(reply)
        self._assigned = None if found is None else self._choices[found]
        told = read_reply(reply, ASKS["assign"][0], until=ASKS["assign"][1:])
        order = told.text if told.form in ("json", "line") and self._assigned in self.workers else ""
        text = order or self._assigned or read_reply(reply, ASKS["assign"][-1]).text
        self._true.setdefault(text, None)
        self._shown.setdefault(text, self._cut(text.replace(self._mark, " ")))
        self._unread = found is None
        self._orders.add(self._turn)
        form = read_reply(reply, ASKS["assign"][-1]).form
        return Message(role, text, None, self._turn, self._round, reply=order, form=form)

    def _readable(self, said: Message) -> bool:
        return super()._readable(said) if self._answers([said]) else not self._unread

    def _facts(self, info: dict[str, Any]) -> None:
        info["assigned"] = {self.seat: self._assigned} if self.seat in info["answer"] and not self._closed else None


def supervisor(
    tasks: EnvFactory,
    workers: Sequence[str] | Mapping[str, str] = ("solver", "checker"),
    turns: int = 6,
    *,
    seat: str = "supervisor",
    sees: str | Mapping[str, Sequence[str]] = "all",
    closing: bool = False,
    aggregate: str = "last()",
    stop: str = "never()",
    **options: Any,
) -> EnvFactory:
    """Env factory from another, `tasks`: a supervising seat instructs the next worker, until it says FINISH.

    Args:
        tasks: Makes the `TaskEnv`.
        workers: Names, or name -> what it is told about itself; the seat reads that, too.
        turns: Most picks.
        seat: Name of who picks.
        sees: What a worker reads beside the question and what it is told to do: "all", what any worker said; "own",
            only what it said itself; or worker -> whom it hears.
        closing: Whether the seat is asked for the team's answer in the end; else it is what `aggregate` takes.
        aggregate: Which of the workers' last answers is the team's.
        stop: What ends the work beside FINISH.
        options: Of every team (`palaestra.teams.deliberation.Deliberation`).

    Raises:
        InputError: a name is taken, `sees` names nobody, or `turns` is below 1.
    """
    told = dict(workers) if isinstance(workers, Mapping) else dict.fromkeys(workers, "")
    if len(told) < len(workers) or not told or {seat, FINISH} & told.keys():
        raise InputError(f"supervisor: workers={list(workers)}: at least one, other than {seat!r} and {FINISH!r}")
    if isinstance(sees, str):
        if sees not in ("all", "own"):
            raise InputError(f"supervisor: sees={sees!r}{nearest(sees, ('all', 'own'))}; or {{worker: [names]}}")
        others = {name: [each for each in told if each != name] if sees == "all" else [] for name in told}
    else:
        for name in (*sees, *(each for names in sees.values() for each in names)):
            if name not in told:
                raise InputError(f"supervisor: sees has {name!r}, which is no worker{nearest(str(name), told)}")
        others = {name: [each for each in sees.get(name, ()) if each != name] for name in told}
    graph = Graph.of(
        {seat: "", **told},
        edges={seat: list(told), **{name: [seat, *others[name]] for name in told}},
        steps=[[seat], list(told)],
        rounds=turns,
        memory="all",
        asks={seat: "assign"},
        stop=stop,
        aggregate=f"of({seat!r})" if closing else aggregate,
        workflow="supervisor",
    )
    values = {"members": told, "leader": seat, "closing": closing}
    factory = functools.partial(Supervised, tasks, graph, seat=seat, closing=closing, values=values, **options)
    factory()
    return factory
