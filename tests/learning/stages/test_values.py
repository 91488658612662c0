"""Stages that fill values: what they know when they speak, what they learn, and that a stopped run goes on the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit import (
    archer,
    counterfactual,
    gae,
    implicit_reward,
    on_last_token,
    oprl,
    sequential_advantage,
    spo_chain,
    tppo,
)
from palaestra.envs import make
from palaestra.errors import EnvError, InputError
from palaestra.learning import PolicyGradient, Trainer
from palaestra.learning.stages.cells import Cells, hashed
from palaestra.learning.stages.critic import critic, token_critic
from palaestra.learning.stages.mc_values import mc_values
from palaestra.learning.stages.prefix_critic import prefix_critic
from palaestra.learning.stages.process_reward import process_reward
from palaestra.learning.stages.progress import progress
from palaestra.learning.stages.q_critic import _others_of, q_critic, resample
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local
from palaestra.play.rollout import rollout

CORRIDOR = make("native/corridor", cells=3, horizon=6)
STEPS = make("native/steps", steps=4, actions=3, pay="sum")


def context(team: Team, env: Any = CORRIDOR, seed: int = 0) -> Context:
    return Context(np.random.default_rng(seed), 1, env, team, Local(), seed=seed)


def walker() -> Team:
    return Team({"walker": TabularPolicy(3, name="walker")})


def played(team: Team, env: Any = CORRIDOR, *, size: int = 8, seed: int = 0, iteration: int = 1) -> Turns:
    return rollout(env, team, groups=2, group_size=size, seed=seed, iteration=iteration)


def table(**columns: Any) -> Turns:
    number = len(columns["reward"])
    keys = {"iteration": [1] * number, "group": [0] * number, "agent": ["a"] * number, "policy": ["p"] * number}
    return Turns(keys | columns)


# -- critic -----------------------------------------------------------------------------------------------------------

TWO = table(episode=[0, 0, 1, 1], turn=[0, 1] * 2, state=[1, 2, 1, 3], reward=[0.0, 1.0, 0.0, 0.0],
            truncated=[False, False, True, True], observation=["x", "y", "x", "z"])  # fmt: skip


def test_a_critic_speaks_before_it_learns_and_learns_the_mean_return() -> None:
    made = critic()
    first = made(TWO, context(walker()))
    assert first["value"].to_list() == [0.0] * 4
    second = made(TWO, context(walker()))
    assert second["value"].to_list() == [0.5, 1.0, 0.5, 0.0]


def test_with_lambda_zero_a_critic_learns_from_the_next_value() -> None:
    made = critic(lam=0.0, rate=1.0, gamma=0.5)
    for _ in range(2):
        made(TWO, context(walker()))
    # V(2) = 1; of episode 1, which was cut off, V(3) = γ·V(3) stays 0: V(1) = mean(γ·V(2), γ·V(3))
    assert made(TWO, context(walker()))["value"].to_list() == [0.25, 1.0, 0.25, 0.0]


def test_finished_leaves_out_what_was_cut_off() -> None:
    made = critic(finished=True)
    made(TWO, context(walker()))
    assert made(TWO, context(walker()))["value"].to_list() == [1.0, 1.0, 1.0, 1.0]  # state 3: the mean of all


def test_a_baseline_of_each_role_is_kept_across_iterations() -> None:
    rae = critic(over="agent", target="agent_return()", rate=0.25)
    faster = critic(over="agent", target="agent_return()", rate=0.5)
    batches = [TWO.with_column(reward=pl.lit(float(r))) for r in (1, 0, 0, 0, 0)]
    one, other = ([made(batch, context(walker()))["value"][0] for batch in batches] for made in (rae, faster))
    assert one == pytest.approx([0.0, 2.0, 1.0, 2 / 3, 0.5])
    assert other == pytest.approx([0.0, 2.0, 1.0, 0.5, 0.25])


def test_a_network_critic_learns_what_the_text_says() -> None:
    made = critic("network", steps=200)
    turns = played(Team({"chooser": TabularPolicy(3)}), STEPS)
    made(turns, context(walker()))
    value = made(turns, context(walker()))["value"]
    target = turns["reward"].to_numpy().reshape(-1, 4).sum(1).mean()
    assert value.to_numpy() == pytest.approx(target, abs=0.1)


def test_missing_rewards_are_not_zero() -> None:
    made = critic()
    made(TWO.with_column(reward=pl.Series([None, 1.0, None, None], dtype=pl.Float64)), context(walker()))
    assert made(TWO, context(walker()))["value"].to_list() == [1.0, 1.0, 1.0, 1.0]


def test_gae_of_a_right_critic_is_zero_on_average() -> None:
    """On a fixed policy the values settle, and the mean advantage of every state is near 0."""
    made, team = critic(rate=0.0), walker()
    for iteration in range(30):
        made(played(team, iteration=iteration, size=16), context(team))
    turns = made(played(team, iteration=99, size=512), context(team)).with_column(advantage=gae(lam=1.0))
    means = turns.frame.group_by("state").agg(pl.col("advantage").mean(), pl.len()).filter(pl.col("len") > 200)
    assert len(means) >= 3
    assert means["advantage"].abs().max() < 0.08
    assert turns["advantage"].std() > 0.2


def test_a_token_critic_fills_lists_that_gae_takes() -> None:
    team = Team({"chooser": LMPolicy.tiny(["step action 0123456789 of"], name="lm", hidden=16, max_new_tokens=4)})
    made = token_critic(steps=200, lr=1e-2)
    turns = played(team, STEPS).with_column(reward=pl.lit(1.0))
    for _ in range(3):
        filled = made(turns, context(team))
    lengths = turns["action_ids"].list.len()
    assert filled["value"].list.len().to_list() == lengths.to_list()
    to_go = np.tile([4.0, 3.0, 2.0, 1.0], len(turns) // 4)
    error = np.abs(filled["value"].list.mean().to_numpy() - to_go)
    assert error.mean() < 0.7, "the prompt says which step it is"
    credit = evaluate(filled, tppo(reward=on_last_token("reward")))[0]
    assert credit.lengths.tolist() == lengths.to_list()
    assert np.isfinite(credit.values).all()


# -- critics of actions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["table", "network"])
def test_fresh_rows_are_what_todays_policy_would_do(model: str) -> None:
    team = walker()
    made, turns = q_critic(model, states=64, gamma=0.5), played(team)
    found = made(turns, context(team))
    new = found.frame.filter(pl.col("fresh"))
    assert len(found) == len(turns) + 64 == len(turns) + len(new)
    assert found.frame.filter(~pl.col("fresh"))["q"].null_count() == len(turns)
    assert new["q"].null_count() == new["v"].null_count() == 0
    assert set(new["state"]) <= set(turns["state"])
    assert new["logprobs"].list.first().to_numpy() == pytest.approx(np.log(1 / 3))
    with_credit = found.with_column(advantage=archer())
    learner = PolicyGradient(team, lr=0.1)
    assert learner.update(with_credit)["walker"]["rows"] == 64


def test_a_critic_of_what_was_played_knows_the_better_action_and_the_baseline_of_coma() -> None:
    """One step, action 1 pays: Q is the reward, V the mean, and COMA's baseline Σπ·Q agrees with it."""
    env = make("native/answers", tasks=1, answers=3)
    team = Team({"answerer": TabularPolicy(3, name="answerer")})
    made = q_critic(rows="played", gamma=1.0, batches=200)
    for iteration in range(3):
        turns = made(played(team, env, size=16, iteration=iteration), context(team, env))
    paid = turns["reward"].to_numpy()
    assert turns["q"].to_numpy() == pytest.approx(paid, abs=1e-3)
    assert turns["v"].to_numpy() == pytest.approx(1 / 3, abs=0.1)
    coma = np.asarray(evaluate(turns, counterfactual())[0])
    assert coma == pytest.approx(paid - 1 / 3, abs=1e-3)


