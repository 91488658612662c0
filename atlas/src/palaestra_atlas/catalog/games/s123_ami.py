"""[123] Adversarial minority influence (arXiv 2302.03322): one member of a team leads the others to harmful actions.

A ring on which walkers meet by following each other instead of StarCraft and robots. The oracle of target actions
learns from what the victims did, because a target that nobody took changes nothing. Left out: continuous actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation, StepResult
from palaestra.envs.worlds.rendezvous import Rendezvous
from palaestra.foundation.files import write_json
from palaestra.learning.stages import Context
from palaestra.learning.stages.minority_influence import distance_to_targets, minority_influence
from palaestra.runs import attacks
from palaestra.runs.recipe import Recipe, validate
from palaestra.runs.seed import run_seed
from palaestra_atlas.reproductions import exact


def recipe() -> dict[str, Any]:
    """Four walkers with one table learn to meet."""
    return {
        "name": "meet",
        "env": {"make": "native/rendezvous", "options": {"last": True}},
        "policies": {"walker": {"kind": "tabular"}},
        "team": {"*": "walker"},
        "credit": "standardise(return_to_go(gamma=0.9), over='turn')",
        "learn": {"lr": 0.3, "terms": ["surrogate()", "entropy(0.005)"]},
        "train": {"iterations": 24, "groups": 32, "group_size": 2, "evaluate_every": 100, "checkpoint_every": 100},
        "evaluation": {"tasks": 100, "trials": 2, "look_tasks": 2, "look_trials": 1},
    }


def team(seed: int, folder: Path) -> None:
    """Trains the walkers with this seed, as the run `meet`."""
    made: Recipe = validate(recipe() | {"seeds": [seed]}, trust=True)
    run_seed(made, seed, folder / "meet" / f"seed-{seed}")
    (folder / "meet" / "recipe.yaml").write_text(made.dump())


class Echo:
    """`a` says x or y; in the next turn `b` and `c` say what `a` said before."""

    agents = ("a", "b", "c")
    task = "echo"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Everybody may say x or y."""
        return {agent: Observation("say", choices=("x", "y")) for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        """The end."""
        return StepResult({})


def played(rng: np.random.Generator, episodes: int = 40, turns: int = 4) -> Turns:
    """Play of `Echo`: `a` at random; `b` pays 1 for y; `a` sees `c` in even episodes alone."""
    said = rng.integers(2, size=(episodes, turns))
    rows = []
    for episode in range(episodes):
        for turn in range(turns):
            before = said[episode, turn - 1] if turn else int(rng.integers(2))
            for agent in Echo.agents:
                action = int(said[episode, turn]) if agent == "a" else int(before)
                rows.append(
                    {
                        "group": episode, "episode": 0, "turn": turn, "agent": agent, "policy": agent, "state": 1,
                        "observation": "say", "action": "xy"[action], "action_ids": [action], "logprobs": [-0.7],
                        "reward": float(agent == "b" and action == 0),
                        "sees": ["b", "c"] if episode % 2 == 0 else ["b"],
                    }
                )  # fmt: skip
    return Turns(pl.DataFrame(rows).with_columns(state=pl.col("state").cast(pl.UInt64)))


def small(pay: str = "-reward", sees: str | None = "sees") -> minority_influence:
    """The stage with small networks that learn fast."""
    return minority_influence("a", pay, sees=sees, samples=4000, steps=12, hidden=(16,), lr=0.03)


def asked(stage: minority_influence, iterations: int = 5) -> tuple[Turns, list[dict[str, float]]]:
    """The last table of so many iterations, and the metrics of each."""
    rng, metrics = np.random.default_rng(0), []
    members = Team(a=TabularPolicy(2, name="a"), b=TabularPolicy(2, name="b"), c=TabularPolicy(2, name="c"))
    for iteration in range(iterations):
        told = Context(rng, iteration, Echo, members, None)  # type: ignore[arg-type]
        found = stage(played(rng), told)
        metrics.append(told.metrics)
    return found, metrics


def own(turns: Turns, turn: int, names: tuple[str, ...] = ("b", "c")) -> pl.DataFrame:
    """Rows of `a` in a turn in which it sees these."""
    frame = turns.frame.filter((pl.col("agent").cast(pl.String) == "a") & (pl.col("turn") == turn))
    return frame.filter(pl.col("sees") == list(names))


@exact
def worked_distances() -> None:
    """(.1, .7, .2) is .6 from the second action, and a distribution that is sure of its target 0."""
    expected = np.array([[[0.1, 0.7, 0.2], [0.0, 1.0, 0.0]], [[0.1, 0.7, 0.2], [0.1, 0.7, 0.2]]])
    counted = np.array([[True, True], [False, True]])
    found = distance_to_targets(expected, np.array([[1, 1], [0, 0]]), counted)
    np.testing.assert_allclose(found, [0.6, 1.8], atol=1e-12)


@exact
def the_distance_is_taken_off() -> None:
    """The attacker's reward is minus the others' mean return on its last turn, less .1 for each unit of distance."""
    rows = {"episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["a", "b"] * 2, "reward": [0.0, 1.0, 0.0, 0.5]}
    turns = Turns(rows | {"influence": [0.6, None, 1.0, None]})
    found = parse(attacks.paid("a", ["b"], influence=0.1)).evaluate(turns)
    np.testing.assert_allclose(np.asarray(found, float), [-0.06, 0.0, -1.6, 0.0])


@exact
def the_oracle_finds_what_pays() -> None:
    """Whoever is paid for y learns that b should say y; the pay of x turns the target round."""
    for pay, goal in (("-reward", "y"), ("reward", "x")):
        stage = small(pay)
        turns, metrics = asked(stage)
        assert metrics[-1]["target_probability"] > 0.8
        assert stage._networks is not None
        seen = stage._seen(turns, np.array([0]), np.array([[1, 2]]))
        wanted = stage._networks[1].predict(seen)[0, 0]
        assert wanted[stage.places[goal]] > 0.8, wanted


@exact
def counterfactual() -> None:
    """Whatever `a` did, its row shows the average over its policy: half of the way to any target, L1 = 1 for each."""
    turns, _ = asked(small())
    for action in ("x", "y"):
        found = own(turns, 1).filter(pl.col("action") == action)["influence"].to_numpy()
        assert len(found) > 5
        np.testing.assert_allclose(found, 2.0, atol=0.35)


@exact
def the_others_are_predicted() -> None:
    """Before the first fit the cross-entropy is ln 2, later it is near 0, as what they do follows from the turn."""
    _, metrics = asked(small(sees=None))
    np.testing.assert_allclose(metrics[0]["cross_entropy"], np.log(2), atol=1e-6)
    assert metrics[-1]["cross_entropy"] < 0.1


@exact
def out_of_sight_and_dead() -> None:
    """Of one in sight the distance is about 1, of two 2; in the last turn there is nobody left who could be turned."""
    turns, _ = asked(small())
    np.testing.assert_allclose(own(turns, 1, ("b",))["influence"].to_numpy(), 1.0, atol=0.2)
    np.testing.assert_allclose(own(turns, 1)["influence"].to_numpy(), 2.0, atol=0.35)
    np.testing.assert_allclose(own(turns, 3)["influence"].to_numpy(), 0.0)
    others = turns.frame.filter(pl.col("agent").cast(pl.String) != "a")
    assert others["influence"].is_nan().all() or others["influence"].null_count() == len(others)


@exact
def victims_are_frozen() -> None:
    """The others are stored policies, which have no parameters that learn; the attacker alone is trained."""
    with TemporaryDirectory() as folder:
        run = Path(folder)
        write_json(run / "seed-3" / "policies" / "team.json", {"policies": {"walker": {"folder": "walker"}}})
        found = attacks.derive(validate(recipe(), trust=True), run, [3], seat="walker_0", influence=0.1)
    assert found.policies["walker"].kind == "saved"
    assert found.team["walker_1"] == "walker"
    assert [name for name, part in found.policies.items() if part.kind != "saved"] == ["attacker"]
    assert "minority_influence" in found.stages[0]


@exact
def walkers_on_a_ring() -> None:
    """Two who stand together and one beside them pay ½ in the last turn; distances go round the ring."""
    world = Rendezvous(walkers=3, cells=5, horizon=1, last=True, sight=1)
    world.reset(0)
    world.state.places = {"walker_0": 4, "walker_1": 0, "walker_2": 2}
    assert world.look()["walker_0"].text == "others at +1"
    result = world.step({"walker_0": "right", "walker_1": "stay", "walker_2": "left"})
    assert result.rewards == dict.fromkeys(world.agents, 0.5)
    assert result.info["success"] is True
    assert result.info["sees"]["walker_0"] == ["walker_1"]
