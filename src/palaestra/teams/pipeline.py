"""A pipeline of roles over a task with one answer: the first answers, each later one accepts or replaces the answer.

What the roles read, with the defaults (nothing else is said, so that a tiny model can learn it):

    solver    4 + 3 =
    checker   4 + 3 = | 8          ("ok" accepts, anything else replaces the 8)

With `reports=True` the task's report on the answer stands before it: `question | passes | answer`.
A name that stands twice in a row is one agent that acts twice: `("solver", "solver")` checks its own answer.
Left out: branches and messages between roles; those are other workflows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from palaestra.envs.conversations import Conversation, first_words
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.questions import solve as solve_question
from palaestra.envs.replies import read_reply
from palaestra.envs.tasks import TaskEnv, read_answer
from palaestra.errors import EnvError, InputError, PolicyError
from palaestra.teams.instructions import ASKS, Heard, Instructions
from palaestra.teams.task_wrapper import TaskTeamEnv, made_task

if TYPE_CHECKING:
    import numpy as np

    from palaestra.agents.policy import Request

ACCEPT = "ok"
SEPARATOR = " | "


class PipelineEnv(TaskTeamEnv):
    """Team env (of a `TaskEnv` factory): roles in turn accept or replace the answer; all are paid the last one's score.

    task: the task of the wrapped env; inner: that env.

    facts: score, of the answer that stands after this turn; expected, a right answer if one is known; read_as, where
    the answer stood in the reply, one of `palaestra.envs.replies.FORMS`.
    """

    facts = {"score": float, "expected": str, "read_as": str}

    def __init__(
        self,
        tasks: EnvFactory,
        roles: Sequence[str] = ("solver", "checker"),
        *,
        accept: str = ACCEPT,
        separator: str = SEPARATOR,
        improvement: float = 0.0,
        instructions: Mapping[str, str] | None = None,
        longest: int | None = None,
        reports: bool = False,
    ) -> None:
        """See `pipeline` for the arguments."""
        if not roles:
            raise InputError("pipeline: roles=[]; at least one role is needed")
        if not accept.strip() or not separator.strip():
            raise InputError(f"pipeline: accept={accept!r} and separator={separator!r} must not be blank")
        if longest is not None and longest < 1:
            raise InputError(f"pipeline: longest={longest}, expected at least 1, or None for all of an answer")
        if len([*groupby(roles)]) > len(set(roles)):
            raise InputError(f"pipeline: roles={list(roles)}; a name that stands again has to follow itself")
        self.inner: TaskEnv = made_task(tasks, "pipeline")
        self.agents, self._order = tuple(dict.fromkeys(roles)), tuple(roles)
        self.task = ""
        self._accept, self._separator = accept.strip(), separator
        self._improvement, self._longest, self._reports = improvement, longest, reports
        self._instructions = Instructions(
            "pipeline",
            dict.fromkeys(roles, ""),
            instructions,
            accept=self._accept,
            hears={after: [before] for before, after in pairwise(roles) if before != after},
            heard_by={before: [after] for before, after in pairwise(roles) if before != after},
            rounds=len(roles) if len(self.agents) == 1 else 1,
        )
        self._place = len(self._order)

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Ask the first role the question of `seed`."""
        self.inner.reset(seed)
        self.task = self.inner.task
        if self._reports and self.inner.current.report is None:
            raise InputError(f"pipeline: reports=True, but {type(self.inner).__name__} reports on no answer")
        self._place = 0
        self._current = ""
        self._answers: dict[str, str] = {}
        self._scores: list[float] = []
        self._talks: dict[str, tuple[Conversation, str]] = {}
        return self._observe()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the answer of the role whose turn it is; after the last one, score the answer that stands."""
        expected = list(self._order[self._place : self._place + 1])
        if list(actions) != expected:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {expected}")
        (role,) = expected
        reply = read_answer(actions[role])
        text, form, shown = read_reply(reply)
        if self._place > 0 and text.casefold() == self._accept.casefold():
            valid, score = True, self._scores[-1]
        elif text or self._place == 0:
            found = self.inner.score(text)
            self._current, self._by, self._reply = text, role, shown
            valid, score = found is not None, found or 0.0
        else:  # neither accepted nor replaced: the answer stands
            valid, score = False, self._scores[-1]
        self._answers[role] = text
        self._scores.append(score)
        self._talks[role] = (self._talks[role][0], reply)
        self._place += 1
        info: dict[str, Any] = {
            "valid": {role: valid},
            "answers": dict(self._answers),
            "scores": dict(zip(self._order, self._scores, strict=False)),
            "score": score,
            "expected": self.inner.answer,
            "read_as": form,
        }
        if self._place < len(self._order):
            return StepResult(self._observe(), info=info)
        info["success"] = self.inner.solved(score)
        return StepResult({}, self._rewards(score), terminated=True, info=info)

    def _rewards(self, final: float) -> Mapping[str, float]:
        """The final score for everybody, plus `improvement` times what each later role changed."""
        rewards = dict.fromkeys(self.agents, final)
        for role, (before, after) in zip(self._order[1:], pairwise(self._scores), strict=True):
            rewards[role] += self._improvement * (after - before)
        return rewards

    def _observe(self) -> dict[str, Observation]:
        role, text = self._order[self._place], self.question
        heard, note, mark = [], None, self._separator.strip()
        if self._place > 0:
            if self._reports and (report := self.inner.current.report) is not None:
                told = report(self._current)
                text += self._separator + told.replace(mark, " ")
                note = f"What the tests say of {self._by}'s answer: {told}"
            shown = self._current.replace(mark, " ")
            text += self._separator + (shown if self._longest is None else first_words(shown, self._longest))
            heard = [Heard(self._by, self._reply, 0)] if self._by != role else []
        ask = "check" if self._place else "answer"
        talk = self._instructions.turn(
            role, ask, self.question, heard=heard, before=self._talks.get(role), limit=self._longest, note=note,
            round=self._place + 1,
        )  # fmt: skip
        self._talks[role] = (talk, "")
        return {role: Observation(text, messages=talk, fields=ASKS[ask])}


def pipeline(
    tasks: EnvFactory,
    roles: Sequence[str] = ("solver", "checker"),
    *,
    accept: str = ACCEPT,
    separator: str = SEPARATOR,
    improvement: float = 0.0,
    instructions: Mapping[str, str] | None = None,
    longest: int | None = None,
    reports: bool = False,
) -> EnvFactory:
    """Env factory from another, `tasks`: `roles` answer a task in turn, later ones checking; checked at once.

    Args:
        tasks: makes the `TaskEnv`, `reasoning_gym(...)` for example.
        roles: names of the agents, in the order in which they act; one that stands twice acts twice.
        accept: what a later role says to let the answer stand (case and outer space do not matter).
        separator: stands between the question and the previous answer.
        improvement: each later role receives this times the change of the score that it caused, on top of the final
            score that all roles receive.
        instructions: {role: system prompt} for chat models instead of the shipped ones, Jinja templates.
        longest: most tokens of an answer that the next role reads; None: all of it.
        reports: later roles also read the task's report on the answer that stands, such as what its visible tests say.

    Rewards come at the end. `info` has the `answers` given, the `scores` of the answer after each role (the last turn
    of one that acts twice) and the `expected` answer. An answer that is empty or that the task cannot read is not
    valid; an empty one of a later role lets the previous answer stand.
    """
    factory = functools.partial(
        PipelineEnv,
        tasks,
        tuple(roles),
        accept=accept,
        separator=separator,
        improvement=improvement,
        instructions=instructions,
        longest=longest,
        reports=reports,
    )
    factory()
    return factory


def read(text: str, separator: str = SEPARATOR) -> tuple[str, str | None]:
    """Split what a pipeline role reads: (question, previous answer), the latter None for the first role."""
    question, found, answer = text.rpartition(separator)
    return (question, answer) if found else (text, None)


def scripted_role(
    solve: Callable[[str], str | None] = solve_question,
    *,
    accuracy: float | Mapping[str, float] = 1.0,
    accept: str = ACCEPT,
    separator: str = SEPARATOR,
    mistake: Callable[[str, np.random.Generator], str] | None = None,
) -> Callable[[Request], str]:
    """Makes a scripted player (request -> text) of any pipeline role, right with probability `accuracy`.

    For a warm start.

    A first role then answers rightly, else with one character changed. A later role then accepts a right answer and
    repairs a wrong one, else it spoils the right and accepts the wrong.

    Args:
        solve: question -> right answer; default: what `palaestra.envs.questions` can solve.
        accuracy: share of right decisions, for all roles or {role: share}.
        accept: as in `pipeline`.
        separator: as in `pipeline`.
        mistake: right answer -> a wrong one; default: one character is changed.

    Raises:
        PolicyError: when called, if `solve` does not know the question.
    """
    wrong = mistake or spoil

    def act(request: Request) -> str:
        question, previous = read(request.observation.text, separator)
        truth = solve(question)
        if truth is None:  # in a team that hears several, more than one answer follows the question
            question, _, heard = request.observation.text.partition(separator)
            truth, previous = solve(question), heard.rpartition(separator)[2]
        if truth is None:
            raise PolicyError(f"the scripted role of {request.agent!r} cannot solve {question!r}")
        share = accuracy if isinstance(accuracy, int | float) else accuracy.get(request.agent, 1.0)
        right = bool(request.rng.random() < share)
        if previous is None:
            return truth if right else wrong(truth, request.rng)
        if previous.strip().casefold() == truth.casefold():
            return accept if right else wrong(truth, request.rng)
        return truth if right else accept

    return act


def spoil(answer: str, rng: np.random.Generator) -> str:
    """Wrong answer: text `answer` with one random letter or digit changed into another; without any, "0" is appended.

    A leading zero is avoided, since `07` would be as right as `7`.
    """
    places = [place for place, sign in enumerate(answer) if sign.isalnum()]
    if not places:
        return answer + "0"
    place = places[int(rng.integers(len(places)))]
    alphabet = "123456789" if answer[place].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    others = [sign for sign in alphabet if sign != answer[place].casefold()]
    return answer[:place] + others[int(rng.integers(len(others)))] + answer[place + 1 :]
