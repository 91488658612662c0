"""[19] CLAM (arXiv 2401.00132): who one plays with, by contrast between pieces of one's own episodes.

Rock, paper, scissors against opponents of four types instead of the paper's games. Left out: its baselines of agent
modelling, and cooperative tasks.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import torch

from palaestra.agents import ContextualPolicy, Team
from palaestra.agents.encoders import PrefixEncoder
from palaestra.algebra.turns import Turns
from palaestra.envs import with_recent
from palaestra.envs.worlds import Opponents
from palaestra.envs.worlds.opponents import TYPES, best_payoff, habits, memoryless_payoff
from palaestra.learning.agent_models import (
    ContrastiveEncoder,
    Trajectories,
    crop,
    info_nce,
    mask_steps,
    pieces,
    trajectories,
)
from palaestra.learning.stages import Context
from palaestra.learning.stages.agent_model import agent_model
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact

WINDOW, SIZE, NOISE = 16, 4, 8


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of one learner among opponents of four types, `types.yaml`."""
    made = {
        "name": "types",
        "env": {"make": "recent", "options": {"env": "native/opponents", "steps": WINDOW, "noise": NOISE}},
        "policies": {"ego": {"kind": "contextual", "options": {"steps": WINDOW, "context": SIZE}}},
        "team": {"ego": "ego"},
        "stages": [
            "agent_model('ego', 'contrastive', batch=128, steps=16)",
            "critic('network', gamma=0.0, lam=0.0, reads=['context'])",
        ],
        "credit": "standardise(gae(gamma=0.0, lam=0.0), over=())",
        "learn": {"lr": 0.006, "epochs": 4, "minibatch": 640, "terms": ["surrogate(clip=0.2)", "entropy(0.01)"]},
        "train": {"iterations": 30, "groups": 64, "group_size": 1, "evaluate_every": 30, "checkpoint_every": 30,
                  "save_turns": "last"},
        "evaluation": {"tasks": 40, "trials": 1, "look_tasks": 2, "look_trials": 1, "measure": "score"},
    }  # fmt: skip
    (folder / "types.yaml").write_text(json.dumps(made))


def seen(rng: np.random.Generator, number: int, rounds: int = 20) -> tuple[Trajectories, np.ndarray]:
    """Windows of an ego against so many opponents as `Opponents` shows them, and the opponents' types."""
    law, kind = habits(TYPES, 0.7), rng.integers(len(TYPES), size=number)
    found, last = np.zeros((number, rounds, 3 + NOISE), np.float32), rng.integers(3, size=number)
    for turn in range(rounds):
        if turn:
            last = (rng.random((number, 1)) > law[kind, last].cumsum(axis=1)).sum(axis=1).clip(max=2)
            found[np.arange(number), turn, last] = 1.0
        found[:, turn, 3:] = rng.standard_normal((number, NOISE))
    return Trajectories(found, np.full(number, rounds)), kind


def probe(encoder: torch.nn.Module, rng: np.random.Generator, turns: int = 11) -> float:
    """Share of held-out opponents whose type a linear rule reads from the context after ten moves."""

    def contexts(known: Trajectories) -> np.ndarray:
        end = np.full(len(known.lengths), turns)
        with torch.no_grad():
            found = encoder(torch.from_numpy(pieces(known, end, end, WINDOW))).numpy()
        return np.hstack([found, np.ones((len(found), 1))])

    (learned, kind), (other, goal) = seen(rng, 600), seen(rng, 600)
    x = contexts(learned)
    weights = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ np.eye(len(TYPES))[kind])
    return float(((contexts(other) @ weights).argmax(axis=1) == goal).mean())


