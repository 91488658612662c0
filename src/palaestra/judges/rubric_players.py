"""Players of a `RubricGame` that are policies: one plants flaws, one judges, and rules are sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.agents.policy import Policy
from palaestra.errors import PolicyError
from palaestra.judges.asking import Answer, AnswerCache, Read, ask
from palaestra.judges.reading import fenced, read_value
from palaestra.judges.rubric_game import Rules
from palaestra.judges.templates import own_prompts, write_prompt

NONE = "none"


class PolicyPlayers:
    """`Players` of a `RubricGame` that are two policies, writer and judge, asked by prompts ([104], arXiv 2508.21476).

    The writer plants flaws; the judge gives verdicts, reflects on labels and rewrites the rules of both sides. An
    answer that cannot be read is asked for once more and is then missing, which leaves the rules as they are. The
    wording of the questions is this project's own.

    Attributes:
        task: What the answers are answers to; a sentence.
        most: Rules of a side at most.
        cache: Readable answers. The writer's questions are numbered, so that each of them gets a new answer.

    Args:
        task: What the answers are answers to; a sentence.
        most: Rules of a side at most.
        instructions: Jinja templates of the questions `plant`, `find`, `reflect` and `rewrite`, or their files `….j2`.
    """

    def __init__(
        self,
        task: str = "Answer the question.",
        *,
        most: int = 10,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self.task, self.most = task, most
        self._own = own_prompts(instructions, ("plant", "find", "reflect", "rewrite"), "rubric_game")
        self.cache = AnswerCache()
        self._writer: Policy | None = None
        self._judge: Policy | None = None
        self._seed = 0

    def bind(self, writer: Policy, judge: Policy, seed: int = 0) -> None:
        """Set the policies that are asked from now on."""
        self._writer, self._judge, self._seed = writer, judge, seed

    def write(self, rules: Rules, rng: np.random.Generator) -> tuple[Any, Any] | None:
        """A bad answer under the writer's rules, and its flaw as advice to the judge's rules."""
        asked = write_prompt("plant", {"task": self.task, "rules": rules}, self._own)
        return self._ask(self._writer, [asked], _read_answer, vote=int(rng.integers(2**31)))[0]

    def judge(self, rules: Rules, answer: Any, rng: np.random.Generator) -> tuple[bool, Any] | None:
        """Whether the answer is good under the judge's rules, and the flaw found as advice to the writer's rules."""
        return self.judge_all(rules, [answer], rng)[0]

    def judge_all(
        self, rules: Rules, answers: Sequence[Any], rng: np.random.Generator
    ) -> list[tuple[bool, Any] | None]:
        """As `judge`, for several answers in one batch."""
        values = [{"task": self.task, "rules": rules, "answer": fenced(str(answer))} for answer in answers]
        prompts = [write_prompt("find", each, self._own) for each in values]
        return self._ask(self._judge, prompts, _read_verdict)

    def reflect(self, rules: Rules, answer: Any, good: bool, rng: np.random.Generator) -> Any | None:
        """Advice to the judge's rules, which contradict the label `good`."""
        values = {"task": self.task, "rules": rules, "answer": fenced(str(answer)), "good": good}
        prompt = write_prompt("reflect", values, self._own)
        return self._ask(self._judge, [prompt], lambda said: _line("ADVICE", said))[0]

    def rewrite(self, rules: Rules, advice: Any, rng: np.random.Generator) -> Sequence[Any] | None:
        """The rules after the advice."""
        values = {"rules": rules, "advice": fenced(str(advice)), "most": self.most}
        return self._ask(self._judge, [write_prompt("rewrite", values, self._own)], _read_rules)[0]

    def _ask(
        self, policy: Policy | None, prompts: Sequence[str], read: Read[Answer], *, vote: int = 0
    ) -> list[Answer | None]:
        if policy is None:
            raise PolicyError("PolicyPlayers: no policies; call bind first")
        return ask(policy, [(prompt, vote) for prompt in prompts], read, cache=self.cache, seed=self._seed)


def _line(name: str, said: str) -> str | None:
    """The text behind the last `NAME:` at the begin of a line."""
    found = re.findall(rf"^{name}:[ \t]*(\S.*?)[ \t]*$", said, re.MULTILINE)
    return found[-1] if found else None


def _read_answer(said: str) -> tuple[str, str] | None:
    head, _, _ = said.rpartition("\nFLAW:")
    _, begun, answer = head.partition("ANSWER:")
    flaw = _line("FLAW", said)
    if not begun or not answer.strip() or flaw is None:
        return None
    return answer.strip(), f"A judge must see this flaw: {flaw}"


def _read_verdict(said: str) -> tuple[bool, str | None] | None:
    verdict = read_value(said)
    if verdict not in (0, 1):
        return None
    flaw = _line("FLAW", said)
    return verdict == 1, None if verdict == 1 or flaw is None else f"A judge sees this flaw; avoid it: {flaw}"


def _read_rules(said: str) -> list[str] | None:
    found = [line.strip() for line in re.findall(r"^[ \t]*- (.*\S)", said, re.MULTILINE)]
    if not found:
        return None
    return [rule for rule in found if rule.casefold().rstrip(".") != NONE]
