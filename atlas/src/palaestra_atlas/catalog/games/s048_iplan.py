"""[48] iPLAN: two chained models of each neighbour, its behaviour by a soft update and its instant intent by attention.

A ring road that people cross instead of the paper's highway. Left out: PopArt and the Huber loss of its critic, the
penalty on unstable predictions (weight 0 there), and the wait before the second model starts.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from palaestra.agents import ContextualPolicy, Team
from palaestra.agents.encoders import NeighbourEncoder, soft_update
from palaestra.algebra.turns import Turns
from palaestra.envs import with_recent
from palaestra.envs.worlds import Traffic
from palaestra.envs.worlds.traffic import TEMPERAMENTS, advances
from palaestra.learning.agent_models import Trajectories
from palaestra.learning.agent_prediction import PredictiveEncoder, coming, masked_l1
from palaestra.learning.stages import Context
from palaestra.learning.stages.agent_model import agent_model
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact

STEPS, DRIVERS, CELLS = 16, 2, 5
MOODS = tuple(" ".join([each] * DRIVERS) for each in TEMPERAMENTS)
OTHERS: dict[str, Any] = {"others": DRIVERS, "own": DRIVERS * CELLS, "window": 4}


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of one who crosses among drivers who in each episode have one of three temperaments."""
    world = {"drivers": DRIVERS, "cells": CELLS, "habit": 1.0, "missing": 0.0, "mixtures": [*MOODS]}
    env = {"env": "native/traffic", "steps": STEPS} | world
    made = {
        "name": "traffic",
        "env": {"make": "recent", "options": env},
        "policies": {
            "walker_0": {"kind": "contextual", "options": {"steps": STEPS, "others": OTHERS, "hidden": [64]}},
        },
        "team": {"walker_0": "walker_0"},
        "stages": [
            "agent_model('walker_0', 'predict', ema=0.3, batch=24, steps=10, lr=0.01)",
            "critic('network', gamma=0.0, lam=0.0, reads=['context'])",
        ],
        "credit": "standardise(gae(gamma=0.0, lam=0.0), over='agent')",
        "learn": {"lr": 0.005, "epochs": 4, "minibatch": 128, "terms": ["surrogate(clip=0.2)", "entropy(0.01)"]},
        "train": {"iterations": 36, "groups": 40, "group_size": 1, "evaluate_every": 36, "checkpoint_every": 36,
                  "save_turns": "last"},
        "evaluation": {"tasks": 40, "trials": 1, "look_tasks": 2, "look_trials": 1, "measure": "score"},
    }  # fmt: skip
    (folder / "traffic.yaml").write_text(json.dumps(made))


def encoder(features: int = 6, **options: Any) -> NeighbourEncoder:
    """An encoder of two neighbours with two features each, or of others, at its start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return NeighbourEncoder(features, **({"others": 2, "window": 3} | options))


def scenes(number: int, rng: np.random.Generator) -> Trajectories:
    """Two neighbours over eight turns, each as 1, its place and its signal.

    A place begins with two turns of -1 or 1, drawn for the scene, and 0 for two more. Then it is there again, but only
    where the other one's signal, which is drawn for the scene as well, is 1; else it stays 0.
    """
    start, signal = (rng.choice([-1.0, 1.0], size=(number, 1, 2)) for _ in range(2))
    free = np.repeat([1.0, 0.0, 1.0], [2, 2, 4])[:, None]
    late = np.arange(8)[:, None] >= 4
    place = start * free * np.where(late, signal[..., ::-1] > 0, True)
    seen = np.stack([np.ones_like(place), place, np.broadcast_to(signal, place.shape)], axis=-1)
    return Trajectories(seen.reshape(number, 8, 6).astype(np.float32), np.full(number, 8))


def learned(steps: int, **options: Any) -> tuple[PredictiveEncoder, list[float]]:
    """A model of scenes after so many steps, and both errors of prediction on scenes held out."""
    rng = np.random.default_rng(0)
    made = PredictiveEncoder(encoder(**options), ahead=5, lr=0.01)
    known, held = scenes(256, rng), scenes(200, rng)
    made.fit(known, rng, steps=steps, batch=32)
    with torch.no_grad():
        found = made.losses(made.tensor(held, np.arange(200)))
    return made, [float(each) for each in found]


def seen(seed: int, number: int) -> tuple[Trajectories, np.ndarray]:
    """Episodes of somebody who waits at a ring with one driver, and the driver's temperament."""
    env, kinds = Traffic(drivers=1, missing=0.0, habit=0.95), np.zeros((number, 1), int)
    found = np.zeros((number, STEPS, 12), np.float32)
    for episode in range(number):
        observed = env.reset(1000 * seed + episode)
        for turn in range(STEPS):
            found[episode, turn] = observed["walker_0"].array
            result = env.step({"walker_0": 0})
            observed = dict(result.observations)
        kinds[episode] = [TEMPERAMENTS.index(word) for word in result.info["hidden"].split()]
    return Trajectories(found, np.full(number, STEPS)), kinds


