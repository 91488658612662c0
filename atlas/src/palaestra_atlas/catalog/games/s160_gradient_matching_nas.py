"""[160] Few-shot architecture search by gradient matching (GM-NAS), carried over to who shares a policy's parameters.

Candidates are seats instead of operations, and a place is a group of seats with one parameter set instead of an edge.
Left out: architecture search itself, its supernets and its data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra.agents import SplitMLPPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import HiddenRoles
from palaestra.learning.agreement import cosine_distance, first_split, gradient_agreement, split
from palaestra.learning.gradient_sharing import GradientSharing
from palaestra.play.rollout import rollout
from palaestra.runs.inline import TrainingResult
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

SEATS = [f"player_{number}" for number in range(6)]
OPERATIONS = np.array([[1, 0.2, 0], [0.9, 0.3, 0.1], [-0.1, 1, 0.2], [0, 0.9, 0.4]])
"""Gradients of a small and a large convolution, a skip connection and a pooling."""


def plain() -> dict[str, Any]:
    """Six players with two hidden roles; what they share is split once, by their gradients."""
    return {
        "name": "roles",
        "env": {"make": "native/hidden_roles", "options": {"features": 10}},
        "policies": {"players": {"kind": "split_mlp", "options": {"hidden": [32, 32], "sets": 2}}},
        "team": {"*": "players"},
        "credit": 'centre("reward", over=("iteration", "agent"))',
        "learn": {"kind": "gradient_sharing", "lr": 0.01, "options": {"after": 5, "every": 5, "batches": 5}},
        "train": {"iterations": 60, "groups": 4, "group_size": 1, "evaluate_every": 60, "checkpoint_every": 60},
        "evaluation": {"tasks": 20, "trials": 1},
    }


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `roles.yaml`."""
    (folder / "roles.yaml").write_text(json.dumps(plain()))


def played(**options: Any) -> tuple[SplitMLPPolicy, GradientSharing, Turns]:
    """A policy for six seats, a learner of it, and turns with credit."""
    policy = SplitMLPPolicy(10, 4, keys=SEATS, hidden=(8, 8), sets=3, name="players", **options)
    team = Team(dict.fromkeys(SEATS, policy))
    turns = rollout(lambda: HiddenRoles(features=10), team, groups=16, seed=0)
    return policy, GradientSharing(team, lr=0.01), turns.with_column(advantage=turns["reward"] - turns["reward"].mean())


@exact
def worked_distances() -> None:
    """The convolutions are .013 apart, skip and pooling .029, others .67 to .90; the split costs .0421."""
    distance = cosine_distance(OPERATIONS)
    np.testing.assert_allclose([distance[0, 1], distance[2, 3]], [0.0132, 0.0289], atol=5e-4)
    across = distance[:2, 2:]
    assert 0.665 < across.min() < across.max() < 0.905
    found = split(distance)
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert abs(found.cost - 0.0421) < 1e-4


