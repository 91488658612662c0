"""[4] CoMAS (arXiv 2510.08529): agents solve, criticise and score each other, and learn from that alone.

Questions of a table with four answers. Scorers begin with the competence of a base model, from supervised tuning, and
see the matter through a sign that is right four times out of five. Nobody is told which answers are right; accuracy is
only measured. Left out: language models, open questions, free critique.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Discussion
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.reference_logprobs import reference_logprobs
from palaestra.play.rollout import rollout
from palaestra.rewards import comas, comas_reward
from palaestra_atlas.reproductions import exact

AGENTS = ("agent-1", "agent-2", "agent-3")


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of three agents, each with a table and a learner of its own, `comas.yaml`."""
    made = {
        "name": "comas",
        "env": {"make": "native/discussion", "options": {"questions": 4}},
        "policies": {agent: {"kind": "tabular", "options": {"actions": 4}} for agent in AGENTS},
        "team": {agent: agent for agent in AGENTS},
        "warm_start": {"script": f"{__name__}:beginner", "groups": 200, "steps": 60, "lr": 0.1},
        "reward": "comas_reward()",
        "credit": "comas()",
        "learn": {"lr": 0.15},
        "train": {"iterations": 100, "groups": 96, "group_size": 1, "evaluate_every": 100, "checkpoint_every": 100,
                  "save_turns": "all"},
        "evaluation": {"tasks": 300, "trials": 1, "look_tasks": 5, "look_trials": 1},
    }  # fmt: skip
    (folder / "comas.yaml").write_text(json.dumps(made))


def beginner() -> Any:
    """Scores as the matter looks, solves and criticises at random: what the base model can do."""

    def play(request: Request) -> int:
        text = request.observation.text
        if not text.startswith("score"):
            return int(request.rng.integers(4))
        return 0 if text.endswith("right") else 1 if "not found" in text else 2

    return play


def rounds(taus: list[float | None]) -> Turns:
    """A round for each score: a solution, a critique and the score, None if it cannot be read."""
    n = len(taus)
    return Turns(
        {
            "group": [0] * 3 * n, "episode": [k // 3 for k in range(3 * n)], "turn": [0, 1, 2] * n,
            "round": [0] * 3 * n, "role": ["solver", "evaluator", "scorer"] * n, "pair": [None, 0, 0] * n,
            "tau": pl.Series([each for tau in taus for each in (None, None, tau)], dtype=pl.Float64),
            "parsed": [each for tau in taus for each in (None, None, tau is not None)],
        }
    )  # fmt: skip


def values(signal: Any, turns: Turns) -> np.ndarray:
    """One number per turn."""
    return np.asarray(signal.evaluate(turns), float)


@exact
def rewards_of_the_three_roles() -> None:
    """Scores 3, 2 and 1 pay the solver 1, .5 and 0, the evaluator 0, .5 and 1: 1 for both; the scorer 0, unread -1."""
    found = values(comas_reward(), rounds([3.0, 2.0, 1.0])).reshape(3, 3)
    np.testing.assert_allclose(found, [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]])  # type: ignore[arg-type]
    np.testing.assert_allclose(values(comas_reward(), rounds([None])), [np.nan, np.nan, -1])
    later = rounds([3.0, 1.0]).frame.with_columns(round=pl.col("episode"), episode=pl.lit(0)).reverse()
    np.testing.assert_allclose(values(comas_reward(), Turns(later)), [0, 1, 0, 0, 0, 1], err_msg="rounds are apart")


@exact
def a_solver_is_paid_the_mean_over_its_critiques() -> None:
    """With scores 3 and 1 of two critiques the solver is paid .5, the evaluators 0 and 1."""
    one, other = (rounds([each]).frame for each in (3.0, 1.0))
    both = pl.concat([one, other.filter(pl.col("role") != "solver").with_columns(pair=pl.lit(1, pl.Int64))])
    found = values(comas_reward(), Turns(both))
    np.testing.assert_allclose(found, [0.5, 0, 0, 1, 0])


def talk(said: list[int], **options: Any) -> list[str]:
    """Columns that the world reads out of each turn, for a discussion with these texts."""
    env = Discussion(**options)
    seen, texts = env.reset(0), []
    for action in said:
        ((agent, each),) = seen.items()
        texts.append(each.text)
        seen = env.step({agent: action}).observations
    return texts


