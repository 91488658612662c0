"""[182] RAT: a trained policy is led to a behaviour by small shifts of what it sees.

Walkers on a ring instead of robots, scripted preferences instead of people's. Weights of replayed samples follow the
gradient through one step of the network of shifts, which is a reconstruction, as the abstract alone was read.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import polars as pl
import torch

from palaestra.agents import MLPPolicy, Team
from palaestra.agents.perturbed import PerturbedPolicy
from palaestra.algebra.turns import Turns
from palaestra.learning.stages import Context
from palaestra.learning.stages.preference_reward import preference_reward
from palaestra.learning.stages.weighted_attack import outer_loss, weighted_attack
from palaestra.runs.observation_attacks import derive
from palaestra.runs.perturbed_policies import perturbed_policy
from palaestra.runs.recipe import Recipe, validate
from palaestra.runs.seed import run_seed
from palaestra_atlas.reproductions import exact


def recipe(seed: int) -> Recipe:
    """Three walkers learn to meet and then to stay."""
    return validate(
        {
            "name": "meet",
            "env": {"make": "native/rendezvous", "options": {"walkers": 3, "cells": 6, "horizon": 6}},
            "policies": {"walker": {"kind": "mlp", "options": {"hidden": [32]}}},
            "team": {"*": "walker"},
            "reward": "reward - 0.05 * (1.0 - is_in('action', ('stay',)))",
            "credit": "standardise(return_to_go(gamma=0.9), over='turn')",
            "learn": {"lr": 0.02, "terms": ["surrogate()", "entropy(0.005)"]},
            "train": {"iterations": 24, "groups": 24, "group_size": 2, "evaluate_every": 99, "checkpoint_every": 99},
            "evaluation": {"tasks": 60, "trials": 2, "look_tasks": 2, "look_trials": 1},
            "seeds": [seed],
        },
        trust=True,
    )


def team(seed: int, folder: Path) -> None:
    """Trains the walkers with this seed, as the run `meet`."""
    made = recipe(seed)
    run_seed(made, seed, folder / "meet" / f"seed-{seed}")
    (folder / "meet" / "recipe.yaml").write_text(made.dump())


def linear(**options: Any) -> PerturbedPolicy:
    """A victim and an intention that are softmax of a matrix times the observation."""
    return PerturbedPolicy(4, 3, hidden=(), victim_hidden=(), seed=3, **options)


def seen(rows: int = 12) -> torch.Tensor:
    """Observations of four numbers."""
    return torch.from_numpy(np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32))


def probabilities(policy: PerturbedPolicy, part: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix of a part, and its softmax at these observations."""
    modules: Any = policy.module
    weight, bias = (each.detach().numpy().astype(float) for each in modules[part][0].parameters())
    logits = x @ weight.T + bias
    p = np.exp(logits - logits.max(1, keepdims=True))
    return weight, p / p.sum(1, keepdims=True)


def differing(**options: Any) -> PerturbedPolicy:
    """A linear pair whose intention is another function than the victim."""
    made = linear(**options)
    with torch.no_grad():
        for number, value in enumerate(made.module.get_submodule("intention").parameters()):
            value.copy_(torch.from_numpy(np.random.default_rng(5 + number).normal(size=value.shape).astype(np.float32)))
    return made


@exact
def steepest_step_in_the_ball() -> None:
    """One step goes to s - ε·sign(∇KL), with ∇KL = Wᵀ[p·(log p - log q - KL)] by hand; KL falls."""
    policy, x = differing(epsilon=0.05), seen()
    clean = x.numpy().astype(float)
    weight, p = probabilities(policy, "victim", clean)
    _, q = probabilities(policy, "intention", clean)
    gap = np.log(p) - np.log(q)
    kl = (p * gap).sum(1, keepdims=True)
    gradient = (p * (gap - kl)) @ weight
    moved = policy.shifted(x).numpy().astype(float)
    np.testing.assert_allclose(moved, clean - 0.05 * np.sign(gradient), atol=1e-6)
    _, led = probabilities(policy, "victim", moved)
    assert ((led * (np.log(led) - np.log(q))).sum(1) < kl[:, 0]).all()


