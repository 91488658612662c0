"""`Deliberation`: a task with one answer, played by the roles of a `Graph`.

What a role reads is the question, its own last answer if it has one, and what it hears:

    4 + 3 = | 8 | 7          (of two others; the word `ok` repeats what was heard last instead of answering)

Chat models read a conversation instead: who they are, what is asked, and who said what, whole
(`palaestra.teams.instructions`). What everybody heard, and what was held back and why, stands in
the columns of the receiver's turn, from which `palaestra.algebra.messages` makes the table of messages. Left out:
several tasks at once, partial credit for messages (that is `palaestra.credit`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from palaestra.envs.conversations import ChatMessage, Conversation, Reader, first_words, words
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.replies import Reply, read_reply, without_thinking
from palaestra.envs.tasks import TaskEnv, read_answer
from palaestra.errors import EnvError, InputError, PolicyError, nearest
from palaestra.teams.absence import Absence
from palaestra.teams.bids import number_in
from palaestra.teams.graph import Graph
from palaestra.teams.instructions import ASKS, Heard, Instructions
from palaestra.teams.rules import AGGREGATES, GATES, ROUTES, STOPS, VERIFIERS, Message, Verdict
from palaestra.teams.task_wrapper import TaskTeamEnv, made_task

ACCEPT = "ok"
SEPARATOR = " | "
Reads = Literal["whole", "part"]
DRAWS = 7_919
"""Joins the reset seed: rules draw from a stream of their own."""


class Deliberation(TaskTeamEnv):
    """Team env (of a `TaskEnv` factory): roles of a `Graph` answer in rounds, read each other; all get the team score.

    facts, of each turn: round; answer, as it counts; score, of that answer; expected, a right answer if one is known;
    and of what was on its way to the role: heard (by whom), heard_turn (when they said it), heard_weight, heard_kept
    (whether it arrived), heard_reason (why not; empty if it did), heard_cut (tokens of what arrived that were left out,
    if there is a limit); read_as, where the answer stood in the reply, one of `palaestra.envs.replies.FORMS`.

    Args:
        tasks: makes the `TaskEnv`. graph: who works with whom.
        price: what each turn costs the team: `price` less for everybody, for each of them.
        accept: what a role says to repeat the last message that it heard, without one its own last answer.
        verifier: what rules see of the score. improve: a role's answer replaces its last one only if it scores higher.
        separator: stands between what a role reads as plain text. longest: most tokens of a message that others read,
        as the reader's tokenizer counts them; None: all of it. Answers are scored whole.
        instructions: role, or role without its number, or "*" -> a Jinja template, the system prompt of chat models
        instead of the shipped one, which is `{{ default }}` in it. values: further variables of these.
        on_error: what happens if the policy of a role fails: `fail`, the episode does; `skip`, the team goes on without
        its answer; `quorum(3)`, as long as so many of those who were asked at once answer (`palaestra.teams.absence`).
        reads: of the question, everybody "whole", or the first role the first "part", the second one the second …

    Raises:
        InputError: the env is no task with one answer, or an option is out of range; when it is reset, a question that
            has not as many parts as there are roles.
    """

    facts = {
        "round": int, "answer": str, "score": float, "expected": str,
        "heard": list[str], "heard_turn": list[int], "heard_weight": list[float], "heard_kept": list[bool],
        "heard_reason": list[str], "heard_cut": list[int], "read_as": str,
    }  # fmt: skip

    def __init__(
        self,
        tasks: EnvFactory,
        graph: Graph,
        *,
        price: float = 0.0,
        accept: str = ACCEPT,
        separator: str = SEPARATOR,
        longest: int | None = None,
        reads: Reads = "whole",
        verifier: str = "exact()",
        improve: bool = False,
        on_error: str = "fail",
        instructions: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        if reads not in get_args(Reads):
            raise InputError(f"workflow: reads={reads!r}{nearest(str(reads), get_args(Reads))}")
        if not accept.strip() or not separator.strip() or (longest is not None and longest < 1) or not price >= 0:
            raise InputError(
                f"workflow: accept={accept!r} and separator={separator!r} must not be blank, longest={longest} at "
                f"least 1 or null, price={price} at least 0"
            )
        self._absence = Absence(on_error)
        self.tolerates = self._absence.tolerates
        if self.tolerates and type(self).step is not Deliberation.step:
            raise InputError(f"{type(self).__name__} knows no on_error={on_error!r}: every role has to answer")
        self.inner: TaskEnv = made_task(tasks, "workflow")
        self.graph, self.price, self.reads = graph, price, reads
        self.agents = tuple(graph.roles)
        self.task = ""
        self._accept, self._separator, self._longest = accept.strip().casefold(), separator, longest
        self._mark = separator.strip()
        self._gate, self._route = GATES.build(graph.gate), ROUTES.build(graph.route)
        self._verifier, self._improve = VERIFIERS.build(verifier), improve
        self._aggregate, self._stop = AGGREGATES.build(graph.aggregate), STOPS.build(graph.stop)
        self._instructions = Instructions(
            graph.workflow, graph.roles, instructions, hears=graph.heard, rounds=graph.rounds, accept=accept.strip(),
            heard_by={role: graph.heard_by(role) for role in graph.roles},
            parts=len(graph.roles) if reads == "part" else None, **(values or {}),
        )  # fmt: skip
        self._acting: dict[str, list[Message]] = {}
        self._rng: np.random.Generator | None = None

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the question of `seed` and ask the first roles."""
        self.inner.reset(seed)
        self.task = self.inner.task
        self._seed, self._rng = seed, None
        self._questions = self._read_by()
        self._absence.begin()
        self._said: dict[str, Message] = {}
        self._true: dict[str, float | None] = {}
        self._shown: dict[str, str] = {}
        self._every: list[Message] = []
        self._talks: dict[str, tuple[Conversation, str]] = {}
        self._turns = dict.fromkeys(self.agents, 0)
        self._round = self._step = self._turn = 0
        return self._ask()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the answers of the roles that spoke at once; ask the next, or score the team's answer."""
        if actions.keys() != self._acting.keys():
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._acting)}")
        info: dict[str, Any] = {"round": self._round, "expected": self.inner.answer, **self._told}
        for role in (lost := self._absence.settle(actions) if self.tolerates else ()):
            self._turns[role] += 1
            self._talks.pop(role, None)
        spoken = [self._read(role, self._reply(role, action)) for role, action in actions.items() if role not in lost]
        info["answer"], info["score"], info["valid"] = answers, scores, valid = {}, {}, {}
        info["read_as"] = {said.role: said.form for said in spoken}
        for said in spoken:  # only now, since those who speak at once do not hear each other
            role, score = said.role, self._true[said.text]
            answers[role], scores[role], valid[role] = said.text, score, self._readable(said)
            self._turns[role] += 1
            before = self._said.pop(role, None)
            self._said[role] = before if before and self._improve and not _better(said, before) else said
        self._facts(info)
        self._every += spoken
        self._turn += 1
        latest = [said for said in self._said.values() if said.held is None] or list(self._said.values())
        if not (latest and self._stop(latest)) and (observations := self._next()):
            return StepResult(observations, info=info)
        if not latest:
            raise PolicyError(f"nobody has answered; {self._absence.missing()}")
        self._acting = {}
        final = self._aggregate(latest, self._draw)
        score = self._true[final.text]
        info["success"] = self.inner.solved(score)
        info["final"], info["final_role"], info["final_read"] = final.text, final.role, score is not None
        worth = (score or 0.0) - self.price * len(self._every)
        return StepResult({}, dict.fromkeys(self._said, worth), terminated=True, info=info)

    def _read_by(self) -> dict[str, str]:
        """Part of the question that each role reads."""
        if self.reads == "whole":
            return dict.fromkeys(self.agents, self.question)
        parts = self.inner.current.parts
        if len(parts) != len(self.agents):
            raise InputError(
                f"workflow: reads='part', but the question has {len(parts) or 'no'} parts for {len(self.agents)} roles"
            )
        return dict(zip(self.agents, parts, strict=True))

    def _asked_for(self, role: str) -> str:
        """What a role is asked for now, one of `palaestra.teams.instructions.ASKS`."""
        return self.graph.ask(role, self._turns[role])

    def _reply(self, role: str, action: Action) -> str:
        """Text of an action."""
        return read_answer(action)

    def _facts(self, info: dict[str, Any]) -> None:
        """Further facts of a step whose answers are in `info`: none here."""

    def _read(self, role: str, reply: str) -> Message:
        """Message of a role as it counts: a word of acceptance stands for what it accepts."""
        if role in self._talks:
            self._talks[role] = (self._talks[role][0], reply)
        fields = ASKS[self._asked_for(role)]
        public = without_thinking(reply)
        text, form, shown = read_reply(reply, fields[-1]) if fields else Reply(public, "whole", public)
        if text.casefold().rstrip(".") == self._accept:
            heard = self._acting[role]
            accepted = heard[-1] if heard else self._said.get(role)
            if accepted is not None:
                shown = accepted.text if shown == text else f"{shown}\n({accepted.text} is accepted.)"
                return accepted._replace(
                    role=role, turn=self._turn, round=self._round, accepts=True, held=None, reply=shown, form=form
                )
        if text not in self._true:
            self._true[text] = self.inner.score(text)
            self._shown[text] = self._cut(text.replace(self._mark, " "))
        score = self._verifier(self._true[text], self._draw)
        says = self.inner.says(text)
        return Message(role, text, score, self._turn, self._round, reply=shown, form=form, says=says)

    def _readable(self, said: Message) -> bool:
        """Whether a role said what it was asked for: an answer that the task can read, a number, a text."""
        ask = self._asked_for(said.role)
        if ask in ("bid", "marks"):
            return bool(np.isfinite(number_in(said.text)))
        return bool(said.text) if ask in ("plan", "listeners") else self._true[said.text] is not None

    def _cut(self, text: str) -> str:
        """As policies without a tokenizer read it."""
        return text if self._longest is None else first_words(text, self._longest)

    def _draw(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = np.random.default_rng([self._seed, DRAWS])
        return self._rng

    def _next(self) -> dict[str, Observation]:
        """The next step in which a route lets somebody act; nobody after the last round."""
        while True:
            self._step += 1
            if self._step == len(self.graph.steps):
                self._round, self._step = self._round + 1, 0
            if self._round == self.graph.rounds:
                return {}
            if observations := self._ask():
                return observations

    def _ask(self) -> dict[str, Observation]:
        """Whose turn it is, and what they hear."""
        asked = self.graph.steps[self._step]
        if self._absence.down and self.graph.route != "everyone()":  # which compares what everybody said before
            asked = tuple(role for role in asked if role in self._said or role not in self._absence.down)
        roles = self._route(asked, list(self._said.values()), self._draw) if asked else ()
        self._acting, observations = {}, {}
        self._told: dict[str, dict[str, Sequence[Any]]] = {name: dict.fromkeys(roles, ()) for name in _HEARD}
        senders, turns, weights, kept, reasons, _ = self._told.values()
        for role in roles:
            own, coming = self._said.get(role), self._coming(role)
            arrived = coming
            if coming:
                weights[role], held = zip(*self._verdicts(role, own, coming), strict=True)
                senders[role], turns[role] = tuple(map(_ROLE, coming)), tuple(map(_TURN, coming))
                if held.count(None) < len(held):
                    kept[role] = tuple([each is None for each in held])
                    reasons[role] = tuple([each or "" for each in held])
                    arrived = list(itertools.compress(coming, kept[role]))
                else:
                    kept[role], reasons[role] = (True,) * len(coming), ("",) * len(coming)
            self._acting[role] = arrived
            observations[role] = self._observation(role, own if self.graph.own else None, arrived)
        return observations

    def _verdicts(self, role: str, own: Message | None, coming: list[Message]) -> list[Verdict]:
        """Verdicts of the gate on each message; messages that are held anyway are not asked about."""
        judged = [said for said in coming if said.held is None]
        verdicts = self._gate(role, own, judged, self._draw) if judged else []
        if len(verdicts) != len(judged):
            raise EnvError(f"the gate {self.graph.gate} gave {len(verdicts)} verdicts for {len(judged)} messages")
        if len(judged) == len(coming):
            return verdicts
        following = iter(verdicts)
        return [next(following) if said.held is None else (0.0, said.held) for said in coming]

    def _coming(self, role: str) -> list[Message]:
        """Messages to this role: the latest of each sender, or all, of a role that keeps no answer its own, too."""
        senders = self.graph.heard[role]
        if self.graph.memory == "all":
            mine = None if self.graph.own else role
            return [said for said in self._every if said.role in senders or said.role == mine]
        return [self._said[sender] for sender in senders if sender in self._said]

    def _observation(self, role: str, own: Message | None, heard: list[Message]) -> Observation:
        question, shown = self._questions[role], self._shown
        mine = [] if own is None else [shown[own.text]]
        notes = [note.replace(self._mark, " ") for _, note in self._notes(role, own)]
        text = self._separator.join([question, *mine, *[shown[said.text] for said in heard], *notes])
        ask = self._asked_for(role)
        return Observation(text, messages=self._conversation(role, ask, own, heard), fields=ASKS[ask])

    def _notes(self, role: str, own: Message | None) -> list[tuple[str, str]]:
        """What a role reads last, (what it is, text): nothing here."""
        return []

    def _conversation(self, role: str, ask: str, own: Message | None, heard: list[Message]) -> Conversation:
        """Going on with what the role remembers; anew where it reads its best answer, or none."""
        left_out = None
        if self._longest is not None:
            left_out = self._told["heard_cut"][role] = [self._lost(said.text) for said in heard]
        note = "\n".join([f"{kind}: {note}" for kind, note in self._notes(role, own)]) or None
        talk = Conversation(
            _Prompted(
                self.graph, self._instructions, role, ask, self._questions[role], own, heard, self._talks.get(role),
                self._longest, left_out, self._round, self._turns[role], note,
            ).write
        )  # fmt: skip
        if self.graph.own and not self._improve:
            self._talks[role] = (talk, "")
        return talk

    def _lost(self, text: str) -> int:
        return max(0, words(text) - (self._longest or 0))


class _Prompted(NamedTuple):
    """Data of a role's chat prompt in one turn, rendered only when a chat model reads it.

    It knows nothing of the env, which holds the conversations: a circle would be left to the garbage collector.
    """

    graph: Graph
    instructions: Instructions
    role: str
    ask: str
    question: str
    own: Message | None
    heard: list[Message]
    before: tuple[Conversation, str] | None
    limit: int | None
    left_out: list[int] | None
    round: int
    turns: int
    note: str | None

    def write(self, reader: Reader) -> tuple[ChatMessage, ...]:
        graph, parts = self.graph, self.instructions.values["parts"]
        return self.instructions.turn(
            self.role, self.ask, self.question,
            heard=[Heard(said.role, said.reply, said.round) for said in self.heard],
            before=self.before, limit=self.limit, left_out=self.left_out, round=self.round + 1,
            own=self.own.reply if self.own is not None and self.before is None else None, turn=self.turns + 1,
            failed=self.turns > 0 and graph.stop.startswith("verified"),
            many=graph.memory == "all" and graph.rounds > 1, names=graph.heard[self.role],
            note=self.note, part=list(graph.roles).index(self.role) + 1, parts=parts,
        ).for_reader(reader)  # fmt: skip


_HEARD = ("heard", "heard_turn", "heard_weight", "heard_kept", "heard_reason", "heard_cut")
_ROLE, _TURN = attrgetter("role"), attrgetter("turn")


def _better(said: Message, before: Message) -> bool:
    return said.score is not None and (before.score is None or said.score > before.score)
