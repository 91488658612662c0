"""Lucy-SKG's heads: what they shall say, that the trunk learns it, and that a stopped run ends as one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import MLPPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo
from palaestra.envs import make
from palaestra.errors import InputError, LearnerError, RecipeError
from palaestra.learning import PolicyGradient, Trainer
from palaestra.learning.auxiliary import Auxiliary, last_turns, reward_classes
from palaestra.learning.terms import MicroBatch, Term, auxiliary
from palaestra.runs.recipe import validate

INPUTS, ACTIONS, BOTH = 8, 3, "surrogate(), auxiliary()"


def policy(**options: Any) -> MLPPolicy:
    return MLPPolicy(INPUTS, ACTIONS, **{"hidden": (16,), "seed": 1} | options)


def turns(episodes: int = 24, length: int = 4, *, seed: int = 0, advantage: float | None = None) -> Turns:
    """The reward's sign is that of the product of one feature now and another one turn ago (with a dead zone)."""
    rng = np.random.default_rng(seed)
    rows = episodes * length
    x = rng.choice([-1.0, 1.0], (episodes, length, INPUTS)).astype(np.float32)
    x[..., 2:] = rng.normal(size=(episodes, length, INPUTS - 2))
    before = np.concatenate([np.zeros_like(x[:, :1, 1]), x[:, :-1, 1]], axis=1)
    episode, turn = (axis.ravel() for axis in np.indices((episodes, length)))
    return Turns(
        {
            "group": episode // 4, "episode": episode % 4, "turn": turn, "agent": ["a"] * rows,
            "policy": ["mlp"] * rows,
            "reward": (x[..., 0] * before).ravel().astype(float), "features": pl.Series(x.reshape(rows, -1).tolist()),
            "action_ids": pl.Series(rng.integers(ACTIONS, size=(rows, 1)).tolist()),
            "logprobs": [[float(np.log(1 / ACTIONS))]] * rows, "error": pl.Series([None] * rows, dtype=pl.String),
            "advantage": rng.normal(size=rows) if advantage is None else [advantage] * rows,
        }
    )  # fmt: skip


def learner_of(mlp: MLPPolicy, **options: Any) -> PolicyGradient:
    return PolicyGradient(Team({"a": mlp}), **{"lr": 0.01, "terms": BOTH} | options)


def poison(piece: MicroBatch) -> torch.Tensor:
    """Infinite from the second step on."""
    return piece.new.sum() * (torch.inf if piece.step.number else 0.0)


POISON = Term("poison", poison)


def heads_of(learner: Any) -> Auxiliary:
    heads = learner.modules["mlp"]["auxiliary"]
    assert isinstance(heads, Auxiliary)
    return heads


def weights(mlp: MLPPolicy) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in mlp.state_dict().items()}


def test_classes_are_the_signs_of_the_row_s_own_reward() -> None:
    rewards = pl.Series([-3.0, -0.006, -0.005, 0.0, 0.005, 0.006, None])
    assert reward_classes(rewards).tolist() == [0, 0, 1, 1, 1, 2, -100]
    assert reward_classes(rewards, zero=0.0).tolist() == [0, 0, 0, 1, 2, 2, -100]
    targets = Auxiliary(policy()).targets(
        turns(2, 3).frame.with_columns(reward=pl.Series([1.0, 0.0, -1.0, None, 1.0, 1.0]))
    )
    assert targets.classes.tolist() == [2, 1, 0, -100, 2, 2]


def test_a_window_holds_the_agent_s_own_turns_of_this_episode_in_their_order() -> None:
    table = {
        "group": [0, 0, 0, 0, 1, 0],
        "episode": [0, 0, 0, 0, 0, 1],
        "turn": [2, 0, 1, 3, 0, 0],
        "agent": list("abaaaa"),
    }
    assert last_turns(Turns(table), 3).tolist() == [
        [-1, 2, 0], [-1, -1, 1], [-1, -1, 2], [2, 0, 3], [-1, -1, 4], [-1, -1, 5],
    ]  # fmt: skip
    assert last_turns(Turns(table).filter(pl.lit(value=False)), 3).shape == (0, 3)