def test_a_joint_critic_sees_what_the_others_do() -> None:
    """What one earns is decided by the other's move: only the joint critic can tell."""
    env = make("native/dilemma", rounds=1, payoffs=(1.0, 0.0, 1.0, 0.0), scale=1.0)
    team = Team({name: TabularPolicy(2, name=name) for name in ("first", "second")})
    error = {}
    for joint in (False, True):
        made = q_critic(rows="played", joint=joint, batches=200, gamma=1.0)
        for iteration in range(3):
            turns = made(played(team, env, size=32, iteration=iteration), context(team, env))
        error[joint] = float(np.abs(turns["q"].to_numpy() - turns["reward"].to_numpy()).mean())
    assert error[True] < 0.01 < 0.2 < error[False]


def test_what_is_impossible_is_not_drawn_and_adds_no_entropy() -> None:
    """Half, half, never: log 0 is -inf."""
    logits = torch.tensor([0.5, 0.5, 0.0]).log().expand(8, 1, 3)
    policy: Any = SimpleNamespace(score=lambda rows: SimpleNamespace(logits=logits))
    rows = pl.DataFrame({"policy": ["p"] * 8, "action_ids": [[2]] * 8, "prompt_ids": [None] * 8})
    found = resample(rows, {"p": policy}, np.random.default_rng(0), {"0": "left", "1": "right"})
    assert set(found["action"]) == {"left", "right"}
    for column, expected in (("logprobs", -np.log(2)), ("entropies", np.log(2))):
        assert found[column].list.first().to_numpy() == pytest.approx(expected)
    policy = SimpleNamespace(score=lambda rows: SimpleNamespace(logits=logits.flip(2)))
    least: Any = SimpleNamespace(random=np.zeros)
    found = resample(rows, {"p": policy}, least, {"1": "left", "2": "right"})
    assert set(found["action"]) == {"left"}, "nor by a draw of 0"


