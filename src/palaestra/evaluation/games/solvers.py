"""Solvers of games by name, as `palaestra solve GAME --by 'qre(2.0)'` takes them.

A solver is made with its options and gets a game. It answers with mixtures or a joint distribution for a matrix game,
and with a behaviour policy for a tree. One of your own is a function and a registration:

    @SOLVERS.register("mine")
    def mine(steps: int = 100) -> Solver:
        \"\"\"One line about it.\"\"\"
        return lambda game: ...
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from palaestra.errors import InputError
from palaestra.evaluation.games import cfr as cfr_rules
from palaestra.evaluation.games import dynamics, linear, risk
from palaestra.evaluation.games.game import Game
from palaestra.evaluation.games.psro import merged, risk_averse_oracle
from palaestra.evaluation.games.psro import psro as grow
from palaestra.evaluation.games.tree import Tree, game_tree
from palaestra.evaluation.ranking import alpha_rank as alpha_ranks
from palaestra.evaluation.ranking.nash_averaging import nash_averaging as nash_average
from palaestra.foundation.registry import Registry

Solver = Callable[[Any], Any]
"""From a `Game` to mixtures or a joint distribution, or from a `Tree` to a behaviour policy float64[A, I]."""
SOLVERS: Registry[Solver] = Registry(
    "solver", home=("palaestra.evaluation.games.solvers",), example='cfr("vad", iterations=1000)'
)
"""Every solver of games by the name that `palaestra solve --by` takes."""


def read_solver(text: str) -> Solver:
    """Returns the solver that a text names, a function from a game to its profile: `read_solver("cfr(vad)")(game)`.

    A bare word among its options is text.

    Raises:
        ExpressionError: there is none of this name, or it does not take these options.
    """
    return SOLVERS.build(re.sub(r"""'[^']*'|"[^"]*"|(?<=[(,=])\s*([A-Za-z_]\w*)\s*(?=[,)])""", _quoted, text))


def _quoted(found: re.Match[str]) -> str:
    return found[0] if found[1] in (None, "True", "False", "None") else repr(found[1])


def _matrix(game: Game | Tree, name: str) -> Game:
    if isinstance(game, Tree):
        raise InputError(f"{name}: a game in normal form is needed; a game with moves is solved by nash or cfr")
    return game


@SOLVERS.register("nash")
def nash() -> Solver:
    """Returns a solver of two-player zero-sum games by linear programming: mixtures of a matrix, or a tree's policy."""
    return lambda game: linear.nash_policy(game) if isinstance(game, Tree) else linear.nash_mixtures(game)


@SOLVERS.register("nash_averaging")
def nash_averaging() -> Solver:
    """Returns a solver of two-player zero-sum matrices: the Nash equilibrium of largest entropy, unmoved by copies."""

    def solve(game: Game) -> Any:
        total = linear.need_zero_sum(_matrix(game, "nash_averaging"), "nash_averaging")
        return nash_average(game.payoffs[0] - total / 2).equilibrium

    return solve


@SOLVERS.register("cce")
def cce() -> Solver:
    """Returns a solver of matrix games for any number of players: coarse correlated equilibrium of largest welfare."""
    return lambda game: linear.best_cce(_matrix(game, "cce"))


@SOLVERS.register("cfr")
def cfr(variant: str = "plain", iterations: int = 1000, **options: float) -> Solver:
    """Returns a solver of matrix or tree games: average policy of `iterations` of counterfactual regret minimisation.

    variant: plain, plus, discounted or vad, and its options.
    """
    rule = cfr_rules.rule(variant, **options)
    if iterations < 1:
        raise InputError(f"cfr: iterations={iterations} must be at least 1")
    if iterations <= rule.start:
        raise InputError(f"cfr: {variant} averages from iteration start={rule.start} on; {iterations} give no policy")

    def solve(game: Game | Tree) -> Any:
        tree = game if isinstance(game, Tree) else game_tree(game)
        run = cfr_rules.CFR(tree, rule)
        for _ in run.run(iterations):
            pass
        policy = run.average()
        return policy if isinstance(game, Tree) else tuple(policy[: len(own), i] for i, own in enumerate(tree.actions))

    return solve


