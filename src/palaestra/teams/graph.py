"""A team as data: roles, who hears whom, in how many rounds, what travels, what counts, and when it ends.

    graph(roles=["a", "b", "c"], edges="all", rounds=2, aggregate="vote()", stop="agree()")         a debate
    graph(roles=["planner", "actor", "checker"], edges="chain", aggregate="of('actor')")            a chain

A recipe writes it as `env.workflow`, as such a call or as a mapping; `palaestra.teams.workflows` has the usual ones.
Who speaks in the same step speaks at once and cannot hear each other; a role hears what was said before, in this round
or the last one. Left out: how it is played (`palaestra.teams.deliberation`), graphs that are chosen for each task
(`palaestra.teams.orchestrator`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import read_call
from palaestra.teams.instructions import ASKS, family
from palaestra.teams.rules import AGGREGATES, GATES, ROUTES, STOPS

ABOUT = ("of", "accepted", "named", "vote")
"""Rules that are about a role."""
AROUND = ("quorum", "in_turn")
"""Rules around rules, by text."""
Memory = Literal["latest", "all"]
Edges = str | Mapping[str, Sequence[str]] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Graph:
    """Data of a team's communication graph: roles, speaking order, who reads whom, rounds, rules; made by `Graph.of`.

    roles: in the order in which they are asked, with what a chat model is told (may be empty). steps: who speaks at
    once. heard: of each role, whom it hears, in the order in which it reads them. memory: of those the latest word, or
    all of them. own: whether a role reads its own last answer. gate, route, aggregate, stop: rules by text.
    """

    roles: Mapping[str, str]
    steps: tuple[tuple[str, ...], ...]
    heard: Mapping[str, tuple[str, ...]]
    rounds: int = 1
    gate: str = "all()"
    route: str = "everyone()"
    aggregate: str = "vote()"
    stop: str = "never()"
    memory: Memory = "latest"
    own: bool = True
    asks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    workflow: str = "graph"

    @classmethod
    def of(
        cls,
        roles: Sequence[str] | Mapping[str, str],
        *,
        edges: Edges = "none",
        steps: Sequence[Sequence[str] | str] | None = None,
        rounds: int = 1,
        gate: str = "all()",
        route: str = "everyone()",
        aggregate: str = "vote()",
        stop: str = "never()",
        memory: Memory = "latest",
        own: bool = True,
        asks: Mapping[str, str | Sequence[str]] | None = None,
        workflow: str = "graph",
    ) -> Graph:
        """A checked `Graph` from plain values, as recipes write them.

        Args:
            roles: names, or name -> instruction for chat models.
            edges: "none"; "all", everybody hears everybody else; "chain", each hears the one before; {receiver:
                [senders]}; or pairs [sender, receiver]. A role reads its senders in the order in which they stand here.
            steps: who speaks at once, one list after the other, in each round. Default: those who hear nobody first,
                then those who hear only them, and so on; in a circle, where nobody is first, all at once.
            rounds: how often.
            gate: rule by text: what is passed on.
            route: rule by text: who is asked.
            aggregate: rule by text: which answer counts.
            stop: rule by text: when it ends before the last round.
            memory: of those it hears a role reads the "latest" word, or "all".
            own: whether a role reads its own last answer. If not, and memory is "all", what it said stands among the
                rest.
            asks: of a role that is not asked for an answer, one or several of `palaestra.teams.instructions.ASKS`.
            workflow: name for messages of errors.

        Raises:
            InputError: a role is unknown or never speaks, a rule is, or nobody is first though there is one round.
        """
        told = dict(roles) if isinstance(roles, Mapping) else dict.fromkeys(roles, "")
        if not told or len(told) < len(roles):
            raise InputError(f"graph: roles={list(roles)}: at least one, each with a name of its own")
        for role in told:
            if not isinstance(role, str) or not role.strip():
                raise InputError(f"graph: roles has {role!r}, expected a name")
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            raise InputError(f"graph: rounds={rounds!r}, expected at least 1")
        if memory not in get_args(Memory):
            raise InputError(f"graph: memory={memory!r}{nearest(str(memory), get_args(Memory))}")
        for registry, text in ((GATES, gate), (ROUTES, route), (AGGREGATES, aggregate), (STOPS, stop)):
            registry.build(text)
            for role, known in _named(text, tuple(told)):
                _known(role, known, text)
        heard = _heard(tuple(told), edges)
        order = _layers(tuple(told), heard, rounds) if steps is None else _steps(tuple(told), steps)
        asked = {role: (each,) if isinstance(each, str) else tuple(each) for role, each in (asks or {}).items()}
        for role, each in asked.items():
            _known(role, tuple(told), "asks")
            for ask in each or ("",):
                if ask not in ASKS:
                    raise InputError(f"graph: asks of {role!r} has {ask!r}{nearest(ask, ASKS)}")
        return cls(told, order, heard, rounds, gate, route, aggregate, stop, memory, own, asked, workflow)

    def ask(self, role: str, turn: int) -> str:
        """The kind of reply that a role is asked for in its turn number `turn`, from 0."""
        asks = self.asks.get(role, ("answer",))
        return asks[min(turn, len(asks) - 1)]

    def heard_by(self, role: str) -> tuple[str, ...]:
        """Roles that read what this role says."""
        return tuple(to for to, senders in self.heard.items() if role in senders)

    @property
    def calls(self) -> int:
        """Most turns of an episode: those of all rounds if every route lets everyone act."""
        return self.rounds * sum(len(step) for step in self.steps)


def _named(text: str, roles: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Roles that a rule names, and those of the rules that are written in it, each with the names that there are."""
    name, values, named = read_call(text)
    values += named.values()
    if name in ABOUT:
        yield from ((role, roles) for role in values)
    elif name == "weighted":
        weights = next(each for each in values if isinstance(each, Mapping))
        yield from ((role, (*roles, *map(family, roles))) for role in weights)
    elif name in AROUND:
        for rule in values:
            if isinstance(rule, str):
                yield from _named(rule, roles)


