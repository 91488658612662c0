"""`Papers`: labs search one landscape by writing papers, and build on those that they can see.

What sharing an archive brings ([63] AgentRxiv, arXiv 2503.18102): a paper is a string of bits, its result its
fitness in an NK landscape. Left out: reading papers; a lab that builds on one changes a bit or two of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest
from palaestra.foundation.archive import Archive, Entry

Sharing = Literal["shared", "own", "none"]
Found = Literal["best", "similar"]
Hits = Literal["none", "summaries"]
CHOICES = ("build", "fresh")


@dataclass
class _PapersState:
    tables: np.ndarray
    archive: Archive = field(default_factory=Archive)
    best: dict[str, float] = field(default_factory=dict)
    round: int = 0


@ENVS.register("native/papers")
class Papers(NativeEnv):
    """Research env: each round labs build on one of the best papers they see or start afresh; paid above their best.

    It is paid its gain over its own best.

    sharing: whose papers a lab sees: everybody's of earlier rounds, its own, or none, so that it always begins afresh.
    A paper's reward is by how much it is above the lab's best. facts: fitness, best of the lab, bits.
    Success: a lab's best is at least `goal`.

    Args:
        labs, papers: how many, and of each how many. bits, links: N and K of the landscape. top: how many are seen.
        found: the best papers, or those most similar to the lab's best one, by the cosine of bits. hits: "summaries",
            and a lab reads the id and the result of each paper that it sees; the bits are for who builds on it.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"fitness": float, "best": float, "bits": list[float]}

    def __init__(
        self,
        *,
        labs: int = 3,
        papers: int = 30,
        bits: int = 12,
        links: int = 3,
        top: int = 5,
        sharing: Sharing = "shared",
        goal: float = 0.7,
        found: Found = "best",
        hits: Hits = "none",
    ) -> None:
        if labs < 1 or papers < 1 or not 1 <= links < bits <= 60 or top < 1:
            raise InputError(f"Papers: {labs=}, {papers=}, {top=} of at least 1, 1 <= {links=} < {bits=} <= 60")
        if sharing not in get_args(Sharing):
            raise InputError(f"Papers: {sharing=}{nearest(str(sharing), get_args(Sharing))}")
        if found not in get_args(Found) or hits not in get_args(Hits):
            raise InputError(f"Papers: {found=} of {get_args(Found)}, {hits=} of {get_args(Hits)}")
        self.found, self.hits = found, hits
        self.papers, self.bits, self.links, self.top, self.sharing, self.goal = papers, bits, links, top, sharing, goal
        self.agents = tuple(f"lab-{number}" for number in range(1, labs + 1))

    def begin(self) -> tuple[str, _PapersState]:
        """Draw a fitness landscape; there are no papers yet."""
        tables = self.rng.random((self.bits, 2 ** (self.links + 1)))
        return f"papers:{int(self.rng.integers(2**40))}", _PapersState(tables)

    def look(self) -> dict[str, Observation]:
        """Each lab sees the round and its own best fitness."""
        state = self.state
        if state.round >= self.papers:
            return {}
        return {
            lab: Observation(
                f"round {state.round}, best {state.best.get(lab, 0.0):.3f}{self._found_so_far(lab)}", CHOICES
            )
            for lab in self.agents
        }

    def _found_so_far(self, lab: str) -> str:
        """What a search tells: id and result of each hit."""
        if self.hits == "none":
            return ""
        return "".join(f" | {entry.key} {entry.score:.3f}" for entry in self.visible(lab))

    def fitness(self, bits: np.ndarray) -> float:
        """NK fitness of a paper: mean over bits of a random number for each bit and the `links` after it."""
        ring = np.stack([np.roll(bits, -shift) for shift in range(self.links + 1)])
        index = (ring * 2 ** np.arange(self.links + 1)[:, None]).sum(0)
        return float(self.state.tables[np.arange(self.bits), index].mean())

    def visible(self, lab: str) -> list[Entry]:
        """The papers that a lab sees, in the archive as it is now."""
        if self.sharing == "none":
            return []
        archive: Archive = self.state.archive
        where = None if self.sharing == "shared" else lambda each: each.owner == lab
        if self.found == "best":
            return archive.best(self.top, where)
        own = archive.best(1, lambda each: each.owner == lab)
        return archive.top(2.0 * np.array(own[0].content) - 1, self.top, where) if own else []

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """All labs write a paper, then all are published and paid."""
        state, written = self.state, {}
        for lab, choice in chosen.items():
            known = self.visible(lab) if choice == 0 else []
            if known:
                bits = np.array(known[int(self.rng.integers(len(known)))].content)
                bits[self.rng.permutation(self.bits)[: 1 + int(self.rng.integers(2))]] ^= 1
            else:
                bits = self.rng.integers(2, size=self.bits)
            written[lab] = bits
        state.round += 1
        rewards, found = {}, {lab: self.fitness(bits) for lab, bits in written.items()}
        for lab, bits in written.items():
            entry = Entry(f"{lab}:{state.round}", bits.tolist(), found[lab], lab, float(state.round))
            state.archive.add(entry, (2 * bits - 1).tolist())
            rewards[lab] = max(found[lab] - state.best.get(lab, 0.0), 0.0)
            state.best[lab] = max(found[lab], state.best.get(lab, 0.0))
        info: dict[str, Any] = {
            "fitness": found,
            "best": dict(state.best),
            "bits": {lab: (2.0 * bits - 1).tolist() for lab, bits in written.items()},
        }
        if state.round >= self.papers:
            info["success"] = {lab: best >= self.goal for lab, best in state.best.items()}
        return rewards, info
