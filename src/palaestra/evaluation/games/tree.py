"""Extensive-form games in sequence form: arrays over information sets, in which values and best responses are products.

With perfect recall a player's strategy is a plan: the product of its own probabilities on the way to each (information
set, action). The value of a leaf is then chance times the plans of all players times the payoff, so one pass over the
leaves and one over a player's own information sets does what a walk of the whole tree does (von Stengel 1996).
Left out: imperfect recall, and trees that do not fit into memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from palaestra.envs.worlds.exact.exploitability import information_states
from palaestra.errors import InputError
from palaestra.evaluation.games.game import Game

Place = tuple[int, int] | None
"""Information set and action; None: none before."""
_TOO_MANY = 5_000_000


class Level(NamedTuple):
    """Data of one level of a game tree: a player's information sets at one depth, and the runs that share a parent."""

    sets: slice
    parents: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True, eq=False)
class Tree:
    """An N-player extensive-form game with perfect recall, in sequence form: gives exact values and best responses.

    A place is an (action, information set), flat in float64[A, I].

    Attributes:
        players: names of the players.
        keys: of each information set, in the order of player, depth and parent.
        actions: names of the actions that are legal in each information set.
        legal: bool[A, I]; action a of a set is the a-th of its legal actions.
        parent: place of the player's own last action before each set, int64[I]; A·I where there is none.
        levels: of each player, from the root down.
        leaf: place of each player's last action before each leaf, int64[N, leaves]; A·I where there is none.
        chance: probability of chance on the way to each leaf, float64[leaves].
        payoffs: float64[N, leaves].
    """

    players: tuple[str, ...]
    keys: tuple[str, ...]
    actions: tuple[tuple[str, ...], ...]
    legal: np.ndarray
    parent: np.ndarray
    levels: tuple[tuple[Level, ...], ...]
    leaf: np.ndarray
    chance: np.ndarray
    payoffs: np.ndarray

    def uniform(self) -> np.ndarray:
        """Policy with equal probabilities of all legal actions, float64[A, I]."""
        return np.asarray(self.legal / self.legal.sum(axis=0))

    def plan(self, policy: np.ndarray, player: int, plan: np.ndarray | None = None) -> np.ndarray:
        """Realisation plan of one player, float64[A·I + 1]: own reach of each (action, information set); the last is 1.

        Args:
            policy: float64[A, I].
            player: whose places are filled in.
            plan: filled in and returned; None: a new one, 0 at the places of the others.
        """
        plan = np.zeros(policy.size + 1) if plan is None else plan
        plan[-1] = 1.0
        table = plan[:-1].reshape(policy.shape)
        for sets, _, _ in self.levels[player]:
            np.multiply(policy[:, sets], plan[self.parent[sets]], out=table[:, sets])
        return plan

    def plans(self, policy: np.ndarray) -> np.ndarray:
        """Realisation plans of all players as one float64[A·I + 1]: own reach of each (action, information set)."""
        plan = np.zeros(policy.size + 1)
        for player in range(len(self.players)):
            self.plan(policy, player, plan)
        return plan

    def policy(self, plan: np.ndarray) -> np.ndarray:
        """Behaviour policy of a realisation plan, float64[A, I]; uniform in information sets that are not reached."""
        table = plan[:-1].reshape(self.legal.shape)
        total = table.sum(axis=0)
        return np.asarray(np.where(total > 0, table / np.where(total > 0, total, 1.0), self.uniform()))

    def counterfactual(self, plan: np.ndarray, player: int) -> np.ndarray:
        """float64[A·I + 1]: payoff behind each (action, information set), weighted by chance and the others' plans."""
        weight = self.chance * self.payoffs[player]
        for other in range(len(self.players)):
            if other != player:
                weight = weight * plan[self.leaf[other]]
        return np.bincount(self.leaf[player], weight, minlength=len(plan))

    def values(self, policy: np.ndarray, plan: np.ndarray, player: int) -> tuple[np.ndarray, np.ndarray]:
        """(values float64[A, I], float64[I]): counterfactual values of a player's actions, and information sets."""
        found = self.counterfactual(plan, player)
        table, of_sets = found[:-1].reshape(policy.shape), np.zeros(policy.shape[1])
        for sets, parents, starts in reversed(self.levels[player]):
            of_sets[sets] = (policy[:, sets] * table[:, sets]).sum(axis=0)
            found[parents] += np.add.reduceat(of_sets[sets], starts)
        return table, of_sets

    def best_response(self, plan: np.ndarray, player: int) -> tuple[np.ndarray, float]:
        """(policy, value) of a pure best response of a player to the plans of the others; policy float64[A, I]."""
        found = self.counterfactual(plan, player)
        table, response = found[:-1].reshape(self.legal.shape), np.zeros(self.legal.shape)
        for sets, parents, starts in reversed(self.levels[player]):
            value = np.where(self.legal[:, sets], table[:, sets], -np.inf)
            best = value.argmax(axis=0)
            response[best, np.arange(sets.start, sets.stop)] = 1.0
            found[parents] += np.add.reduceat(value[best, np.arange(len(best))], starts)
        return response, float(found[-1])

    def value(self, policy: np.ndarray) -> np.ndarray:
        """Expected payoff of each player, float64[N]."""
        plan = self.plans(policy)
        return np.asarray(self.payoffs @ (self.chance * plan[self.leaf].prod(axis=0)))

    def regret(self, policy: np.ndarray) -> np.ndarray:
        """Gain of each player's best response, float64[N]."""
        plan = self.plans(policy)
        best = [self.best_response(plan, player)[1] for player in range(len(self.players))]
        return np.asarray(np.array(best) - self.value(policy))

    def exploitability(self, policy: np.ndarray) -> float:
        """Mean gain of the best responses (NashConv / N), as OpenSpiel's; 0 exactly at a Nash equilibrium."""
        return float(self.regret(policy).mean())

    def constant_sum(self) -> float | None:
        """The sum of the payoffs if it is the same at every leaf (to 1e-9 of the largest), else None."""
        total = self.payoffs.sum(axis=0)
        scale = max(float(np.abs(self.payoffs).max()), 1e-300)
        return float(total.mean()) if np.ptp(total) <= 1e-9 * scale * len(self.players) else None


