"""[117] Meta-learned communication: players learn to adapt to partners, against a pool of their own past copies.

Of the paper only the abstract is known; the order of its phases, and the objective, are a reconstruction. A noisy code
over eight objects stands for natural language: people share the words of four objects and not those of the others.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import MLPPolicy, Team
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.credit import standardise
from palaestra.envs.worlds import Referential
from palaestra.envs.worlds.referential import meanings
from palaestra.learning.league.payoffs import Payoffs
from palaestra.learning.league.rules import Partners, Standing
from palaestra.learning.meta_gradient import MetaGradient
from palaestra.play.rollout import rollout
from palaestra.runs.build import resolve, scripted_team
from palaestra.runs.inline import learn, started
from palaestra.runs.partners import partners, with_partners
from palaestra.runs.recipe import validate
from palaestra.runs.scripts import make as make_script
from palaestra.runs.trainers import trainer_of
from palaestra_atlas.reproductions import exact

if TYPE_CHECKING:
    from palaestra.learning.trainer import Trainer

PEOPLE: dict[str, Any] = {"number": None, "noise": 0.3, "shared": 4}
"""Options of the script: 30 % of what people say is noise, and each has names of its own for four of the objects."""

CREDIT = "standardise('reward', over=('opponent', 'agent'))"
CODES = 5


def plain(corpus: str, iterations: int = 60, groups: int = 512) -> dict[str, Any]:
    """The recipe: one network in both seats, taught by people, then meta-trained against all of its past copies."""
    return {
        "name": "growing",
        "env": {"make": "native/referential"},
        "policies": {"player": {"kind": "mlp", "options": {"hidden": [64]}}},
        "team": {"*": "player"},
        "opponents": {"method": "partners(oldest=0.2)", "every": 5, "matches": 0, "per_iteration": 4},
        "warm_start": {"script": "code", "options": PEOPLE, "groups": 256, "steps": 60, "lr": 0.01},
        "credit": CREDIT,
        "learn": {
            "kind": "meta_gradient",
            "lr": 0.01,
            "terms": ["surrogate(clip=None)"],
            "options": {"corpus": corpus, "anchor": ["clone(0.1)", "kl(0.02)"]},
        },
        "train": {"iterations": iterations, "groups": groups, "group_size": 1},
    }


def paired(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe without a pool: the partner is the player itself."""
    return recipe | {"name": "pair", "opponents": {"method": "latest", "every": None, "matches": 0, "per_iteration": 4}}


def taught(seed: int, folder: Path) -> str:
    """Writes 256 conversations of people; returns the file."""
    people = scripted_team("code", PEOPLE, Referential, "people", seed=seed)
    rollout(Referential, people, groups=256, seed=50_000 + seed).frame.write_parquet(folder / "corpus.parquet")
    return str(folder / "corpus.parquet")


def codes(seed: int) -> dict[str, dict[str, Any]]:
    """Five people whom nobody met in training."""
    return {
        f"code_{number}": {
            "kind": "script",
            "options": {"script": "code", "number": CODES * seed + number + 1, "shared": 4},
        }
        for number in range(CODES)
    }


def written(seed: int, folder: Path) -> None:
    """Recipes with and without a pool, what people said, and the partners of the test."""
    growing = plain("corpus.parquet") | {"seeds": [seed]}
    taught(seed, folder)
    for recipe in (growing, paired(growing)):
        (folder / f"{recipe['name']}.yaml").write_text(json.dumps(recipe))
    (folder / "codes.json").write_text(json.dumps(codes(seed)))


def scripted(**options: Any) -> ScriptedPolicy:
    """A speaker and listener of a code."""
    return ScriptedPolicy(make_script("code", options), name="coder")


@exact
def permuted_codes_agree_by_chance() -> None:
    """Four objects, a speaker of each of the 24 codes, a listener of the human one: right in 1/4 of the cases."""
    env, right = Referential(values=(4,)), []
    for code, target in itertools.product(itertools.permutations(range(4)), range(4)):
        env.reset(0)
        env.state.target = target
        env.step({"speaker": env.choices[code[target]]})
        right.append(env.step({"listener": env.choices[4 + code[target]]}).rewards["listener"])
    assert np.mean([float(each or 0) for each in right]) == 0.25
    same = rollout(Referential, Team(dict.fromkeys(Referential.agents, scripted(number=3))), groups=20, seed=0).frame
    assert same["success"].drop_nulls().all()
    assert (meanings(3, 8, shared=4)[:4] == np.arange(4)).all()