def probe(made: PredictiveEncoder, turns: int = 12) -> float:
    """Share of held-out drivers whose temperament a linear rule reads from the behaviour latent."""

    def latents(seed: int) -> tuple[np.ndarray, np.ndarray]:
        known, kinds = seen(seed, 200)
        slots = made.tensor(known, np.arange(200))[:, :turns]
        with torch.no_grad():
            found = made.encoder.behaviours(slots)[:, -1].numpy()
        there = (slots[:, -1, :, 0] > 0).numpy()
        return np.hstack([found[there], np.ones((there.sum(), 1))]), kinds[there]

    (x, kind), (other, goal) = latents(1), latents(2)
    weights = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ np.eye(3)[kind])
    return float(((other @ weights).argmax(axis=1) == goal).mean())


def member(blind: bool = False) -> ContextualPolicy:
    """A policy with its first parameters."""
    size = STEPS * (1 + DRIVERS * (CELLS + 3))
    return ContextualPolicy(size, 3, steps=STEPS, others=OTHERS, blind=blind, name="walker_0")


def played(policy: ContextualPolicy, groups: int = 8) -> Turns:
    """Episodes of the recipe's world."""
    env = with_recent(lambda: Traffic(drivers=DRIVERS, cells=CELLS), STEPS)
    return rollout(env, Team(walker_0=policy), groups=groups, seed=0)


def told(policy: ContextualPolicy, iteration: int = 0) -> Context:
    """Context of the stage in an iteration."""
    team = Team(walker_0=policy)
    return Context(np.random.default_rng(iteration), iteration, cast(Any, Traffic), team, cast(Any, None))


@exact
def the_soft_update() -> None:
    """A constant encoding e gives (1 - .9^k) e after k turns, also in the encoder; absent ones change nothing."""
    value = torch.tensor([0.25, 0.75]).double().expand(1, 6, 2)
    found = soft_update(value, torch.ones(1, 6, dtype=torch.bool), 0.1)[0]
    np.testing.assert_allclose(found, np.outer(1 - 0.9 ** np.arange(1, 7), [0.25, 0.75]), atol=1e-12)
    gaps = soft_update(value, torch.tensor([[True, False, True, False, False, True]]), 0.1)[0, :, 0]
    np.testing.assert_allclose(gaps, 0.25 * (1 - 0.9 ** np.array([1, 1, 2, 2, 2, 3])), atol=1e-12)
    made = encoder()
    for each in made.kind.parameters():
        torch.nn.init.zeros_(each)
    found = made.behaviours(made.slots(torch.from_numpy(scenes(3, np.random.default_rng(0)).seen)))[0, :, 0].detach()
    np.testing.assert_allclose(found[:, 0], (1 - 0.9 ** np.arange(1, 9)) / 8, atol=1e-6)


@exact
def drivers_stay_behind() -> None:
    """On 9 cells, places 0, 2, 7 and wishes 2, 0, 2: 1, 0 and 1 cells, as the next one ahead holds its cell."""
    np.testing.assert_array_equal(advances(np.array([0, 2, 7]), np.array([2, 0, 2]), 9), [1, 0, 1])
    np.testing.assert_array_equal(advances(np.array([4]), np.array([2]), 9), [2])


def earned(keys: np.ndarray, free: np.ndarray, cost: float = 3.0) -> float:
    """Reward of a turn of the best choice for each key, counted on one half of the turns and paid on the other."""
    half = len(keys) // 2
    _, key = np.unique(keys, return_inverse=True)
    counts = np.bincount(key[:half], minlength=key.max() + 1).clip(min=1)
    chances = np.stack([np.bincount(key[:half], each, len(counts)) for each in free[:half].T], 1) / counts[:, None]
    best = chances.argmax(1)[key[half:]]
    crosses = (chances.max(1) * (1 + cost) > cost)[key[half:]]
    paid = np.where(free[half:][np.arange(len(best)), best], 1.0, -cost)
    return float((paid * crosses).mean())


