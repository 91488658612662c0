"""A game in which a judge's rubric is written: one side plants flaws, the other finds them, labels keep both honest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl

from palaestra.errors import InputError

Rules = tuple[Any, ...]


class Players(Protocol):
    """Protocol of `RubricGame` players: write (answer, flaw), judge (good, advice), reflect, rewrite rules; or None.

    None: no valid answer; the rules stay as they are.
    """

    def write(self, rules: Rules, rng: np.random.Generator) -> tuple[Any, Any] | None:
        """A subtly bad answer under the writer's rules, and the flaw that was planted in it."""

    def judge(self, rules: Rules, answer: Any, rng: np.random.Generator) -> tuple[bool, Any] | None:
        """Whether the answer is good under the judge's rules, and advice on how to hide better what was found."""

    def reflect(self, rules: Rules, answer: Any, good: bool, rng: np.random.Generator) -> Any | None:
        """Change to the judge's rules, given that they contradict the answer's label `good`."""

    def rewrite(self, rules: Rules, advice: Any, rng: np.random.Generator) -> Sequence[Any] | None:
        """The rules after one piece of advice, with rules merged, dropped or added."""


@dataclass
class RubricGame:
    """Game of `players` that learns a judge's rules: a writer hides flaws in answers, a judge finds them ([104]).

    arXiv 2508.21476. `labelled` answers check the judge.

    The adversarial rubric of "Igniting Creative Writing".

    A round: `queries` answers are planted and judged; a flaw that was found is advice to the writer's rules, one that
    was missed to the judge's. Then `checked` labelled answers are judged, and where the verdict is not the label a
    reflection is advice to the judge's rules: planted answers are all bad, so without these a rule that condemns good
    ones can never be dropped. Invalid or missing outputs leave the rules as they are; rules are at most `most`.

    labelled: (answer, good) pairs, drawn anew each round. hide, judge: both sides' rules now.
    """

    players: Players
    labelled: Sequence[tuple[Any, bool]]
    judge: Rules = ()
    hide: Rules = ()
    queries: int = 4
    checked: int = 4
    most: int = 10
    history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.queries < 0 or self.checked < 0 or self.most < 1 or (self.checked and not self.labelled):
            raise InputError(
                f"RubricGame: queries={self.queries} and checked={self.checked} must not be negative, most={self.most} "
                f"at least 1, and {len(self.labelled)} labelled answers are not enough to check any"
            )

    def run(self, rounds: int, rng: np.random.Generator) -> tuple[Rules, pl.DataFrame]:
        """Play so many rounds; returns the judge's rules, and a table with a row per round.

        A row has missed, found, flipped (labels against the verdict), and the accuracy on all labelled answers after
        it.
        """
        for _ in range(rounds):
            self.round(rng)
        return self.judge, pl.DataFrame(self.history)

    def round(self, rng: np.random.Generator) -> None:
        """Play one round: judge planted and labelled answers, and rewrite the rules by what was missed."""
        missed = found = flipped = 0
        for _ in range(self.queries):
            written = self.players.write(self.hide, rng)
            verdict = None if written is None else self.players.judge(self.judge, written[0], rng)
            if written is None or verdict is None:
                continue
            good, advice = verdict
            missed, found = missed + good, found + (not good)
            if good:
                self.judge = self._rewritten(self.judge, written[1], rng)
            else:
                self.hide = self._rewritten(self.hide, advice, rng)
        for number in rng.permutation(len(self.labelled))[: self.checked].tolist():
            answer, label = self.labelled[number]
            verdict = self.players.judge(self.judge, answer, rng)
            if verdict is not None and verdict[0] != label:
                flipped += 1
                self.judge = self._rewritten(self.judge, self.players.reflect(self.judge, answer, label, rng), rng)
        self.history.append({"round": len(self.history) + 1, "missed": missed, "found": found, "flipped": flipped,
                             "accuracy": self.accuracy(rng)})  # fmt: skip

    def accuracy(self, rng: np.random.Generator) -> float | None:
        """Share of the labelled answers that the rules judge rightly, those without a verdict left out."""
        said = self.verdicts([answer for answer, _ in self.labelled], rng)
        known = [verdict[0] == label for verdict, (_, label) in zip(said, self.labelled, strict=True) if verdict]
        return float(np.mean(known)) if known else None

    def verdicts(self, answers: Sequence[Any], rng: np.random.Generator) -> Sequence[tuple[bool, Any] | None]:
        """Judgements of the answers under the rules now, by the players' `judge`, or in one batch by `judge_all`."""
        together = getattr(self.players, "judge_all", None)
        if together is not None:
            return together(self.judge, answers, rng)  # type: ignore[no-any-return]
        return [self.players.judge(self.judge, answer, rng) for answer in answers]

    def _rewritten(self, rules: Rules, advice: Any, rng: np.random.Generator) -> Rules:
        made = None if advice is None else self.players.rewrite(rules, advice, rng)
        return rules if made is None or len(made) > self.most else tuple(made)


@dataclass(frozen=True)
class Planted:
    """Scripted `Players` for tests: answers are sets of marks, and a rule is a mark that condemns answers with it.

    flaws: marks that make an answer bad. The writer plants one of the flaws that its rules do not avoid; advice and
    reflections are marks to add, or (mark, False) to drop.
    """

    flaws: tuple[int, ...] = tuple(range(11))

    def write(self, rules: Rules, rng: np.random.Generator) -> tuple[Any, Any] | None:
        """An answer with one flaw that the writer's rules do not avoid, or any flaw if they avoid all."""
        left = [flaw for flaw in self.flaws if flaw not in rules] or list(self.flaws)
        flaw = left[int(rng.integers(len(left)))]
        return frozenset({flaw}), flaw

    def judge(self, rules: Rules, answer: Any, rng: np.random.Generator) -> tuple[bool, Any] | None:
        """Whether no rule's mark is in the answer; the advice is to avoid the mark that was found."""
        caught = sorted(set(rules) & set(answer))
        return not caught, caught[0] if caught else None

    def reflect(self, rules: Rules, answer: Any, good: bool, rng: np.random.Generator) -> Any | None:
        """A change of rules: drop the one that condemned a good answer, or add a flaw of a bad one."""
        if good:
            return min(set(rules) & set(answer)), False
        flaws = sorted(set(answer) & set(self.flaws))
        return flaws[int(rng.integers(len(flaws)))] if flaws else None

    def rewrite(self, rules: Rules, advice: Any, rng: np.random.Generator) -> Sequence[Any] | None:
        """The rules with the mark added or dropped."""
        if isinstance(advice, tuple):
            return [rule for rule in rules if rule != advice[0]]
        return list(dict.fromkeys([*rules, advice]))