def small(seed: int = 0, iterations: int = 4) -> tuple[Trainer, list[Turns]]:
    """A short training with its league: a copy joins after every second iteration."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = plain(taught(seed, Path(folder)), iterations, groups=64)
        recipe["opponents"] |= {"every": 2, "matches": 32}
        setup = resolve(validate(recipe))
        executor, seen = setup.executor(), []
        team, corpus = started(setup, executor, seed)
        trainer = trainer_of(setup, team, setup.learner(team), executor, seed=seed, corpus=corpus,
                             on_turns=lambda _, turns: seen.append(turns))  # fmt: skip
        trainer.run()
    return trainer, seen


@exact
def the_pool_grows_by_copies() -> None:
    """After four iterations the start and two copies are members, and all pairs of generations have played."""
    trainer, _ = small()
    payoffs: Payoffs = trainer.league.payoffs  # type: ignore[attr-defined]
    assert payoffs.names == ["0", "2", "4"]
    assert np.isfinite(payoffs.mean()).all()
    assert payoffs.mean().shape == (3, 3)


@exact
def both_seats_learn() -> None:
    """In every iteration the learner speaks to half of its partners and listens to the other half."""
    for turns in small(iterations=2)[1]:
        own = turns.frame.filter(pl.col("policy").cast(pl.String) == "player")
        assert own.group_by("agent").len().sort("agent")["len"].to_list() == [32, 32]


@exact
def the_oldest_keeps_its_share() -> None:
    """Of four members, the oldest taken with a share of .2 more: .4 and three times .2."""
    standing = Standing(np.ones(4, bool), Payoffs(), np.full(4, 0.5))
    np.testing.assert_allclose(Partners(0.2).draw(standing), [0.4, 0.2, 0.2, 0.2])


def spoken(seed: int = 0) -> tuple[Team, Turns]:
    """A new speaker and what it said to a listener of another code, with credit."""
    player = MLPPolicy(12, 16, hidden=[8], name="player", seed=seed)
    team = Team({"speaker": player, "listener": scripted(number=2)})
    played = rollout(Referential, team, groups=64, seed=seed).with_column(opponent=pl.lit("other"))
    return team, played.with_column(advantage=standardise("reward", over=("opponent", "agent")))


@exact
def the_gradient_is_that_of_the_adapted_start() -> None:
    """The update's gradient is the slope of the query's loss after three steps on the support, by differences."""
    team, turns = spoken()
    rows = turns.frame.filter(pl.col("agent").cast(pl.String) == "speaker").sort("group")
    support, query = rows.gather_every(2), rows.gather_every(2, 1)
    player: Any = team["speaker"]
    bias = player.module[2].bias

    def loss(part: pl.DataFrame) -> torch.Tensor:
        ratio: torch.Tensor = (
            player.score(part).logprobs[:, 0] - torch.tensor(part["logprobs"].list.first().to_numpy())
        ).exp()
        return -(ratio * torch.tensor(part["advantage"].to_numpy(), dtype=ratio.dtype)).mean()

    def after(word: int, shift: float) -> float:
        start = {name: value.clone() for name, value in player.state_dict().items()}
        with torch.no_grad():
            bias[word] += shift
        for _ in range(3):
            slopes = torch.autograd.grad(loss(support), player.parameters())
            with torch.no_grad():
                for parameter, slope in zip(player.parameters(), slopes, strict=True):
                    parameter -= 2.0 * slope
        found = float(loss(query).detach())
        player.load_state_dict(start)
        return found

    learner = MetaGradient(team, steps=3, rate=2.0)
    learner.forward_backward(turns)
    slopes = [(after(word, 0.01) - after(word, -0.01)) / 0.02 for word in range(8)]
    np.testing.assert_allclose(bias.grad[:8], slopes, atol=2e-4)


@exact
def language_is_kept_by_the_anchor() -> None:
    """An untaught player that hears from people alone, without any reward, says the shared words after 60 updates."""
    _, turns = spoken()
    player = MLPPolicy(12, 16, hidden=[64], name="player")
    team = Team(dict.fromkeys(Referential.agents, player))
    with tempfile.TemporaryDirectory() as folder:
        learner = MetaGradient(team, corpus=taught(0, Path(folder)), anchor=["clone(1.0)", "kl(0.02)"], lr=0.01)
    for _ in range(60):
        learner.update(turns.with_column(advantage=pl.lit(0.0)))
    said = rollout(Referential, team, groups=200, seed=9).frame.filter(pl.col("agent").cast(pl.String) == "speaker")
    assert float(said.filter(pl.col("target") < 4)["agrees"].cast(float).mean()) > 0.5  # type: ignore[arg-type]


@exact
def a_partner_is_met_before_and_after() -> None:
    """The table of a code that was never met: both seats, and a gain that is the difference."""
    with tempfile.TemporaryDirectory() as folder:
        trained = learn(plain(taught(0, Path(folder)), 1, groups=32))
    table = with_partners(trained, {"stranger": scripted(number=5, shared=4)}, steps=1, test=50)
    assert table["seat"].to_list() == ["all", "speaker", "listener"]
    np.testing.assert_allclose(table["gain"], table["after"] - table["before"])


@exact
def who_does_not_step_stays_as_it_is() -> None:
    """`palaestra analyze partners` without a step: nothing is gained, in neither seat."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        taught(0, folder)
        recipe, met = folder / "short.yaml", folder / "codes.json"
        recipe.write_text(json.dumps(plain(str(folder / "corpus.parquet"), iterations=1, groups=16)))
        met.write_text(json.dumps(dict(list(codes(0).items())[:1])))
        still = partners(steps=0, episodes=8, test=20)(recipe, met)
        moved = partners(steps=1, episodes=8, rate=5.0, test=20)(recipe, met)
    assert still["seat"].to_list() == ["all", "speaker", "listener"]
    assert still["gain"].to_list() == [0.0, 0.0, 0.0]
    assert moved["before"].to_list() == still["before"].to_list()
    assert moved["gain"][0] == (moved["after"] - moved["before"])[1:].mean() != 0.0
