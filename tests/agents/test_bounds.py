"""The least and the greatest value that each number of policies, judges and learners may have, as refusals say them."""

from __future__ import annotations

from importlib import import_module

import pytest
from tests.bounds import kept, table

RANGES = """
agents.bandits:BanditPolicy(2): rate in (0., 1.]; discount in (0., 1.]; width >= 0.; theta > 0.
agents.bandits:BanditPolicy(2, index="linucb"): features >= 1
agents.contextual:ContextualPolicy(8, 2): steps in [1, 4] with context=1; context >= 1 with steps=2
agents.factored:FactoredPolicy(4): parts >= 1; levels >= 2
agents.ordered:OrderedPolicy(2, 2): noise > 0.
agents.pointer:PointerPolicy(6, 3): members >= 1 with each=1; each >= 1 with members=1
agents.population:PopulationPolicy(2, 2, keys=["a"]): spread > 0.
agents.qtable:QTablePolicy(2): decay >= 0.; least in [0., 1.]
agents.q_network:QNetworkPolicy(2, 2): explore >= 1; start in [0., 1.]; least in [0., 1.]
agents.perturbed:PerturbedPolicy(2, 2): epsilon >= 0.; steps >= 1 with epsilon=0.1
judges.search:TreeSearch(): rollouts >= 1; horizon >= 1; expand >= 1; c >= 0.; gamma in [0., 1.]
judges.planning:BestOf(None, None): n >= 1
judges.planning:beam("stub()"): width >= 1; candidates >= 1; limit >= 1
judges.planning:best_of("stub()"): n >= 2
judges.stub:StubJudge(): position_bias in [0., 1.]; error_correlation in [0., 1.]; parse_failure in [0., 1.]
judges.rubric_game:RubricGame(None, [(1, True)]): queries >= 0; checked >= 0; most >= 1
judges.pairs:best_vs_worst(): min_gap >= 0.
learning.critics:NetworkCritic(2, 3): gamma in [0., 1.]; tau in (0., 1.]; lr > 0.
learning.decomposition:NetworkDecomposition(2): steps >= 2; lr > 0.
learning.outcome_critic:OutcomeCritic(): heads >= 1; buckets >= 1; ridge > 0.
learning.outcome_critic:OutcomeTable(): heads >= 1
learning.league.rules:Uniform(): recent in (0., 1.]
learning.league.rules:Prioritised(): power >= 0.
learning.task_samplers:Percentile(): start in (0., 1.]; end in [0.2, 1.]; steps >= 1
learning.task_table:learnable(): low in [0., 0.95]; high in [0.05, 1.]
learning.diversity.descriptors:Autoencoder(3): code >= 1; hidden >= 1; epochs >= 0; batch >= 1; rate > 0.;
    held_out in [0., 1.)
play.coverage:river(): length >= 3; forward > 0.; back in [0., 0.65]
play.executors:Local(): concurrency >= 1; max_turns >= 1; retries >= 0; timeout > 0.
play.executors:Threads(): workers >= 1
"""
BOUNDS = table(RANGES)


@pytest.mark.parametrize("what", BOUNDS)
def test_a_number_may_have_its_bounds_and_nothing_beyond(what: str) -> None:
    module, _, call = what.partition(":")
    name = call.partition("(")[0]
    given, options = eval(call, {name: lambda *given, **options: (given, options)})
    made = getattr(import_module(f"palaestra.{module}"), name)
    kept(lambda **more: made(*given, **options | more), BOUNDS[what])
