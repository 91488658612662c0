"""`Rag`: a question is rewritten, documents are found, one is selected, an answer is given; all three must be right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

ROLES = ("rewriter", "selector", "generator")
DOCUMENTS = 4
FACTS = ("amber lantern north", "copper river south", "velvet harbour east", "silent orchard west")
ACTIONS = 6


@dataclass
class _RagState:
    question: int
    fact: int
    decoy: int
    found: tuple[int, ...] = ()
    read: int | None = None
    step: int = 0


@ENVS.register("native/rag")
class Rag(NativeEnv):
    """Env of MMOA-RAG's pipeline [210]: rewrite a question, select documents, answer; paid the answer's token F1.

    arXiv 2501.15228. Agents `rewriter`, `selector` and `generator`; one of `questions` questions.

    MMOA-RAG's pipeline [210] (arXiv 2501.15228) with a fixed retriever of four documents. One of four short rewritings
    finds the question's own document; one with five parts and one beyond 300 characters find it, too. Read, it states a
    fact, drawn for each episode; every other document states another one. The selector names documents; restricted: of
    those found alone, else it may also name one that was not found, one twice, or none at all. The generator says one
    of the four facts, or drowns the right one in forty words. Success: F1 1. features: role, question, documents found,
    fact that was read.

    facts: found, numbers of the documents that were found; gold, the fact, on the generator's
    row; answer_f1, there too.
    """

    agents: tuple[str, ...] = ROLES
    facts = {"found": list[int], "gold": str, "answer_f1": float}

    def __init__(self, *, questions: int = 6, restricted: bool = True, draw: int = 0) -> None:
        if questions < 1:
            raise InputError(f"Rag: questions={questions} must be at least 1")
        rng = np.random.default_rng(draw)
        self.questions, self.restricted = questions, restricted
        self.document, self.rewriting = rng.integers(DOCUMENTS, size=questions), rng.integers(4, size=questions)

    def begin(self) -> tuple[str, _RagState]:
        """Draw a question, its fact, and what other documents state."""
        question, fact = int(self.rng.integers(self.questions)), int(self.rng.integers(len(FACTS)))
        decoy = (fact + 1 + int(self.rng.integers(len(FACTS) - 1))) % len(FACTS)
        return f"question {question}", _RagState(question, fact, decoy)

    def rewritings(self) -> tuple[str, ...]:
        """Names of the rewriter's choices: four in two parts, one in five parts, one too long."""
        short = [f"question {self.state.question}, part {way}a; part {way}b" for way in range(4)]
        right = short[int(self.rewriting[self.state.question])]
        return (*short, f"{right}; once more; and again; and again", right + " please" * 50)

    def selections(self) -> tuple[str, ...]:
        """Names of the selector's choices: each document, one twice, and no document."""
        each = [f"Document {number}" for number in range(DOCUMENTS)]
        twice = each[self.state.found[0]] if self.state.found else each[0]
        return (*each, f"{twice}, {twice}", "the first one")

    def answers(self) -> tuple[str, ...]:
        """Names of the generator's choices: each fact, the fact that was read among forty words, and nothing."""
        read = FACTS[self.state.read] if self.state.read is not None else FACTS[0]
        return (*FACTS, "well " * 40 + read, "nothing")

    def look(self) -> dict[str, Observation]:
        """The role that acts next sees the question, or what was found or read."""
        state = self.state
        if state.step == len(ROLES):
            return {}
        role = ROLES[state.step]
        found, read = np.zeros(DOCUMENTS), np.zeros(len(FACTS) + 1)
        text, choices, mask = f"{role}: question {state.question}", self.rewritings(), None
        if state.step:
            found[list(state.found)] = 1
            text += f", documents {' '.join(map(str, state.found))}"
        if state.step == 1:
            choices = self.selections()
            mask = np.array([number in state.found for number in range(ACTIONS)]) if self.restricted else None
        if state.step == 2:
            choices = self.answers()
            read[len(FACTS) if state.read is None else state.read] = 1
            text += f", read {'nothing' if state.read is None else FACTS[state.read]}"
        seen = np.concatenate([np.eye(len(ROLES))[state.step], np.eye(self.questions)[state.question], found, read])
        return {role: Observation(text, choices=choices, mask=mask, array=seen.astype(np.float32))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take one role's choice; an invalid one counts as the last."""
        ((role, action),) = chosen.items()
        state, number = self.state, action if isinstance(action, int) else ACTIONS - 1
        said = (self.rewritings, self.selections, self.answers)[state.step]()[number]
        gold = int(self.document[state.question])
        info: dict[str, Any] = {}
        if state.step == 0:
            right = number >= 4 or number == self.rewriting[state.question]
            pair = (gold, gold + 1) if right else (gold + 2, gold + 3)
            state.found = tuple(sorted(each % DOCUMENTS for each in pair))
        elif state.step == 1:
            named = number if number < DOCUMENTS else state.found[0] if number == DOCUMENTS else None
            state.read = None if named not in state.found else state.fact if named == gold else state.decoy
        else:
            f1 = _f1(said, FACTS[state.fact])
            info |= {"gold": FACTS[state.fact], "answer_f1": f1, "success": f1 == 1.0}
        info["found"] = list(state.found)
        state.step += 1
        return {role: info.get("answer_f1", 0.0)}, info


def _f1(said: str, gold: str) -> float:
    given, wanted = said.split(), gold.split()
    return 2 * sum((Counter(given) & Counter(wanted)).values()) / (len(given) + len(wanted))
