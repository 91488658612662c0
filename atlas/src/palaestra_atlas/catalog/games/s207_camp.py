"""[207] CAMP (arXiv 2501.02977): vehicles with preferences share a round trip, and learn from symmetric copies.

The world, a small attention network with messages between the vehicles, conflicts by probability, the baseline over
copies and an exact reference. The messages also compare the vehicles' embeddings of the same client, which is a reading
of the abstract. Left out: the paper's sizes of network and instances, and its loss on projected embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import PointerPolicy, Team
from palaestra.agents.policy import Decision, Request
from palaestra.agents.scripted import random_legal
from palaestra.algebra.parse import parse
from palaestra.envs.worlds import ProfiledRouting
from palaestra.envs.worlds.exact.profiled_routing import best_routes, symmetries
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact

CROSS: dict[str, Any] = {
    "xy": [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], "demands": [1] * 4, "profile": [[1, 0, 1, 0], [0, 1, 0, 1]],
}  # fmt: skip
"""Four clients around the depot; each vehicle likes two of them."""
BASELINE = "centre(episode_return(), over='instance', unit='episode')"
CREDIT = f"(1.0 - col('replaced')) * {BASELINE}"
"""Return less its mean over the copies of an instance; nothing where another one's choice was carried out."""
TRAINED = "(1.0 - col('replaced')) * centre(episode_return(), over='group', unit='episode')"
"""The same with fresh instances in training: return less its mean over the plays of an instance."""


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of two vehicles whose policies exchange messages, `vehicles.yaml`."""
    env = {"vehicles": 2, "clients": 4, "capacity": 40.0, "weights": [0.5, 0.5], "copy": None, "sight": "team"}
    made = {
        "name": "vehicles",
        "env": {"make": "native/profiled_routing", "options": env},
        "policies": {"driver": {"kind": "pointer", "options": {"members": 2, "each": 6}}},
        "team": {"*": "driver"},
        "credit": TRAINED,
        "learn": {"lr": 0.003, "epochs": 2, "minibatch": 256, "terms": ["surrogate(clip=0.2)", "entropy(0.01)"]},
        "train": {"iterations": 24, "groups": 32, "group_size": 8, "evaluate_every": 24, "checkpoint_every": 24,
                  "save_turns": "last"},
        "evaluation": {"tasks": 40, "trials": 1, "look_tasks": 2, "look_trials": 1, "measure": "score"},
    }  # fmt: skip
    (folder / "vehicles.yaml").write_text(json.dumps(made))


class Sure:
    """Policy that takes one choice with a stated probability."""

    def __init__(self, choice: int, probability: float, name: str) -> None:
        self.choice, self.logprob, self.name = choice, np.log(probability), name

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """The same for all."""
        return [Decision(self.choice, action_ids=np.array([self.choice], np.int32),
                         logprobs=np.array([self.logprob], np.float32)) for _ in requests]  # fmt: skip


def tour(*steps: tuple[int, int], copy: int = 0, capacity: float = 2.0) -> float:
    """Sum of rewards of the cross when its two vehicles go to these places."""
    env = ProfiledRouting(given=CROSS, capacity=capacity, copy=copy)
    env.reset(0)
    results = [env.step(dict(zip(env.agents, each, strict=True))) for each in steps]
    assert results[-1].terminated
    return sum(sum(float(value or 0.0) for value in result.rewards.values()) for result in results)


@exact
def worked_routes() -> None:
    """Length 2(2 + √2) and preference 4 give -4.6627, the best there is; exchanged vehicles -5.4627."""
    best = best_routes(*(np.array(CROSS[name], float) for name in ("xy", "demands", "profile")), capacity=2.0)  # type: ignore[misc, arg-type]
    assert round(best, 4) == round(-0.8 * 2 * (2 + 2**0.5) + 0.8, 4) == -4.6627
    assert round(tour((1, 2), (3, 4)), 4) == -4.6627
    assert round(tour((2, 1), (4, 3)), 4) == -5.4627


@exact
def copies_are_alike() -> None:
    """Eight different copies of points have the same distances, and the same route is worth the same in each."""
    points = np.random.default_rng(0).random((5, 2))
    copies = symmetries(points)
    assert len({each.round(9).tobytes() for each in copies}) == 8
    assert copies.min() >= 0 and copies.max() <= 1  # noqa: PT018
    apart = np.linalg.norm(copies[:, :, None] - copies[:, None], axis=-1)
    np.testing.assert_allclose(apart, np.broadcast_to(apart[0], apart.shape))
    np.testing.assert_allclose([tour((1, 2), (3, 4), copy=k) for k in range(8)], tour((1, 2), (3, 4)))


@exact
def each_sees_its_own_preferences() -> None:
    """The last column of a vehicle's clients is its own preference; seven features of place and load come before."""
    env = ProfiledRouting(clients=4)
    for number, seen in enumerate(env.reset(5).values()):
        assert seen.array is not None
        clients = seen.array[5:].reshape(4, 5)
        np.testing.assert_allclose(clients[:, 4], env.state.profile[number], atol=1e-6)
        np.testing.assert_allclose(clients[:, :2], env.state.xy[1:], atol=1e-6)