def _known(role: Any, roles: Sequence[str], field: str) -> str:
    if role not in roles:
        raise InputError(f"graph: {field} has {role!r}, which is no role{nearest(str(role), roles)}")
    return str(role)


def _heard(roles: tuple[str, ...], edges: Edges) -> dict[str, tuple[str, ...]]:
    """Receiver -> senders, in the order in which the edges stand."""
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(edges, str):
        shapes = {
            "none": [],
            "all": [(one, other) for one in roles for other in roles if one != other],
            "chain": list(pairwise(roles)),
        }
        if edges not in shapes:
            raise InputError(f"graph: edges={edges!r}{nearest(edges, shapes)}; or write {{receiver: [senders]}}")
        pairs = shapes[edges]
    elif isinstance(edges, Mapping):
        pairs = [(sender, to) for to, senders in edges.items() for sender in _list(senders, f"edges of {to!r}")]
    else:
        for pair in edges:
            if isinstance(pair, str) or len(pair) != 2:
                raise InputError(f"graph: edges has {pair!r}, expected a pair [sender, receiver]")
        pairs = [(pair[0], pair[1]) for pair in edges]
    found = dict.fromkeys(
        (_known(sender, roles, "edges"), _known(receiver, roles, "edges")) for sender, receiver in pairs
    )
    for sender, receiver in found:
        if sender == receiver:
            raise InputError(f"graph: {sender!r} hears itself; own=true lets a role read its own last answer")
    return {to: tuple(sender for sender, receiver in found if receiver == to) for to in roles}


def _list(value: Any, field: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"graph: {field} is {value!r}, expected a list of roles")
    return list(value)


def _steps(roles: tuple[str, ...], steps: Sequence[Sequence[str] | str]) -> tuple[tuple[str, ...], ...]:
    """As given; every role speaks."""
    found = tuple((each,) if isinstance(each, str) else tuple(each) for each in steps)
    spoken = [_known(role, roles, "steps") for step in found for role in step]
    if silent := [role for role in roles if role not in spoken]:
        raise InputError(f"graph: {silent[0]!r} is in no step, so it never speaks; add it to steps or take it out")
    for step in found:
        if not step or len(set(step)) < len(step):
            raise InputError(f"graph: a step is {list(step)}, expected roles, each once")
    return found


def _layers(roles: tuple[str, ...], heard: Mapping[str, tuple[str, ...]], rounds: int) -> tuple[tuple[str, ...], ...]:
    """Those who hear nobody first; in a circle all at once, if there is a round in which it can be heard."""
    left, layers = list(roles), []
    while left:
        ready = tuple(role for role in left if not set(heard[role]) & set(left))
        if not ready:
            if rounds > 1:
                return (roles,)
            raise InputError(
                f"graph: {', '.join(left)} hear each other in a circle, so nobody is first: give steps, or rounds=2 "
                "and more, then all speak at once and hear each other from the second round on"
            )
        layers.append(ready)
        left = [role for role in left if role not in ready]
    return tuple(layers)