@exact
def lengths_do_not_matter() -> None:
    """Of equal directions with lengths 1 and 10 the distance is 0, so they stay together; of nothing it is 1."""
    long = OPERATIONS * np.array([[1.0], [10.0], [1.0], [10.0]])
    np.testing.assert_allclose(cosine_distance(long), cosine_distance(OPERATIONS), atol=1e-5)
    assert split(cosine_distance(long)).labels.tolist() == [0, 0, 1, 1]
    nothing = cosine_distance(np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert nothing[0, 1] == 1


@exact
def all_partitions_are_tried() -> None:
    """Six members in two groups of three, whatever their order."""
    rng = np.random.default_rng(160)
    for _ in range(8):
        groups = rng.permutation([0, 0, 0, 1, 1, 1])
        distance = 0.2 + 0.6 * (groups[:, None] != groups)
        np.fill_diagonal(distance, 0.0)
        found = split(distance)
        assert found.labels.tolist() == np.abs(groups - groups[0]).tolist()
        assert abs(found.cost - 6 * 0.2) < 1e-12


@exact
def the_cheapest_place_is_split_first() -> None:
    """Of two places the one with the clearer halves comes first, whichever is named first; one of three is left."""
    clear, unclear = cosine_distance(OPERATIONS), np.ones((4, 4)) - np.eye(4)
    for places in ({"a": unclear, "b": clear}, {"b": clear, "a": unclear}):
        found = first_split(places)
        assert found is not None
        assert found[0] == "b"
    assert first_split({"c": np.ones((3, 3))}) is None
    learner = GradientSharing(Team(dict.fromkeys(SEATS, four_roles())), splits=2, least=1)
    learner.cosines["players"] = [1 - by_role()]
    learner._split()
    assert sorted(learner.split_policies["players"].groups().values()) == [SEATS[:3], SEATS[3:]]
    learner.cosines["players"] = [1 - by_role()]
    learner._split()
    assert sorted(learner.split_policies["players"].groups().values()) == [SEATS[:2], SEATS[2:3], SEATS[3:]]


def four_roles() -> SplitMLPPolicy:
    """A network that may have three parameter sets."""
    return SplitMLPPolicy(10, 4, keys=SEATS, hidden=(8,), sets=3, name="players")


def by_role() -> np.ndarray:
    """Distances in which the first half has a stranger, and the second, named later, is all the same but for noise."""
    distance = np.full((6, 6), 1.0)
    distance[:3, :3] = [[0.0, 0.01, 0.3], [0.01, 0.0, 0.3], [0.3, 0.3, 0.0]]
    distance[3:, 3:] = 0.2 - 0.2 * np.eye(3)
    return distance


@exact
def own_layers_take_no_part() -> None:
    """With a head for each seat, distances are of the gradients of the two layers before it, by autograd."""
    policy, learner, turns = played(own=["head"])
    found = gradient_agreement(learner, turns)["players"]
    assert found.names == SEATS
    shared = [*policy.layers.weights[:2], *policy.layers.biases[:2]]
    assert found.values.shape == (6, sum(each[0].numel() for each in shared))
    gradients = []
    for seat in SEATS:
        rows = turns.frame.filter(turns.frame["agent"].cast(str) == seat)
        loss = -(policy.score(rows).logprobs[:, 0] * torch.from_numpy(rows["advantage"].to_numpy().copy())).mean()
        gradients.append(torch.cat([each[0].reshape(-1) for each in torch.autograd.grad(loss, shared)]).numpy())
    np.testing.assert_allclose(found.distance, cosine_distance(np.array(gradients)), atol=1e-3)
    policy.split(SEATS[3:])  # a copy of the weights for some: their gradients are as before
    np.testing.assert_allclose(gradient_agreement(learner, turns)["players"].values, found.values, atol=1e-6)


@exact
def batches_are_averaged() -> None:
    """The halves are those of the mean over batches, also where the last batch alone says otherwise."""
    learner = GradientSharing(Team(dict.fromkeys(SEATS, four_roles())))
    odd = np.arange(6) % 2
    last = (odd[:, None] != odd).astype(float)
    learner.cosines["players"] = [1 - (2 * by_role() - last), 1 - last]
    learner._split()
    assert sorted(learner.split_policies["players"].groups().values()) == [SEATS[:3], SEATS[3:]]


@exact
def training_goes_on_from_shared_weights() -> None:
    """After a split each half acts as before, with the moments of the optimiser; then only one may move."""
    policy, learner, turns = played()
    learner.after = 100
    for _ in range(3):
        learner.update(turns)
    before = policy.score(turns.frame).logprobs.detach().clone()
    learner.cosines["players"] = [1 - by_role()]
    learner._split()
    assert policy.groups() == {0: SEATS[:3], 1: SEATS[3:]}
    torch.testing.assert_close(policy.score(turns.frame).logprobs.detach(), before, atol=1e-6, rtol=0)
    moment = learner.optimisers["players"].state[policy.layers.weights[0]]["exp_avg"]
    assert torch.equal(moment[0], moment[1])
    assert moment[1].abs().sum() > 0
    late = turns.frame["agent"].cast(str).is_in(SEATS[3:])
    learner.update(Turns(turns.frame.filter(late)))
    moved = (policy.score(turns.frame).logprobs.detach() - before).abs()[:, 0].numpy()
    assert moved[late.to_numpy()].max() > 1e-4


NONE = {"policies": {"players": {"options": {"sharing": "none", "sets": 6}}}}
ARMS: dict[str, dict[str, Any]] = {
    "clusters": {},
    "full": {"learn": {"lr": 0.02, "options": {"splits": 0}}},
    "none": NONE | {"learn": {"options": {"splits": 0}}},
}


def measured(result: TrainingResult) -> dict[str, float]:
    """Reward of the last ten iterations, and whether the groups are the roles."""
    policy = result.team.policies["players"]
    assert isinstance(policy, SplitMLPPolicy)
    roles = sorted(policy.groups().values()) == [SEATS[0::2], SEATS[1::2]]
    return {"reward": float(np.mean(result.curve("reward")[-10:])), "roles": float(roles)}


@reproduction(
    160,
    claim="Gradients tell hidden roles apart, and sharing within the groups so found earns most",
    baseline="full sharing and no sharing; each line has the best of the rates .003, .01, .02 and .04 on two seeds",
    criterion="the groups are the roles on every seed; reward above both by more than two standard errors",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def experiment(seeds: Sequence[int]) -> Outcome:
    """Rewards at equal samples."""
    arms = train_arms(plain(), ARMS, seeds, measured)
    gains = {name: arms.gain("clusters", name, "reward") for name in ("full", "none")}
    found = {f"reward_{name}": arms.mean(name, "reward") for name in ARMS} | {"roles": arms.mean("clusters", "roles")}
    found |= {f"gain_over_{name}": gain for name, (gain, _) in gains.items()}
    holds = found["roles"] == 1 and all(gain > 2 * error for gain, error in gains.values())
    return Outcome(found, holds)
