"""A seat that writes the team itself: layers of workers as text, `2-3-1`, for each task ([130], arXiv 2602.17100).

    conducted(most={"easy": 4, "hard": 10}, price=0.01)

The text is a turn with a log-probability: a language model writes it freely, a table or a bandit chooses among
`templates`. What was written is measured (nodes, edges, layers, the most that the task deserves), so that a reward can
price it: `conductor(weight)`. Text that is no team ends the episode. Left out: roles with instructions of their own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from palaestra.envs.conversations import Conversation
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.replies import read_reply
from palaestra.errors import InputError
from palaestra.foundation.yaml import read as read_yaml
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.instructions import ASKS, Instructions
from palaestra.teams.orchestrator import OrchestratedEnv
from palaestra.teams.task_wrapper import made_task

LONGEST = 400


@functools.lru_cache(1024)
def layers(text: str, workers: int = 10) -> Graph | None:
    """Parse a text as a team `Graph`: widths of layers, `2-3-1`, or YAML of who reads whom; None if it is not valid.

    Each layer hears the one before; the last is one worker, who answers.

    Or, as YAML, who hears whom: `{w2: [w1], w3: [w1, w2]}`. None if it is no team, has a circle, more than `workers`
    members, or more than one whom nobody hears: a crowd that only votes would be the densest reward of all.

    >>> made = layers("2-3-1")
    >>> len(made.roles), made.steps[0], made.heard["w6"]
    (6, ('w1', 'w2'), ('w3', 'w4', 'w5'))
    >>> layers("many") is None
    True
    """
    text = text.strip()
    if re.fullmatch(r"[1-9]\d?(-[1-9]\d?)*", text):
        widths = [int(width) for width in text.split("-")]
        if sum(widths) > workers:
            return None
        names = iter(_names(sum(widths)))
        made = [[next(names) for _ in range(width)] for width in widths]
        heard = {to: before for before, now in pairwise(made) for to in now}
        return _ending([name for layer in made for name in layer], heard)
    if not text.startswith("{") or len(text) > LONGEST:
        return None
    try:
        edges = read_yaml(text)
        named = {*edges, *(sender for senders in edges.values() for sender in senders)}
        return _ending([name for name in _names(workers) if name in named], edges) if len(named) <= workers else None
    except Exception:  # whatever a model wrote
        return None


def _names(number: int) -> list[str]:
    return [f"w{at}" for at in range(1, number + 1)]


def _ending(roles: Sequence[str], edges: Mapping[str, Sequence[str]]) -> Graph | None:
    """The one whom nobody hears gives the team's answer."""
    heard = {sender for senders in edges.values() for sender in senders}
    last = [role for role in roles if role not in heard]
    return Graph.of(roles, edges=edges, aggregate=f"of({last[0]!r})") if len(last) == 1 else None


