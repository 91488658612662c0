"""[25] Punishment, partner selection and reputation (arXiv 2301.08278): the stages of an encounter, a policy for each.

Selection and play are learned, by a table for each stage that all players share; observers who punish are scripted.
Left out: punishment that is learned, which short-sighted learners do not keep up, and the paper's networks and costs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.worlds import Reputation
from palaestra.envs.worlds.reputation import punisher
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact

PLAYERS = 10


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of ten people with observers who punish, `people.yaml`."""
    made = {
        "name": "people",
        "env": {"make": "native/reputation"},
        "policies": {
            "chooser": {"kind": "tabular", "options": {"actions": 3}},
            "player": {"kind": "tabular", "options": {"actions": 2}},
            "observer": {"kind": "script", "options": {"script": "punisher"}},
        },
        "team": {f"{stage}_{k}": policy for stage, policy in
                 (("select", "chooser"), ("play", "player"), ("punish", "observer")) for k in range(PLAYERS)},
        "credit": 'centre("reward", over=("policy", "state"))',
        "learn": {"lr": 0.1},
        "train": {"iterations": 40, "groups": 1, "group_size": 16, "evaluate_every": 40, "checkpoint_every": 40,
                  "save_turns": "last"},
        "evaluation": {"tasks": 10, "trials": 4, "look_tasks": 2, "look_trials": 1},
    }  # fmt: skip
    (folder / "people.yaml").write_text(json.dumps(made))


def encounter(moves: tuple[str, str], punish: dict[str, str], **options: Any) -> tuple[dict[str, float], Reputation]:
    """Rewards by seat of one encounter of players 0 and 1, whom 2 and 3 watch; `punish` by seat, others pass."""
    env = Reputation(players=4, encounters=2, **options)
    env.reset(0)
    env.state.chooser, env.state.partner, env.state.stage = 0, 1, "play"
    env._turn = env.look()
    first = env.step({"play_0": moves[0], "play_1": moves[1]})
    total = {seat: float(reward or 0.0) for seat, reward in first.rewards.items()}
    if env.state.stage == "punish":
        if env.third:
            both = {0: 1, 1: 0} if env.direct else {}
            env.state.watched = both | {2: 0, 3: 1}
            env._turn = env.look()
        last = env.step({seat: punish.get(seat, "pass") for seat in env.look()})
        for seat, reward in last.rewards.items():
            total[seat] = total.get(seat, 0.0) + (reward or 0.0)
    return total, env


@exact
def a_fine_makes_cooperation_dominant() -> None:
    """R, S, T, P = 3, 1, 4, 2: with a sure fine the best response flips exactly above 1."""
    for fine, better in ((0.9, "defect"), (1.1, "cooperate")):
        for other in ("cooperate", "defect"):
            worth = {}
            for own in ("cooperate", "defect"):
                hit = {"punish_2": "punish"} if own == "defect" else {}
                worth[own] = encounter((own, other), hit, fine=fine)[0]["play_0"]
            assert max(worth, key=worth.__getitem__) == better


@exact
def an_observer_pays_so_that_a_player_loses() -> None:
    """An observer of the defector pays .5 and it loses 2; without observers nobody outside has a turn."""
    rewards, _ = encounter(("defect", "cooperate"), {"punish_2": "punish"})
    assert (rewards.get("punish_2"), rewards["play_0"], rewards["play_1"]) == (-0.5, 4 - 2, 1.0)
    for third, seats in ((True, {"punish_2", "punish_3"}), (False, set())):
        env = Reputation(players=4, third=third, selection=False)
        seen = env.reset(0)
        watching = env.step(dict.fromkeys(seen, "defect")).observations
        assert {seat for seat in watching if seat.startswith("punish")} == {
            f"punish_{k}" for k in range(4) if f"play_{k}" not in seen and seats
        }


