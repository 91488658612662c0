"""Meta-gradients: adaptation by opponent and seat, an anchor on language data, and resumes."""

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import MLPPolicy, TabularPolicy, Team
from palaestra.agents.contextual import ContextualPolicy
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Referential
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.learning.meta_gradient import MetaGradient, _tasks
from palaestra.play.rollout import rollout
from palaestra.runs.build import scripted_team
from palaestra.runs.scripts import make


def played(player: MLPPolicy, groups: int = 128) -> tuple[Team, Turns]:
    team = Team({"speaker": player, "listener": ScriptedPolicy(make("code", {}), name="coder")})
    turns = rollout(Referential, team, groups=groups, seed=0).with_column(opponent=pl.lit("coder"))
    return team, turns.with_column(advantage=pl.col("reward") - 0.125)


def player(seed: int = 0) -> MLPPolicy:
    return MLPPolicy(12, 16, hidden=[8], name="player", seed=seed)


def values(policy: MLPPolicy) -> torch.Tensor:
    return torch.cat([each.detach().clone().ravel() for each in policy.parameters()])


def test_tasks_are_opponents_and_seats_and_halves_are_of_episodes() -> None:
    rows = pl.DataFrame(
        {
            "group": [0, 0, 1, 2, 2, 3],
            "episode": [0] * 6,
            "agent": ["a", "a", "a", "b", "b", "b"],
            "opponent": ["x"] * 6,
        }
    )
    assert [(s.tolist(), q.tolist()) for s, q in _tasks(rows)] == [([0, 1], [2]), ([3, 4], [5])]
    assert _tasks(rows.head(2)) == []
    more = pl.DataFrame({"group": range(6), "episode": [0] * 6, "agent": ["a"] * 6})
    assert [(s.tolist(), q.tolist()) for s, q in _tasks(more, 4)] == [([0, 2], [1, 3]), ([4], [5])]


def test_no_steps_and_first_order_are_the_policy_gradient_of_the_queries() -> None:
    found = []
    for steps, first in ((0, False), (0, True), (2, False), (2, True)):
        own = player()
        team, turns = played(own)
        learner = MetaGradient(team, steps=steps, rate=3.0, first_order=first)
        learner.forward_backward(turns)
        found.append(torch.cat([each.grad.ravel() for each in own.parameters()]))
        assert torch.equal(values(own), values(player()))
    assert torch.allclose(found[0], found[1])
    assert not torch.allclose(found[0], found[3])
    assert not torch.allclose(found[2], found[3])


def test_an_adaptation_moves_the_policy_and_counts_no_update() -> None:
    own = player()
    team, turns = played(own)
    learner = MetaGradient(team, rate=5.0)
    right = turns.frame.filter(pl.col("reward") > 0, pl.col("agent").cast(pl.String) == "speaker")
    before = float(own.score(right).logprobs.detach().mean())
    learner.adapt(turns)
    after = float(own.score(right).logprobs.detach().mean())
    assert after > before
    assert learner.updates == 0


def test_a_resume_goes_on_with_the_same_numbers(tmp_path) -> None:
    people = scripted_team("code", {}, Referential, "people")
    rollout(Referential, people, groups=16, seed=3).frame.write_parquet(tmp_path / "corpus.parquet")
    options = {"corpus": str(tmp_path / "corpus.parquet"), "rate": 2.0, "lr": 0.01}
    one = player()
    team, turns = played(one)
    learner = MetaGradient(team, **options)
    said = learner.update(turns)["player"]
    assert said["anchor"] > 0
    assert np.isfinite(said["loss"])
    assert said["grad_norm"] > 0
    learner.save(tmp_path / "kept")
    learner.update(turns)
    two = player(seed=5)
    other = MetaGradient(Team({"speaker": two, "listener": team["listener"]}), **options)
    other.load(tmp_path / "kept")
    other.update(turns)
    assert torch.equal(values(one), values(two))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps=-1"),
        ({"rate": 0.0}, "rate=0.0"),
        ({"episodes": 3}, "episodes=3"),
        ({"minibatch": 4}, "minibatch"),
        ({"corpus": "none.parquet"}, "cannot be read"),
    ],
)
def test_options_out_of_range_are_named(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MetaGradient(Team({"speaker": player()}), **options)


def test_a_table_of_logits_is_a_small_network_too() -> None:
    """An adaptation of a table is the step of gradient descent on the whole batch."""
    own = TabularPolicy(16, name="player")
    team, turns = played(own)
    plain = PolicyGradient(team, "surrogate(clip=None)")
    plain.forward_backward(turns)
    (logits,) = own.parameters()
    slope = logits.grad.clone()
    logits.grad = None
    MetaGradient(team, rate=3.0).adapt(turns)
    assert slope.abs().sum() > 0
    torch.testing.assert_close(logits.detach(), -3.0 * slope)
    assert np.isfinite(MetaGradient(team).update(turns)["player"]["loss"])


def test_a_policy_whose_parts_are_called_one_by_one_is_refused() -> None:
    with pytest.raises(InputError, match="policy 'player' is no small network, as kind mlp is"):
        MetaGradient(Team({"speaker": ContextualPolicy(12, 3, steps=4, context=2, name="player")}))
