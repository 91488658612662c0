"""[33] Cultural evolution of cooperation (arXiv 2412.10270): a donor game over generations that inherit strategies.

Strategies are linear rules: a donation, and by how much it follows what the recipient gave. They begin as conditional
cooperators. Left out: language models, whose strategies are text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra.agents import OrderedPolicy, ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import DonorGame
from palaestra.learning.generations import Generations, select
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms


def plain() -> dict[str, Any]:
    """The recipe of ten generations of twelve donors."""
    seats = {f"player_{number}": f"donor_{number}" for number in range(12)}
    rule = {"start": [1.0, 0.0, 0.0, 0.5], "spread": [0.5, 0.1, 0.1, 0.3]}
    return {
        "name": "donors",
        "env": {"make": "native/donor_game"},
        "policies": {name: {"kind": "ordered", "options": rule} for name in seats.values()},
        "team": seats,
        "credit": "agent_return()",
        "learn": {"kind": "generations"},
        "train": {"iterations": 10, "groups": 8, "group_size": 1, "evaluate_every": 10, "checkpoint_every": 10,
                  "save_turns": "all"},
        "evaluation": {"tasks": 8, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `donors.yaml`."""
    (folder / "donors.yaml").write_text(json.dumps(plain()))


def donors(multiplier: float, share: float, episodes: int = 40) -> float:
    """Mean resources in the end."""
    script = ScriptedPolicy(lambda request: f"give {share:g}")
    team = Team(dict.fromkeys(DonorGame().agents, script))
    turns = rollout(
        lambda: DonorGame(multiplier=multiplier, shares=(0.0, 0.25, 0.5, 1.0)), team, groups=episodes, seed=0
    )
    return float(turns.frame["reward"].sum() / episodes / len(team))


@exact
def resources_of_a_constant_share() -> None:
    """After 12 rounds 10 · (1 + f/2)^12: 10, 41.10 and 145.52 for f = 0, .25 and .5, within chance."""
    assert donors(2.0, 0.0, 5) == 10.0
    for share, expected in ((0.25, 41.10), (0.5, 145.52)):
        assert abs(10 * (1 + share / 2) ** 12 - expected) < 0.01
        assert abs(donors(2.0, share) / expected - 1) < 0.12


def after(moves: list[dict[int, str]], pairs: list[list[tuple[int, int]]], **options: object) -> DonorGame:
    """A game of four with pairs of ours, up to its next decision."""
    env = DonorGame(players=4, rounds=9, **options)  # type: ignore[arg-type]
    env.reset(0)
    for pair, move in zip(pairs, [*moves, {}], strict=True):
        env.state.pairs = pair
        env._turn = env.look()
        if move:
            env.step({env.agents[donor]: move[donor] for donor, _ in pair})
    return env


ROUNDS = [[(0, 1), (2, 3)], [(1, 0), (3, 2)], [(3, 1), (0, 2)], [(2, 3), (1, 0)]]
"""In the last round player 2 meets 3, who had given to 1, who had given to 0."""


@exact
def wallets_before_the_round() -> None:
    """Gifts are shares of what donors had before the round, and arrive doubled."""
    env = after([{0: "give 0.5", 2: "give 1"}, {1: "give 0.5", 3: "give 0"}], ROUNDS[:3])
    np.testing.assert_allclose(env.state.wallets, [5 + 20, 20 - 10, 0, 30])


@exact
def what_donors_see() -> None:
    """Depth 0 shows nothing, depth 1 the recipient's gift, depth 3 also what the partners had done before."""
    moves = [{0: "give 0.9", 2: "give 1"}, {1: "give 0.2", 3: "give 0"}, {3: "give 0", 0: "give 1"}]
    for depth, shown in ((0, [0, 0, 0]), (1, [-0.5, 0, 0]), (2, [-0.5, -0.3, 0]), (3, [-0.5, -0.3, 0.4])):
        seen = after(moves, ROUNDS, trace=depth).look()["player_2"]
        np.testing.assert_allclose(seen.array, shown, atol=1e-6)  # type: ignore[arg-type]
        assert seen.text.count("gave") == depth
    told = after(moves, ROUNDS, trace=3).look()["player_2"].text
    assert "round 3: player_3 gave 0 to player_1 | round 2: player_1 gave 0.2 to player_0" in told


@exact
def justified_refusal() -> None:
    """With depth 2 a donor can tell who refused a greedy partner from who refused a generous one; with 1 it cannot."""
    for depth, differ in ((1, False), (2, True)):
        seen = []
        for partner in ("give 0", "give 1"):
            moves = [{0: "give 1", 2: "give 1"}, {1: partner, 3: "give 1"}, {3: "give 0", 0: "give 1"}]
            seen.append(after(moves, ROUNDS, trace=depth).look()["player_2"].array)
        assert bool(np.any(seen[0] != seen[1])) == differ