@SOLVERS.register("uniform")
def uniform() -> Solver:
    """Returns a solver that gives every strategy, or legal action, the same probability."""
    return lambda game: game.uniform() if isinstance(game, Tree) else dynamics.uniform_mixtures(game)


@SOLVERS.register("replicator")
def replicator(steps: int = 2000, rate: float = 0.1) -> Solver:
    """Returns a solver of matrix games: time average of replicator dynamics from the uniform profile."""
    return lambda game: dynamics.replicator_dynamics(_matrix(game, "replicator"), steps, rate)


@SOLVERS.register("fictitious_play")
def fictitious_play(steps: int = 2000) -> Solver:
    """Returns a solver of matrix games by fictitious play: averages of best responses to the others' averages."""
    return lambda game: dynamics.fictitious_play(_matrix(game, "fictitious_play"), steps)


@SOLVERS.register("qre")
def qre(rationality: float = 1.0) -> Solver:
    """Returns a solver of matrix games: the quantal response equilibrium of this rationality, followed from uniform."""
    return lambda game: dynamics.logit_equilibrium(_matrix(game, "qre"), rationality)


@SOLVERS.register("risk_averse")
def risk_averse(
    lam: float = 0.1, tremble: float = 0.05, steps: int = 2000, start: list[list[float]] | None = None
) -> Solver:
    """Returns a solver of matrix games: equilibrium of responses that maximise payoff less `lam` times its variance.

    Source: arXiv 2205.15434.
    """
    first = tuple(np.array(x, float) for x in start) if start else None
    return lambda game: risk.risk_averse_equilibrium(_matrix(game, "risk_averse"), lam, tremble, steps, first)


@SOLVERS.register("alpha_rank")
def alpha_rank(alpha: float = float("inf"), population: int = 50, epsilon: float = 0.01) -> Solver:
    """Returns a solver of matrix games: alpha-Rank's stationary distribution over the profiles, a joint one."""

    def solve(game: Game) -> Any:
        tables = list(_matrix(game, "alpha_rank").payoffs)
        return alpha_ranks.alpha_rank(tables, alpha=alpha, population=population, epsilon=epsilon)

    return solve


@SOLVERS.register("shor")
def shor(
    role: Literal["training", "evaluation"] = "evaluation",
    steps: int | None = None,
    centre: Literal["mean", "value"] = "mean",
) -> Solver:
    """Returns a solver of matrix games: mixtures by optimistic regret matching, SHOR (arXiv 2602.16928), by `role`.

    With the source's schedules. The mixtures are no equilibrium.
    """
    if role not in ("training", "evaluation"):
        raise InputError(f"shor: role={role!r} must be 'training' or 'evaluation'")

    def solve(game: Game) -> Any:
        n = max(_matrix(game, "shor").shape) - 1
        if role == "evaluation":
            return dynamics.shor(game, min(15_000, 8000 + 50 * n) if steps is None else steps, centre=centre)
        done = min(1.0, n / 75)
        return dynamics.shor(
            game,
            min(5000, 1000 + 20 * n) if steps is None else steps,
            blend=0.3 + done * (0.05 - 0.3),
            temperature=0.5 + done * (0.01 - 0.5),
            momentum=0.5,
            diversity=0.05 + done * (0.001 - 0.05),
            centre=centre,
            average=True,
        )

    return solve


@SOLVERS.register("psro")
def psro(train: str = "nash", evaluate: str = "nash", iterations: int = 20, risk: float = 0.0) -> Solver:
    """Returns a solver by PSRO: populations grow by best responses; solvers by name for training and for the answer.

    train: of the mixtures that are responded to. evaluate: of the answer. risk: weight of variance in the responses,
    for matrix games. With nash in both slots it is the double oracle.
    """
    solvers = [read_solver(train), read_solver(evaluate)]

    def solve(game: Game | Tree) -> Any:
        oracle = risk_averse_oracle(_matrix(game, "psro(risk=…)"), risk) if risk else None
        tolerance = -1.0 if risk else 1e-9
        options: dict[str, Any] = {"oracle": oracle, "iterations": iterations, "tolerance": tolerance}
        played = grow(game, train=solvers[0], evaluate=solvers[1], **options)[-1].blend()
        return game.policy(merged(played)) if isinstance(game, Tree) else tuple(played)

    return solve
