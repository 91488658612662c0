"""Log-probabilities under the policies of the start."""

from __future__ import annotations

import numpy as np

from palaestra.agents import TabularPolicy, Team
from palaestra.envs.worlds import Nodes
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.reference_logprobs import reference_logprobs
from palaestra.play.rollout import rollout


def test_the_start_is_remembered_also_after_a_restart():
    team = Team({f"node_{k}": TabularPolicy(4, name=f"p{k}") for k in range(2)})
    turns = rollout(lambda: Nodes(nodes=2, answers=4), team, groups=10, group_size=2, seed=0)
    told = Context(np.random.default_rng(0), 1, env=None, team=team, executor=None)  # type: ignore[arg-type]
    stage = reference_logprobs()
    before = stage(turns, told)["reference_logprobs"].to_list()
    assert before == turns["logprobs"].to_list()
    PolicyGradient(team, lr=0.5).update(turns.with_column(advantage=turns["reward"]))
    again = reference_logprobs()
    again.load_state_dict(stage.state_dict())
    assert stage(turns, told)["reference_logprobs"].to_list() == before
    assert again(turns, told)["reference_logprobs"].to_list() == before
    assert reference_logprobs()(turns, told)["reference_logprobs"].to_list() != before
