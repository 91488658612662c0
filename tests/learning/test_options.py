"""Options of training that reach from the recipe into the update: EPO's corridor, SeeUPO's order, R³'s replay.

Each changes what is trained, by what its paper says, and a run that was stopped in the middle ends as one that was not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from quick import QUICK, load, validate

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, col
from palaestra.algebra.tree import lit
from palaestra.algebra.turns import Turns
from palaestra.credit import seeupo
from palaestra.envs import Observation, StepResult
from palaestra.errors import InputError, LearnerError, RecipeError
from palaestra.learning import PolicyGradient, Trainer, checkpoints
from palaestra.learning.batch import Batch
from palaestra.rewards import success_reward
from palaestra.runs.build import resolve
from palaestra.runs.recipe import Recipe, alone, override
from palaestra.runs.seed import Clock, Training

PLAIN: dict[str, Any] = {"warm_start": None, "env": {"options": {"places": 1}}, "train": {"groups": 6}}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "corridor": (
        {"learn": {"terms": "surrogate(), entropy(0.3)"}},
        {"learn": {"terms": "surrogate(), corridor(0.3, low=0.99, high=1.0)"}},
    ),
    "sequential": (
        {"credit": "seeupo()", "learn": {"terms": "surrogate(ratio='sequence')"}},
        {"credit": "seeupo()", "learn": {"terms": "surrogate(ratio='sequence')", "sequential": "turn"}},
    ),
    "stages": (
        {"credit": "r3(ranked=False, replayed=0)"},
        {"credit": "r3(ranked=False)", "stages": ["replay(k=2, last=4)"]},
    ),
}


def recipe(changes: dict[str, Any]) -> Recipe:
    return override(override(alone(validate(QUICK)), PLAIN), changes)


def train(what: Recipe, directory: Path, *, resume: bool = False) -> list[dict[str, Any]]:
    clock = Clock(directory / "clock.json", resume=resume)
    return Training(resolve(what), 3, directory, clock=clock, resume=resume, progress=False).run()


def final(directory: Path) -> dict[str, Any]:
    found = checkpoints.latest(directory / "checkpoints")
    assert found is not None
    assert found.name == "iteration-000006"
    return checkpoints.load(found)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("option", OPTIONS)
def test_it_changes_what_is_trained_and_a_resume_is_exact(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without, with_it = map(recipe, OPTIONS[option])
    train(without, tmp_path / "without")
    lines = train(with_it, tmp_path / "whole")
    whole = final(tmp_path / "whole")
    assert not equal(whole["policies"], final(tmp_path / "without")["policies"])

    keep = Trainer._keep

    def stopping(self: Trainer, now: int, *tables: Turns) -> None:
        if now == 5:
            raise KeyboardInterrupt
        keep(self, now, *tables)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_keep", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(with_it, tmp_path / "stopped")
    again = train(with_it, tmp_path / "stopped", resume=True)
    stopped = final(tmp_path / "stopped")
    for part in ("policies", "learner"):
        assert equal(whole[part], stopped[part])
    assert [line["added_rows"] for line in again] == [line["added_rows"] for line in lines]
    assert (sum(line["added_rows"] for line in lines) > 0) == (option == "stages")


def test_the_buffer_is_in_the_checkpoint(tmp_path: Path) -> None:
    what = recipe(OPTIONS["stages"][1])
    train(what, tmp_path)
    stored = pl.read_parquet(final(tmp_path)["stages"][0]["buffer"].tobytes())
    assert {"task", "logprobs", "solved", "episode"} <= set(stored.columns)
    per_task = stored.group_by("task", "solved").agg(pl.col("episode").n_unique())
    assert per_task["episode"].max() == 4
    saved = Turns.load(tmp_path / "turns").frame
    assert saved.filter("replayed")["advantage"].null_count() == 0
    with pytest.raises(InputError, match="stages="):
        train(override(what, {"stages": ["replay(k=1)"]}), tmp_path, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("learn.terms=corridor(0)", "learn.terms: corridor: weight=0, expected a number of at least"),
        ("learn.terms=corridor(1, 1.2, 0.8)", "learn.terms: corridor: low=1.2, high=0.8, expected 0 <= low <= 1 <= hi"),
        ("learn.terms=corridor(decay=-1)", "learn.terms: corridor: decay=-1, expected a number of at least 0"),
        ("learn.terms=surogate()", "learn.terms: 'surogate..': unknown term 'surogate'; did you mean 'surrogate'"),
        ("learn.terms=kl(weigth=1)", "learn.terms: 'kl.weigth=1.': got an unexpected keyword argument 'weigth'; it is"),
        ("learn.terms=[]", "learn.terms: an objective needs at least one term"),
        ("learn.terms=3", "learn.terms: expected a list, found 3"),
        ("learn.terms=[surrogate(clip=[.2, .3])]", "brackets of a call are written"),
        ("learn.kl=0.1", "learn.kl: unknown field"),
        ("learn.sequential=turns", "learn.sequential: .*'turn'"),
        ("learn.order=revers", "learn.order: no 'revers' here; did you mean 'reverse'"),
        ("stages=repla()", "stages: 'repla..': unknown stage 'repla'; did you mean 'replay'"),
        ("stages=replay(n=3)", "stages: 'replay.n=3.': got an unexpected keyword argument 'n'; it is replay.k"),
        ("stages=replay(k=-1)", "stages: replay: k=-1 must not be negative"),
        ("stages=replay(k=1.5)", "stages: 'replay.k=1.5.': 'float' object cannot be interpreted as an integer"),
        ("stages=replay(solved='x')", "stages: .*could not convert string to float"),
        ("stages=replay(k=print(1))", "stages: cannot read 'replay.k=print.1..'"),
        ("stages=replay(score='retrun')", "stages: 'retrun': unknown name"),
    ],
)
def test_wrong_options_are_named(change: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(alone(validate(QUICK)).dump())
    with pytest.raises(RecipeError, match=message):
        load(path, [change])


# -- what they do -----------------------------------------------------------------------------------------------------


def table(policy: TabularPolicy, *, episodes: int, turns: int, seed: int = 0) -> Turns:
    """Episodes of one agent; the state is the turn's number, the first action is worth 1 in every turn."""
    rng = np.random.default_rng(seed)
    episode, turn = (axis.ravel() for axis in np.indices((episodes, turns)))
    state = pl.Series(turn, dtype=pl.UInt64)
    rows = pl.DataFrame({"state": state, "action_ids": pl.Series([[0]] * len(turn), dtype=pl.List(pl.Int32))})
    with torch.no_grad():
        chance = policy.score(rows).logits.softmax(-1)[:, 0].double().numpy()
    action = (rng.random((len(turn), 1)) >= chance.cumsum(-1)[:, :-1]).sum(-1)
    logprobs = np.log(chance[np.arange(len(turn)), action])
    total = np.bincount(episode, action == 0)
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(turn)}
    sampled = {"action_ids": [[int(a)] for a in action], "logprobs": [[float(p)] for p in logprobs]}
    reward = np.where(turn == turns - 1, total[episode], 0.0)
    return Turns(keys | sampled | {"state": state, "policy": [policy.name] * len(turn), "reward": reward})


