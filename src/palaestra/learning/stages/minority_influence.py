"""`minority_influence`: how far the others' expected next actions are from those that would serve one agent ([123])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.cells import vectors
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.learning.critics import ValueNetwork
    from palaestra.learning.opponent_model import ActionNetwork


@stage
class minority_influence(Stage):
    """Stage: column `influence`, AMI's distance of the others' next actions from target actions, on rows of `seat`.

    Adversarial minority influence (AMI [123], arXiv 2302.03322): the smaller, the more the others are turned to them.
    On each row of `seat` the column `influence` is Σ over the others of the L1 distance between the distribution of
    their next action and their target, 0 to 2 each; everywhere else it is null. The reward of the seat takes it off:
    `reward - 0.1 * fill_missing("influence", 0)`.

    - The next actions are predicted from what everybody sees and does in the turn, by a network that is fitted to the
      play of this and earlier iterations before it is asked.
    - The prediction is counterfactual: the others' actions are kept, the seat's own action is drawn `samples` times
      from its policy, and the predictions are averaged. The others' influence on the seat thus counts nowhere.
    - Targets are drawn from an oracle, a policy of its own over the others' actions. PPO trains it on `pay` from the
      next turn on. Its actions are those that the others really took, because a target that nobody took changes
      nothing in the episode.

    Args:
        seat: the agent.
        pay: expression of what the seat is paid, on every row of the table; without stages that need the reward.
        sees: column with the names of who is in sight, a list on each row of the seat; the others have no part in the
            sum. None: all. Who has no later turn has none either.
        gamma: discount of later pay in what the oracle learns from.
        samples: draws of the seat's action.
        most: different actions that may exist.
        memory: rows of the seat that are kept for the fit. steps, batch: of the fit in each iteration.
        epochs: of the oracle. hidden, lr: of the networks.

    Metrics: `cross_entropy` of the prediction in nats, before the fit; `target_probability`, how sure the oracle is.

    Raises:
        InputError: a number is out of range, or the seat's policy has no fixed number of actions.
    """

    adds = {"influence": "L1 distance of the others' expected next actions from their targets, summed"}

    def __init__(
        self,
        seat: str,
        pay: str = "-reward",
        *,
        sees: str | None = None,
        gamma: float = 0.8,
        samples: int = 10,
        most: int = 16,
        memory: int = 4000,
        steps: int = 60,
        batch: int = 256,
        epochs: int = 8,
        hidden: Sequence[int] = (64,),
        lr: float = 1e-2,
    ) -> None:
        if min(samples, most, memory, steps, batch, epochs) < 1 or not lr > 0:
            raise InputError(
                f"minority_influence: samples={samples}, most={most}, memory={memory}, steps={steps}, batch={batch} "
                f"and epochs={epochs} must be at least 1, lr={lr} above 0"
            )
        self.seat, self.pay, self.sees, self.samples, self.most = seat, parse(pay), sees, samples, most
        self.gamma = gamma
        self.steps, self.batch, self.epochs, self.how = steps, batch, epochs, {"hidden": tuple(hidden), "lr": lr}
        self.needs = {"episode", "turn", "agent", "action", "observation"} | ({sees} if sees else set())
        self.memory, self.kept = memory, np.zeros((0, 0))
        self.places: dict[str, int] = {}
        self.ids: dict[int, int] = {}
        self._networks: tuple[ActionNetwork, ActionNetwork, ValueNetwork] | None = None
        self._state: list[Any] | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `influence`."""
        others = [agent for agent in context.env().agents if agent != self.seat]
        frame = turns.frame
        own = np.flatnonzero((frame["agent"].cast(pl.String) == self.seat).to_numpy())
        found = np.full(len(turns), np.nan)
        if not len(own) or not others:
            return turns.with_column(influence=found)
        codes = self._codes(frame["action"])
        now, later = _rows_of(turns, own, others)
        done = np.where(later >= 0, codes[later], -1)
        seen, joint = self._seen(turns, own, now), self._joint(codes, own, now)
        model, oracle, value = self._made(seen.shape[1], len(others), context.seed)
        for each in (model, oracle):
            each.meet(len(self.places))
        steps = {"steps": self.steps, "batch": self.batch}
        worth = self._later_pay(turns, own)
        past = np.hstack([seen, joint, done, worth[:, None]])
        self.kept = np.concatenate([self.kept.reshape(-1, past.shape[1]), past])[-self.memory :]
        context.metrics["cross_entropy"] = model.cross_entropy(past[:, : model.inputs], done)
        then, did = self.kept[:, : model.inputs], self.kept[:, model.inputs : -1].astype(np.int64)
        model.fit(then, did, context.rng, **steps)
        gain = worth - value.predict(seen)
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        oracle.reinforce(seen, done, np.repeat(gain[:, None], len(others), axis=1), steps=self.epochs)
        value.fit(then[:, : seen.shape[1]], self.kept[:, -1], context.rng, **steps)
        wanted = oracle.predict(seen)
        context.metrics["target_probability"] = float(wanted.max(axis=-1).mean())
        targets = (wanted.cumsum(-1) <= context.rng.random((len(own), len(others), 1))).sum(-1)
        share = context.rng.multinomial(self.samples, self._own_probabilities(turns, own, context)) / self.samples
        expected = self._expected(model, seen, joint, share)
        found[own] = distance_to_targets(expected, targets, (later >= 0) & self._visible(frame, own, others))
        return turns.with_column(influence=found)

    def _expected(self, model: ActionNetwork, seen: np.ndarray, joint: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Predictions with each own action, the others' kept, averaged by `share`, float64[rows, actions]."""
        total = np.zeros((len(seen), model.agents, model.actions))
        for action in range(share.shape[1]):
            instead = joint.copy()
            instead[:, : self.most] = np.eye(self.most)[action]
            total += share[:, action, None, None] * model.predict(np.hstack([seen, instead]))
        return total

    def _codes(self, actions: pl.Series) -> np.ndarray:
        """Number of each action's text, in the order in which they were first met; int64[rows]."""
        texts = actions.fill_null("").to_numpy().astype(str)
        distinct, inverse = np.unique(texts, return_inverse=True)
        at = np.array([self.places.setdefault(text, len(self.places)) for text in distinct.tolist()], np.int64)
        return np.asarray(at[inverse])

    def _seen(self, turns: Turns, own: np.ndarray, now: np.ndarray) -> np.ndarray:
        """What everybody sees in the seat's turns; zeros for who does not act; float64[rows, …]."""
        each = vectors(turns, 32)
        parts = [each[own], *(np.where(rows[:, None] >= 0, each[rows], 0.0) for rows in now.T)]
        return np.hstack(parts)

    def _joint(self, codes: np.ndarray, own: np.ndarray, now: np.ndarray) -> np.ndarray:
        """What everybody does there, the seat first, one place for each action; float64[rows, …]."""
        if len(self.places) > self.most:
            raise InputError(f"{len(self.places)} different actions were met: give minority_influence a larger `most`")
        places = np.eye(self.most)
        parts = [places[codes[own]], *(np.where(rows[:, None] >= 0, places[codes[rows]], 0.0) for rows in now.T)]
        return np.hstack(parts)

    def _own_probabilities(self, turns: Turns, own: np.ndarray, context: Context) -> np.ndarray:
        """The seat's policy over the numbers of its actions, float64[rows, most]."""
        import torch

        rows = turns.frame[own]
        policy: Any = context.team[self.seat]
        if rows["action_ids"].null_count() or not hasattr(policy, "actions"):
            raise InputError(f"minority_influence: {policy.name!r} has no fixed number of actions to draw from")
        with torch.no_grad():
            p = policy.score(rows).logits[:, 0].double().exp().numpy()
        found = np.zeros((len(own), self.most))
        ids = rows["action_ids"].list.first()
        self.ids |= dict(zip(ids.to_list(), self._codes(rows["action"]).tolist(), strict=True))
        for action, place in self.ids.items():  # what was never played has no text yet, and no part
            found[:, place] += p[:, action]
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def _later_pay(self, turns: Turns, own: np.ndarray) -> np.ndarray:
        """Discounted sum of the pay after the seat's turn, to the end of the episode; float64[rows]."""
        paid = np.nan_to_num(np.asarray(evaluate(turns, self.pay)[0], float))
        times, span = _times(turns), _span(turns)
        later = np.asarray(np.bincount(times, paid, span * turns.codes("episode").size), float).reshape(-1, span)
        for turn in range(span - 2, -1, -1):
            later[:, turn] += self.gamma * later[:, turn + 1]
        return np.asarray(later.ravel()[times[own] + 1])

    def _visible(self, frame: pl.DataFrame, own: np.ndarray, others: Sequence[str]) -> np.ndarray:
        if self.sees is None:
            return np.ones((len(own), len(others)), bool)
        listed = frame[self.sees].gather(own)
        return np.stack([listed.list.contains(other).fill_null(False).to_numpy() for other in others], axis=1)

    def _made(self, width: int, others: int, seed: int) -> tuple[ActionNetwork, ActionNetwork, ValueNetwork]:
        """Opponent model, oracle, and the value of what is seen; made when the width is known."""
        if self._networks is None:
            from palaestra.learning.critics import ValueNetwork
            from palaestra.learning.opponent_model import ActionNetwork

            how: dict[str, Any] = self.how
            model = ActionNetwork(width + (others + 1) * self.most, others, self.most, seed=seed, **how)
            oracle = ActionNetwork(width, others, self.most, seed=seed + 1, **how)
            self._networks = model, oracle, ValueNetwork(width, seed=seed + 2, **how)
            if self._state is not None:
                networks: tuple[Any, ...] = self._networks
                for each, state in zip(networks, self._state, strict=True):
                    each.load_state_dict(state)
        return self._networks

    def state_dict(self) -> dict[str, Any]:
        """Actions met so far, rows kept for the fit, and the networks."""
        made = self._networks
        networks = self._state if made is None else [each.state_dict() for each in made]
        return {"places": list(self.places), "ids": dict(self.ids), "kept": self.kept, "networks": networks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.places = {text: place for place, text in enumerate(state["places"])}
        self.ids = {int(action): int(place) for action, place in state["ids"].items()}
        self.kept = np.asarray(state["kept"], float)
        self._networks, self._state = None, state["networks"]


def distance_to_targets(expected: np.ndarray, targets: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Σ over the agents `counted` of the L1 distance of `expected` distributions from target actions, float64[rows].

    expected: float64[rows, agents, actions]. targets: int64[rows, agents]. counted: bool[rows, agents].

    >>> distance_to_targets(np.array([[[0.1, 0.7, 0.2]]]), np.array([[1]]), np.array([[True]])).round(3)
    array([0.6])
    """
    wanted = np.eye(expected.shape[-1])[targets]
    return np.asarray((np.abs(expected - wanted).sum(-1) * counted).sum(-1))


def _times(turns: Turns) -> np.ndarray:
    """A number for each row that orders episodes one after the other, and turns in them; int64[rows]."""
    turn = turns.frame["turn"].to_numpy().astype(np.int64)
    return np.asarray(turns.codes("episode").ids.astype(np.int64) * _span(turns) + turn)


def _ends(turns: Turns) -> np.ndarray:
    """What no time of the row's episode reaches, and each of the next does; int64[rows]."""
    return np.asarray((turns.codes("episode").ids.astype(np.int64) + 1) * _span(turns))


def _span(turns: Turns) -> int:
    return int(turns.frame["turn"].max()) + 2  # type: ignore[arg-type]


def _rows_of(turns: Turns, own: np.ndarray, others: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Of each of the seat's rows: rows of the others in the same turn, and their next ones; -1 for none."""
    times, ends = _times(turns), _ends(turns)
    agent = turns.frame["agent"].cast(pl.String).to_numpy()
    now, later = (np.full((len(own), len(others)), -1) for _ in range(2))
    for number, other in enumerate(others):
        rows = np.flatnonzero(agent == other)
        rows = rows[np.argsort(times[rows], kind="stable")]
        for found, shift in ((now, 0), (later, 1)):
            at = np.searchsorted(times[rows], times[own] + shift)
            hit = rows[np.minimum(at, len(rows) - 1)] if len(rows) else np.full(len(own), -1)
            good = (at < len(rows)) & ((times[hit] == times[own]) if shift == 0 else (times[hit] < ends[own]))
            found[good, number] = hit[good]
    return now, later
