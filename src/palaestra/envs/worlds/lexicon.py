"""`Lexicon`: masked texts, and questions over two pages, for a planner, a rewriter and an observer who can search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestra.envs.masking import mask_entities
from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

RELATIONS = ("born in", "works for", "friend of", "rival of", "since")
SEARCH, ANSWER, TELL, NAME, RELATION = "search", "answer", "tell", "query the name", "query the relation"
PLANS, QUERIES = (SEARCH, ANSWER, TELL), (NAME, RELATION)


@dataclass
class _LexiconState:
    text: str
    wanted: list[list[int]]
    gold: tuple[int, ...]
    title: int
    hand: int
    seat: str = "planner"
    page: int | None = None
    at: int = 0
    steps: int = 0
    right: int = 0
    parsed: bool = True


@ENVS.register("native/lexicon")
class Lexicon(NativeEnv):
    """Search env: `planner`, `rewriter` and `observer` in turn look up a lexicon to fill a text's masks; 1 if all.

    A text is about one of `entities` names.

    The planner searches, answers with what was found, or tells it, without the form of an answer, and nobody reads it.
    After a search the rewriter queries the name that is in hand, at first the text's title, or the relation that is
    looked for. The observer sees the page that was found and takes what stands in one of its lines. Every name has a
    page with a line for each of five relations, in an order that is drawn from `draw`, like all facts, and that no
    page tells. Querying a relation finds nothing. Reward 1 if all masks are filled rightly, within `steps` turns for
    each mask. task: "masks", or "questions": who or what is the relation of the relation of a name; two searches.
    features: what is looked for, and whether a page is open; not how many masks there are, nor which name.

    facts: masks, how many; masked, the text with its masks; searched, whether this turn searched; parsed, at the end,
    whether all was answered in form; score, the share that was filled rightly.
    """

    agents: tuple[str, ...] = ("planner", "rewriter", "observer")
    facts = {"masks": int, "masked": str, "searched": bool, "parsed": bool, "score": float}

    def __init__(
        self,
        *,
        entities: int = 40,
        masks: int = 4,
        task: Literal["masks", "questions"] = "masks",
        steps: int = 8,
        draw: int = 0,
    ) -> None:
        if entities < 8 or not 1 <= masks <= 4 or task not in ("masks", "questions") or steps < 1:
            raise InputError(
                f"Lexicon: entities={entities} >= 8, masks={masks} in 1 to 4, task={task!r} 'masks' or 'questions', "
                f"steps={steps} >= 1"
            )
        rng = np.random.default_rng(draw)
        self.masks, self.questions, self.steps, relations = masks, task == "questions", steps, len(RELATIONS)
        syllables = [first + last for first in "bdfglmnprst" for last in "aeiou"]
        pairs = rng.permutation(len(syllables) ** 2)[:entities].tolist()
        self.names = [(syllables[each // len(syllables)] + syllables[each % len(syllables)]).title() for each in pairs]
        self.names += [str(year) for year in range(1900, 1900 + entities)]
        self.entities = entities
        self.values = (np.arange(entities)[:, None] + rng.integers(1, entities, (entities, relations))) % entities
        self.values[:, -1] = entities + rng.integers(entities, size=entities)
        """The value of each relation of each name; years stand behind the names."""
        self.line = rng.permutation(relations)
        """In which line of a page each relation stands."""
        self.choices = (*PLANS, *QUERIES, *(f"take line {line}" for line in range(relations)))

    def text(self, title: int) -> str:
        """The lexicon's entry on a name."""
        said = [f"{said} {self.names[value]}" for said, value in zip(RELATIONS, self.values[title], strict=True)]
        return f"{self.names[title]}: {', '.join(said)}"

    def begin(self) -> tuple[str, _LexiconState]:
        """A text with masks, or a question."""
        title = int(self.rng.integers(self.entities))
        if self.questions:
            first, second = int(self.rng.integers(len(RELATIONS) - 1)), int(self.rng.integers(len(RELATIONS)))
            gold = (int(self.values[self.values[title, first], second]),)
            text = f"{self.names[title]}: {RELATIONS[first]} the one {RELATIONS[second]} [mask 1]"
            return f"question {title} {first} {second}", _LexiconState(text, [[first, second]], gold, title, title)
        number, whole = int(self.rng.integers(1, self.masks + 1)), self.text(title)
        names = [self.names[value] for value in self.values[title]]
        masked = mask_entities(whole, self.names[title], names, self.rng, number=number)
        if masked is None:  # every value stands there twice
            return self.begin()
        wanted = [[names.index(answer)] for answer in masked.answers]
        gold = tuple(self.names.index(answer) for answer in masked.answers)  # type: ignore[assignment]
        return f"text {title} {wanted}", _LexiconState(masked.text, wanted, gold, title, title)

    def look(self) -> dict[str, Observation]:
        """Observation of the seat to act: the text, the relation sought, the name in hand, and the open page."""
        state = self.state
        if state.at == len(state.wanted) or state.steps >= self.steps * len(state.wanted):
            return {}
        relations = state.wanted[state.at]
        want = RELATIONS[relations[0]] if relations else "nothing"
        shown = "" if state.page is None else f"; page: {self._page(state.page)}"
        hand = "nothing" if state.hand < 0 else self.names[state.hand]
        masks = f"{len(state.wanted)} masks" if len(state.wanted) > 1 else "1 mask"
        text = f"{masks}: {state.text}; mask {state.at + 1}: {want}; in hand: {hand}{shown}"
        seats = ("planner", "rewriter", "observer").index(state.seat)
        seen = np.zeros(len(RELATIONS) + 4, np.float32)
        seen[relations[0] if relations else len(RELATIONS)] = seen[len(RELATIONS) + 1 + seats] = 1
        legal = (PLANS, QUERIES, self.choices[len(PLANS) + len(QUERIES) :])[seats]
        mask = np.array([each in legal for each in self.choices])
        return {state.seat: Observation(text, choices=self.choices, mask=mask, array=seen)}

    def _page(self, name: int) -> str:
        if not 0 <= name < self.entities:
            return "nothing was found"
        lines = np.argsort(self.line)
        return "; ".join(self.names[self.values[name, relation]] for relation in lines)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take the planner's decision, run the rewriter's query, or take the observer's line."""
        state, at = self.state, chosen[self.state.seat]
        said = "" if at is None else self.choices[at]
        state.steps += 1
        seat, relations = state.seat, state.wanted[state.at]
        if seat == "planner" and said == SEARCH:
            state.seat = "rewriter"
        elif seat == "planner":
            self._answer(said)
        elif seat == "rewriter":
            state.seat, state.page = "observer", state.hand if said == NAME else -1
        else:
            line = 0 if at is None else at - len(PLANS) - len(QUERIES)
            found = 0 <= (state.page or 0) < self.entities
            state.hand = int(self.values[state.page, int(np.argsort(self.line)[line])]) if found else -1
            state.wanted[state.at], state.page, state.seat = relations[1:], None, "planner"
        info: dict[str, Any] = {"masks": len(state.wanted), "masked": state.text, "searched": said == SEARCH}
        if self.look():
            return {}, info
        done = state.right == len(state.wanted)
        told = {"parsed": state.parsed and state.at == len(state.wanted), "score": state.right / len(state.wanted)}
        return {seat: float(done)}, info | told | {"success": done}

    def _answer(self, said: str) -> None:
        """What is in hand fills the mask, if it is answered in form; the next one begins with the title."""
        state = self.state
        state.parsed &= said == ANSWER
        state.right += said == ANSWER and state.hand == state.gold[state.at]
        state.at, state.hand = state.at + 1, state.title