def test_the_loss_is_its_formula() -> None:
    mlp, table = policy(), turns(2, 3)
    term = auxiliary(0.5, 2.0, sequence=2)
    assert term.module is not None
    heads = term.module(mlp)
    assert isinstance(heads, Auxiliary)
    rewards = pl.Series([1.0, 0.0, -1.0, None, 1.0, 1.0])
    rows = table.frame.with_columns(reward=rewards)
    x = torch.tensor(rows["features"].to_list())
    entropies = []
    for row, (before, wanted) in enumerate([(None, 2), (0, 1), (1, 0), (None, None), (3, 2), (4, 2)]):
        past = torch.zeros(INPUTS) if before is None else x[before]
        _, (memory, _) = heads.memory(mlp.represent(torch.stack([past, x[row]]))[None])
        if wanted is not None:
            entropies.append(-heads.sign(memory[0, 0]).log_softmax(-1)[wanted])
    error = (heads.decoder(mlp.represent(x)) - x).abs()
    smooth = torch.where(error < 1, error**2 / 2, error - 0.5).mean()
    expected = 0.5 * sum(entropies) / 6 + 2 * smooth
    piece = MicroBatch.of(torch.zeros(6, 1), columns=rows.to_dict(), module=heads)
    assert float(term(piece).detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert {name: float(value) for _, name, _, value in piece.step.logged} == pytest.approx(
        {"reward_class": float(sum(entropies).detach()) / 6, "reconstruction": float(smooth.detach())},  # type: ignore[union-attr]
        rel=1e-6,
    )


@pytest.mark.parametrize("weight", ["reward_class", "reconstruction"])
def test_each_head_moves_the_trunk_and_not_the_logits_without_credit(weight: str) -> None:
    table, mlp = turns(advantage=0.0), policy()
    before = weights(mlp)
    learner = learner_of(mlp, terms=f"auxiliary({int(weight == 'reward_class')}, {int(weight == 'reconstruction')})")
    metrics = learner.update(table)["mlp"]
    after = weights(mlp)
    for name in ("0.weight", "0.bias"):
        assert not torch.equal(before[name], after[name])
    for name in ("2.weight", "2.bias"):
        assert torch.equal(before[name], after[name])
    assert weight in metrics
    assert len(metrics.keys() & {"reward_class", "reconstruction"}) == 1
    plain = policy()
    learner_of(plain, terms="surrogate()").update(table)
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(plain).items())


def test_pieces_do_not_change_the_step() -> None:
    first, second = policy(), policy()
    one = learner_of(first).update(turns())["mlp"]
    many = learner_of(second, chunk_tokens=7).update(turns())["mlp"]
    for key in ("loss", "grad_norm", "reward_class", "reconstruction"):
        assert many[key] == pytest.approx(one[key], rel=1e-5)
    for name, tensor in weights(first).items():
        torch.testing.assert_close(weights(second)[name], tensor, rtol=1e-4, atol=1e-5)


