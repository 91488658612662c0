"""Ranking: from matches to an order with intervals, and a test of whether there is one."""

from palaestra.evaluation.ranking.adaptive import (
    PayoffEstimate,
    ResponseGraph,
    Settled,
    alpha_rank_draws,
    next_match,
    plays_needed,
    response_graph_ucb,
)
from palaestra.evaluation.ranking.bradley_terry import bradley_terry, draw_parameter, win_chance
from palaestra.evaluation.ranking.contests import Contests, contests, medal, rank_contests, read_contests
from palaestra.evaluation.ranking.elo import elo
from palaestra.evaluation.ranking.elo_mmr import elo_mmr
from palaestra.evaluation.ranking.intransitivity import Transitivity, transitivity
from palaestra.evaluation.ranking.matches import Matches, matches, matches_from_trials, read_matches
from palaestra.evaluation.ranking.swiss import failure_sensitivity, swiss
from palaestra.evaluation.ranking.table import METHODS, Ranking, rank, rank_intervals, ranks, win_table
from palaestra.evaluation.ranking.voting import ballots, plurality, vote

__all__ = [
    "METHODS",
    "Contests",
    "Matches",
    "PayoffEstimate",
    "Ranking",
    "ResponseGraph",
    "Settled",
    "Transitivity",
    "alpha_rank_draws",
    "ballots",
    "bradley_terry",
    "contests",
    "draw_parameter",
    "elo",
    "elo_mmr",
    "failure_sensitivity",
    "matches",
    "matches_from_trials",
    "medal",
    "next_match",
    "plays_needed",
    "plurality",
    "rank",
    "rank_contests",
    "rank_intervals",
    "ranks",
    "read_contests",
    "read_matches",
    "response_graph_ucb",
    "swiss",
    "transitivity",
    "vote",
    "win_chance",
    "win_table",
]