@exact
def vehicles_hear_each_other() -> None:
    """Moving another vehicle changes what one chooses, but not without messages; one that is absent is not heard.

    The others may stand in any order, and what a vehicle is told goes into its gradient.
    """
    env = ProfiledRouting(vehicles=3, clients=3, sight="team")
    array = env.reset(4)["vehicle_0"].array
    assert array is not None
    blocks = array.reshape(3, -1)
    for number, block in enumerate(blocks):
        assert block[:4].tolist() == [1.0, *env.state.xy[0].astype(np.float32).tolist(), 1.0]
        np.testing.assert_allclose(block[4:].reshape(4, 6)[1:, 4], env.state.profile[number], atol=1e-6)
    moved, swapped, absent, other = blocks.copy(), blocks[[0, 2, 1]], blocks.copy(), blocks.copy()
    moved[1, 1:3] = 1 - moved[1, 1:3]
    absent[1] = 0.0
    other[1] = np.append(0.0, moved[1, 1:])
    rows = torch.from_numpy(np.stack([blocks, moved, swapped, absent, other]).reshape(5, -1)).requires_grad_()
    for messages in (True, False):
        scores = PointerPolicy(len(array), 4, members=3, each=6, messages=messages).module(rows)
        gradient = torch.autograd.grad(scores[0].square().sum(), rows)[0][0].reshape(3, -1)
        apart = (scores[1:] - scores[0]).abs().amax(1)
        assert bool(apart[0] > 1e-3) is bool(apart[2] > 1e-3) is bool(gradient[1].abs().max() > 1e-6) is messages
        assert apart[1] < 1e-5
        assert (scores[4] - scores[3]).abs().max() < 1e-5


@exact
def the_likeliest_goes() -> None:
    """Of two who choose client 1 the likelier goes, whoever is first by name, and the other stays."""
    for chances, winner in (((0.3, 0.6), 1), ((0.6, 0.3), 0), ((0.5, 0.5), 0)):
        team = Team({f"vehicle_{k}": Sure(1, chance, f"v{k}") for k, chance in enumerate(chances)})
        rows = rollout(lambda: ProfiledRouting(clients=1), team, groups=1, seed=0).frame.sort("agent")
        assert rows["replaced"].to_list() == [winner != 0, winner != 1]
        assert [each is not None for each in rows["served"]] == [winner == 0, winner == 1]
        assert rows["reward"].to_list()[1 - winner] == 0.0


