"""The least and the greatest value that numbers of credits, rewards and statistics may have, as refusals say them."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from tests.bounds import kept, table

RANGES = """
algebra.keys:edge(): history >= 0
algebra.schedules:two_phase(1.0, 0.0, steps=9): share in [0., 1.]
algebra.schedules:two_phase(1.0, 0.0, share=0.5): steps >= 1
credit.attempts:exp_weight("x"): temperature > 0.; most > 0.
credit.budget:allocate_budget([0.5, 0.5], 8): minimum >= 0
credit.budget:ValueAtStart(): pairwise in [0., 1.]; ridge > 0.; width > 0.
credit.critics:TurnCritic(2, 2): gamma in [0., 1.]; tau in (0., 1.]; rate in (0., 1.]
credit.critics:PrefixCritic(): rate in [0., 1.]
credit.decomposition:ReturnDecomposition(2): steps >= 2; ridge >= 0.
credit.filtered:step_filter(): gamma in [0., 1.]; lam in (0., 1.]
credit.filtered:vsc_rl(): top in (0., 1.]
credit.ranking:entropy_rank_reward(): top in (0., 1.]
credit.repair:hint_prefix(["a", "b"]): ratio in [0., 1.]
credit.segments:unsure(): p in (0., 1.]
credit.segments:segments(): p in (0., 1.]; every >= 1
credit.weights:mix(first="x", second="y"): weight in [0., 1.]
credit.weights:outlier_filter("x"): k > 0.
rewards.combine.lengths:overlong(limit=8): cache in [0, 8]
rewards.combine.mix:team_mix(): tau in [0., 1.]
rewards.combine.omissions:omission_reward(): weight in [0., 1.]
rewards.judged.debates:debate_reward(): weight in [0., 1.]
rewards.judged.labels:best_of_n("x"): n >= 1
rewards.memory:cap("x"): limit >= 0.
rewards.novelty:elliptical("x"): ridge > 0.
rewards.shaping.potential:closeness("x"): scale > 0.
rewards.shaping.potential:closeness("x", scale=1.0): dispersion > 0.; density > 0.
evaluation.anchors:luck_of_the_best(): runs >= 1
evaluation.power:runs_needed(1.0): delta > 0.
evaluation.power:runs_needed(1.0, 0.5): power in (0., 1.); alpha in (0., 1.)
evaluation.power:runs_needed(delta=0.5): sigma >= 0.
evaluation.ranking.alpha_rank:alpha_rank(np.eye(2)): population >= 2 with alpha=1.0; epsilon in (0., 0.5); alpha > 0.
evaluation.ranking.contests:medal(teams=9): rank in [1, 9]
evaluation.ranking.contests:medal(1): teams >= 1
evaluation.games.risk:tremble_mixture(np.array([1.0, 0.0])): tremble in [0., 0.5)
evaluation.games.walks:SelfRepellentSampler(np.array([0.5, 0.5])): alpha >= 0.
evaluation.teamwork.diversity:vote_accuracy(1.0): members >= 1 with correlation=0.5
evaluation.teamwork.diversity:vote_accuracy(1.0, 3): correlation in [0., 1.]
evaluation.teamwork.edges:EdgeScores(["a", "b"]): eta in (0., 1.]
evaluation.teamwork.price:best_of_n(0.5): n >= 1
evaluation.teamwork.price:best_of_n(n=2): chance in [0., 1.]
evaluation.teamwork.price:best_of_n(0.5, 2): tpr in [0., 1.]; fpr in [0., 1.]
evaluation.teamwork.synergy:averaging_floor(1.0): branch >= 2
evaluation.teamwork.synergy:averaging_floor(branch=2): noise >= 0.
evaluation.teamwork.synergy:averaging_floor(1.0, branch=2): correlation in [0., 1.)
evaluation.triage.select:check_budget(random=0.5): budget >= 1
evaluation.triage.select:check_budget(1): random in [0., 1.]
"""
BOUNDS = table(RANGES)


@pytest.mark.parametrize("what", BOUNDS)
def test_a_number_may_have_its_bounds_and_nothing_beyond(what: str) -> None:
    module, _, call = what.partition(":")
    name = call.partition("(")[0]
    given, options = eval(call, {name: lambda *given, **options: (given, options), "np": np})
    made = getattr(import_module(f"palaestra.{module}"), name)
    kept(lambda **more: made(*given, **options | more), BOUNDS[what])
