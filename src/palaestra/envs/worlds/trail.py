"""`Trail`: a team follows pointers from name to name: who plans, who looks up, who reflects, and who answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError
from palaestra.rewards.match.parts import names_right_parts

NAMES = (
    "ann", "bob", "cal", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "lou", "max", "ned", "oda", "pam",
)  # fmt: skip
VERDICTS = ("right", "wrong")
"""Last word of a reflection that compared what was looked up with what was wanted."""


@dataclass
class _TrailState:
    pages: tuple[int, ...]
    start: int
    hops: int
    due: str = "plan"
    log: tuple[str, ...] = ()
    calls: int = 0

    @property
    def gold(self) -> int:
        place = self.start
        for _ in range(self.hops):
            place = self.pages[place]
        return place


@ENVS.register("native/trail")
class Trail(NativeEnv):
    """Question env of four roles (plan, search, reflect, answer) following pages from a name; all paid 1 if right.

    Everybody reads the question, "from ann 2" for two hops from ann, and what was said so far. `plan` speaks once.
    `search` says a name and reads the name on its page. `reflect` then says what it makes of it: if a word of it is 0,
    or after `calls` pages, `answer` speaks and it is over; else `search` looks up another name. Success, and reward 1
    for all, if every part of the answer (`palaestra.rewards.every_part`) is the name at the end.

    facts: result, what a tool said to this turn; hops, of the question; reflected, whether the turn compared, so that
    it ends with right or wrong; said and gold, the answer and the right one, in the last turn.

    Args:
        hops: Numbers of hops, of which each question draws one.
        names: Number of names, each with a page.
        calls: Most pages that are looked up.

    Raises:
        InputError: An option is out of range.
    """

    agents: tuple[str, ...] = ("plan", "search", "reflect", "answer")
    facts = {"result": str, "hops": int, "reflected": bool, "said": str, "gold": list[str]}

    def __init__(self, *, hops: Sequence[int] = (1, 2, 3), names: int = 12, calls: int = 4) -> None:
        if not hops or min(hops) < 1 or not max(hops) < names <= len(NAMES) or calls < max(hops):
            raise InputError(
                f"Trail: hops={list(hops)} must be at least 1 and below names={names} <= {len(NAMES)}, calls={calls} as"
                " many as the most of them"
            )
        self.hops, self.names, self.calls = tuple(hops), NAMES[:names], calls

    def begin(self) -> tuple[str, _TrailState]:
        """Draw one circle through all names, so that no hop meets a name again, and a question."""
        order = self.rng.permutation(len(self.names))
        pages = [0] * len(self.names)
        for place, then in zip(order, [*order[1:], order[0]], strict=True):
            pages[place] = int(then)
        start, hops = int(self.rng.integers(len(self.names))), int(self.rng.choice(self.hops))
        return f"trail:{int(self.rng.integers(2**31))}", _TrailState(tuple(pages), start, hops)

    def look(self) -> dict[str, Observation]:
        """Observation of the role that acts next: the question, and what was said."""
        state = self.state
        if not state.due:
            return {}
        return {state.due: Observation("\n".join([f"from {self.names[state.start]} {state.hops}", *state.log]))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Record what was said and look up a page, or score the answer."""
        ((seat, text),) = chosen.items()
        state, said = self.state, " ".join(str(text or "").split())[:100]
        info: dict[str, Any] = {"hops": state.hops, "valid": {seat: bool(said)}}
        lines = [f"{seat}: {said}"]
        if seat == "search":
            state.calls += 1
            known = said in self.names
            info["result"] = self.names[state.pages[self.names.index(said)]] if known else "nothing"
            info["valid"] = {seat: known}
            lines.append(f"result: {info['result']}")
        if seat == "reflect":
            info["reflected"] = said.endswith(VERDICTS)
        state.log = (*state.log, *lines)
        if seat == "answer":
            gold = [self.names[state.gold]]
            won = names_right_parts(said, gold)
            state.due = ""
            return dict.fromkeys(self.agents, float(won)), info | {"success": won, "said": said, "gold": gold}
        through = "0" in said.split() or state.calls >= self.calls
        state.due = {"plan": "search", "search": "reflect"}.get(seat, "answer" if through else "search")
        return {}, info
