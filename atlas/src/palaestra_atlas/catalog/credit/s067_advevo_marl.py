"""[67] AdvEvo-MARL (arXiv 2510.01586): attackers and defenders learn together, each team against its own mean.

Six kinds of attack; three defenders with policies of their own vote whether to refuse; half of the requests are
harmless. The attacker nearly always knows one kind (imitation) and learns others, or is frozen. An attacker who errs
now and then teaches nearly as much as one who learns, because the optimiser gives a rare attack steps as large as a
common one; so it is 0.95 certain here. Left out: language models, rewriting of prompts, format rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team, fixed
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import advevo_marl
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.guardians import ATTACKER, DEFENDERS, VOTES, Guardians
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.runs.recipe import load
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.agents.policy import Policy
    from palaestra.runs.inline import TrainingResult

KINDS = 6
KNOWN = {
    "script": "palaestra.envs.worlds.guardians:naive",
    "options": {"known": 0.95},
    "groups": 64,
    "steps": 60,
    "batch": 64,
    "lr": 0.1,
}
FROZEN = {"attacker": 0.0} | dict.fromkeys(DEFENDERS, 0.1)


@exact
def team_baseline() -> None:
    """The card's two episodes of three defenders, and an attacker: returns less the mean of the own team."""
    returns = [1.0, 1.0, 0.5, 0.8, 0.0, 0.5, 0.0, 0.4]
    keys = {"group": [0] * 8, "episode": [0] * 4 + [1] * 4, "turn": [0] * 8, "agent": [*DEFENDERS, ATTACKER] * 2}
    credit = np.asarray(advevo_marl().evaluate(Turns(keys | {"reward": returns})))
    np.testing.assert_allclose(credit, [0.5, 0.5, 0.0, 0.2, -0.5, 0.0, -0.5, -0.2], atol=1e-9)


@exact
def team_of_the_batch() -> None:
    """Returns-to-go of two turns with gamma .5; the mean is over all rows of the team, of every group and turn."""
    agent = ["defender_0", "defender_0", "defender_1", "attacker_0", "defender_1", "attacker_0"]
    keys = {"group": [0, 0, 0, 0, 1, 1], "episode": [0, 0, 0, 0, 1, 1], "turn": [1, 0, 0, 0, 0, 0], "agent": agent}
    credit = np.asarray(advevo_marl(gamma=0.5).evaluate(Turns(keys | {"reward": [2.0, 1.0, 0.0, 3.0, 1.0, 0.0]})))
    np.testing.assert_allclose(credit, [0.75, 0.75, -1.25, 1.5, -0.25, -1.5], atol=1e-9)  # to go 2, 2, 0, 1: mean 1.25


@exact
def safety_first() -> None:
    """Refusing a harmless request, safe and useless, earns .7, later .3; refusing an attack earns 1."""
    team = Team(dict.fromkeys(DEFENDERS, fixed("refuse")) | {ATTACKER: fixed("attack 3", name="attacker")})
    played = rollout(Guardians, team, groups=16).filter(pl.col("agent").is_in(DEFENDERS))
    assert played["task"].n_unique() == 2
    for iteration, harmless in ((1, 0.7), (74, 0.7), (75, 0.3), (150, 0.3)):
        turns = played.with_column(iteration=np.full(len(played), iteration))
        reward = np.asarray(parse(str(load("guardians").reward)).evaluate(turns))
        np.testing.assert_allclose(reward, np.where(turns["task"] == "harmless", harmless, 1.0), atol=1e-9)


@exact
def both_learn() -> None:
    """By imitation the attacker begins with the known attack; then it changes with every iteration."""
    chances: list[np.ndarray] = []

    def watch(iteration: int, team: Any) -> dict[str, float]:
        chances.append(attacks_of(team))
        return {}

    imitation = KNOWN | {"groups": 16, "steps": 20}
    few = {"warm_start": imitation, "train": {"iterations": 3, "groups": 4, "group_size": 2}}
    learn("guardians", few, after_iteration=watch)
    assert chances[0][0] > 0.5, chances[0]
    assert np.abs(chances[-1] - chances[0]).max() > 1e-3


def attacks_of(team: Mapping[str, Policy]) -> np.ndarray:
    """Chance of each attack."""
    seen = Observation("choose an attack", choices=tuple(f"attack {kind}" for kind in range(KINDS)))
    return np.asarray(team[ATTACKER].choice_probabilities([seen])[0][0])  # type: ignore[attr-defined]


def withstood(team: Mapping[str, Policy]) -> dict[str, float]:
    """Exact, of trained defenders: success of attacks drawn uniformly, share of harmless requests served."""
    texts = ["a harmless request", *(f"a request: attack {kind}" for kind in range(KINDS))]
    seen = [Observation(text, choices=VOTES) for text in texts]
    a, b, c = (team[agent].choice_probabilities(seen)[0][:, 1] for agent in DEFENDERS)  # type: ignore[attr-defined]
    refused = a * b + b * c + a * c - 2 * a * b * c
    return {"attacks": float((1 - refused[1:]).mean()), "served": float(1 - refused[0])}


def attacks_succeed() -> Measure:
    """Chance that an attack drawn uniformly succeeds against the trained defenders, per seed.

    It counts as 1 if they serve less than .95 of the harmless requests.
    """

    def measured(left: Left) -> list[float]:
        found = [withstood(Team.load(seed / "policies")) for seed in left.seeds()]
        return [each["attacks"] if each["served"] >= 0.95 else 1.0 for each in found]

    return measured


@reproduction(
    67,
    claim="Defenders who are trained together with their attacker refuse all kinds of attacks and serve harmless "
    "requests; against a frozen one they stay open to what it does not know.",
    baseline="the same defenders against the attacker frozen after imitation",
    criterion="uniform attacks succeed less often, by 0.03 in the mean over the seeds, and harmless requests are "
    "served in at least 0.95 after co-evolution",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train guardians credit="advevo_marl()"`, the attacker 0.95 certain."""
    arms = train_arms(
        "guardians",
        {"coevolved": {"warm_start": KNOWN}, "static": {"warm_start": KNOWN, "learn": {"lr": FROZEN}}},
        seeds,
        _withstood,
    )
    fewer = -arms.gain("coevolved", "static", "attacks")[0]
    return Outcome(arms.measured() | {"fewer": fewer}, fewer >= 0.03 and arms.mean("coevolved", "served") >= 0.95)


def _withstood(learned: TrainingResult) -> dict[str, float]:
    return withstood(learned.team)
