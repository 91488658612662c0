"""`SearchEnv`: look up an invented fact, judge what was found, answer (ReSeek [180], on facts as in its FictionalHot).

After every search the agent must judge: `yes` lets it answer or search again, `no` makes it search again. Names are
invented, so that nothing can be answered from memory. `palaestra.rewards.reseek_reward` scores the judgements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

SYLLABLES = ("ba", "do", "fi", "ka", "lu", "mo", "ne", "ri", "sa", "tu", "ve", "zo")
KINDS = ("search", "yes", "no", "answer")


def overlap(text: str, gold: str) -> float:
    """Share in [0, 1] of the words of the text `gold` that occur in `text`; the env's scripted reranker."""
    words = set(gold.lower().split())
    return len(words & set(re.findall(r"\w+", text.lower()))) / max(len(words), 1)


@dataclass
class _SearchState:
    facts: dict[str, str]
    wanted: str
    mode: str = "search"
    searches: int = 0
    turn: int = 0
    found: str = ""
    evidence: dict[int, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    over: bool = False


@ENVS.register("roles/search")
class SearchEnv(NativeEnv):
    """Search env: `seeker` searches facts, judges each result as useful or not, then answers; paid 1 if right.

    It says `search WORDS`, then `yes` or `no`, then `answer WORDS` or `search WORDS`.

    With chance `noise` a search brings another fact than the one asked for.
    Reward: 1 for the right answer. After `searches` searches only an answer is taken.

    facts: tool, "search" or, for the answer, "submit"; on judgements judge (1 yes, 0 no) and relevance (of what was
    found to the right answer, by `rerank`); found, the text of a search; entities, the names that a full answer needs,
    on every turn; with the answer also evidence, the turns that said yes (from 0; they show the find), selected, what
    they accepted, and gold, the one text that proves the answer. They are what `reseek_reward("judge", "relevance")`,
    `e_grpo("found", "entities")`, `earl_reward("selected", "gold")` and `smart_snap_reward("evidence", …)` need.
    """

    prompt = "roles/search"
    agents: tuple[str, ...] = ("seeker",)
    facts = {
        "tool": str,
        "judge": int,
        "relevance": float,
        "found": str,
        "entities": list[str],
        "evidence": list[int],
        "selected": list[str],
        "gold": list[str],
    }

    def __init__(
        self,
        facts: int = 5,
        *,
        noise: float = 0.4,
        searches: int = 4,
        rerank: Callable[[str, str], float] = overlap,
        choices: bool = False,
        rejected: Literal["marked", "dropped"] = "marked",
    ) -> None:
        """Set up the archive.

        Args:
            facts: how many there are.
            noise: chance that a search brings another fact than the one asked for.
            searches: how many may be made; after them only an answer is taken.
            rerank: relevance in [0, 1] of a text to the right answer; known in training.
            choices: actions are numbered, names are drawn from `facts` towns that are always the same, and only what
                may be said now is legal; so tables can play. Else the action is free text.
            rejected: a text that was judged useless stays in the context with the verdict behind it, or leaves it.
        """
        if not (facts >= 2 and 0 <= noise <= 1 and searches >= 1):
            raise InputError(f"Search: facts={facts} >= 2, noise={noise} in [0, 1], searches={searches} >= 1")
        if rejected not in ("marked", "dropped"):
            raise InputError(f"Search: rejected={rejected!r}{nearest(str(rejected), ('marked', 'dropped'))}")
        self.rejected = rejected
        self.number, self.noise, self.searches, self.rerank = facts, noise, searches, rerank
        self.fixed = self._invent(np.random.default_rng(0)) if choices else None
        names = self.fixed or []
        self.moves = (
            *(f"search {name}" for name in names[::2]),
            "yes",
            "no",
            *(f"answer {name}" for name in names[1::2]),
        )

    def begin(self) -> tuple[str, _SearchState]:
        """Draw facts and a question about one of them."""
        names = self.fixed or self._invent(self.rng)
        facts = dict(zip(names[::2], names[1::2], strict=True))
        wanted = names[2 * int(self.rng.integers(self.number))]
        return f"search:{wanted}:{'-'.join(names)}", _SearchState(facts, wanted)

    def _invent(self, rng: np.random.Generator) -> list[str]:
        names: list[str] = []
        while len(names) < 2 * self.number:
            name = "".join(rng.choice(SYLLABLES, 3))
            names += [name] if name not in names else []
        return names

    def look(self) -> dict[str, Observation]:
        """Observation of the seeker: the question, what was found and judged, and what may be said now."""
        state = self.state
        if state.over:
            return {}
        may = {"search": "search WORDS", "judge": "yes | no: is this of use?", "answer": "answer WORD | search WORDS"}
        may["answer"] = may["answer"] if state.searches < self.searches else "answer WORD"
        head = f"What is the capital of {state.wanted}?"
        text = "\n".join([head, *state.log, may[state.mode]])
        if self.fixed is None:
            return {"seeker": Observation(text)}
        kinds = [word for word in may[state.mode].replace("|", " ").replace(":", " ").split() if word in KINDS]
        legal = np.array([move.split()[0] in kinds for move in self.moves])
        return {"seeker": Observation(text, self.moves, legal)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Return a search result, take the judgement, or end with the answer; anything else ends unanswered."""
        state, action = self.state, chosen["seeker"]
        said = self.moves[action] if isinstance(action, int) else str(action or "").lower()
        entities = {"entities": [state.wanted, state.facts[state.wanted]]}
        turn, state.turn = state.turn, state.turn + 1
        query = re.fullmatch(r"search (.+)", said)
        if state.mode == "judge" and said in ("yes", "no"):
            info = {"judge": int(said == "yes"), "relevance": self.rerank(state.found, state.facts[state.wanted])}
            if said == "no" and self.rejected == "dropped":
                state.log.pop()
            else:
                state.log.append(said)
            if said == "yes":
                state.evidence[turn] = state.found
            state.mode = "search" if said == "no" and state.searches < self.searches else "answer"
            return {}, info | entities
        if state.mode != "judge" and query and state.searches < self.searches:
            state.searches += 1
            state.found = self._find(query[1])
            state.log.append(state.found)
            state.mode = "judge"
            return {}, {"tool": "search", "found": state.found} | entities
        state.over = True
        answer = re.fullmatch(r"answer (\w+)", said) if state.mode == "answer" else None
        right = answer is not None and answer[1] == state.facts[state.wanted]
        end: dict[str, Any] = {"success": right, **entities}
        if answer is None:
            return {"seeker": 0.0}, end | {"valid": {"seeker": False}}
        proof = {"evidence": list(state.evidence), "selected": list(state.evidence.values())}
        gold = [self._sentence(state.wanted)]
        return {"seeker": float(right)}, end | proof | {"tool": "submit", "gold": gold}

    def _find(self, query: str) -> str:
        names = list(self.state.facts)
        asked = next((name for name in names if name in query), None)
        others = [name for name in names if name != asked]
        luck, pick = self.rng.random(), int(self.rng.integers(len(others)))
        name = asked if asked is not None and luck >= self.noise else others[pick]
        return self._sentence(name)

    def _sentence(self, name: str) -> str:
        return f"{self.state.facts[name]} is the capital of {name}."
