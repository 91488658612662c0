"""`Search`: look up an invented fact, judge what was found, answer (ReSeek [180], on facts as in its FictionalHot).

After every search the agent must judge: `yes` lets it answer or search again, `no` makes it search again. Names are
invented, so that nothing can be answered from memory. `palaestra.rewards.reseek_reward` scores the judgements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.base import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.base import Chosen, NativeEnv
from palaestra.errors import InputError

SYLLABLES = ("ba", "do", "fi", "ka", "lu", "mo", "ne", "ri", "sa", "tu", "ve", "zo")


def overlap(text: str, gold: str) -> float:
    """The scripted reranker: share of the gold answer's words that stand in the text."""
    words = set(gold.lower().split())
    return len(words & set(re.findall(r"\w+", text.lower()))) / max(len(words), 1)


@dataclass
class _State:
    facts: dict[str, str]
    wanted: str
    mode: str = "search"
    searches: int = 0
    found: str = ""
    log: list[str] = field(default_factory=list)
    over: bool = False


@ENVS.register("roles/search")
class Search(NativeEnv):
    """`seeker` says `search WORDS`, then `yes` or `no`, then `answer WORDS` or `search WORDS`.

    With chance `noise` a search brings another fact than the one asked for. facts: tool ("search"), on judgements
    judge (1 yes, 0 no) and relevance (of what was found to the right answer, by `rerank`).
    Reward: 1 for the right answer. After `searches` searches only an answer is taken.
    """

    agents: tuple[str, ...] = ("seeker",)
    facts = {"tool": str, "judge": int, "relevance": float}

    def __init__(
        self,
        facts: int = 5,
        *,
        noise: float = 0.4,
        searches: int = 4,
        rerank: Callable[[str, str], float] = overlap,
    ) -> None:
        """`facts`: how many there are. rerank: relevance in [0, 1] of a text to the right answer; known in training."""
        if not (facts >= 2 and 0 <= noise <= 1 and searches >= 1):
            raise InputError(f"Search: facts={facts} >= 2, noise={noise} in [0, 1], searches={searches} >= 1")
        self.number, self.noise, self.searches, self.rerank = facts, noise, searches, rerank

    def begin(self) -> tuple[str, _State]:
        """Invent facts, choose a question."""
        names: list[str] = []
        while len(names) < 2 * self.number:
            name = "".join(self.rng.choice(SYLLABLES, 3))
            names += [name] if name not in names else []
        facts = dict(zip(names[::2], names[1::2], strict=True))
        wanted = names[2 * int(self.rng.integers(self.number))]
        return f"search:{wanted}:{'-'.join(names)}", _State(facts, wanted)

    def look(self) -> dict[str, Observation]:
        """The question, what was found and judged, and what may be said now."""
        state = self.state
        if state.over:
            return {}
        may = {"search": "search WORDS", "judge": "yes | no: is this of use?", "answer": "answer WORD | search WORDS"}
        may["answer"] = may["answer"] if state.searches < self.searches else "answer WORD"
        head = f"What is the capital of {state.wanted}?"
        return {"seeker": Observation("\n".join([head, *state.log, may[state.mode]]))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Find, take the judgement, or end with the answer; anything else ends the episode unanswered."""
        state, said = self.state, str(chosen["seeker"] or "").lower()
        query = re.fullmatch(r"search (.+)", said)
        if state.mode == "judge" and said in ("yes", "no"):
            info = {"judge": int(said == "yes"), "relevance": self.rerank(state.found, state.facts[state.wanted])}
            state.log.append(said)
            state.mode = "search" if said == "no" and state.searches < self.searches else "answer"
            return {}, info
        if state.mode != "judge" and query and state.searches < self.searches:
            state.searches += 1
            state.found = self._find(query[1])
            state.log.append(state.found)
            state.mode = "judge"
            return {}, {"tool": "search"}
        state.over = True
        answer = re.fullmatch(r"answer (\w+)", said) if state.mode == "answer" else None
        right = answer is not None and answer[1] == state.facts[state.wanted]
        return {"seeker": float(right)}, {"success": right} | ({} if answer else {"valid": {"seeker": False}})

    def _find(self, query: str) -> str:
        names = list(self.state.facts)
        asked = next((name for name in names if name in query), None)
        others = [name for name in names if name != asked]
        luck, pick = self.rng.random(), int(self.rng.integers(len(others)))
        name = asked if asked is not None and luck >= self.noise else others[pick]
        return f"{self.state.facts[name]} is the capital of {name}."