def test_what_the_others_do_is_a_state_whatever_oneself_does() -> None:
    turns = Turns({"group": [0] * 6, "episode": [0, 0, 1, 1, 2, 2], "turn": [0] * 6, "agent": ["a", "b"] * 3,
                   "state": [1, 2] * 3, "action": ["x", "y", "z", "y", "x", "z"]})  # fmt: skip
    a, b, c = _others_of(turns).reshape(3, 2)
    assert (a[0] == b[0], a[0] == c[0], a[1] == b[1], a[1] == c[1]) == (True, False, False, True)
    assert a[0] != a[1]
    assert {"q", "v", "fresh"} == q_critic().adds.keys()
    assert {"q", "v", "action_values", "probabilities"} == q_critic(rows="played").adds.keys()


def test_a_language_policy_is_asked_again() -> None:
    team = Team({"chooser": LMPolicy.tiny(["step action"], name="lm", hidden=16, max_new_tokens=3)})
    turns = q_critic("network", states=8)(played(team, STEPS, size=2), context(team, STEPS))
    new = turns.frame.filter(pl.col("fresh"))
    assert len(new) == 8
    assert (new["action_ids"].list.len() == new["logprobs"].list.len()).all()
    assert new["prompt_ids"].null_count() == 0


def test_prefix_values_add_up_to_the_joint_advantage() -> None:
    """Two agents act at once; the value of the joint action is what all of them earned after it."""
    q = {("l", "l"): 8.0, ("l", "r"): 2.0, ("r", "l"): 4.0, ("r", "r"): 6.0}
    rows = [(number, agent, joint[place], value if place == 0 else 0.0)
            for number, (joint, value) in enumerate(q.items()) for place, agent in enumerate(("a", "b"))]  # fmt: skip
    turns = Turns({
        "iteration": [1] * 8, "group": [0] * 8, "episode": [r[0] for r in rows], "turn": [0] * 8,
        "agent": [r[1] for r in rows], "action": [r[2] for r in rows], "reward": [r[3] for r in rows],
        "state": [7, 9] * 4,
    })  # fmt: skip
    made = prefix_critic()
    assert made(turns, context(walker()))["value"].to_list() == [0.0] * 8
    found = made(turns, context(walker()))
    assert found["value"].to_list() == [5.0] * 8
    assert found["prefix_value"].to_list() == [5.0, 8.0, 5.0, 2.0, 5.0, 4.0, 5.0, 6.0]