def build_tree(
    players: Sequence[str],
    sets: Sequence[tuple[str, int, Place, Sequence[str]]],
    leaves: Sequence[tuple[Sequence[Place], float, Sequence[float]]],
) -> Tree:
    """Builds the sequence form of a game, a `Tree`, from its information sets and leaves.

    Args:
        players: names.
        sets: of each information set its key, player, the own (set, action) before it or None, and its actions;
            a set stands after the one before it.
        leaves: of each leaf every player's last (set, action) or None, the probability of chance, and the payoffs.
    """
    depth: list[int] = []
    for _, _, before, _ in sets:
        depth.append(0 if before is None else depth[before[0]] + 1)
    order = sorted(range(len(sets)), key=lambda i: (sets[i][1], depth[i], sets[i][2] or (-1, -1)))
    new = {old: place for place, old in enumerate(order)}
    width, n = max(len(each[3]) for each in sets), len(sets)
    empty = width * n

    def place(at: Place) -> int:
        return empty if at is None else at[1] * n + new[at[0]]

    legal = np.zeros((width, n), bool)
    for i in range(n):
        legal[: len(sets[order[i]][3]), i] = True
    parent = np.array([place(sets[i][2]) for i in order])
    levels: list[tuple[Level, ...]] = []
    for player in range(len(players)):
        own = [i for i in range(n) if sets[order[i]][1] == player]
        runs = [list(run) for _, run in itertools.groupby(own, key=lambda i: depth[order[i]])]
        levels.append(tuple(_level(slice(run[0], run[-1] + 1), parent) for run in runs))
    return Tree(
        players=tuple(players),
        keys=tuple(sets[i][0] for i in order),
        actions=tuple(tuple(sets[i][3]) for i in order),
        legal=legal,
        parent=parent,
        levels=tuple(levels),
        leaf=np.array([[place(at) for at in each[0]] for each in leaves]).T.copy(),
        chance=np.array([each[1] for each in leaves], float),
        payoffs=np.array([each[2] for each in leaves], float).T.copy(),
    )


def _level(sets: slice, parent: np.ndarray) -> Level:
    own = parent[sets]
    starts = np.flatnonzero(np.append(True, own[1:] != own[:-1]))
    return Level(sets, own[starts], starts)


def game_tree(game: Game) -> Tree:
    """Converts a normal-form `Game` to a `Tree`: each player has one information set."""
    sets = [(who, i, None, own) for i, (who, own) in enumerate(zip(game.players, game.strategies, strict=True))]
    leaves: list[tuple[Sequence[Place], float, Sequence[float]]] = [
        (list(enumerate(cell)), 1.0, [float(table[cell]) for table in game.payoffs]) for cell in np.ndindex(game.shape)
    ]
    return build_tree(game.players, sets, leaves)


def normal_form(tree: Tree) -> Game:
    """Converts a `Tree` in which each player always decides once, in one information set, to its matrix `Game`."""
    shape = tuple(len(own) for own in tree.actions)
    cell = tuple(leaf // len(shape) for leaf in tree.leaf)
    payoffs = np.zeros((len(shape), *shape))
    for table, payoff in zip(payoffs, tree.payoffs, strict=True):
        np.add.at(table, cell, tree.chance * payoff)
    return Game(tuple(payoffs), tree.players, tree.actions)


@lru_cache(maxsize=8)
def openspiel_tree(name: str) -> Tree:
    """Loads the `Tree` of an OpenSpiel game such as `kuhn_poker(players=3)`; simultaneous moves become sequential.

    Raises:
        InputError: there is no such game, it has imperfect recall, or more than 100 000 information sets or 5 000 000
            leaves.
        MissingExtraError: OpenSpiel is not installed.
    """
    states = information_states(name)
    if not states:
        raise InputError(f"{name}: nobody decides anything in this game")
    index = {(state.player, state.key): i for i, state in enumerate(states)}
    loaded = states[0].state.get_game()
    sets = [
        (
            state.key,
            state.player,
            (state.parent, states[state.parent].legal.index(state.parent_action)) if state.parent >= 0 else None,
            [state.state.action_to_string(state.player, action) for action in state.legal],
        )
        for state in states
    ]
    leaves: list[tuple[Sequence[Place], float, Sequence[float]]] = []
    none: tuple[Place, ...] = (None,) * loaded.num_players()
    stack: list[tuple[Any, tuple[Place, ...], float]] = [(loaded.new_initial_state(), none, 1.0)]
    while stack:
        state, last, chance = stack.pop()
        if state.is_terminal():
            leaves.append((last, chance, state.returns()))
            if len(leaves) > _TOO_MANY:
                raise InputError(f"{name} has more than {_TOO_MANY} leaves: too large for exact values")
        elif state.is_chance_node():
            stack.extend((state.child(action), last, chance * p) for action, p in state.chance_outcomes())
        else:
            player = state.current_player()
            at = index[player, state.information_state_string()]
            for a, action in enumerate(states[at].legal):
                stack.append((state.child(action), (*last[:player], (at, a), *last[player + 1 :]), chance))
    return build_tree([f"player_{i}" for i in range(loaded.num_players())], sets, leaves)
