"""[115] MANSA (arXiv 2302.05910): a gate that pays for central control, and so decides who acts and learns in a state.

Tables on six games of two players: two climbing games, where independent learners avoid the best pair, and four in
which nobody needs to know what the other does. Left out: networks, SMAC and level-based foraging.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import Team, fixed
from palaestra.agents.qtable import QTablePolicy
from palaestra.envs.worlds import StageGames
from palaestra.envs.worlds.stage_games import CLIMBING, SEPARABLE
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.teams import switching
from palaestra_atlas.reproductions import Outcome, exact, reproduction

CLIMB = (0, 1)
"""Places of the climbing games."""


def plain() -> dict[str, Any]:
    """The recipe of a gate, a central learner and two independent ones."""

    def table(**options: Any) -> dict[str, Any]:
        return {"kind": "q_table", "options": {"decay": 0.03, "least": 0.02, **options}}

    return {
        "name": "gate",
        "env": {"make": "native/stage_games", "workflow": "switching(0.2)"},
        "policies": {"gate": table(least=0.05), "central": table(start=12.0), "first": table(), "second": table()},
        "team": {"gate": "gate", "central": "central", "player_0": "first", "player_1": "second"},
        "credit": "reward",
        "learn": {"kind": "q_learning", "options": {"rate": 0.1, "gamma": 0.0}},
        "train": {"iterations": 100, "groups": 32, "group_size": 1, "evaluate_every": 100, "checkpoint_every": 100},
        "evaluation": {"tasks": 120, "trials": 2, "look_tasks": 2, "look_trials": 1},
    }


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `gate.yaml`; which game has which name depends on the seed."""
    made = plain()
    made["env"]["options"] = {"labels": seed}
    (folder / "gate.yaml").write_text(json.dumps(made))


def begun(mode: str, **options: Any) -> tuple[Any, Any, Any]:
    """The env, what the gate sees, and the result of its choice."""
    env = switching(lambda: StageGames(rounds=4), 0.2, **options)()
    seen = env.reset(1)
    return env, seen, env.step({"gate": mode})


@exact
def pay_offs() -> None:
    """The best pairs of all six games are worth 7.67 on average; where independent learners end, 5.67."""
    assert (np.array(CLIMBING).max(), np.array(SEPARABLE).max()) == (11.0, 6.0)
    assert round((2 * 11 + 4 * 6) / 6, 2) == 7.67
    env, _, _ = begun("central")
    assert env.inner.games.max((1, 2)).mean().round(2) == 7.67
    others = np.array(CLIMBING) / 3
    assert others.sum(1).argmax() == others.sum(0).argmax() == 2, "against a uniform partner the third move is best"
    separable = np.array(SEPARABLE)
    assert (separable.argmax(0) == 0).all()
    assert (separable.argmax(1) == 0).all()
    for labels, names in ((0, [3, 2, 5, 4, 0, 1]), (1, [4, 0, 2, 1, 5, 3])):
        assert StageGames(labels=labels).names == names, "a game has another name for another seed"


@exact
def who_acts_is_paid() -> None:
    """In a central step one seat chooses for both and nobody else is paid; else the players are, and not the seat."""
    env, _, central = begun("central")
    assert tuple(central.observations) == ("central",)
    assert central.observations["central"].choices[5] == "move 1 & move 2"
    game = env.inner.state.game
    result = env.step({"central": "move 1 & move 2"})
    paid = env.inner.games[game][1, 2]
    assert result.rewards == {"central": paid, "gate": paid - 0.2}
    assert (result.info["mode"], result.info["calls"], result.info["total"]) == ("central", 1, paid)
    env, _, alone = begun("independent")
    assert tuple(alone.observations) == ("player_0", "player_1")
    result = env.step({"player_0": "move 0", "player_1": "move 2"})
    paid = env.inner.games[game][0, 2]
    assert result.rewards == {"player_0": paid, "player_1": paid, "gate": paid}
    assert (result.info["mode"], result.info["calls"]) == ("independent", 0)


@exact
def the_gate_sees_the_state() -> None:
    """The gate is told the game that both players see, so that it can learn for each."""
    env, seen, _ = begun("central")
    assert tuple(seen) == ("gate",)
    name = f"game {env.inner.names[env.inner.state.game]}"
    assert seen["gate"].text == f"player_0 sees: {name}\nplayer_1 sees: {name}"
    assert seen["gate"].legal == ("independent", "central")


@exact
def a_budget_is_kept() -> None:
    """A gate that always wants central control gets it twice with a budget of two, in the first two of four rounds."""
    team = Team(gate=fixed("central", name="gate"), central=fixed("move 0 & move 0", name="central"),
                player_0=fixed("move 2", name="first"), player_1=fixed("move 2", name="second"))  # fmt: skip
    rows = rollout(switching(lambda: StageGames(rounds=4), budget=2), team, groups=5, seed=0).frame
    calls = rows.group_by("group", "episode").agg(pl.col("calls").max())
    assert calls["calls"].to_list() == [2] * 5
    asked = rows.filter(pl.col("agent") == "gate").sort("group", "turn")
    assert asked["valid"].to_list() == [True, True, False, False] * 5
    assert asked["observation"][2].endswith("calls left: 0")


@exact
def the_gate_learns_at_once() -> None:
    """After three iterations gate, central and independent tables have all moved, each by its own exploration."""
    done = learn(plain() | {"train": {"iterations": 3, "groups": 32, "group_size": 1}}, seed=0)
    for name in ("gate", "central", "first", "second"):
        policy = done.team.policies[name]
        assert isinstance(policy, QTablePolicy)
        assert np.abs(policy.module.get_parameter("logits").numpy()).max() > 0.3, name
        assert policy.epsilon == np.exp(-0.03 * 3)


@reproduction(
    115,
    claim="A gate that is charged for central control buys it where independent learners fail, and hardly elsewhere.",
    baseline="the same training with independent learners only, and with central control everywhere",
    criterion="pay-off of the gated team at least 1 above independent learners', central steps at most half, and a "
    "share of central steps in climbing games at least .4 above that in the others",
    seeds=(0,),
    slow=True,
)
def gated(seeds: Sequence[int]) -> Outcome:
    """Pay-off of each arm, and where the gate calls."""
    arms: dict[str, list[float]] = {"gated": [], "independent": [], "central": [], "calls": [], "climb": [], "rest": []}
    for seed in seeds:
        for arm, only in (("gated", None), ("independent", "independent"), ("central", "central")):
            env = {"workflow": f"switching(0.2, only={only!r})", "options": {"labels": seed}}
            rows = learn(plain(), {"env": env}, seed=seed).play(groups=240, seed=seed).frame
            acted = rows.filter(pl.col("mode").is_not_null()).unique(["group", "episode"])
            arms[arm].append(float(acted["payoff"].mean()))  # type: ignore[arg-type]
            if only is None:
                called, climbs = (acted["mode"] == "central").to_numpy(), acted["game"].is_in(CLIMB).to_numpy()
                for name, where in (("calls", climbs | True), ("climb", climbs), ("rest", ~climbs)):
                    arms[name].append(float(called[where].mean()))
    mean = {name: float(np.mean(values)) for name, values in arms.items()}
    holds = mean["gated"] >= mean["independent"] + 1 and mean["calls"] <= 0.5 and mean["climb"] >= mean["rest"] + 0.4
    return Outcome(mean, holds)