def test_prefixes_grow_in_the_order_in_which_credit_walks_a_turn() -> None:
    """Only what `b` does matters, and its rows stand before those of `a`: `b` gets the credit, not who is last."""
    turns = Turns({
        "iteration": [1] * 8, "group": [0] * 8, "episode": np.repeat(range(4), 2), "turn": [0] * 8,
        "agent": ["b", "a"] * 4, "action": list("llrllrrr"), "state": [7] * 8,
        "reward": [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
    })  # fmt: skip
    made = prefix_critic()
    made(turns, context(walker()))
    credit = np.asarray(sequential_advantage().evaluate(made(turns, context(walker()))))
    assert credit.tolist() == [-1.0, 0.0, 1.0, 0.0] * 2


# -- process rewards and progress -------------------------------------------------------------------------------------


def test_progress_of_planted_rewards_is_found() -> None:
    team = Team({"chooser": TabularPolicy(3, name="chooser")})
    made = progress(ridge=1e-6)
    for iteration in range(20):
        turns = made(played(team, STEPS, iteration=iteration), context(team, STEPS))
    centred = pl.col("progress", "worth") - pl.col("progress", "worth").mean().over("state")
    found = turns.frame.with_columns(centred)
    assert np.corrcoef(found["progress"], found["worth"])[0, 1] > 0.99
    total = turns.frame.group_by("group", "episode").agg(pl.col("progress", "reward").sum())
    assert total["progress"].to_numpy() == pytest.approx(total["reward"].to_numpy(), abs=1e-3)


def test_progress_from_factors_and_by_a_network() -> None:
    team = Team({"chooser": TabularPolicy(3, name="chooser")})
    turns = played(team, STEPS, size=32)
    linear = progress(factors=["worth"], ridge=1e-9)(turns, context(team, STEPS))
    share = linear["progress"].to_numpy() / linear["worth"].to_numpy()
    assert share == pytest.approx(share[0]), "one factor, one weight"
    assert share[0] * STEPS().best == pytest.approx(1.0, abs=1e-6)
    network = progress("network", factors=["worth", "right"], updates=400, lr=1e-2)(turns, context(team, STEPS))
    assert np.corrcoef(network["progress"], network["worth"])[0, 1] > 0.97
    with pytest.raises(InputError, match="did you mean 'table'"):
        progress("tabel")  # type: ignore[arg-type]


def test_a_process_reward_model_prefers_what_won() -> None:
    """After some pairs the implicit reward of right steps is above that of wrong ones; the policy does not move."""
    env = make("native/steps", steps=6, actions=3, decisive=2)
    team = Team({"chooser": TabularPolicy(3, name="chooser")})
    made = process_reward(lr=0.1)
    for iteration in range(12):
        here = context(team, env)
        turns = made(played(team, env, size=16, iteration=iteration), here)
    assert here.metrics["process_loss_chooser"] < np.log(2)
    decides = pl.Series("decides", np.tile(env().decides, len(turns) // 6))
    step = turns.with_column(step=implicit_reward()).frame.filter(decides)
    right, wrong = (step.filter(pl.col("right") == is_right)["step"].mean() for is_right in (True, False))
    assert right > wrong + 0.02
    assert turns["logprobs"].list.first().to_numpy() == pytest.approx(np.log(1 / 3))
    assert np.isfinite(np.asarray(evaluate(turns, oprl())[0])).all()


def test_an_episode_weighs_as_much_however_long_it_is() -> None:
    """An episode's score is the mean over its turns, so each of four turns gets a quarter of the slope."""
    team = Team({"a": TabularPolicy(3, name="a")})
    turns = Turns({
        "group": [0] * 5, "episode": [0, 1, 1, 1, 1], "turn": [0, 0, 1, 2, 3], "agent": ["a"] * 5, "policy": ["a"] * 5,
        "state": list(range(5)), "reward": [1.0, 0, 0, 0, 0], "action_ids": [[0]] * 5,
        "logprobs": [[float(np.log(1 / 3))]] * 5,
    })  # fmt: skip
    made = process_reward(lr=1e-9, beta=1.0)
    made(turns, context(team, STEPS))
    (logits,) = made.models["a"].parameters()
    up = -logits.grad[:, 0].numpy()
    assert sorted(up[up != 0]) == pytest.approx(sorted([0.5 * 2 / 3, *[-0.5 / 4 * 2 / 3] * 4]), abs=1e-5)


def test_chunks_do_not_change_what_a_process_reward_model_learns() -> None:
    team = Team({"chooser": TabularPolicy(3, name="chooser")})
    turns = played(team, STEPS, size=16)
    one, many = (process_reward(lr=0.1, chunk=chunk)(turns, context(team, STEPS))["prm_logprobs"] for chunk in (7, 999))
    assert np.concatenate(one.to_list()) == pytest.approx(np.concatenate(many.to_list()), abs=1e-6)
    lm = Team({"chooser": LMPolicy.tiny(["step action"], name="lm", hidden=16, max_new_tokens=3)})
    spoken = process_reward(lr=1e-2)(played(lm, STEPS, size=4), context(lm, STEPS))
    assert spoken["prm_logprobs"].list.len().to_list() == spoken["action_ids"].list.len().to_list()


def test_padding_moves_no_process_reward_model() -> None:
    """Of each group's two episodes one won and says one token less."""
    lm = Team({"chooser": LMPolicy.tiny(["step action"], name="lm", hidden=16, max_new_tokens=3)})
    won = pl.col("episode") == 0
    said = Turns(
        played(lm, STEPS, size=2).frame.with_columns(
            pl.col("action_ids", "logprobs").list.head(pl.when(won).then(2).otherwise(3)), reward=won.cast(pl.Float64)
        )
    )
    before, after = (process_reward(epochs=n, lr=1e-2)(said, context(lm, STEPS))["prm_logprobs"] for n in (0, 1))
    moved = np.concatenate(after.to_list()) - np.concatenate(before.to_list())
    first = np.repeat((said["episode"] == 0).to_numpy(), said["action_ids"].list.len())
    assert moved[first].mean() > 0.01 > -0.01 > moved[~first].mean()


# -- values by playing on ---------------------------------------------------------------------------------------------


def test_values_by_playing_on_are_those_of_the_policy() -> None:
    """All three of three steps must be right: with uniform play V is 0 after a mistake and 3^-(left) before one."""
    env = make("native/steps", steps=3, actions=3, decisive=3)
    team = Team({"chooser": TabularPolicy(3, name="chooser")})
    here = context(team, env)
    turns = mc_values(k=400)(played(team, env, size=6, seed=3), here)
    alive = turns.with_column(
        w=pl.col("right").cum_min().shift(1, fill_value=True).over("group", "episode").cast(float)
    )
    expected = alive["w"].to_numpy() * 3.0 ** -(3.0 - alive["turn"].to_numpy())
    assert turns["value"].to_numpy() == pytest.approx(expected, abs=0.08)
    assert here.spent.calls % 400 == 0
    assert here.spent.calls <= 400 * (2 + 2 * 3 + 12), "equal prefixes of a group are evaluated once"
    credit = (
        turns.with_column(credit=spo_chain())
        .frame.group_by("group", "episode")
        .agg(pl.col("credit").sum(), (pl.col("reward").sum() - pl.col("value").first()).alias("whole"))
    )
    assert credit["credit"].to_numpy() == pytest.approx(credit["whole"].to_numpy())


def test_what_is_earned_on_the_way_counts_once() -> None:
    """spo_chain adds what was earned before to the value of what is to come."""
    turns = table(episode=[0] * 3, turn=[0, 1, 2], reward=[1.0, 0.0, 2.0], value=[2.5, 1.5, 1.0])
    assert np.asarray(evaluate(turns, spo_chain())[0]).tolist() == [0.0, -0.5, 1.0]


def test_an_env_that_cannot_go_back_is_named() -> None:
    class Plain:
        agents, task = ("walker",), "plain"

        def reset(self, seed: int) -> Any:
            return CORRIDOR().reset(seed)

        def step(self, actions: Any) -> Any:
            raise AssertionError

    with pytest.raises(EnvError, match="Plain cannot be restarted"):
        mc_values()(played(walker()), context(walker(), Plain))
    with pytest.raises(EnvError, match="differs when played again"):
        mc_values()(played(walker()), context(walker(), make("native/corridor", cells=5)))


# -- all of them ------------------------------------------------------------------------------------------------------

EVERY = [
    ("critic()", "gae()", {}),
    ("critic('network', steps=3)", "gae()", {}),
    ("q_critic(states=32)", "archer()", {}),
    ("q_critic('network', rows='played', states=32, batches=3)", "coma()", {}),
    ("prefix_critic()", "sequential_advantage()", {}),
    ("progress()", "spa()", {}),
    ("progress('network', updates=3)", "spa()", {}),
    ("process_reward(lr=0.1)", "oprl()", {}),
    ("mc_values(k=2)", "spo_chain()", {}),
    ("token_critic(steps=3)", "gae(reward=on_last_token('reward'))", {}),
]


@pytest.mark.parametrize(("text", "credit", "options"), EVERY, ids=[each[0] for each in EVERY])
def test_a_stopped_run_goes_on_bit_for_bit(text: str, credit: str, options: Any, tmp_path: Path) -> None:
    def trainer(name: str, iterations: int) -> Trainer:
        team = walker()
        return Trainer(
            CORRIDOR, team, credit=parse(credit), learner=PolicyGradient(team, lr=0.3), stages=[text],
            iterations=iterations, groups=2, group_size=4, directory=tmp_path / name, checkpoint_every=2,
        )  # fmt: skip

    whole = trainer("whole", 4)
    whole.run()
    trainer("stopped", 2).run()
    again = trainer("stopped", 4)
    again.run(resume=True)
    one, other = (each.team.policies["walker"].state_dict() for each in (whole, again))  # type: ignore[attr-defined]
    assert all(np.array_equal(one[key], other[key]) for key in one)
    assert np.abs(np.asarray(one["logits"])).max() > 0, "something was learned"


def test_cells_forget_at_their_rate_and_hashes_tell_texts_apart() -> None:
    plain, forgets = Cells(0.0), Cells(0.5)
    for value in (0.0, 0.0, 0.0, 1.0):
        for cells in (plain, forgets):
            cells.add(pl.Series(["k"]), np.array([value]))
    assert (plain.value(pl.Series(["k"]))[0], forgets.value(pl.Series(["k"]))[0]) == (0.25, 0.5)
    texts = pl.Series([f"cell {a} of {b}" for a in range(10) for b in range(10)] + ["cell 0 of 0"])
    x = hashed(texts, 64)
    assert len(np.unique(x.round(9), axis=0)) == 100
    assert np.linalg.norm(x, axis=1) == pytest.approx(1.0)


def test_a_table_reads_its_keys_and_a_network_what_is_seen() -> None:
    assert {"agent", "state"} <= critic().needs
    assert "observation" not in critic().needs
    assert "state" not in critic("network").needs
    assert {"observation", "agent"} <= critic("network").needs
