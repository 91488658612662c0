"""Policy-space response oracles: populations that grow by best responses, with one solver for training, one for proof.

A strategy is a plan (`Tree`) or a mixture (`Game`), so a mixture of a population is a strategy again, and a league of
learners is the same loop with another oracle. arXiv 1711.00832; double oracle: McMahan et al. 2003; two solver slots:
arXiv 2602.16928. Left out: learned oracles (a training has them) and empirical payoffs of sampled play.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.errors import InputError
from palaestra.evaluation.games.game import Game, marginals
from palaestra.evaluation.games.linear import nash_mixtures
from palaestra.evaluation.games.risk import moments, risk_averse_response, tremble_mixture
from palaestra.evaluation.games.tree import Tree

Strategy = np.ndarray
"""Plan of one player, float64[A·I + 1], or its mixture in a matrix game, float64[S]."""
Oracle = Callable[[int, Sequence[Strategy]], Strategy]
"""From a player and a strategy of every player to that player's new strategy."""
MetaSolver = Callable[[Game], Any]
"""From the game between the populations to mixtures, or to a joint distribution, of which the marginals are taken."""


@dataclass(frozen=True, eq=False)
class Population:
    """Data of PSRO's state: each player's strategies so far, the game between them, its solution and exploitability.

    Attributes:
        strategies: of each player, oldest first.
        payoffs: the game between them.
        mixtures: what the evaluation solver says of it.
        gap: exploitability of these mixtures in the whole game.
    """

    strategies: tuple[tuple[Strategy, ...], ...]
    payoffs: Game
    mixtures: tuple[np.ndarray, ...]
    gap: float

    def blend(self) -> list[Strategy]:
        """The meta-strategy per player: its population weighted by the mixtures of the evaluation."""
        return blend(self.strategies, self.mixtures)


def blend(strategies: Sequence[Sequence[Strategy]], mixtures: Sequence[np.ndarray]) -> list[Strategy]:
    """List of one strategy per player: the average of its population of arrays, weighted by its array in `mixtures`."""
    return [np.asarray(x @ np.array(own)) for own, x in zip(strategies, mixtures, strict=True)]


def best_response_oracle(game: Game | Tree) -> Oracle:
    """Returns an oracle on a `Game` or `Tree`: a function (player, strategies) -> exact best response to the others."""

    def respond(player: int, strategies: Sequence[Strategy]) -> Strategy:
        if isinstance(game, Tree):
            return game.plan(game.best_response(merged(strategies), player)[0], player)
        response = np.zeros(game.shape[player])
        response[game.against(player, strategies).argmax()] = 1.0
        return response

    return respond


def risk_averse_oracle(game: Game, lam: float, tremble: float = 0.05) -> Oracle:
    """Returns an oracle on a matrix `Game` for `psro`: a function that maximises payoff less `lam` times its variance.

    Source: arXiv 2205.15434.
    """

    def respond(player: int, strategies: Sequence[Strategy]) -> Strategy:
        smooth = [tremble_mixture(x, tremble) for x in strategies]
        return risk_averse_response(*moments(game, player, smooth[:player] + smooth[player + 1 :]), lam)

    return respond


def payoffs_between(game: Game | Tree, strategies: Sequence[Sequence[Strategy]]) -> Game:
    """`Game` between populations of strategies in a `Game` or `Tree`: exact payoffs of all combinations, variances.

    The variances are those of returns.
    """
    names = tuple(
        tuple(f"{who}_{k}" for k in range(len(own))) for who, own in zip(game.players, strategies, strict=True)
    )
    if isinstance(game, Game):
        within = game.variance or (0.0,) * len(game.players)
        tables = [_contracted(payoff, strategies) for payoff in game.payoffs]
        squares = [_contracted(u**2 + v, strategies) for u, v in zip(game.payoffs, within, strict=True)]
        return Game(tuple(tables), game.players, names, _variance(squares, tables))
    at_leaves = [np.array(own)[:, game.leaf[i]] for i, own in enumerate(strategies)]
    letters = "abcdefghijklmnopqrstuvwxy"[: len(strategies)]
    product = f"{','.join(f'{letter}z' for letter in letters)},z->{letters}"
    tables, squares = (
        [np.einsum(product, *at_leaves, game.chance * payoff**power, optimize=True) for payoff in game.payoffs]
        for power in (1, 2)
    )
    return Game(tuple(tables), game.players, names, _variance(squares, tables))