def learner_of(policy: TabularPolicy, **options: Any) -> PolicyGradient:
    return PolicyGradient(Team(a=policy), **({"lr": 0.5, "max_grad_norm": None} | options))


def test_the_corridor_is_a_mean_over_turns_then_episodes_around_the_past() -> None:
    policy = TabularPolicy(3, name="p", capacity=4)
    turns = table(policy, episodes=2, turns=2)
    policy.meet(turns.frame)
    with torch.no_grad():
        logits = policy.module.get_parameter("logits")
        logits[policy._places[0]], logits[policy._places[1]] = (torch.tensor(x) for x in ([2.0, 0, 0], [0.5, 0.2, 0]))
    logits = policy.module.get_parameter("logits")
    short = Turns(turns.frame[[0, 1, 2]]).with_column(advantage=np.zeros(3))  # the second episode has one turn
    learner = learner_of(policy, terms="surrogate(), corridor(0.1, 0.9, 1.05, smooth=3.0)", updates=8)
    learner.memory["p"]["corridor"]["history"], learner.updates = [1.2, 0.8], 2
    log_p = logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)[[policy._places[0], policy._places[1]]]
    outside = (0.9 - entropy).clamp(min=0) + (entropy - 1.05).clamp(min=0)
    assert (outside > 0).all()
    share = torch.tensor([0.75, 0.25])  # ((first + second) / 2 + first) / 2
    loss = -0.1 * ((share * entropy).sum() - (1 + np.exp(-2 / 4)) * 3.0 * (share * outside).sum())
    (slope,) = torch.autograd.grad(loss, logits)
    held = float((share * entropy).sum().detach())
    metrics = learner.update(short)["p"]
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-6)
    assert metrics["grad_norm"] == pytest.approx(float(slope.norm()), abs=1e-6)
    assert learner.memory["p"]["corridor"]["history"] == pytest.approx([1.2, 0.8, held], abs=1e-6)