@exact
def victims_punish() -> None:
    """With direct punishment the partner who was cheated may hit back."""
    rewards, _ = encounter(("defect", "cooperate"), {"punish_1": "punish"}, direct=True, third=False)
    assert (rewards.get("punish_1"), rewards["play_0"], rewards.get("punish_0")) == (-0.5, 2.0, 0.0)


def met(kind: str, **options: Any) -> float:
    """How often a chooser of this kind meets a defector, where half of the others defected last."""
    env = Reputation(encounters=1, **options)
    found = []
    for seed in range(200):
        env.reset(seed)
        env.state.last = [k % 2 for k in range(PLAYERS)]
        found.append(
            env.step({f"select_{env.state.chooser}": kind}).info["met_defector"][f"select_{env.state.chooser}"]
        )
    return float(np.mean(found))


@exact
def partners_are_chosen() -> None:
    """Partner selection: choosers of cooperators never meet a defector; without a preference, half of the time."""
    assert met("cooperator") == 0.0
    assert met("defector") == 1.0
    assert 0.35 < met("anyone") < 0.65
    env = Reputation(players=4)
    for seed in range(60):
        env.reset(seed)
        result = env.step({f"select_{env.state.chooser}": "cooperator"})
        assert env.state.partner != env.state.chooser
        assert result.info["met_defector"] == {f"select_{env.state.chooser}": 0.0}, "nobody has played yet"


@exact
def reputations_are_seen() -> None:
    """The last action of the partner is read before playing, and hidden without the option."""
    for visible, told in ((True, "defected"), (False, "unknown")):
        _, env = encounter(("defect", "cooperate"), {}, visible=visible)
        env.state.last[0] = 0  # an older deed, which the newest covers
        env.state.chooser, env.state.partner, env.state.stage = 0, 1, "play"
        env._turn = env.look()
        env.step({"play_0": "defect", "play_1": "cooperate"})
        env.state.chooser, env.state.partner, env.state.stage = 2, 0, "play"
        assert env.look()["play_2"].text == f"your partner last: {told}"
        env.state.stage = "select"
        counts = "1 cooperated last, 1 defected" if visible else "0 cooperated last, 0 defected"
        assert env.look()["select_2"].text.endswith(counts)


@exact
def each_seat_has_what_it_caused() -> None:
    """Player 0 chose, cheated and was punished by player 1, who paid: every seat has its own part, the others none."""
    rewards, _ = encounter(("defect", "cooperate"), {"punish_1": "punish"}, direct=True, third=False)
    assert rewards == {"play_0": 2.0, "select_0": 2.0, "play_1": 1.0, "punish_0": 0.0, "punish_1": -0.5}


@exact
def unjust_punishment_costs_as_much() -> None:
    """A cooperator can be punished as well; it costs .5, and the fact says whom it hit."""
    rewards, _ = encounter(("cooperate", "cooperate"), {"punish_3": "punish"})
    assert (rewards.get("punish_3"), rewards["play_1"]) == (-0.5, 1.0)
    made = {"play": "cooperate", "select": "anyone", "punish": "punish"}
    script = ScriptedPolicy(lambda request: made[request.agent.split("_")[0]])
    frame = rollout(Reputation, Team(dict.fromkeys(Reputation().agents, script)), groups=1, seed=0).frame
    assert frame["punished"].drop_nulls().to_list() == [1.0] * 40


@exact
def the_script_punishes_defectors_alone() -> None:
    """Scripted observers among people of whom half defect hit defectors alone."""
    made = {f"play_{k}": "defect" if k % 2 else "cooperate" for k in range(PLAYERS)}
    observers = ScriptedPolicy(punisher, name="observers")
    others = ScriptedPolicy(lambda request: made.get(request.agent, "anyone"), name="others")
    team = {seat: observers if seat.startswith("punish") else others for seat in Reputation().agents}
    frame = rollout(Reputation, Team(team), groups=5, seed=0).frame
    assert set(frame["punished"].drop_nulls()) == {0.0, 2.0}
