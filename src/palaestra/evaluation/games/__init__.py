"""Games as objects: payoff tensors and trees, equilibria, counterfactual regret minimisation, and populations (PSRO).

`palaestra solve GAME --by SOLVER` is the command.
"""

from palaestra.evaluation.games.cfr import CFR, Rule
from palaestra.evaluation.games.empirical import empirical_game
from palaestra.evaluation.games.files import read_game
from palaestra.evaluation.games.game import Game, marginals, zero_sum
from palaestra.evaluation.games.psro import Population, psro
from palaestra.evaluation.games.risk import risk_averse_response
from palaestra.evaluation.games.solve import Solution, solve
from palaestra.evaluation.games.solvers import SOLVERS, read_solver
from palaestra.evaluation.games.tree import Tree, build_tree, game_tree, openspiel_tree

__all__ = [
    "CFR",
    "SOLVERS",
    "Game",
    "Population",
    "Rule",
    "Solution",
    "Tree",
    "build_tree",
    "empirical_game",
    "game_tree",
    "marginals",
    "openspiel_tree",
    "psro",
    "read_game",
    "read_solver",
    "risk_averse_response",
    "solve",
    "zero_sum",
]