def probed(mlp: MLPPolicy, table: Turns, unseen: Turns) -> tuple[float, float]:
    """What a linear map makes of the trunk on unseen rows: R² of the features, and accuracy of the product's sign."""

    def look(which: Turns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = mlp.features_of_rows(which.frame)
        with torch.no_grad():
            units = mlp.represent(torch.from_numpy(x)).numpy()
        return np.hstack([units, np.ones((len(x), 1))]), x, np.sign(x[:, :1] * x[:, 1:2])

    units, x, sign = look(table)
    unseen_units, unseen_x, unseen_sign = look(unseen)
    fitted = np.linalg.lstsq(units, np.hstack([x, sign]), rcond=None)[0]
    guess = unseen_units @ fitted
    left = ((guess[:, :INPUTS] - unseen_x) ** 2).sum() / ((unseen_x - unseen_x.mean(0)) ** 2).sum()
    return 1 - float(left), float((np.sign(guess[:, INPUTS:]) == unseen_sign).mean())


def test_the_losses_fall_and_the_trunk_knows_more_than_without() -> None:
    def instant(table: Turns) -> Turns:
        """The reward is the product of two features of the same turn, which is linear in neither."""
        x = np.array(table["features"].to_list())
        return table.with_column(reward=x[:, 0] * x[:, 1])

    table, unseen = instant(turns(128)), instant(turns(128, seed=1))
    found = {}
    for name, terms in {"without": "surrogate()", "with": "surrogate(), auxiliary(sequence=3)"}.items():
        mlp = policy(hidden=(12,))
        learner = learner_of(mlp, terms=terms, epochs=75)
        lines = [learner.update(table)["mlp"] for _ in range(2)]
        found[name] = probed(mlp, table, unseen)
    for loss in ("reward_class", "reconstruction"):
        assert lines[1][loss] < 0.2 * lines[0][loss]  # type: ignore[operator]
    assert found["with"][0] > 0.95 > found["without"][0] + 0.05
    assert found["with"][1] > 0.9 > found["without"][1] + 0.15


def test_the_sequence_is_read_where_the_reward_needs_it() -> None:
    unseen, entropy = turns(128, seed=1), {}
    for sequence in (1, 2):
        learner = learner_of(policy(), terms=f"auxiliary(1, 0, sequence={sequence})", lr=0.02, epochs=60)
        learner.update(turns(128, advantage=0.0))
        heads = heads_of(learner)
        with torch.no_grad():
            losses = heads.losses(heads.targets(unseen.frame), np.arange(len(unseen)), len(unseen))
        entropy[sequence] = float(losses["reward_class"])
    assert entropy[2] < 0.05 < np.log(2) / 2 < entropy[1]


def trainer(directory: Path, **options: Any) -> Trainer:
    env = make("openspiel/kuhn_poker")
    first = next(iter(env().reset(0).values()))
    assert first.array is not None
    assert first.choices is not None
    mlp = MLPPolicy(len(first.array), len(first.choices), hidden=(8,), seed=3)
    team = Team({"player_0": mlp, "player_1": mlp})
    learner = PolicyGradient(team, BOTH, lr=0.01, minibatch=20)
    return Trainer(
        env, team, credit=grpo(), learner=learner, groups=3, group_size=4, directory=directory, checkpoint_every=2,
        **options,
    )  # fmt: skip


def test_a_resume_is_exact(tmp_path: Path) -> None:
    whole, stopped = trainer(tmp_path / "whole", iterations=4), trainer(tmp_path / "stopped", iterations=2)
    lines = whole.run()
    stopped.run()
    again = trainer(tmp_path / "stopped", iterations=4)
    assert again.run(resume=True)[-1]["policies"]["mlp"]["reward_class"] == lines[-1]["policies"]["mlp"]["reward_class"]
    pairs = [
        (whole.learner.policies["mlp"].state_dict(), again.learner.policies["mlp"].state_dict()),
        (heads_of(whole.learner).state_dict(), heads_of(again.learner).state_dict()),
    ]
    for one, other in pairs:
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(heads_of(stopped.learner).state_dict()["sign.weight"], pairs[1][0]["sign.weight"])


def test_an_update_that_fails_leaves_the_heads_as_they_were() -> None:
    mlp = policy()
    learner = learner_of(mlp, terms=["surrogate()", "auxiliary()", POISON], epochs=2)
    heads = heads_of(learner)
    before = [{name: tensor.clone() for name, tensor in each.state_dict().items()} for each in (mlp, heads)]
    with pytest.raises(LearnerError, match="nothing was updated"):
        learner.update(turns())
    for state, each in zip(before, (mlp, heads), strict=True):
        assert all(torch.equal(state[name], tensor) for name, tensor in each.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": "auxiliary(rewards=1.0)"}, r"unexpected keyword argument 'rewards'; it is auxiliary\(reward"),
        ({"terms": "auxiliary(0, 0)"}, "not both be 0"),
        ({"terms": "auxiliary(-1)"}, "reward=-1"),
        ({"terms": "auxiliary(sequence=0)"}, "sequence=0 a whole number of at least 1"),
        ({"sequential": "turn"}, "sequential='turn' takes away"),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        learner_of(policy(), **options)


def test_a_policy_without_a_trunk_and_a_table_without_rewards_are_named() -> None:
    with pytest.raises(InputError, match=r"policy 'tabular' \(TabularPolicy\) has no trunk.*'mlp'"):
        PolicyGradient(Team({"a": TabularPolicy(ACTIONS)}), BOTH)
    with pytest.raises(InputError, match="term auxiliary reads column 'reward'"):
        learner_of(policy()).update(Turns(turns().frame.drop("reward")))
    table = Turns(turns().frame.drop("reward"))
    learner_of(policy(), terms="auxiliary(0)").update(table)


def test_a_recipe_says_it() -> None:
    data: dict[str, Any] = {
        "name": "cards", "env": {"make": "openspiel/kuhn_poker"}, "policies": {"p": {"kind": "mlp"}},
        "team": {"*": "p"},
        "learn": {"terms": "surrogate(), auxiliary(1, 0.5)"},
    }  # fmt: skip
    terms = validate(data).learn.terms
    assert terms == ("surrogate()", "auxiliary(1, 0.5)")
    learner_of(policy(), terms=terms)
    data["learn"] = {"terms": "auxiliary(-1)"}
    with pytest.raises(RecipeError, match=r"learn\.terms: auxiliary: reward=-1, expected a number of at least 0"):
        validate(data)