class ConductedEnv(OrchestratedEnv):
    """Team env (of a `TaskEnv` factory): `seat` first writes each task's team of at most `workers`, which then answers.

    A failure is told to the seat while it has tries left.

    facts: those of the teams; plan, which text; and on the seat's turn plan_nodes, plan_edges, plan_depth, how large
    the team is; plan_most, how large it should be at most; plan_calls, how many turns it took; plan_read, whether its
    answer could be read.
    """

    facts = {
        **Deliberation.facts, "plan": str, "plan_nodes": int, "plan_edges": int, "plan_depth": int, "plan_most": int,
        "plan_calls": int, "plan_read": bool,
    }  # fmt: skip

    def __init__(
        self,
        tasks: EnvFactory,
        *,
        workers: int,
        most: int | Mapping[str, int],
        templates: Sequence[str],
        price: float,
        tries: int,
        seat: str,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self._tasks, self.workers, self.most, self.tries = tasks, workers, most, tries
        self.templates, self.seat, self.price = tuple(templates), seat, price
        self.inner, self.plans = made_task(tasks, "conducted"), {}
        self.agents, self.task = (seat, *_names(workers)), ""
        self._working, self._asked = None, False
        self._instructions = Instructions(
            "conducted", {seat: ""}, instructions, workers=workers, price=price, tries=tries
        )
        self._talk: tuple[Conversation, str] | None = None

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin: the seat sees the question."""
        self.inner.reset(seed)
        self.task, self._seed, self._all, self._left = self.inner.task, seed, 0, self.tries
        self._working = self._talk = None
        return self._ask(self.question)

    def _ask(self, text: str, note: str | None = None) -> dict[str, Observation]:
        self._asked, self._left = True, self._left - 1
        ask = "choice" if self.templates else "team"
        talk = self._instructions.turn(
            self.seat, ask, self.question, before=self._talk, note=note, choices=self.templates
        )
        self._talk = (talk, "")
        return {self.seat: Observation(text, self.templates or None, messages=talk, fields=ASKS[ask])}

    def _begin(self, action: Action) -> StepResult:
        """Measure what was written, and let it work."""
        self._asked = False
        self._talk = (self._talk[0], str(action)) if self._talk else None
        text = read_reply(str(action).strip(), "team").text
        if self.templates:
            chosen = Observation("", self.templates, fields=ASKS["choice"]).index(action)
            text = "" if chosen is None else self.templates[chosen]
        graph = layers(text, self.workers)
        info: dict[str, Any] = {
            "valid": {self.seat: graph is not None},
            "plan": text[:LONGEST],
            "plan_most": self._most(),
        }
        if graph is None:
            return StepResult({}, {self.seat: -self.price * self._all}, terminated=True, info=info | {"success": False})
        info |= {
            "plan_nodes": len(graph.roles),
            "plan_edges": sum(map(len, graph.heard.values())),
            "plan_depth": len(graph.steps),
        }
        self._name, self._calls = text, 0
        if text not in self.plans:
            self.plans[text] = Deliberation(self._tasks, graph)
        self._working = self.plans[text]
        return StepResult(self._working.reset(self._seed), info=info)

    def _most(self) -> int:
        if not isinstance(self.most, Mapping):
            return self.most
        return max((number for phrase, number in self.most.items() if phrase in self.question), default=self.workers)

    def _go_on(self, team: Deliberation, actions: Mapping[str, Action]) -> StepResult:
        result = super()._go_on(team, actions)
        if not result.terminated:
            return result
        self._all += self._calls
        info = dict(result.info)
        info["plan_read"] = {self.seat: info["final_read"]}
        if not info["success"] and self._left:
            del info["success"]
            note = f"The team {self._name} failed. Write another one."
            return StepResult(self._ask(f"{self.question} | {self._name} failed", note), info=info)
        rewards = {
            agent: (reward or 0.0) - self.price * (self._all - self._calls) for agent, reward in result.rewards.items()
        }
        return StepResult({}, rewards, terminated=True, info=info)


def conducted(
    tasks: EnvFactory,
    *,
    workers: int = 10,
    most: int | Mapping[str, int] = 10,
    templates: Sequence[str] = (),
    price: float = 0.0,
    tries: int = 1,
    seat: str = "orchestrator",
    instructions: Mapping[str, str] | None = None,
) -> EnvFactory:
    """Env factory from another, `tasks`: `seat` writes each task's team of at most `workers` agents, which answers it.

    The workers are `w1`, `w2`, ….

    workers: most that a team can have. most: how many a task deserves, a number, or one for each phrase that a question
    may have. templates: the texts among which the seat chooses; without them it writes. price: of each turn. tries:
    how often it may write; after a failure it reads the question and what failed (2 in the paper). instructions: {seat:
    system prompt} for chat models instead of the shipped one.

    Raises:
        InputError: an option is out of range, or a template is no team.
    """
    if workers < 1 or tries < 1 or price < 0:
        raise InputError(f"conducted: {workers=} and {tries=} must be at least 1, price={price} at least 0")
    for text in templates:
        if layers(text, workers) is None:
            raise InputError(
                f"conducted: templates has {text!r}, expected at most {workers} workers, the last alone: '2-3-1'"
            )
    options = {"workers": workers, "most": most, "templates": templates, "price": price, "tries": tries, "seat": seat,
               "instructions": instructions}  # fmt: skip
    factory = functools.partial(ConductedEnv, tasks, **options)  # type: ignore[arg-type]
    factory()
    return factory
