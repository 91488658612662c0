"""The least and the greatest value that each option of what learns may have, as its refusal says them."""

from __future__ import annotations

import pytest
from tests.bounds import kept, registered, table

STAGES = """
accumulate(): last >= 1
advised_actions("a"): share in (0., 1.]
against_start("s", "stub()"): ceiling in (0., 1.]
agent_model("p"): least >= 1; memory >= 1; batch >= 1; steps >= 1; size >= 1; ahead >= 1; ema in (0., 1.]; tau > 0.;
    lr > 0.; mask in [0., 1.)
align_histories(): share in (0., 1.); rare in [0., 1.]; variants >= 1; last >= 1
alternate(): every >= 0; refresh >= 1
asynchronous(): batch in [1, 32]; budget > 0.
bilevel(): first >= 0
central_critic(): steps >= 1; batch >= 1; lr > 0.
control_filter(): draws >= 1; probes >= 1; memory >= 1; solved in [0., 1.]; better in [0., 1.]; easy in [0., 1.]
critic(): rate in [0., 1.]
critic("network"): steps >= 1; batch >= 1; size >= 1; lr > 0.
curriculum(edges=[0.5]): draws >= 1 with at_success=[0.5]
debate(): length >= 1
demonstrate("a"): share in (0., 1.)
designed(): size >= 1; adapt >= 1
difficulty(): last >= 1; tasks >= 1
dynamic_sampling(): rounds >= 0; spread >= 0.
evolving_teacher("a"): after >= 1; every >= 1
experience(): share in (0., 1.); k >= 1
expert_failures("a"): starts >= 1; share in (0., 1.); most >= 1
explors(): scale > 0.; most > 0.; rate >= 0.; every >= 1
failure_replay(): capacity >= 1; every >= 1; fraction in (0., 1.]
failure_tasks(): every >= 1; number >= 1; draws >= 1; memory >= 1; low in [0., 0.75]; high in [0.05, 1.];
    share in (0., 1.]
final_verdict(): last >= 1
fixed_data(): first >= 1
goal_memory(): k >= 1
guidance(): share in (0., 1.); places >= 1
heron("reward"): buffer >= 2; pairs >= 1; hidden >= 1; epochs >= 1; margin >= 0.
hints(): share in (0., 1.); low in [0., 0.7]; high in [0.1, 1.]; noise >= 0.
hops("a"): pairs >= 1; ridge > 0.
human_gain("h", ["a"]): fits >= 1
imagine(): horizon >= 1; episodes >= 1; memory >= 1; steps >= 1; batch >= 1; size >= 1; smooth >= 0.; kl >= 0.; lr > 0.
injection(): share in (0., 1.)
linearise("t"): groups >= 1; group_size >= 1
mc_values(): k >= 1; limit >= 1
minority_influence("m"): samples >= 1; most >= 1; memory >= 1; steps >= 1; batch >= 1; epochs >= 1; lr > 0.
multipliers({"cost": 1.0}): rate > 0.; start >= 0.
nearness(): gamma in (0., 1.); expectile in (0., 1.)
new_reference(): every >= 1
omission_turns(): share in (0., 1.)
outcome_critics(): heads >= 1; memory >= 1
pair_reward("a", "reward"): memory >= 1; steps >= 1; size >= 1; lr > 0.
population(): size >= 1; every >= 1; tasks >= 1; trials >= 1; mutation >= 1.; generation >= 1; distil >= 0
predicted_budget(): minimum >= 1; last >= 2
preference_reward("a", "reward"): pairs >= 1; steps >= 1; size >= 1; lr > 0.
probe(): samples >= 0
process_reward(): epochs >= 0; chunk >= 1; lr > 0.; beta > 0.
progress(): updates >= 1; last >= 1; size >= 1
proposed_tasks("a"): number >= 1; batch >= 1
q_critic(): memory >= 1; states >= 1; batches >= 1; batch >= 1; size >= 1
recruit("p"): theta > 0.; slots >= 1; tasks >= 1; attempts >= 1; least in [0., 1.]
reflect(): share in (0., 1.); last >= 1
replay(): k >= 0; last >= 1; tasks >= 1
rnd(): size >= 1; hidden >= 1; epochs >= 1; lr > 0.
rubric_game(): rounds >= 0; flaws >= 1
share(): local >= 0; external >= 0
shock(): at_step >= 1
splice(): most >= 1
step_rewards("a"): steps >= 2; episodes >= 1
success_replay(): low in [0., 0.95); high in (0.5, 1.]; most >= 0.; tasks >= 1
task_table(): share in (0., 1.]
token_critic(): buckets >= 1; size >= 1; hidden >= 1; steps >= 1; batch >= 1; lr > 0.
tournament(): noise >= 0.
utterance_reward(): size >= 2; ridge > 0.
"""
TERMS = """
auxiliary(): sequence >= 1
corridor(): low in [0., 1.]; high >= 1.
"""
MODELS = """
implicit(): beta > 0.
mixture(): heads >= 1; entropy >= 0.
online_linear(): inertia > 0.
sequence(): heads >= 1; max_length >= 1
vector(): heads >= 2
head(): layers >= 1; hidden >= 1
"""
KINDS = {"stage": table(STAGES), "term": table(TERMS), "reward_model": table(MODELS)}
EVERY = [pytest.param(kind, word, id=word) for kind, words in KINDS.items() for word in words]


@pytest.mark.parametrize(("kind", "word"), EVERY)
def test_an_option_may_have_its_bounds_and_nothing_beyond(kind: str, word: str) -> None:
    kept(registered(kind, word), KINDS[kind][word])