@exact
def punishment() -> None:
    """A donor who pays a tenth of 10 makes a recipient lose 2; without the option the move is illegal and gives 0."""
    free = after([{0: "punish", 2: "give 0"}], ROUNDS[:2], punish=(0.1, 2.0))
    np.testing.assert_allclose(free.state.wallets, [9, 8, 10, 10])
    plain = after([{0: "punish", 2: "give 0"}], ROUNDS[:2])
    np.testing.assert_allclose(plain.state.wallets, 10)


def population(fitness: list[float], **options: object) -> tuple[list[OrderedPolicy], Generations, Turns]:
    """Members that give .1, .2, …, their learner, and a table with this credit."""
    members = [
        OrderedPolicy(3, 11, start=[0, 0, 0, (number + 1) / 10], name=f"m{number}") for number in range(len(fitness))
    ]
    team = Team({f"player_{number}": member for number, member in enumerate(members)})
    table = Turns({"policy": [member.name for member in members] * 2, "advantage": fitness * 2})
    return members, Generations(team, **options), table  # type: ignore[arg-type]


def constants(members: list[OrderedPolicy]) -> np.ndarray:
    """Share that each donor gives."""
    return np.array([float(member.state_dict()["0.bias"][0]) for member in members])


@exact
def the_richer_half_survives() -> None:
    """Of fitness 1, 9, 5, 7 the second and fourth stay as they are; of equal ones the first."""
    assert select([1.0, 9.0, 5.0, 7.0]).tolist() == [False, True, False, True]
    assert select([3.0, 3.0, 3.0, 3.0]).tolist() == [True, True, False, False]
    members, learner, table = population([1.0, 9.0, 5.0, 7.0])
    before = constants(members)
    told = learner.update(table, rng=np.random.default_rng(0))
    assert (constants(members)[[1, 3]] == before[[1, 3]]).all()
    assert [told[member.name]["survived"] for member in members] == [0, 1, 0, 1]


@exact
def heirs_are_like_their_parents() -> None:
    """Forty members: what heirs give correlates with what their parents give, and differs from it by about .1."""
    members, learner, table = population([float(number) for number in range(40)])
    before = constants(members)
    told = learner.update(table, rng=np.random.default_rng(0))
    parents = np.array([told[member.name]["parent"] for member in members[:20]], int)
    heirs = constants(members)[:20]
    assert (parents >= 20).all()
    assert np.corrcoef(heirs, before[parents])[0, 1] > 0.9
    assert 0.05 < (heirs - before[parents]).std() < 0.15


@exact
def a_rule_follows_what_it_sees() -> None:
    """B = .5 and w = 1: who gave .8 is given .8, who gave nothing nothing, an unknown one half."""
    rule = OrderedPolicy(3, 11, start=[1.0, 0.0, 0.0, 0.5])
    env = after([{0: "give 0.8", 2: "give 0"}, {1: "give 0", 3: "give 0"}], [*ROUNDS[:2], [(2, 0), (3, 2)]], trace=1)
    seen = env.look()
    requests = [Request(seen[name], name, np.random.default_rng(0)) for name in ("player_2", "player_3")]
    assert [decision.action for decision in rule.act(requests)] == [8, 0]
    blank = DonorGame(players=2)
    first = blank.reset(0)
    assert rule.act([Request(*each[::-1], np.random.default_rng(0)) for each in first.items()])[0].action == 5
    assert torch.isfinite(rule.logits(list(first.values()))).all()


@reproduction(
    33,
    claim="Selection destroys cooperation where deeds are hidden, and far less where they are seen.",
    baseline="the same generations with traces hidden, and both where who survives does not depend on resources",
    criterion="resources of generation 10 with traces are at least twice those without, and the ratio is larger than "
    "under arbitrary survival",
    seeds=(40, 41),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Mean resources of the last generation; with equal credit the first half of the seats survives."""
    hidden, arbitrary = {"env": {"options": {"trace": 0}}}, {"credit": "0.0 * agent_return()"}
    arms = {"seen": {}, "hidden": hidden, "arbitrary_seen": arbitrary, "arbitrary_hidden": hidden | arbitrary}
    found = train_arms(
        plain(),
        arms,  # type: ignore[arg-type]
        seeds,
        lambda result: {"resources": result.curve("reward")[-1]},
    )
    seen, unseen, either, neither = (found.mean(arm, "resources") for arm in arms)
    measured = {"seen": seen, "hidden": unseen, "ratio": seen / unseen, "ratio_arbitrary": either / neither}
    return Outcome(measured, seen >= 2 * unseen and seen / unseen > either / neither)