@exact
def temperaments_are_worth_much_more_than_places() -> None:
    """The best choices by places alone earn less than .35 in the recipe's world, those by temperaments too over .7."""
    env = Traffic(drivers=DRIVERS, cells=CELLS, habit=1.0, missing=0.0, mixtures=MOODS)
    places, kinds, free = [], [], []
    for episode in range(1200):
        env.reset(episode)
        for _ in range(STEPS):
            places.append(int(env.state.places @ [1, CELLS]))
            env.step({"walker_0": 0})
            kinds.append(int(env.state.types[0]))
            free.append([gate not in env.state.places for gate in env.gates])
    alone, told = np.array(places), np.array(places) * len(TEMPERAMENTS) + np.array(kinds)
    assert earned(alone, np.array(free)) < 0.35
    assert earned(told, np.array(free)) > 0.7


@exact
def errors_of_what_is_there() -> None:
    """Errors 1 and 3 of turns that came, and none of turns that did not: mean 2."""
    goal = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]).double()[None, :, None, None]
    found = goal + torch.tensor([[1.0, 1.0], [3.0, 3.0], [50.0, 50.0]]).double()[None, :, None, None]
    there = torch.ones(1, 3, 1, dtype=torch.bool)
    np.testing.assert_allclose(float(masked_l1(found, goal, there)), 2.0)
    np.testing.assert_allclose(float(masked_l1(found, goal, torch.tensor([[[True], [False], [True]]]))), 1.0)
    ahead = coming(torch.arange(1.0, 4.0).reshape(1, 3, 1, 1), 2)
    assert ahead.reshape(3, 2).tolist() == [[2.0, 3.0], [3.0, 0.0], [0.0, 0.0]]


@exact
def temperaments_are_read_from_behaviour() -> None:
    """After twelve turns a linear rule finds .8 of held-out temperaments, with a random encoder less than .7."""
    made = PredictiveEncoder(encoder(12, others=1, own=9, window=4), lr=0.01)
    assert probe(made) < 0.7
    made.fit(seen(3, 200)[0], np.random.default_rng(0), steps=60, batch=24)
    assert probe(made) > 0.8


@exact
def what_neighbours_allow_is_predicted() -> None:
    """Held-out error of the next five turns where a neighbour's signal says whether the other one moves."""
    _, (_, error) = learned(160)
    assert error < 0.09, error


@exact
def the_intent_reads_the_behaviour() -> None:
    """Another behaviour latent changes the instant latent, whose error has no gradient on it."""
    made = PredictiveEncoder(encoder(), ahead=5)
    slots = made.tensor(scenes(16, np.random.default_rng(0)), np.arange(16))
    behaviour = made.encoder.behaviours(slots).detach()
    one, two = made.encoder.instants(slots, behaviour), made.encoder.instants(slots, behaviour.flip(-1) + 1)
    assert float((one - two).abs().max().detach()) > 1e-3
    _, second = made.losses(slots)
    second.backward()
    assert all(each.grad is None for each in [*made.encoder.read.parameters(), *made.encoder.kind.parameters()])


@exact
def attention_is_soft_and_gated() -> None:
    """Written out: softmax over the others of q · k / 4, times a gate of 0 or 1 for each pair, which noise may turn."""
    made, there = encoder(9, others=3), torch.tensor([[True, True, True], [True, False, True]])
    units = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, opened, shut = (
            made.attention(units[None], there[None], noise)[0]
            for noise in (None, *torch.tensor([[-1e3, 1e3], [1e3, -1e3]]))
        )
        expected, soft = torch.zeros(2, 3, 16), torch.zeros(2, 3, 16)
        for row, i in np.ndindex(2, 3):
            others = [j for j in range(3) if j != i and there[row, j]]
            scores = torch.stack([made.query(units[row, i]) @ made.key(units[row, j]) / 4 for j in others])
            pairs = torch.stack([torch.cat([units[row, i], units[row, j]]) for j in range(3)])
            gate = made.gate(made.pairs(pairs)[0]).argmax(-1)
            for weight, j in zip(scores.softmax(0), others, strict=True):
                soft[row, i] += weight * units[row, j]
                expected[row, i] += gate[j] * weight * units[row, j]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(opened, soft, atol=1e-6, rtol=0)
    assert not shut.any()
    assert 0 < int((expected == 0).all(-1).sum()) < 6, "some gates are open, some are shut"