def test_an_update_that_fails_leaves_the_history_of_entropy() -> None:
    policy = TabularPolicy(3, name="p", capacity=4)
    learner = learner_of(policy, terms="surrogate(), corridor(0.1, 0.9, 1.05)", updates=8)
    learner.update(table(policy, episodes=3, turns=1).with_column(advantage=np.ones(3)))
    with torch.no_grad():
        policy.module.get_parameter("logits")[0, 0] = torch.nan
    with pytest.raises(LearnerError):
        learner.update(table(TabularPolicy(3, name="p"), episodes=3, turns=1).with_column(advantage=np.ones(3)))
    assert len(learner.memory["p"]["corridor"]["history"]) == 1


def test_later_turns_move_first_and_weigh_what_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TabularPolicy(3, name="p", capacity=4)
    turns = table(policy, episodes=16, turns=3)
    turns = turns.with_column(advantage=seeupo())
    seen: list[tuple[int, np.ndarray, torch.Tensor]] = []
    learner = learner_of(policy, terms="surrogate(None, ratio='sequence')", sequential="turn")
    learn = learner.learn

    def spy(name: str, batch: Batch, rng: Any) -> Any:
        metrics = learn(name, batch, rng)
        with torch.no_grad():
            after = policy.score(turns.frame).logprobs[:, 0].double().clone()
        seen.append((int(batch.rows["turn"][0]), batch.advantage.copy(), after))
        return metrics

    monkeypatch.setattr(learner, "learn", spy)
    metrics = learner.update(turns)["p"]
    assert [turn for turn, *_ in seen] == [2, 1, 0]
    assert (metrics["rows"], metrics["tokens"], learner.updates) == (48, 48, 1)
    base = turns["advantage"].to_numpy().reshape(16, 3)
    old = turns["logprobs"].explode().to_numpy().reshape(16, 3)
    product = np.ones(16)
    for turn, advantage, after in seen:
        np.testing.assert_allclose(advantage, base[:, turn] * product, rtol=1e-5)
        product = product * np.exp(after.numpy().reshape(16, 3)[:, turn] - old[:, turn])
    assert np.abs(product - 1).max() > 0.1


def test_a_frozen_policy_takes_no_part_in_sequential_updates() -> None:
    policies = [TabularPolicy(3, name=name, capacity=4) for name in ("p", "q")]
    turns = Turns.concat([table(policy, episodes=4, turns=2) for policy in policies])
    learner = PolicyGradient(Team(a=policies[0], b=policies[1]), sequential="turn", freeze=["q"])
    start = {name: tensor.clone() for name, tensor in policies[1].state_dict().items()}
    metrics = learner.update(turns.with_column(advantage=np.ones(16)))
    assert {name: told["rows"] for name, told in metrics.items()} == {"p": 8}
    assert all(torch.equal(start[name], tensor) for name, tensor in policies[1].state_dict().items())


