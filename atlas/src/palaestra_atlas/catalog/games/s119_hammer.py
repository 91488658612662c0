"""[119] HAMMER (arXiv 2102.00824): a central agent that learns what to tell each local agent.

Three walkers on a grid, each of whom sees another one's landmark, in place of cooperative navigation; two bits for each
walker and step. Central and local policies learn by PPO at the same time. Left out: messages of real numbers, which the
recipient's gradient goes through.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.messages import messages
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.registry import ENVS
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.teams import coordinator
from palaestra_atlas.reproductions import Outcome, exact, reproduction

WALKERS = tuple(f"walker_{k}" for k in range(3))
SEATS = tuple(f"coordinator-{each}" for each in WALKERS)


def plain() -> dict[str, Any]:
    """The recipe of three walkers and the seats that send them messages."""
    return {
        "name": "landmarks",
        "env": {"make": "native/landmarks", "options": {"side": 3, "horizon": 4},
                "workflow": "coordinator(messages=4)"},
        "policies": {
            "walker": {"kind": "mlp", "options": {"hidden": [32]}},
            "coordinator": {"kind": "mlp", "options": {"hidden": [64, 64]}},
        },
        "team": dict.fromkeys(WALKERS, "walker") | {"*": "coordinator"},
        "credit": "standardise(return_to_go(gamma=0.0), over=('policy',))",
        "learn": {"lr": 0.01, "epochs": 4, "minibatch": 1200, "terms": ["surrogate(clip=0.2)", "entropy(0.01)"]},
        "train": {"iterations": 50, "groups": 48, "group_size": 1, "evaluate_every": 50, "checkpoint_every": 50},
        "evaluation": {"tasks": 100, "trials": 1, "look_tasks": 4, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `landmarks.yaml`."""
    (folder / "landmarks.yaml").write_text(json.dumps(plain()))


def world(**options: Any) -> EnvFactory:
    """The walkers without a coordinator."""
    return lambda: ENVS.find("native/landmarks")(**options)  # type: ignore[no-any-return]


def begun(told: tuple[int, int, int] = (0, 1, 2), seed: int = 3) -> tuple[Any, Any, Any]:
    """The env, what its seats saw, and what the walkers see after these messages."""
    env = coordinator(world())()
    central = env.reset(seed)
    local = env.step({seat: f"message {number}" for seat, number in zip(SEATS, told, strict=True)}).observations
    return env, central, local


@exact
def all_is_read() -> None:
    """Each central seat sees all three observations, the recipient's first, and who the recipient is."""
    _, central, _ = begun()
    own = world()().reset(3)
    assert tuple(central) == SEATS
    for k, seat in enumerate(SEATS):
        assert all(f"{name} sees: {seen.text}" in central[seat].text for name, seen in own.items())
        parts = [own[WALKERS[(k + step) % 3]].array for step in range(3)]
        np.testing.assert_array_equal(central[seat].array, np.concatenate([*parts, np.eye(3)[k]]).astype(np.float32))


@exact
def each_has_its_own_message() -> None:
    """A walker sees its own observation and its own message, and nothing of the others'; the message has two bits."""
    for told in ((0, 1, 2), (3, 0, 3)):
        env, _, local = begun(told)
        own = world()().reset(3)
        assert env.choices == tuple(f"message {k}" for k in range(4))
        for k, walker in enumerate(WALKERS):
            expected = np.concatenate([own[walker].array, np.eye(4)[told[k]]]).astype(np.float32)
            np.testing.assert_array_equal(local[walker].array, expected)
            assert local[walker].text == f"{own[walker].text}\nthe coordinator says: message {told[k]}"


@exact
def walkers_choose_and_the_team_pays() -> None:
    """Whatever was said, the world is the one without messages; the seats are paid the mean of the walkers."""
    for told in ((0, 1, 2), (3, 3, 3)):
        env, _, local = begun(told)
        assert all(each.choices == ("up", "down", "left", "right") for each in local.values())
        alone = world()()
        alone.reset(3)
        moves = dict(zip(WALKERS, ("up", "left", "down"), strict=True))
        plainly, result = alone.step(moves), env.step(moves)
        shared = sum(plainly.rewards.values()) / 3  # type: ignore[arg-type]
        assert shared != 0
        assert result.rewards == plainly.rewards | dict.fromkeys(SEATS, shared)  # type: ignore[operator]
        assert result.info["told"] == dict(zip(WALKERS, told, strict=True))
        assert result.observations.keys() == set(SEATS)


@exact
def a_noisy_channel() -> None:
    """With noise 1 a message arrives as itself in a quarter of all cases, with noise 0 always; each is recorded."""
    everybody = dict.fromkeys(SEATS, ScriptedPolicy(lambda request: "message 2"))
    team = Team(everybody | dict.fromkeys(WALKERS, random_legal(name="walker")))
    for noise, kept in ((0.0, 1.0), (1.0, 0.25)):
        turns = rollout(coordinator(world(horizon=12), noise=noise), team, groups=30, seed=1)
        told = turns.frame["told"].drop_nulls().to_numpy()
        assert len(told) > 300
        assert abs((told == 2).mean() - kept) < 0.05
        sent = messages(turns)
        assert len(sent) == len(told)
        assert set(sent["sender"]) == set(SEATS)
        assert (sent["receiver_turn"] - sent["sender_turn"] == 1).all()


def found(team: Team, setup: Any, seed: int) -> float:
    """Share of walkers that reach their landmark in held-out episodes."""
    turns = rollout(setup.test, team, groups=100, seed=seed)
    return float(turns.frame["success"].drop_nulls().cast(float).mean())  # type: ignore[arg-type]


@reproduction(
    119,
    claim="What a central agent learns to say lets walkers find landmarks that they do not see themselves.",
    baseline="the same training with messages drawn at random; the trained team told at random; own landmarks seen",
    criterion="learned messages close at least .3 of the gap between random messages and full observability, and half "
    "of that gain is lost when the trained team is told at random",
    seeds=(0,),
    slow=True,
)
def learned_messages(seeds: Sequence[int]) -> Outcome:
    """Success of each after 30 iterations, and how much of the gap is closed."""
    short = plain() | {"train": plain()["train"] | {"iterations": 30}}
    mute = {"policies": {"coordinator": {"kind": "random", "options": {}}}}
    sighted = mute | {"env": {"workflow": None, "options": {"shows": "own"}}}
    rows = []
    for seed in seeds:
        trained, noise = learn(short, seed=seed), learn(short, mute, seed=seed)
        full = learn(short | {"team": {"*": "walker"}}, sighted, seed=seed)
        deaf = Team({**{walker: trained.team.for_agent(walker) for walker in WALKERS},
                     **dict.fromkeys(SEATS, random_legal(name="noise"))})  # fmt: skip
        arms = ((trained.team, trained), (noise.team, noise), (full.team, full), (deaf, trained))
        rows.append([found(team, result.setup, seed) for team, result in arms])
    told, random, best, lost = np.mean(rows, axis=0).tolist()
    closed = (told - random) / max(best - random, 1e-9)
    measured = {"learned": told, "random": random, "full": best, "told_at_random": lost, "closed": closed}
    return Outcome(measured, closed >= 0.3 and told - lost >= 0.5 * (told - random))
