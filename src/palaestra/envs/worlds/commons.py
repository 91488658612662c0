"""`Commons`: people harvest one pool that grows again, and talk between rounds; GovSim (arXiv 2404.16698, [38]).

Exact reference: `worlds.exact.commons`; meters: `palaestra analyze commons`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.commons import Ration, collapsed, ration, regrown, threshold
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

Talk = Literal["none", "limit", "free"]


@dataclass
class _CommonsState:
    pool: float
    round: int = 1
    caught: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    speaking: bool = False
    over: bool = False


@ENVS.register("native/commons")
class Commons(NativeEnv):
    """Common-pool env: all harvest at once, paid their catch; speakers talk, the rest doubles; ends below 5 units.

    Below 5 it ends.

    In each round everybody takes 0 to `most` units of a pool; it doubles up to 100.
    If more is wanted than there is, it is rationed. Catches are revealed, then `speakers` of the people speak one after
    the other, and everybody reads that before the next harvest. The end is a pool below 5, or the last round. The
    reward is what one gets. An illegal action takes nothing. Success: all rounds were played. facts, of a harvest:
    `wanted`, `collected`, `threshold` (the sustainable share), `over_used`, `pool`, `survived` (rounds so far).

    Args:
        people, rounds, pool: how many people and rounds; units in the beginning, at most 100.
        most: the largest quantity.
        rationing: "random" (unit by unit) or "proportional".
        talk: what is said: nothing ("none"), a limit out of 0 to `most` ("limit"), or any text ("free").
        speakers: how many speak after a round.
        universal: everybody is told that the stock shrinks if all take more than the sustainable share.
        inverse: the pool is trash. People remove it, 50 units come back in each round, and more than 95 are the end;
            the reward is `most` less what one removes, and over-use is to remove less than one's share.

    Raises:
        InputError: an option is out of range.
    """

    prompt = "native/commons"
    facts = dict.fromkeys(("wanted", "collected", "threshold", "over_used", "pool", "survived"), float)

    def __init__(
        self,
        *,
        people: int = 5,
        rounds: int = 12,
        pool: float = 100.0,
        most: int = 20,
        rationing: Ration = "random",
        talk: Talk = "limit",
        speakers: int = 1,
        universal: bool = False,
        inverse: bool = False,
    ) -> None:
        if people < 1 or rounds < 1 or not 5 <= pool <= 100 or most < 1 or not 1 <= speakers <= people:
            raise InputError(f"Commons: {people=}, {rounds=}, {most=}, {speakers=} of at least 1, {pool=} of 5 to 100")
        if talk not in get_args(Talk) or rationing not in get_args(Ration):
            raise InputError(f"Commons: {talk=} of {get_args(Talk)}, {rationing=} of {get_args(Ration)}")
        self.agents = tuple(f"person_{number}" for number in range(people))
        self.rounds, self.pool, self.most, self.rationing = rounds, float(pool), most, rationing
        self.talk, self.speakers, self.universal, self.inverse = talk, speakers, universal, inverse
        self.quantities = tuple(f"{'remove' if inverse else 'take'} {unit}" for unit in range(most + 1))
        self.limits = tuple(f"at {'least' if inverse else 'most'} {unit} each" for unit in range(most + 1))

    def begin(self) -> tuple[str, _CommonsState]:
        """Start with a full pool."""
        return f"commons:{int(self.rng.integers(2**40))}", _CommonsState(self.pool)

    def look(self) -> dict[str, Observation]:
        """All agents see the pool at a harvest; then one speaker after the other sees the talk."""
        state = self.state
        if state.over:
            return {}
        if state.speaking:
            speaker, choices = self.agents[len(state.said)], None if self.talk == "free" else self.limits
            text = f"{self._text()} | what do you say?"
            return {speaker: Observation(text, choices, array=self._array())}
        return {agent: Observation(self._text(), self.quantities, array=self._array()) for agent in self.agents}

    def _text(self) -> str:
        state = self.state
        text = f"round {state.round} of {self.rounds}: {state.pool:g} units"
        if self.universal:
            share, less = threshold(state.pool, len(self.agents), inverse=self.inverse), self.inverse
            text += f" | if everybody {'removes less' if less else 'takes more'} than {share}, it "
            text += "piles up" if less else "shrinks"
        if state.caught:
            text += " | last round: " + " ".join(f"{units:g}" for units in state.caught)
        return text + "".join(f" | {who}: {said}" for who, said in zip(self.agents, state.said, strict=False))

    def _array(self) -> np.ndarray:
        """Pool, mean of the limits that were said (or 0), whether to speak, and the share that is told; 0 to 1."""
        limit = float(np.mean(self.state.limits)) / self.most if self.state.limits else 0.0
        share = (
            threshold(self.state.pool, len(self.agents), inverse=self.inverse) / self.most if self.universal else 0.0
        )
        return np.array([self.state.pool / 100, limit, float(self.state.speaking), share], np.float32)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take all harvests, or one agent's message."""
        state = self.state
        if not state.speaking:
            return self._harvest(np.array([chosen[agent] or 0 for agent in self.agents], float))
        ((_, said),) = chosen.items()
        if self.talk == "free":
            state.said.append(" ".join(str(said or "").split()))
        else:
            state.said.append("nothing" if said is None else self.limits[said])
            state.limits += [] if said is None else [said]
        state.speaking = len(state.said) < self.speakers
        return {}, {}

    def _harvest(self, wanted: np.ndarray) -> tuple[dict[str, float], dict[str, Any]]:
        state = self.state
        share = threshold(state.pool, len(self.agents), inverse=self.inverse)
        got = ration(wanted, state.pool, self.rationing, self.rng)
        over = wanted < share if self.inverse else wanted > share
        state.caught, left = got.tolist(), state.pool - float(got.sum())
        facts: dict[str, Any] = {"threshold": float(share), "pool": state.pool, "survived": float(state.round)}
        for name, values in (("wanted", wanted), ("collected", got), ("over_used", over)):
            facts[name] = dict(zip(self.agents, map(float, values), strict=True))
        end = collapsed(left, inverse=self.inverse)
        state.over = end or state.round == self.rounds
        if state.over:
            facts["success"] = not end
        state.pool = regrown(left, inverse=self.inverse)
        state.round, state.said, state.limits = state.round + 1, [], []
        state.speaking = self.talk != "none"
        paid = self.most - got if self.inverse else got
        return dict(zip(self.agents, map(float, paid), strict=True)), facts


def keeper(request: Any, *, wish: int = 14) -> str:
    """Action for a request in `native/commons`: the mean of the agreed limits, or the sustainable share.

    It takes (removes, says) the mean of the limits that were said, rounded down; without one the sustainable share that
    is told; without that `wish`.
    """
    text, legal = request.observation.text, request.observation.legal
    said = [int(unit) for unit in re.findall(r"at (?:most|least) (\d+)", text)]
    told = re.search(r"(?:takes more|removes less) than (\d+)", text)
    units = sum(said) // len(said) if said else int(told[1]) if told else wish
    return legal[min(units, len(legal) - 1)] if legal else f"at most {units} each"