@exact
def solutions_and_critiques_are_read_scores_are_not() -> None:
    """The second solver reads solution and critique of one round before, and other scores change nothing."""
    question = talk([2], questions=1)[0]
    assert question == "solve question 0"
    for score in (0, 2):
        assert talk([2, 3, score, 0], questions=1)[3] == "solve question 0; solution 2 was told: flaw 3"
    third = talk([2, 3, 0, 1, 0, 0, 0], questions=1, rounds=3)[6]
    assert third == "solve question 0; solution 1 was told: no flaw"
    longer = talk([2, 3, 0, 1, 0, 0, 0], questions=1, rounds=3, memory=2)[6]
    assert longer == "solve question 0; solution 2 was told: flaw 3; solution 1 was told: no flaw"


@exact
def every_agent_has_every_role() -> None:
    """In 900 turns of each role each of three agents has 300 ± 60."""
    team = Team({agent: ScriptedPolicy(beginner(), name=agent) for agent in AGENTS})
    frame = rollout(Discussion, team, groups=450, group_size=1, seed=0).frame
    counts = frame.group_by("agent", "role").len()
    assert len(counts) == 9
    assert counts["len"].is_between(240, 360).all()


@exact
def an_agent_learns_from_its_own_rows_alone() -> None:
    """An update with rows of two agents leaves the table of the third as it was."""
    team = Team({agent: TabularPolicy(4, name=agent) for agent in AGENTS})
    turns = rollout(Discussion, team, groups=20, group_size=1, seed=0).with_column(reward=comas_reward())
    two = Turns(turns.with_column(advantage=comas()).frame.filter(pl.col("agent") != "agent-3"))
    PolicyGradient(team, lr=0.1).update(two)
    moved = [any(each.detach().numpy().any() for each in team.policies[agent].parameters()) for agent in AGENTS]  # type: ignore[attr-defined]
    assert moved == [True, True, False]


@exact
def standardised_by_agent_less_what_is_left_of_the_drift() -> None:
    """Each agent's have mean 0 and deviation 1; a turn of two tokens loses .1 · (3, 2), nothing by the next turn."""
    rows = {"group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1] * 2, "agent": ["a", "b"] * 2}
    rows |= {"policy": ["a", "b"] * 2, "reward": [1.0, 0.5, 0.0, 1.0]}
    plain = values(comas(), Turns(rows))
    np.testing.assert_allclose(plain, [0.7071, -0.7071, -0.7071, 0.7071], atol=5e-5)
    drifts = [[1.0, 2.0], [0.0], [0.0, 0.0], [0.0]]
    before = {"logprobs": [[-1.0] * len(each) for each in drifts]}
    before["reference_logprobs"] = [[-1.0 - x for x in each] for each in drifts]
    found = np.asarray(comas(beta=0.1).evaluate(Turns(rows | before)).values, float)  # type: ignore[union-attr]
    own = np.array([1 - 0.3, 1 - 0.2, 0, 0])
    np.testing.assert_allclose(found[[0, 1, 3, 4]], (own - own.mean()) / (own.std(ddof=1) + 1e-6), atol=1e-5)
    before["reference_logprobs"][1] = [-5.0]
    twice = Turns(rows | before | {"agent": ["a"] * 4, "policy": ["a"] * 4})
    found = np.asarray(comas(beta=0.1).evaluate(twice).values, float)  # type: ignore[union-attr]
    own = np.array([1 - 0.3, 1 - 0.2, 0.5 - 0.4, 0, 0, 1])
    np.testing.assert_allclose(found, (own - own.mean()) / (own.std(ddof=1) + 1e-6), atol=1e-5)


@exact
def the_start_is_remembered() -> None:
    """Log-probabilities of the reference stay those of the first iteration when the policy has moved."""
    team = Team({agent: TabularPolicy(4, name=agent) for agent in AGENTS})
    turns = rollout(Discussion, team, groups=20, group_size=1, seed=0).with_column(reward=comas_reward())
    stage = reference_logprobs()
    told = Context(np.random.default_rng(0), 1, None, team, None)  # type: ignore[arg-type]
    first = stage(turns, told)["reference_logprobs"].to_list()
    assert first == turns["logprobs"].to_list()
    PolicyGradient(team, lr=0.5).update(turns.with_column(advantage=comas()))
    assert stage(turns, told)["reference_logprobs"].to_list() == first