@exact
def the_intent_is_carried_over_the_turns() -> None:
    """The last instant latent depends on the first turn's observation; the first loss reads the behaviour before it."""
    made = PredictiveEncoder(encoder(), ahead=5)
    slots = made.tensor(scenes(4, np.random.default_rng(0)), np.arange(4))
    other = torch.cat([slots[:, :1] + 0.5, slots[:, 1:]], 1)
    with torch.no_grad():
        behaviour = made.encoder.behaviours(slots)
        one, two = (made.encoder.instants(each, behaviour)[:, -1] for each in (slots, other))
        assert float((one - two).abs().max()) > 1e-4
        before = made.losses(slots)[0]
        made.encoder.behaviours = lambda seen: torch.cat([behaviour[:, :-2], behaviour[:, -2:] + 9.0], 1)  # type: ignore[method-assign]
        torch.testing.assert_close(made.losses(slots)[0], before)
        made.encoder.behaviours = lambda seen: torch.cat([behaviour[:, :1] + 9.0, behaviour[:, 1:]], 1)  # type: ignore[method-assign]
        assert float((made.losses(slots)[0] - before).abs()) > 1e-4


@exact
def empty_slots_change_nothing() -> None:
    """Latents and losses of one neighbour stay when empty slots and turns before the first are added."""
    one = NeighbourEncoder(3, others=1, window=3)
    three = NeighbourEncoder(9, others=3, window=3)
    three.load_state_dict(one.state_dict())
    known = scenes(6, np.random.default_rng(0)).seen[..., :3]
    wide = np.pad(known, ((0, 0), (0, 0), (0, 6)))
    made = [PredictiveEncoder(each, ahead=5) for each in (one, three)]
    losses = [
        [float(each.detach()) for each in model.losses(model.tensor(Trajectories(x, np.full(6, 8)), np.arange(6)))]
        for model, x in zip(made, (known, wide), strict=True)
    ]
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-6)
    shown = [np.concatenate([np.ones((6, 8, 1), np.float32), x], axis=-1) for x in (known, wide)]
    found = [each(torch.from_numpy(x)).detach() for each, x in zip((one, three), shown, strict=True)]
    torch.testing.assert_close(found[0], found[1][:, :16])
    assert not found[1][:, 16:].any()
    padded = torch.from_numpy(np.pad(shown[0], ((0, 0), (4, 0), (0, 0))))
    torch.testing.assert_close(one(padded).detach(), found[0])
    mixed = torch.cat([padded, torch.from_numpy(np.pad(shown[0], ((0, 0), (0, 4), (0, 0))))])
    torch.testing.assert_close(one(mixed).detach()[:6], found[0])


@exact
def latents_are_read_and_not_trained_by_credit() -> None:
    """Logits change with latents; credit gives the encoder no gradient; the policy has it one iteration later."""
    policy = member()
    turns = played(policy)
    policy.score(turns.frame).logprobs.sum().backward()
    encoders = [*policy.encoder.parameters()]
    assert all(each.grad is None and not each.requires_grad for each in encoders)
    assert not {id(each) for each in encoders} & {id(each) for each in policy.parameters()}
    before = copy.deepcopy(policy.encoder.state_dict())
    stage = agent_model("walker_0", "predict", ema=1.0, steps=2, batch=4)
    found = stage(turns, told(policy)).frame
    contexts = np.array(found["context"].to_list(), np.float32)
    assert contexts.shape == (len(found), DRIVERS * 16)
    np.testing.assert_allclose(contexts, policy.encode(policy.windows_of_rows(turns.frame)), atol=1e-6)
    windows = policy.windows_of_rows(found)
    one, two = (policy._apply(windows, each).detach().numpy() for each in (contexts, 0 * contexts))
    assert np.abs(one - two).max() > 1e-3
    for name, value in policy.encoder.state_dict().items():
        torch.testing.assert_close(value, before[name])
    stage.plan(None, told(policy, 1))
    assert any(not torch.equal(each, before[name]) for name, each in policy.encoder.state_dict().items())


@exact
def a_blind_policy_has_no_latents() -> None:
    """The control's latents are zero, and it is otherwise the same."""
    turns = agent_model("walker_0", "predict", steps=1)(played(member(True), 3), told(member(True)))
    assert set(turns.frame["context"].explode()) == {0.0}