def test_credit_per_token_has_no_order() -> None:
    policy = TabularPolicy(3, name="p", capacity=4)
    turns = table(policy, episodes=2, turns=2).with_column(advantage=pl.lit([0.5]).repeat_by(1).list.first())
    with pytest.raises(InputError, match=r"one per token; wrap the credit in per_turn"):
        learner_of(policy, sequential="turn").update(turns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": "corridor()"}, "updates=, how many there will be, found None"),
        ({"sequential": "turns"}, "did you mean 'turn'"),
        ({"sequential": "turn", "order": "back"}, "order='back' is unknown"),
    ],
)
def test_wrong_options_of_the_learner_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        learner_of(TabularPolicy(3), **options)


def test_components_stay_in_the_table_and_in_the_metrics(tmp_path: Path) -> None:
    """`reward` by name: the sum is trained on, each part is a column r_<name>."""
    parts = {"right": "success_reward()", "valid": "0.1 * valid"}
    lines = train(recipe({"reward": parts, "train": {"save_turns": "all"}}), tmp_path / "parts")
    turns = Turns.load(tmp_path / "parts" / "turns")
    assert turns["reward"].to_list() == pytest.approx((turns["r_right"] + turns["r_valid"]).to_list())
    assert turns["r_valid"].max() == 0.1
    assert lines[0]["components"].keys() == {"right", "valid"}
    first = turns.filter(pl.col("iteration") == 1).frame
    episodes = first.unique(["group", "episode"]).height
    assert lines[0]["components"]["valid"] == pytest.approx(first["r_valid"].sum() / episodes)
    whole = train(recipe({"reward": "success_reward() + 0.1 * valid"}), tmp_path / "whole")
    assert [line["reward"] for line in whole] == pytest.approx([line["reward"] for line in lines])
    assert equal(final(tmp_path / "whole")["policies"], final(tmp_path / "parts")["policies"])


class Walk:
    """Three turns of one agent, whatever it does."""

    agents, task = ("walker",), "walk"

    def reset(self, seed: int) -> dict[str, Observation]:
        self.left = 3
        return {"walker": Observation("go", choices=("on", "back"))}

    def step(self, actions: Any) -> StepResult:
        self.left -= 1
        over = self.left == 0
        seen = {} if over else {"walker": Observation("go", choices=("on", "back"))}
        return StepResult(seen, {"walker": float(over)}, terminated=over, info={"success": over})


@pytest.mark.parametrize(("reward", "farmed"), [(lit(0.9) + 0.0 * col("reward"), True), (success_reward(), False)])
@pytest.mark.parametrize("named", [True, False])
def test_a_reward_that_can_be_farmed_is_said_on_the_first_batch(reward: Signal, farmed: bool, named: bool) -> None:
    team = Team(walker=TabularPolicy(2, name="walker"))
    trainer = Trainer(
        Walk, team, credit=parse("grpo()"), reward={"wage": reward} if named else reward, groups=2, group_size=2,
        learner=PolicyGradient(team, lr=0.1), iterations=2,
    )  # fmt: skip
    first, second = (line["alarms"] for line in trainer.run())
    assert any("the reward can be farmed: ten idle copies" in alarm for alarm in first) is farmed
    assert not any("farmed" in alarm for alarm in second)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({}, "reward: .*no components; give a signal"),
        ({"right": "succes_reward()"}, "right: .*'succes_reward'.*did you mean 'success_reward'"),
        ({"right!": "success_reward()"}, "component 'right!': name it with letters"),
    ],
)
def test_components_that_are_wrong_are_named(reward: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        override(alone(validate(QUICK)), {"reward": reward})
