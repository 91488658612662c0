"""`imagine`: a world model of the team is fitted on play, and episodes that it imagines are added to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.own_context import POLICY
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.learning.team_play import TeamPlay
    from palaestra.learning.world_models import Act, JointWorldModel

MODEL = "model"


@stage
class imagine(Stage):
    """Stage: adds rows of `source` "model": a learned world model imagines, and pays, play of the current policies.

    After GAWM [112] (arXiv 2501.10116, details are a reconstruction). The model (`JointWorldModel`) is fitted on the
    newest `memory` episodes. Then `episodes` of them are drawn, and a turn of each. Play goes on from there in the
    model for `horizon` turns, or until the model expects the end. Policies see there what their own agent sees.
    Imagined rows are like others: critics, credit and learners that stand behind this stage use both. What an imagined
    row is paid is the model's estimate of the smoothed reward.

    For teams that act all at once, whose env shows arrays of one length and masks no actions, and for policies of kind
    `mlp` and its like, whose log-probabilities come from the columns `features` and `agent`.

    Args:
        horizon: turns of an imagined episode at most. episodes: of them in each iteration.
        fuse: one state for the team, from attention over its agents; false: each agent is modelled by itself.
        smooth: width in turns of the Gaussian that spreads rewards inside an episode; 0: rewards as they are.
        kl: weight of the divergence of posterior and prior. memory: episodes that are kept.
        steps, batch, lr: of Adam in each iteration. size: of the recurrent state.

    Metrics: the losses of the last step (`seen`, `paid`, `end`, `kl`), and `length` of imagined episodes.

    Raises:
        InputError: a number is out of range, a policy has no logits of rows, or the env is not of this kind.
    """

    adds = {"source": "who made the row: policy, or model"}
    needs = {
        "group",
        "episode",
        "turn",
        "agent",
        "policy",
        "features",
        "action_ids",
        "logprobs",
        "reward",
        "terminated",
    }

    def __init__(
        self, *, horizon: int = 8, episodes: int = 64, fuse: bool = True, smooth: float = 1.0, kl: float = 0.1,
        memory: int = 500, steps: int = 40, batch: int = 32, lr: float = 3e-3, size: int = 64,
    ) -> None:  # fmt: skip
        if min(horizon, episodes, memory, steps, batch, size) < 1 or min(smooth, kl) < 0 or not lr > 0:
            raise InputError(
                f"imagine: {horizon=}, {episodes=}, {memory=}, {steps=}, {batch=} and {size=} at least 1, "
                f"{smooth=} and {kl=} at least 0, {lr=} above 0"
            )
        self.horizon, self.episodes, self.memory, self.steps, self.batch = horizon, episodes, memory, steps, batch
        self.how: dict[str, Any] = {"fuse": fuse, "width": smooth, "kl": kl, "lr": lr, "size": size}
        self.kept: TeamPlay | None = None
        self.model: JointWorldModel | None = None
        self.shape: tuple[int, ...] = ()
        self._state: dict[str, Any] | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with imagined rows below."""
        from palaestra.learning.team_play import joined_play, team_play
        from palaestra.learning.world_models import imagined

        agents = sorted(turns.frame["agent"].cast(pl.String).unique())
        fresh = team_play(turns, agents)
        self.kept = joined_play(self.kept, fresh, self.memory)
        model = self._model((len(agents), fresh.seen.shape[-1], self._actions(context.team)), context.seed)
        context.metrics |= model.fit(self.kept, context.rng, steps=self.steps, batch=self.batch)
        some = context.rng.integers(len(self.kept.ended), size=self.episodes)
        start = type(fresh)(*(each[some] for each in self.kept))
        begin = (context.rng.random(self.episodes) * start.there.any(-1).sum(-1)).astype(int)
        seats = _policies(turns, agents)
        act = acting(context.team, agents, context.rng)
        made, logprobs = imagined(model, start, begin, act, horizon=self.horizon, seed=int(context.rng.integers(2**31)))
        context.metrics["length"] = float(made.there.any(-1).sum(-1).mean())
        source = pl.col("source").fill_null(POLICY) if "source" in turns.columns else pl.lit(POLICY)
        now = turns.frame.with_columns(source=source)
        return Turns(pl.concat([now, _rows(made, logprobs, begin, agents, seats, now)], how="diagonal_relaxed"))

    def _actions(self, team: Team) -> int:
        counts = {getattr(each, "actions", None) for each in team.policies.values()}
        if len(counts) != 1 or not isinstance(count := counts.pop(), int):
            raise InputError("imagine: it needs policies that choose among one number of actions")
        return count

    def _model(self, shape: tuple[int, ...], seed: int) -> JointWorldModel:
        from palaestra.learning.world_models import JointWorldModel

        if self.model is None:
            self.model, self.shape = JointWorldModel(*shape, seed=seed, **self.how), shape
            if self._state:
                self.model.load_state(self._state)
        if shape != self.shape:
            raise InputError(f"imagine: the team has {shape} agents, features and actions, before {self.shape}")
        return self.model

    def state_dict(self) -> dict[str, Any]:
        """State: stored episodes, the model and its optimiser."""
        kept = None if self.kept is None else self.kept._asdict()
        return {"kept": kept, "model": self._state if self.model is None else self.model.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        from palaestra.learning.team_play import TeamPlay

        kept = state["kept"]
        self.kept = TeamPlay(**{name: np.array(each) for name, each in kept.items()}) if kept else None
        self.model, self._state = None, state["model"]


def acting(team: Team, agents: list[str], rng: np.random.Generator) -> Act:
    """Returns a function that acts for the agents: arrays seen -> (actions, log-probabilities), by policies of `team`.

    Raises:
        InputError: a policy has no `logits_of_rows`.
    """
    import torch

    members = [team[agent] for agent in agents]
    if missing := [each.name for each in members if not hasattr(each, "logits_of_rows")]:
        raise InputError(
            f"imagine: the policy {missing[0]!r} has no logits of rows; it takes policies such as kind mlp"
        )

    def act(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        did, logprobs = (np.zeros(seen.shape[:2], kind) for kind in (np.int64, float))
        for place, (agent, policy) in enumerate(zip(agents, members, strict=True)):
            own = pl.Series("features", seen[:, place], dtype=pl.Array(pl.Float32, seen.shape[-1])).cast(
                pl.List(pl.Float32)
            )
            rows = pl.DataFrame([own]).with_columns(agent=pl.lit(agent))
            with torch.no_grad():
                logp = torch.log_softmax(policy.logits_of_rows(rows).double(), -1).cpu().numpy()  # type: ignore[attr-defined]
            cdf = np.exp(logp).cumsum(1)
            drawn = (cdf <= rng.random((len(cdf), 1)) * cdf[:, -1:]).sum(1)
            did[:, place], logprobs[:, place] = drawn, logp[np.arange(len(logp)), drawn]
        return did, logprobs

    return act


def _policies(turns: Turns, agents: list[str]) -> list[str]:
    """Name of the policy of each agent, by its last row."""
    seats = turns.frame.select(pl.col("agent", "policy").cast(pl.String)).unique("agent", keep="last")
    named = dict(seats.iter_rows())
    return [named[agent] for agent in agents]


def _rows(
    made: TeamPlay, logprobs: np.ndarray, begin: np.ndarray, agents: list[str], policies: list[str], now: pl.DataFrame
) -> pl.DataFrame:
    """Imagined turns as rows, in groups of their own behind those of play."""
    episode, turn, agent = np.nonzero(made.there)
    at = (episode, turn, agent)
    ended = np.asarray(made.ended.any(1))[episode]
    lists = made.seen[at]
    found = pl.DataFrame(
        {
            "group": int(now["group"].max()) + 1 + episode,  # type: ignore[arg-type]
            "episode": np.zeros(len(episode), int),
            "turn": begin[episode] + turn,
            "agent": np.array(agents)[agent],
            "policy": np.array(policies)[agent],
            "features": pl.Series(lists, dtype=pl.Array(pl.Float32, lists.shape[-1])).cast(pl.List(pl.Float32)),
            "action_ids": pl.Series(np.asarray(made.did[at])[:, None], dtype=pl.Array(pl.Int32, 1)).cast(
                pl.List(pl.Int32)
            ),
            "logprobs": pl.Series(logprobs[at][:, None], dtype=pl.Array(pl.Float32, 1)).cast(pl.List(pl.Float32)),
            "reward": made.paid[at].astype(float),
            "terminated": ended,
            "truncated": ~ended,
            "valid": np.ones(len(episode), bool),
            "source": [MODEL] * len(episode),
        }
    )
    same = [name for name in ("run", "iteration") if name in now.columns]
    found = found.with_columns(pl.lit(now[name][0], now.schema[name]).alias(name) for name in same)
    return found.with_columns(pl.col(name).cast(now.schema[name]) for name in found.columns if name in now.columns)
