"""`Dossier`: pages that a tool brings one by one, one of which matters at the end, and turns that need a thought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

CODES = ("red", "blue", "green", "white")
THOUGHT = "<think>weigh it up</think>"
FILLER = "nothing of use here "


@dataclass
class _DossierState:
    code: int
    page: int = 0
    spoiled: bool = False
    right: bool = False


@ENVS.register("native/dossier")
class Dossier(NativeEnv):
    """Memory env: `reader` reads `pages` pages, one a turn; paid 1 for the code of page `clue` if no hard turn failed.

    Every action names a code, with or without a thought before it; only the last one counts. In the turns of `hard`
    work is spoiled with the chance `careless` without a thought, and with the chance `slips` with one; in others a
    thought changes nothing. Reward 1, and success, if the code is right and nothing was spoiled. A page has `words`
    fillers, so its length is worth saving; the world shows one page alone, and `omission` (env.workflow) all of them.

    facts: thought, whether the action has one.

    Raises:
        InputError: An option is out of range.
    """

    agents: tuple[str, ...] = ("reader",)
    facts = {"thought": bool}

    def __init__(
        self,
        *,
        pages: int = 8,
        clue: int = 2,
        hard: Sequence[int] = (0, -1),
        codes: int = 2,
        careless: float = 0.7,
        slips: float = 0.025,
        words: int = 4,
    ) -> None:
        places = {each % pages for each in hard if -pages <= each < pages} if pages > 0 else set()
        if pages < 2 or not 0 <= clue < pages or not 2 <= codes <= len(CODES) or len(places) < len(hard) or words < 0:
            raise InputError(
                f"Dossier: pages={pages} >= 2, clue={clue} and hard={list(hard)} among them, codes={codes} in 2 to "
                f"{len(CODES)}, words={words} >= 0"
            )
        if not 0 <= slips <= careless <= 1:
            raise InputError(f"Dossier: 0 <= slips={slips} <= careless={careless} <= 1")
        self.pages, self.clue, self.hard, self.codes = pages, clue, frozenset(places), CODES[:codes]
        self.careless, self.slips, self.words = careless, slips, words
        self.choices = (*self.codes, *(f"{THOUGHT}{each}" for each in self.codes))

    def begin(self) -> tuple[str, _DossierState]:
        """Draw a code."""
        code = int(self.rng.integers(len(self.codes)))
        return f"dossier:{self.codes[code]}", _DossierState(code)

    def look(self) -> dict[str, Observation]:
        """Observation of the reader: the text of the current page."""
        page = self.state.page
        if page == self.pages:
            return {}
        text = f"page {page + 1}: " + (f"the code is {self.codes[self.state.code]} " if page == self.clue else "")
        return {"reader": Observation((text + FILLER * self.words).strip(), choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Turn the page; an invalid choice counts as the first."""
        state, place = self.state, chosen["reader"] or 0
        thought, said = divmod(place, len(self.codes))
        if state.page in self.hard:
            state.spoiled |= bool(self.rng.random() < (self.slips if thought else self.careless))
        state.right = said == state.code
        state.page += 1
        info: dict[str, Any] = {"thought": bool(thought)}
        if state.page < self.pages:
            return {}, info
        won = state.right and not state.spoiled
        return {"reader": float(won)}, info | {"success": won}