@exact
def compared_with_copies_of_itself() -> None:
    """Advantages of an instance's episodes sum to 0, and a replaced choice has none."""
    team = Team(dict.fromkeys(("vehicle_0", "vehicle_1"), random_legal()))
    turns = rollout(lambda: ProfiledRouting(clients=4, instances=3, copy=None), team, groups=48, seed=2)
    rows = turns.frame.with_columns(base=parse(BASELINE).evaluate(turns), credit=parse(CREDIT).evaluate(turns))  # type: ignore[arg-type]
    played = rows.unique(["group", "episode"])
    assert played["copy"].n_unique() == 8
    assert set(played["instance"]) == {0, 1, 2}
    assert played.group_by("instance").agg(pl.col("base").sum())["base"].abs().max() < 1e-9  # type: ignore[operator]
    lost = rows["replaced"]
    assert lost.sum() > 10
    assert (rows.filter(lost)["credit"] == 0).all()
    assert (rows.filter(~lost)["credit"] == rows.filter(~lost)["base"]).all()


@exact
def loads_and_doors() -> None:
    """Served clients, too heavy ones and others' zones are illegal, and so is the depot when all are there."""
    given = {"xy": [[0, 0], [1, 0], [0, 1]], "demands": [3, 2], "profile": [[1.0, 1.0], [float("nan"), 1.0]]}
    env = ProfiledRouting(given=given, capacity=4.0)
    legal = {agent: seen.legal for agent, seen in env.reset(0).items()}
    assert legal == {"vehicle_0": ("client 1", "client 2"), "vehicle_1": ("client 2",)}
    result = env.step({"vehicle_0": "client 1", "vehicle_1": "depot"})
    assert result.info["valid"] == {"vehicle_0": True, "vehicle_1": False}
    assert result.observations["vehicle_0"].legal == ("depot",), "one unit is left, client 2 needs two"
    assert result.observations["vehicle_1"].legal == ("depot", "client 2")


@exact
def instances_of_many_sizes() -> None:
    """Instances have 1 to 3 vehicles and 2 to 4 clients; all are played to the end, with arrays of one length."""
    env = ProfiledRouting(vehicles=(1, 3), clients=(2, 4))
    met, lengths = set(), set()
    for seed in range(40):
        seen = env.reset(seed)
        state = env.state
        met.add((len(seen), int(state.open.sum())))
        lengths |= {len(view.array) for view in seen.values() if view.array is not None}
        assert all(len(view.choices or ()) == 5 for view in seen.values())
        assert set(seen) == set(env.agents[: state.vehicles])
        assert not any(f"client {k + 1}" in view.legal for view in seen.values() for k in np.flatnonzero(~state.open))
    assert met == {(vehicles, clients) for vehicles in (1, 2, 3) for clients in (2, 3, 4)}
    assert len(lengths) == 1
    team = Team(dict.fromkeys(env.agents, random_legal()))
    rows = rollout(lambda: ProfiledRouting(vehicles=(1, 3), clients=(2, 4)), team, groups=24, seed=0).frame
    assert rows["error"].null_count() == len(rows)
    served = rows.group_by("group").agg(pl.col("served").drop_nulls().sort())
    for group in served["served"].to_list():
        assert group == list(range(1, len(group) + 1)), "every client of the instance once, and no other"
    assert set(served["served"].list.len()) == {2, 3, 4}


def best_play(env: ProfiledRouting) -> float:
    """The best of everything that can be played from here on."""
    seen, before = env.look(), env.snapshot()
    if not seen:
        return 0.0
    first, second = (view.legal for view in seen.values())
    found = -np.inf
    for pair in [(a, b) for a in first for b in second if (a, b) != ("depot", "depot")]:
        env.restore(before)
        result = env.step(dict(zip(env.agents, pair, strict=True)))
        if not any(result.info["replaced"].values()):
            found = max(found, sum(float(each or 0.0) for each in result.rewards.values()) + best_play(env))
    env.restore(before)
    return found


@exact
def nothing_beats_the_reference() -> None:
    """The best of all play is what `best_routes` says, for three instances with loads that bind."""
    for seed in range(3):
        env = ProfiledRouting(clients=3, capacity=12.0)
        env.reset(seed)
        state = env.state
        best = best_routes(state.xy, state.demands, state.profile, env.capacity)
        assert abs(best_play(env) - best) < 1e-9
