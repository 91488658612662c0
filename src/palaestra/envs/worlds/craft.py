"""`Craft`: a team looks for wood, stone, iron and a diamond, each of which needs those before it.

Everybody remembers what was seen as a graph, from the long-term goal down to single finds, and tells the others what
they lack in typed messages, as in DAMCS [181] (arXiv 2502.05453). Left out: health, enemies, and language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest
from palaestra.foundation.archive import Entry, GoalMemory

NEEDED = {"wood": 4, "stone": 3, "iron": 2, "diamond": 1}
DEPOSITS = {"wood": 16, "stone": 10, "iron": 6, "diamond": 2}
MESSAGES = ("discovery", "inventory", "claim")
KINDS = tuple(NEEDED)
FAR = 6
"""A find is worth so many steps more than the nearest cell that nobody looked at."""
Cell = tuple[int, int]


@dataclass
class _Mind:
    """Knowledge of one agent: its place, cells seen, the team's believed stock, where others go.

    episode: finds of the game that is played, also those that were taken.
    """

    place: Cell
    seen: np.ndarray
    memory: GoalMemory = field(default_factory=GoalMemory)
    episode: dict[Cell, str] = field(default_factory=dict)
    has: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    claims: dict[str, Cell] = field(default_factory=dict)


@dataclass
class _CraftState:
    deposits: dict[Cell, str]
    minds: dict[str, _Mind]
    step: int = 0
    over: bool = False
    game: int = 0
    begun: tuple[dict[Cell, str], dict[str, Cell]] = field(default_factory=lambda: ({}, {}))


@ENVS.register("native/craft")
class Craft(NativeEnv):
    """Gathering env: agents walk to chosen resources; the first diamond ends it and pays all 1 - steps / horizon.

    A find is taken on arrival, if there is enough of everything before it (4 wood, 3 stone, 2 iron). Things are the
    team's, but who is told nothing counts its own. The first diamond ends it and pays everybody 1 - steps / horizon;
    that is success. They read what they have. facts: told, messages that the agent sent to single teammates; goal, its
    choice; game, the number of the game.

    Args:
        agents: how many. n: rows and columns. view: cells that are seen in each direction. messages: the kinds that are
            sent: discovery (finds, what is gone, where one looked), inventory (what was taken), claim (where one goes:
            the others go elsewhere, and each looks in a part of its own first). addressed: only what is new to a
            teammate is sent to it; else everything in sight, every step, to all. remember: finds out of sight. games:
            played one after the other in the same world, whose finds are there again; the last one is the success.
            consolidate: after each game, everybody's finds of it are put below their goals in its graph, for the next
            game; else all is forgotten.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"told": int, "goal": str, "game": int}

    def __init__(
        self,
        *,
        agents: int = 2,
        n: int = 16,
        view: int = 2,
        horizon: int = 200,
        messages: Sequence[str] = MESSAGES,
        addressed: bool = True,
        remember: bool = True,
        games: int = 1,
        consolidate: bool = True,
    ) -> None:
        for kind in messages:
            if kind not in MESSAGES:
                raise InputError(f"Craft: messages has {kind!r}{nearest(str(kind), MESSAGES)}")
        if min(agents, horizon, games) < 1 or n * n < 2 * sum(DEPOSITS.values()) or view < 0:
            raise InputError(
                f"Craft: {agents=}, {horizon=} and {games=} of at least 1, {n=} of at least 9, {view=} at least 0"
            )
        self.n, self.view, self.horizon, self.messages, self.addressed = n, view, horizon, set(messages), addressed
        self.remember, self.games, self.consolidate = remember, games, consolidate
        self.agents = tuple(f"agent-{number}" for number in range(1, agents + 1))

    def begin(self) -> tuple[str, _CraftState]:
        """Draw deposits and the agents' places."""
        cells = self.rng.permutation(self.n * self.n)
        kinds = [kind for kind, count in DEPOSITS.items() for _ in range(count)]
        deposits = {divmod(int(cell), self.n): kind for cell, kind in zip(cells, kinds, strict=False)}
        places = [(int(row), int(column)) for row, column in self.rng.integers(self.n, size=(len(self.agents), 2))]
        minds = {
            agent: _Mind(place, np.zeros((self.n, self.n), bool))
            for agent, place in zip(self.agents, places, strict=True)
        }
        begun = dict(deposits), {agent: mind.place for agent, mind in minds.items()}
        state = _CraftState(deposits, minds, begun=begun)
        for mind in minds.values():
            self._see(state, mind)
        return f"craft:{int(self.rng.integers(2**40))}", state

    def look(self) -> dict[str, Observation]:
        """Observation of each agent: its stock and needs as far as it knows them."""
        if self.state.over:
            return {}
        shown = {}
        for agent, mind in self.state.minds.items():
            text = ", ".join(f"{kind} {min(mind.has[kind], NEEDED[kind])}" for kind in KINDS[:-1])
            shown[agent] = Observation(text, choices=KINDS)
        return shown

    def _see(self, state: _CraftState, mind: _Mind) -> tuple[list[tuple[Cell, str | None]], list[Cell]]:
        """Look around: finds and what is gone; and which cells were new."""
        (row, column), far = mind.place, self.view
        rows, columns = slice(max(row - far, 0), row + far + 1), slice(max(column - far, 0), column + far + 1)
        news: list[tuple[Cell, str | None]] = []
        cells = [(r, c) for r in range(self.n)[rows] for c in range(self.n)[columns]]
        if not self.remember:
            mind.memory = GoalMemory()
        known = {each.content for kind in KINDS for each in mind.memory.recall(kind)}
        new = [cell for cell in cells if not mind.seen[cell]]
        mind.seen[rows, columns] = True
        for cell in cells:
            there = state.deposits.get(cell)
            if (there is None) == (cell in known) or not self.addressed:
                if there is not None or cell in known:
                    news.append((cell, there))
                self._note(mind, cell, there, state.step)
        return news, new

    def _note(self, mind: _Mind, cell: Cell, kind: str | None, time: int) -> None:
        """Put a find in its place in the graph, or take out what is gone."""
        key = f"{cell[0]},{cell[1]}"
        if kind is None:
            mind.memory.drop(key)
        else:
            mind.episode[cell] = kind
            mind.memory.add(Entry(key, cell, time=float(time)), goal=kind, long_term="a diamond")

    def _next_game(self, state: _CraftState) -> None:
        """Begin another game in the same world, with what was consolidated of the experience of the last one."""
        deposits, places = state.begun
        state.deposits, state.step, state.over, state.game = dict(deposits), 0, False, state.game + 1
        for agent, mind in state.minds.items():
            found, seen = (mind.episode, mind.seen) if self.consolidate else ({}, np.zeros_like(mind.seen))
            state.minds[agent] = _Mind(places[agent], seen)
            for cell, kind in found.items():
                self._note(state.minds[agent], cell, kind, 0)
        for mind in state.minds.values():
            self._see(state, mind)

    def target(self, agent: str, kind: str) -> Cell:
        """Cell to which an agent is on its way.

        The nearest find of a kind that, as it knows, nobody else goes for, or the nearest cell that nobody looked at.
        """
        mind = self.state.minds[agent]
        taken = {cell for other, cell in mind.claims.items() if other != agent}
        finds: list[Cell] = [each.content for each in mind.memory.recall(kind)]
        free = [cell for cell in finds if cell not in taken]
        row, column = mind.place
        near = min(free, key=lambda cell: (abs(cell[0] - row) + abs(cell[1] - column), cell), default=None)
        if mind.seen.all():
            if near or finds:
                return near or finds[0]
            mind.seen[:] = False  # look again
        down, right = np.indices(mind.seen.shape)
        far = (abs(down - row) + abs(right - column)).astype(float)
        if near and far[near] <= far[~mind.seen].min() + FAR:
            return near
        if "claim" in self.messages and len(self.agents) > 1:  # sectors around the middle
            turn = np.arctan2(down - (self.n - 1) / 2, right - (self.n - 1) / 2) / (2 * np.pi) + 0.5
            own = (turn * len(self.agents)).astype(int) % len(self.agents) == self.agents.index(agent)
            far += np.where(own, 0.0, self.n)
        far[mind.seen] = np.inf
        at = divmod(int(far.argmin()), self.n)
        return (at[0], at[1])

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move the agents one after the other: go, take, look, tell."""
        state, told, goals = self.state, {}, {}
        for agent, choice in chosen.items():
            mind, kind = state.minds[agent], KINDS[choice or 0]
            goals[agent], target = kind, self.target(agent, kind)
            (row, column), (down, right) = mind.place, target
            step = (np.sign(down - row), 0) if abs(down - row) >= abs(right - column) else (0, np.sign(right - column))
            mind.place = (int(row + step[0]), int(column + step[1]))
            there = state.deposits.get(mind.place)
            before = KINDS[: KINDS.index(there)] if there else ()
            took = there if there and all(mind.has[each] >= NEEDED[each] for each in before) else None
            if took and (took == kind or took == "diamond"):
                del state.deposits[mind.place]
                mind.has[took] += 1
                state.over |= took == "diamond"
            else:
                took = None
            news, new = self._see(state, mind)
            told[agent] = self._tell(agent, target, took, news, new)
        state.step += 1
        info: dict[str, Any] = {"told": told, "goal": goals, "game": state.game}
        found, state.over = state.over, state.over or state.step >= self.horizon
        worth = 1 - state.step / self.horizon
        if state.over and state.game + 1 < self.games:
            self._next_game(state)
        elif state.over:
            info["success"] = found
        return (dict.fromkeys(self.agents, worth) if found else {}), info

    def _tell(
        self, agent: str, target: Cell, took: str | None, news: list[tuple[Cell, str | None]], new: list[Cell]
    ) -> int:
        """Send what is to be sent to each teammate; how many messages that were."""
        state, sent = self.state, 0
        for other in self.agents:
            mind = state.minds[other]
            if other == agent:
                continue
            if "inventory" in self.messages and (took or not self.addressed):
                mind.has[took or KINDS[0]] += took is not None
                sent += 1
            if "claim" in self.messages and (mind.claims.get(agent) != target or not self.addressed):
                mind.claims[agent] = target
                sent += 1
            if "discovery" in self.messages:
                for cell, kind in news:
                    self._note(mind, cell, kind, state.step)
                sent += len(news) + bool(new or not self.addressed)
                for cell in new:
                    mind.seen[cell] = True
        return sent