def _contracted(payoff: np.ndarray, strategies: Sequence[Sequence[Strategy]]) -> np.ndarray:
    for own in strategies:  # the axis in front is contracted, and the new one joins at the end
        payoff = np.tensordot(payoff, np.array(own), axes=(0, 1))
    return payoff


def _variance(squares: Sequence[np.ndarray], means: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.maximum(square - mean**2, 0.0) for square, mean in zip(squares, means, strict=True))


def exploitability(game: Game | Tree, strategies: Sequence[Strategy]) -> float:
    """Exploitability in a `Game` or `Tree` of one strategy array per player: mean gain of players' best responses."""
    if isinstance(game, Game):
        return game.exploitability(strategies)
    return game.exploitability(game.policy(merged(strategies)))


def psro(
    game: Game | Tree,
    *,
    train: MetaSolver = nash_mixtures,
    evaluate: MetaSolver = nash_mixtures,
    oracle: Oracle | None = None,
    iterations: int = 20,
    start: Sequence[Strategy] | None = None,
    tolerance: float = 1e-9,
) -> list[Population]:
    """Policy-space response oracles on a `Game` or `Tree`: list of `Population`, one an iteration, to gap `tolerance`.

    Each iteration solves the game between the populations with `train`, and adds every player's response to what the
    others play there. What is reported is solved with `evaluate`. With `nash_mixtures` in both slots it is the double
    oracle, with `uniform_mixtures` in both it is fictitious play.

    Args:
        game: matrix or tree.
        train: meta-solver whose mixtures are responded to.
        evaluate: meta-solver of the reported mixtures.
        oracle: gives new strategies; None: exact best responses.
        iterations: how many at most.
        start: first strategy of each player; None: uniform.
        tolerance: gap that ends it.

    Raises:
        InputError: `start` has not one strategy per player, or `iterations` is below 0.
    """
    first = list(start) if start is not None else _uniform(game)
    if len(first) != len(game.players):
        raise InputError(f"psro: {len(first)} start strategies for {len(game.players)} players")
    if iterations < 0:
        raise InputError(f"psro: iterations={iterations} must be at least 0")
    respond = oracle or best_response_oracle(game)
    strategies: list[tuple[Strategy, ...]] = [(each,) for each in first]
    found = []
    for t in range(iterations + 1):
        between = payoffs_between(game, strategies)
        mixtures = _mixtures(evaluate(between))
        gap = exploitability(game, blend(strategies, mixtures))
        found.append(Population(tuple(strategies), between, mixtures, gap))
        if gap <= tolerance or t == iterations:
            break
        played = blend(strategies, mixtures if train is evaluate else _mixtures(train(between)))
        strategies = [(*own, respond(player, played)) for player, own in enumerate(strategies)]
    return found


def _mixtures(found: Any) -> tuple[np.ndarray, ...]:
    """A solver's mixtures; of a joint distribution its marginals, since the players of populations choose apart."""
    return marginals(found) if isinstance(found, np.ndarray) else tuple(found)


def _uniform(game: Game | Tree) -> list[Strategy]:
    if isinstance(game, Game):
        return [np.full(size, 1 / size) for size in game.shape]
    return [game.plan(game.uniform(), player) for player in range(len(game.players))]


def merged(plans: Sequence[np.ndarray]) -> np.ndarray:
    """One sequence-form plan of all players, an array: sum of `plans`, one each, 0 in the places of other players."""
    whole = np.sum(plans, axis=0)
    whole[-1] = 1.0
    return np.asarray(whole)