@exact
def inside_the_ball() -> None:
    """However many steps, no feature is shifted by more than ε; with ε = 0 the victim acts as it was trained."""
    for steps in (1, 3, 7):
        moved = differing(epsilon=0.2, steps=steps).shifted(seen())
        assert 0.1 < float((moved - seen()).abs().max()) <= 0.2 + 1e-6
    torch.testing.assert_close(differing(epsilon=0.0).shifted(seen()), seen())
    noise = differing(epsilon=0.2, aim="noise")
    torch.testing.assert_close((noise.shifted(seen()) - seen()).abs(), torch.full((12, 4), 0.2))


@exact
def away_from_its_own() -> None:
    """The untargeted shift lowers the probability of the victim's best action everywhere."""
    policy = differing(epsilon=0.05, aim="away")
    _, before = probabilities(policy, "victim", seen().numpy().astype(float))
    _, after = probabilities(policy, "victim", policy.shifted(seen()).numpy().astype(float))
    best = before.argmax(1)
    rows = np.arange(len(best))
    assert (after[rows, best] < before[rows, best]).all()


class Between(torch.nn.Module):
    """Logits of the second of three actions where the first feature is 0, of the third elsewhere."""

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Logits, [rows, 3]."""
        middle = (seen[:, :1].abs() < 0.5).to(seen.dtype)
        return 6 * torch.cat([0 * middle, middle, 1 - middle], -1)


def misled(aim: str = "network") -> PerturbedPolicy:
    """A victim whose second feature decides between two actions; a linear shift cannot do all that is intended."""
    made = PerturbedPolicy(2, 3, epsilon=1.0, aim=aim, hidden=(), victim_hidden=(), name="a")
    weight, bias = made.module.get_submodule("victim").parameters()
    with torch.no_grad():
        weight.copy_(torch.tensor([[0.0, 0.0], [0.0, 3.0], [0.0, -3.0]]))
        bias.zero_()
    cast(Any, made.module)["intention"] = Between()
    return made


def attacked(weights: bool, rounds: int = 12) -> tuple[float, dict[str, float]]:
    """How probable the action that pays becomes where it pays, which is in a tenth of what is visited."""
    policy, rng = misled(), np.random.default_rng(0)
    stage = weighted_attack(
        "a", "fill_missing('preference', 0.0)", weights=weights, memory=400, batch=64, steps=20, outer_lr=0.03
    )
    told = Context(rng, 0, None, Team(a=policy), None)  # type: ignore[arg-type]
    for _ in range(rounds):
        place = rng.choice([-1.0, 0.0, 1.0], size=200, p=[0.45, 0.1, 0.45])
        features = np.stack([place, np.zeros(200)], axis=1).astype(np.float32)
        with torch.no_grad():
            p = torch.softmax(policy.of("victim", policy.shifted(torch.from_numpy(features))), -1).numpy()
        done = (p.cumsum(1) < rng.random((200, 1))).sum(1).clip(0, 2)
        pays = np.where(place == 0, np.where(done == 1, 1.0, -1.0), 0.0)
        rows = {"episode": np.arange(200), "turn": [0] * 200, "agent": ["a"] * 200, "reward": [0.0] * 200,
                "features": features.tolist(), "action_ids": done[:, None].tolist(), "preference": pays}  # fmt: skip
        stage(Turns(pl.DataFrame(rows).with_columns(pl.col("features").cast(pl.List(pl.Float32)))), told)
    middle = torch.zeros(1, 2)
    with torch.no_grad():
        found = torch.softmax(policy.of("victim", policy.shifted(middle)), -1)
    return float(found[0, 1]), told.metrics


@exact
def the_outer_gradient() -> None:
    """The gradient of each weight through one step of the network is that of finite differences."""
    policy, rng = misled(), np.random.default_rng(1)
    policy.module.double()
    network = policy.module.get_submodule("adversary").requires_grad_(True)
    x = [torch.from_numpy(rng.normal(size=(5, 2))) for _ in range(2)]
    done, worth = torch.tensor([0, 1, 2, 1, 0]), torch.from_numpy(rng.normal(size=5))

    def value(h: torch.Tensor) -> torch.Tensor:
        return outer_loss(policy, network, (x[0], done), (x[1], done, worth), h, 0.5)

    h = torch.ones(5, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(value(h), h, allow_unused=True)
    assert found is not None, "no gradient reaches the weights"
    step = 1e-5 * torch.eye(5, dtype=torch.float64)
    expected = [float((value(h + each) - value(h - each)).detach()) / 2e-5 for each in step]
    assert max(abs(each) for each in expected) > 1e-3
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-7)


@exact
def weights_where_visited_states_mislead() -> None:
    """Nine tenths of what is replayed asks for another shift than the tenth that pays: weights turn it round."""
    even, told = attacked(weights=False)
    assert told["weight_deviation"] == 0.0
    led, told = attacked(weights=True)
    assert told["weight_deviation"] > 0.5, told
    assert even < 0.3, even
    assert led > 0.7, led


def learned(goal: str) -> tuple[dict[str, float], list[float]]:
    """Mean reward of each action, and agreement by iteration, where the episode with more of an action is preferred."""
    rng = np.random.default_rng(0)
    stage = preference_reward("a", f"1.0 * is_in('action', ({goal!r},))", lr=0.05)
    agreed = []
    for iteration in range(4):
        done = rng.choice(["x", "y", "z"], size=(30, 4))
        rows = {
            "episode": np.repeat(np.arange(30), 4), "turn": np.tile(np.arange(4), 30), "agent": ["a"] * 120,
            "observation": ["here"] * 120, "action": done.ravel(), "reward": [0.0] * 120,
        }  # fmt: skip
        told = Context(rng, iteration, None, None, None)  # type: ignore[arg-type]
        found = stage(Turns(rows), told).frame
        agreed.append(told.metrics["agreement"])
    return dict(found.group_by("action").agg(pl.col("preference").mean()).iter_rows()), agreed


@exact
def preferences_become_a_reward() -> None:
    """Whichever action is preferred, a turn with it becomes worth more than any other, from the same start."""
    for goal in ("x", "y", "z"):
        means, agreed = learned(goal)
        assert means[goal] > max(value for action, value in means.items() if action != goal) + 1.0, (goal, means)
        assert agreed[-1] > 0.95


@exact
def trained_against_the_shift() -> None:
    """A victim that learns is scored at shifted observations, and the intention stays; the attack is the reverse."""
    rows = pl.DataFrame({"features": seen().numpy().tolist(), "action_ids": [[0]] * 12})
    hardened, attack = differing(epsilon=0.3, learns="victim"), differing(epsilon=0.3)
    _, p = probabilities(hardened, "victim", hardened.shifted(seen()).numpy().astype(float))
    found = hardened.score(rows).logprobs.detach().numpy()[:, 0]
    np.testing.assert_allclose(found, np.log(p[:, 0]), atol=1e-5)
    for policy, part in ((hardened, "victim"), (attack, "intention")):
        learning = {id(each) for each in policy.parameters()}
        assert learning == {id(each) for each in policy.module.get_submodule(part).parameters()}


@exact
def the_victim_is_taken_as_it_was_trained() -> None:
    """The attack's recipe shifts what the seat sees and asks for preferences; the victim's network does not learn."""
    with TemporaryDirectory() as folder:
        run = Path(folder)
        victim = MLPPolicy(6, 3, hidden=(8,), name="walker", seed=4)
        Team(walker_0=victim).save(run / "seed-3" / "policies")
        made = perturbed_policy(str(run), "walker", [3], epsilon=0.5, seed=3)
        shift = "epsilon=0.5"
        found = derive(recipe(3), run, [3], seat="walker_0", shift=shift, target="is_in('action', ('left',))")
    assert isinstance(made, PerturbedPolicy)
    kept = made.module.get_submodule("victim").state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in victim.module.state_dict().items())
    assert not any(each.requires_grad for each in made.module.get_submodule("victim").parameters())
    part = found.policies[found.team["walker_0"]]
    assert (part.kind, part.options["epsilon"], part.options["policy"]) == ("perturbed", 0.5, "walker")
    assert found.policies[found.team["walker_1"]].kind == "saved"
    assert any("preference_reward" in str(stage) for stage in found.stages)
    assert set(found.evaluation.controls) == {"intact", "noise"}