def encoder() -> PrefixEncoder:
    """As a policy begins with it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return PrefixEncoder(3 + NOISE, WINDOW, SIZE).requires_grad_(False)


def learned(steps: int, **options: Any) -> tuple[ContrastiveEncoder, dict[str, float]]:
    """An encoder after so many steps, with the metrics of the last one."""
    rng = np.random.default_rng(0)
    made = ContrastiveEncoder(encoder(), inputs=SIZE, steps=WINDOW, **options)
    return made, made.fit(seen(rng, 1500)[0], rng, steps=steps, batch=64)


def played(policy: ContextualPolicy, seed: int = 0, groups: int = 24) -> Turns:
    """Episodes against drawn opponents."""
    env = with_recent(lambda: Opponents(noise=NOISE), WINDOW)
    return rollout(env, Team(ego=policy), groups=groups, seed=seed)


def member() -> ContextualPolicy:
    """A policy with its first parameters."""
    return ContextualPolicy(WINDOW * (4 + NOISE), 3, steps=WINDOW, context=SIZE, name="ego")


def told(policy: ContextualPolicy, iteration: int = 0) -> Context:
    """Context of the stage in an iteration."""
    return Context(np.random.default_rng(iteration), iteration, cast(Any, Opponents), Team(ego=policy), cast(Any, None))


@exact
def worked_losses() -> None:
    """Two orthogonal unit pairs: log(1 + exp(-1/τ)); the mean is over both sides."""
    pairs = torch.eye(2, dtype=torch.double)
    for tau, value in ((1.0, 0.31326), (0.5, 0.12693), (0.1, 4.54e-5)):
        np.testing.assert_allclose(float(info_nce(pairs, pairs, tau)), value, rtol=1e-4)
    one = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.double)
    rows = np.log(1 + np.array([np.exp(-1.0), np.exp(1.0)])).mean()  # each row of `one` against both of `pairs`
    np.testing.assert_allclose(float(info_nce(one, pairs, 1.0)), (rows + np.log(2)) / 2, rtol=1e-6)


@exact
def payoffs_of_the_world() -> None:
    """Bounds of a round: .55 where the type is known, .2269 where only the last move is seen."""
    np.testing.assert_allclose(
        [best_payoff(0.7), memoryless_payoff(TYPES, 0.7)], [0.55, 3 * (0.585 - 0.2825) / 4], atol=1e-9
    )


@exact
def the_type_is_read_from_the_context() -> None:
    """After ten moves a linear rule finds the type in .65 of held-out episodes, with a random encoder below .55."""
    made, _ = learned(180)
    assert probe(encoder(), np.random.default_rng(5)) < 0.55
    assert probe(made.encoder, np.random.default_rng(5)) > 0.65


@exact
def the_task_is_not_trivial() -> None:
    """Pieces of different lengths and masked turns cannot be told apart by heart: the loss stays above 1.5 nats."""
    _, metrics = learned(120, tau=0.1)
    assert metrics["loss"] > 1.5, metrics


@exact
def pieces_and_masks() -> None:
    """Lengths from 8 to the shortest trajectory, drawn for each piece; some turns are masked, never all of them."""
    rng = np.random.default_rng(0)
    known = Trajectories(np.ones((400, 20, 2), np.float32), rng.integers(12, 21, size=400))
    lengths = [crop(known, rng, steps=WINDOW)[..., 0].sum(axis=1) for _ in range(2)]
    assert set(lengths[0]) == set(range(8, 13))
    assert (lengths[0] != lengths[1]).mean() > 0.6
    window = crop(known, rng, steps=WINDOW)
    for ratio in (0.5, 0.99):
        masked = mask_steps(window, ratio, rng)
        there = (masked[..., 1] > 0).sum(axis=1)
        assert (there >= 1).all() and (there < window[..., 0].sum(axis=1)).mean() > 0.9  # noqa: PT018
    short = Trajectories(np.zeros((5, 1, 2), np.float32), np.ones(5, np.int64))
    made = ContrastiveEncoder(PrefixEncoder(2, WINDOW, SIZE), inputs=SIZE, steps=WINDOW)
    assert made.fit(short, rng, steps=3, batch=4) == {}


@exact
def no_negatives_from_one_episode() -> None:
    """Three team mates in each of eight episodes give eight trajectories, each a team mate's own turns in order."""
    rows = [
        {"group": episode, "episode": 0, "turn": turn, "agent": f"a{k}", "policy": "ego"}
        for episode in range(8) for turn in range(4) for k in range(3)
    ]  # fmt: skip
    turns = Turns(pl.DataFrame(rows))
    frame = turns.frame
    own = np.stack([frame["group"], frame["agent"].cast(pl.String).str.slice(1).cast(int), frame["turn"]], axis=1)
    found = trajectories(turns, own.astype(np.float32), np.random.default_rng(0))
    assert sorted(found.seen[:, 0, 0]) == list(range(8))
    assert (found.seen[..., 1] == found.seen[:, :1, 1]).all()
    assert (found.seen[..., 2] == np.arange(4)).all()
    assert len(set(found.seen[:, 0, 1])) > 1


