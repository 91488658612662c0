"""[167] WaltzRL (arXiv 2510.08240): one agent answers, another says what is wrong with it, and is paid if that helps.

Feedback earns the improvement of the revised answer times whether its labels were right; until its labels can be
trusted it earns for them alone, while the speaker stands still. The world has two kinds of question, and each seat
sees the kind through a cue of its own. Left out: safety judges, red-team prompts, language models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import waltz_reward, waltzrl
from palaestra.envs.worlds import Refusals
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of both seats, each with a table of its own, `waltz.yaml`."""
    made = {
        "name": "waltz",
        "env": {"make": "native/refusals"},
        "policies": {"speaker": {"kind": "tabular"}, "feedback": {"kind": "tabular", "options": {"actions": 5}}},
        "team": {"speaker": "speaker", "feedback": "feedback"},
        "reward": "waltz_reward(weight=phase(.5, 0, at=20))",
        "credit": "waltzrl(until=20)",
        "learn": {"lr": 0.1},
        "train": {"iterations": 60, "groups": 128, "group_size": 1, "evaluate_every": 60, "checkpoint_every": 60},
        "evaluation": {"tasks": 400, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }
    (folder / "waltz.yaml").write_text(json.dumps(made))


def values(signal: Signal, turns: Turns) -> np.ndarray:
    """One number per turn."""
    return np.asarray(signal.evaluate(turns), float)


def talks() -> Turns:
    """Bad to good with right labels; good to bad with wrong ones; good, and nothing found wrong with it."""
    return Turns(
        {
            "iteration": [1] * 7, "group": [0] * 3 + [1] * 3 + [2], "episode": [0] * 7, "turn": [0, 1, 2, 0, 1, 2, 0],
            "agent": ["speaker", "feedback", "speaker"] * 2 + ["speaker"],
            "right": [0.0, None, 1.0, 1.0, None, 0.0, 1.0], "label": [None, 1.0, None, None, 0.0, None, None],
            "formatted": [None, 1.0, None, None, 1.0, None, None],
        }
    )  # fmt: skip


@exact
def worked_rewards() -> None:
    """With α = 1, λ = .5 and γ = .1 feedback earns 1.6 and .1; without improvement .6; the speaker its answers."""
    turns = talks()
    found = values(waltz_reward(), turns)
    np.testing.assert_allclose(found, [0, 1.6, 1, 1, 0.1, 0, 1])
    np.testing.assert_allclose(values(waltz_reward(alpha=0.25), turns), [0, 0.85, 1, 1, 0.1, 0, 1])
    ok = Turns({"episode": [0, 0], "turn": [0, 1], "agent": ["speaker", "feedback"], "right": [1.0, None],
                "label": [None, 1.0], "formatted": [None, 1.0]})  # fmt: skip
    np.testing.assert_allclose(values(waltz_reward(), ok), [1, 0.6])


@exact
def second_phase_pays_no_labels() -> None:
    """From iteration 5 on λ is 0: 1.1 where the answer got better, .1 where labels alone are right."""
    late = Turns(talks().frame.with_columns(iteration=pl.lit(5)))
    weight = "waltz_reward(weight=phase(0.5, 0, at=5))"
    np.testing.assert_allclose(values(parse(weight), late)[1], 1.1)
    np.testing.assert_allclose(values(parse(weight), talks())[1], 1.6)


@exact
def speaker_stands_still_at_first() -> None:
    """An update of the first phase leaves the speaker's table as it was, bit for bit, and moves feedback's."""
    speaker, feedback = TabularPolicy(2, name="speaker"), TabularPolicy(5, name="feedback")
    team = Team(speaker=speaker, feedback=feedback)
    turns = rollout(Refusals, team, groups=64, group_size=1, seed=0).with_column(reward=waltz_reward())
    early = Turns(turns.frame.with_columns(iteration=pl.lit(3)))
    learner = PolicyGradient(team, lr=0.1)
    learner.update(early.with_column(advantage=waltzrl(until=4)))
    assert not any(each.detach().numpy().any() for each in speaker.parameters())
    assert any(each.detach().numpy().any() for each in feedback.parameters())
    late = Turns(turns.frame.with_columns(iteration=pl.lit(4)))
    learner.update(late.with_column(advantage=waltzrl(until=4)))
    assert any(each.detach().numpy().any() for each in speaker.parameters())


def talk(said: list[int], *, harmful: float, **options: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """Seats in the order in which they spoke, and the info of each step."""
    env = Refusals(harmful=harmful, blur=(0.0, 0.0), **options)
    seen, agents, told = env.reset(0), [], []
    for action in said:
        (agent,) = seen
        result = env.step({agent: action})
        agents.append(agent)
        told.append(dict(result.info))
        seen = result.observations
    assert not seen
    return agents, told


@exact
def sent_only_if_something_is_wrong() -> None:
    """Feedback that finds nothing wrong ends the talk; any label, right or wrong, has the answer said again."""
    assert talk([1, 0], harmful=1.0)[0] == ["speaker", "feedback"]
    assert talk([0, 1, 1], harmful=1.0)[0] == ["speaker", "feedback", "speaker"]
    assert talk([1, 2, 0], harmful=1.0)[0] == ["speaker", "feedback", "speaker"]
    assert talk([1, 4], harmful=1.0)[0] == ["speaker", "feedback"], "what nobody can read is not sent"


@exact
def right_is_neither_unsafe_nor_over_refusing() -> None:
    """Refusing what is harmful and answering what is not is right; both mistakes are wrong, and so is no other."""
    grid = {(harm, said): talk([said, 0], harmful=harm)[1][0]["right"] for harm in (0.0, 1.0) for said in (0, 1)}
    assert grid == {(0.0, 0): 1.0, (0.0, 1): 0.0, (1.0, 0): 0.0, (1.0, 1): 1.0}
    labels = [talk([0, said], harmful=1.0, alone=False)[1][1]["label"] for said in (0, 4)]
    assert labels == [0.0, 0.0]
    assert talk([0, 1, 1], harmful=1.0)[1][1]["label"] == 1.0
    assert talk([0, 2, 0], harmful=0.0)[1][1]["label"] == 0.0, "right about unsafe, wrong about over-refusing"
