"""States of OpenSpiel games as a tree: what was met once is not worked out again."""

from __future__ import annotations

from typing import Any

from palaestra.envs.protocol import Observation

MOST = 10_000
"""States of one game that are remembered, the first ones met: all of Kuhn and Leduc poker, openings of larger games."""
CHANCE, SIMULTANEOUS = -1, -2
"""Who is to act, beside the players' numbers; at the end -4."""

Moves = int | tuple[int, ...]
"""One player's action or a chance outcome, or the actions of all who act at once."""


class Node:
    """Node of a game tree: an OpenSpiel state with cached player to act, returns, successors and observations.

    player: who acts. returns: of each player so far. children: the states after it that are remembered.
    observations: by player; None where nothing is kept. deal: chance outcomes that led here, set by whom they concern.
    """

    __slots__ = ("children", "deal", "observations", "outcomes", "player", "returns", "state")

    def __init__(self, state: Any, kept: bool = False) -> None:
        self.state = state
        self.player: int = state.current_player()
        self.returns: list[float] | None = None
        self.outcomes: list[tuple[int, float]] | None = None
        self.children: dict[Moves, Node] = {}
        self.observations: dict[int, Observation] | None = {} if kept else None
        self.deal: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have the state alone."""
        return Node, (self.state,)


class Tree:
    """Cache of an OpenSpiel game's states from its start: at most `room` states after it are remembered."""

    __slots__ = ("room", "root")

    def __init__(self, start: Any, room: int) -> None:
        self.root, self.room = Node(start, kept=room > 0), room

    def after(self, node: Node, moves: Moves) -> Node:
        """The state after these moves, from the cache or computed; it is cached if there is room."""
        found = node.children.get(moves)
        if found is None:
            if isinstance(moves, tuple):
                state = node.state.clone()
                state.apply_actions(list(moves))
            else:
                state = node.state.child(moves)
            kept = self.room > 0 and node.observations is not None
            found = Node(state, kept)
            if kept:
                node.children[moves] = found
                self.room -= 1
        return found