@exact
def credit_leaves_the_encoder_alone() -> None:
    """The loss of the policy has no gradient on the encoder; the policy follows it slowly, from the next iteration."""
    policy = member()
    turns = played(policy)
    policy.score(turns.frame).logprobs.sum().backward()
    encoders = [*policy.encoder.parameters()]
    assert all(each.grad is None and not each.requires_grad for each in encoders)
    assert not {id(each) for each in encoders} & {id(each) for each in policy.parameters()}
    before = copy.deepcopy(policy.encoder.state_dict())
    stage = agent_model("ego", ema=0.25)
    stage(turns, told(policy))
    for name, value in policy.encoder.state_dict().items():
        torch.testing.assert_close(value, before[name])
    stage.plan(None, told(policy, 1))
    assert stage.learner is not None
    new = stage.learner.encoder.state_dict()
    assert any(not torch.equal(new[name], before[name]) for name in new)
    for name, value in policy.encoder.state_dict().items():
        torch.testing.assert_close(value, before[name] + 0.25 * (new[name] - before[name]))


@exact
def contexts_are_those_of_play() -> None:
    """After the encoder has learned, and even when the policy has it, an unchanged policy's ratios are 1."""
    policy = member()
    turns = played(policy)
    stage = agent_model("ego", ema=1.0)
    with_contexts = stage(turns, told(policy))
    stage.plan(None, told(policy, 1))
    stored = turns.frame["logprobs"].explode().to_numpy()
    again = policy.score(with_contexts.frame).logprobs.detach().numpy().ravel()
    np.testing.assert_allclose(again, stored, atol=1e-5)
    fresh = policy.score(turns.frame).logprobs.detach().numpy().ravel()
    assert np.abs(fresh - stored).max() > 1e-3


@exact
def only_what_the_ego_saw() -> None:
    """Opponents' rows and columns may go: contexts and what is learned stay the same to the bit."""
    results = []
    for hidden in (False, True):
        policy = member()
        frame = played(policy).frame
        if hidden:
            frame = frame.drop("hidden", "done", "reward", "success", "action", "task")
        else:
            other = frame.with_columns(
                agent=pl.lit("opponent").cast(frame["agent"].dtype),
                policy=pl.lit("scripted").cast(frame["policy"].dtype),
                features=pl.col("features").shuffle(seed=0),
            )
            frame = pl.concat([frame, other])
        stage = agent_model("ego")
        found = stage(Turns(frame), told(policy))
        assert stage.learner is not None
        kept = found.frame.filter(pl.col("policy").cast(pl.String) == "ego")["context"].to_list()
        results.append((kept, [each.numpy() for each in stage.learner.slow.parameters()]))
    assert results[0][0] == results[1][0]
    for one, two in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_array_equal(one, two)


@exact
def a_blind_policy_has_no_context() -> None:
    """The control acts on the newest observation: its contexts are zero, and what was seen before changes nothing."""
    blind = ContextualPolicy(WINDOW * (4 + NOISE), 3, steps=WINDOW, context=SIZE, blind=True, name="ego")
    turns = agent_model("ego")(played(blind, groups=4), told(blind))
    assert set(turns.frame["context"].explode()) == {0.0}
    windows = blind.windows_of_rows(turns.frame)[-3:]
    other = windows.copy()
    other[:, :-1] = 0
    for policy, same in ((blind, True), (member(), False)):
        one, two = (policy._apply(each, policy.encode(each)).detach().numpy() for each in (windows, other))
        assert (np.abs(one - two).max() < 1e-9) == same
