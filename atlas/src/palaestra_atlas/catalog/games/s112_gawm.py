"""[112] GAWM (arXiv 2501.10116): a team learns from what a model of all of its members imagines.

Two walkers on a grid who see their own cell and landmark, in place of the paper's battles and robots. Of the paper only
the abstract and the README of its project are known: losses, sizes and the kernel of smoothing are a reconstruction.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import torch

from palaestra.agents import MLPPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.worlds import Landmarks
from palaestra.learning.stages import Context
from palaestra.learning.stages.central_critic import central_critic
from palaestra.learning.stages.imagine import acting, imagine
from palaestra.learning.team_play import TeamPlay, smoothed, team_play
from palaestra.learning.world_models import JointWorldModel, imagined
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact

NAMES = ["walker_0", "walker_1"]
CRITIC = "central_critic(gamma=0.9, lam=0.9)"


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of two walkers who play few episodes and imagine many, `walkers.yaml`."""
    made = {
        "name": "walkers",
        "env": {"make": "native/landmarks", "options": {"walkers": 2, "side": 4, "horizon": 6, "shows": "own"}},
        "policies": {name: {"kind": "mlp", "options": {"hidden": [32]}} for name in NAMES},
        "team": {name: name for name in NAMES},
        "stages": ["imagine(horizon=6, episodes=100, steps=30, kl=0.05, smooth=0.4)", CRITIC],
        "credit": "standardise(gae(gamma=0.9, lam=0.9), over='agent')",
        "learn": {"lr": 0.01, "epochs": 6, "minibatch": 256, "terms": ["surrogate(clip=0.2)", "entropy(0.01)"]},
        "train": {"iterations": 15, "groups": 4, "group_size": 1, "evaluate_every": 15, "checkpoint_every": 15,
                  "save_turns": "last"},
        "evaluation": {"tasks": 100, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }  # fmt: skip
    (folder / "walkers.yaml").write_text(json.dumps(made))


def world(shows: Any = "own", horizon: int = 6, side: int = 4) -> EnvFactory:
    """Two walkers with a landmark each."""
    return functools.partial(Landmarks, walkers=2, side=side, horizon=horizon, shows=shows)


def team() -> Team:
    """Walkers with their first parameters."""
    return Team({name: MLPPolicy(4, 4, hidden=(32,), name=name, seed=k) for k, name in enumerate(NAMES)})


def played(env: EnvFactory, groups: int, seed: int = 0) -> Turns:
    """Episodes of that team."""
    return rollout(env, team(), groups=groups, seed=seed)


def model(**options: Any) -> JointWorldModel:
    """A model of the walkers, at its start."""
    return JointWorldModel(2, 4, 4, **({"size": 48} | options))


def fitted(play: TeamPlay, steps: int, **options: Any) -> JointWorldModel:
    """A model of the walkers that has learned from these episodes."""
    made = model(**options)
    made.fit(play, np.random.default_rng(0), steps=steps, batch=32)
    return made


def context(of: Team, env: EnvFactory) -> Context:
    """Context of a stage in the first iteration."""
    return Context(np.random.default_rng(0), 0, env, of, cast(Any, None))


def probe(made: JointWorldModel, known: TeamPlay, held: TeamPlay) -> float:
    """Share of the variance of the team's state, held out, that a linear rule reads from the code of an agent."""

    def pair(play: TeamPlay) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            code = made.filtered(play)["code"].numpy()
        state = np.repeat(play.seen.reshape(*play.seen.shape[:2], 1, -1), 2, axis=2)
        x = code[play.there]
        return np.hstack([x, np.ones((len(x), 1))]), state[play.there]

    (x, state), (other, goal) = pair(known), pair(held)
    weights = np.linalg.solve(x.T @ x + 1e-2 * np.eye(x.shape[1]), x.T @ state)
    return float(1 - ((other @ weights - goal) ** 2).sum() / ((goal - goal.mean(0)) ** 2).sum())


@exact
def smoothing_keeps_the_sum() -> None:
    """Rewards 0, 0, 0, 1 become .0063, .0772, .346, .5705, within the episode; sums stay, also of several rewards."""
    paid, there = np.array([[0, 0, 0, 1.0], [0, 1.0, -2.0, 0]])[..., None], np.ones((2, 4, 1), bool)
    there[1, 3] = False
    found = smoothed(paid, there, 1.0)[..., 0]
    weight = np.exp(-0.5 * np.arange(3, -1, -1) ** 2)
    np.testing.assert_allclose(found[0], weight / weight.sum())
    assert found[0].round(4).tolist() == [0.0063, 0.0772, 0.346, 0.5705]
    np.testing.assert_allclose(found.sum(1), [1.0, -1.0])
    assert found[1, 3] == 0
    np.testing.assert_array_equal(smoothed(paid, there, 0.0), paid)


@exact
def rewards_are_smoothed_before_they_are_learned() -> None:
    """The error of a model's rewards is measured against the smoothed ones."""
    play = team_play(played(world(), 8), NAMES)
    made = model(width=1.0)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = float(made.losses(play)["paid"])
        torch.manual_seed(0)
        there = torch.from_numpy(play.there)
        paid, _ = made.outcome(made.filtered(play)["after"].flatten(0, 1), there.flatten(0, 1))
    goals = [smoothed(play.paid, play.there, width) for width in (1.0, 0.0)]
    errors = [float(((paid.reshape(there.shape).numpy() - goal) ** 2)[play.there].mean()) for goal in goals]
    np.testing.assert_allclose(loss, errors[0], rtol=1e-5)
    assert abs(loss - errors[1]) > 1e-3


@exact
def the_global_code_tells_the_state() -> None:
    """A linear rule reads the state of both from the global code, and .2 less from the code of each alone."""
    known, held = (team_play(played(world("next"), 60, seed), NAMES) for seed in (0, 1))
    fused, alone = (probe(fitted(known, 30, fuse=fuse), known, held) for fuse in (True, False))
    assert fused >= alone + 0.2, (fused, alone)
    assert fused > 0.7, fused


@exact
def absent_agents_are_not_read() -> None:
    """Padding in the place of an absent agent changes nothing for the other one."""
    made = model()
    seen, did = torch.randn(3, 2, 4), torch.zeros(3, 2, 4)
    there = torch.tensor([[True, False]]).expand(3, 2)
    other = seen.clone()
    other[:, 1] += 5.0
    with torch.no_grad():
        one, two = (made.contexts(x, did, there) for x in (seen, other))
        torch.testing.assert_close(one[:, 0], two[:, 0])
        torch.testing.assert_close(made.pooled(one, there), made.pooled(two, there))
        both = torch.ones_like(there)
        assert float((made.contexts(seen, did, both) - made.contexts(other, did, both))[:, 0].abs().max()) > 1e-3


@exact
def returns_are_foreseen() -> None:
    """Five turns of known actions, imagined from the first turn: held-out returns better than by their mean."""
    known, held = (team_play(played(world("own", side=3), n, seed), NAMES) for n, seed in ((200, 0), (150, 1)))
    made = fitted(known, 200, width=0.0, kl=0.05)
    number = iter(range(5))

    def act(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        did = held.did[:, next(number)]
        return did, np.zeros(did.shape)

    found, _ = imagined(made, held, np.zeros(len(held.did), int), act, horizon=5)
    goal = held.paid[:, :5].sum((1, 2))
    error = ((found.paid.sum((1, 2)) - goal) ** 2).mean() / goal.var()
    assert error < 0.8, error


@exact
def the_prior_follows_the_posterior() -> None:
    """The divergence is KL(posterior ‖ prior), times its weight; .8 of its gradient goes into the prior."""
    play, slopes = team_play(played(world(), 8), NAMES), dict[float, Any]()
    for balance in (0.8, 1.0):
        made = model(balance=balance, kl=2.0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            loss = made.losses(play)["kl"]
            torch.manual_seed(0)
            states = made.filtered(play)
        p, q = (made.probabilities(states[name]) for name in ("posterior", "prior"))
        torch.testing.assert_close(loss, 2 * (p * (p / q).log()).sum((-2, -1))[torch.from_numpy(play.there)].mean())
        loss.backward()
        slopes[balance] = made.prior[-1].bias.grad
    assert slopes[1.0] is not None
    assert slopes[1.0].abs().max() > 1e-4
    torch.testing.assert_close(slopes[0.8], 0.8 * slopes[1.0])


@exact
def imagination_is_the_model_rolled_on() -> None:
    """From a real turn; paid in the units of rewards; the second turn is read from a draw of the prior."""
    play, made, each = team_play(played(world(), 8), NAMES), model(), np.arange(8)
    made.scale.fill_(3.0)
    begin = each % play.there.any(-1).sum(-1)
    found, _ = imagined(made, play, begin, lambda seen: (np.ones((8, 2), int), np.zeros((8, 2))), horizon=2, seed=5)
    there, ones = torch.ones(8, 2, dtype=torch.bool), torch.eye(4)[torch.ones(8, 2, dtype=torch.int64)]
    other = play._replace(did=(play.did + np.eye(play.did.shape[1], dtype=int)[0][:, None]) % 4)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        states = made.filtered(play)
        h = made.follow(states["h"][each, begin], states["z"][each, begin], ones, there)
        paid, _ = made.outcome(h, there)
        seen = made.sees(torch.cat([h, made.draw(made.prior(h))], -1)).numpy()
        moved = (made.filtered(other)["code"] - states["code"]).abs().amax((0, 2, 3))
    np.testing.assert_array_equal(found.seen[:, 0], play.seen[each, begin])
    np.testing.assert_allclose(found.paid[:, 0], 3 * paid.numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.seen[:, 1], seen, atol=1e-6)
    assert moved[1] > 1e-3, "the code knows what was done last"
    assert moved[0] == 0, "and not what is done next"


@exact
def imagination_stops_where_the_model_expects_the_end() -> None:
    """Episodes of three turns: after some learning nothing is imagined behind the third, and all episodes end."""
    env = world("none", horizon=3)
    known = team_play(played(env, 60), NAMES)
    made = fitted(known, 120)
    begin = np.arange(60) % np.maximum(known.there.any(-1).sum(-1), 1)
    found, _ = imagined(made, known, begin, acting(team(), NAMES, np.random.default_rng(0)), horizon=8)
    length = found.there.any(-1).sum(-1)
    assert (begin + length <= 3).mean() > 0.95
    assert found.ended.sum(1).mean() > 0.95
    assert (found.ended.sum(1) <= 1).all()
    alive = np.asarray(found.there.any(-1))
    assert not (alive[:, 1:] & found.ended[:, :-1]).any()


@exact
def imagined_turns_are_rows() -> None:
    """Rows of source `model` in groups of their own, from the turn where they go on, and valued like others."""
    env, of = world(), team()
    turns = rollout(env, of, groups=12, seed=0)
    told = context(of, env)
    stage = imagine(episodes=20, horizon=4, steps=3)
    found = stage(turns, told)
    rows = found.frame.filter(pl.col("source") == "model")
    assert len(found) == len(turns) + len(rows)
    assert rows["group"].n_unique() == 20
    assert not set(rows["group"]) & set(turns.frame["group"])
    assert (rows["turn"] < 6 + 4).all()
    assert rows.group_by("group").agg(pl.col("turn").min())["turn"].n_unique() > 3, "they go on from any turn"
    assert len(rows) == 2 * rows.select("group", "turn").n_unique() > 40
    assert found.frame["source"].head(len(turns)).unique().to_list() == ["policy"]
    valued = central_critic(steps=2)(found, told)
    assert valued.frame["value"].null_count() == 0
    assert {"seen", "paid", "end", "kl", "length"} <= told.metrics.keys()
    cast(Any, stage.model).result[-1].bias.data[1] = 9.0  # it expects the end at once
    ended = stage(turns, told).frame.filter(pl.col("source") == "model")
    assert len(ended) == 2 * 20
    assert ended["terminated"].all()
    alone = imagine(episodes=2, steps=1, fuse=False, smooth=0.0)
    alone(turns, told)
    assert (cast(Any, alone.model).fuse, cast(Any, alone.model).width) == (False, 0.0)


@exact
def each_acts_on_what_it_sees_itself() -> None:
    """Imagined log-probabilities are those of the row's own array, and another's array changes nothing."""
    env, of = world(), team()
    rows = imagine(episodes=20, horizon=4, steps=3)(rollout(env, of, groups=12, seed=0), context(of, env)).frame
    rows = rows.filter(pl.col("source") == "model")
    for name in NAMES:
        own = rows.filter(pl.col("agent") == name)
        with torch.no_grad():
            scored = of[name].score(own).logprobs.numpy()  # type: ignore[attr-defined]
        np.testing.assert_allclose(scored, np.stack(own["logprobs"].to_list()), atol=1e-5)
    seen = np.random.default_rng(0).standard_normal((50, 2, 4)).astype(np.float32)
    blank = seen * np.array([1, 0], np.float32)[:, None]
    (one, _), (two, _) = (acting(of, NAMES, np.random.default_rng(1))(x) for x in (seen, blank))
    np.testing.assert_array_equal(one[:, 0], two[:, 0])
