"""Critics of actions, learned from replayed turns: ArCHer's two Q and two V [89], COMA's values of other actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import SCHEMA, SCOPE, Turns
from palaestra.credit.critics import Fresh, Replay, TurnCritic
from palaestra.errors import InputError, nearest
from palaestra.learning.stages.cells import hashed, keys_of, vectors
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

if TYPE_CHECKING:
    from palaestra.agents.policy import Policy
    from palaestra.learning.critics import NetworkCritic

KEPT = ("policy", "agent", "state", "observation", "features", "legal", "action", "action_ids", "prompt_ids")
"""Columns of a replayed turn that a policy is asked with again."""
SAMPLED = ("action_ids", "logprobs", "entropies", "prompt_ids")


@stage
class q_critic(Stage):
    """Stage: columns `q` and `v` by ArCHer's critic [89] (arXiv 2402.19446), trained on the last `memory` turns.

    It has two Q and two V with slow targets.

    `q` and `v` are the smaller of the two; the credit is `archer()`. Which rows train is `rows`: "fresh", ArCHer's,
    adds `states` rows: replayed states with a newly sampled action of today's policy; the played rows get no q and
    train nothing. "played" fills q and v of what was played, and, for policies over a fixed number of actions,
    `action_values` and `probabilities` for `coma()`.

    model: "table", by the key `over`; "network", on the env's array or the hashed text. joint: a state is what all
    agents of the turn see and what the *others* do (COMA's central critic). gamma, tau: of the paper. rate: of the
    table; hidden, size, lr: of the network. batches of `batch` rows per iteration. Rows without a reward are not kept.

    Raises:
        InputError: no such model or rows, or a number is out of range.
    """

    def __init__(
        self,
        model: Literal["table", "network"] = "table",
        *,
        rows: Literal["fresh", "played"] = "fresh",
        over: str | Sequence[str] = ("agent", "state"),
        joint: bool = False,
        reward: str = "reward",
        gamma: float = 0.9,
        tau: float = 0.1,
        memory: int = 8000,
        states: int = 1024,
        batches: int = 80,
        batch: int = 256,
        rate: float = 0.5,
        hidden: Sequence[int] = (64, 64),
        size: int = 64,
        lr: float = 1e-3,
    ) -> None:
        for name, value, known in (("model", model, ["network", "table"]), ("rows", rows, ["fresh", "played"])):
            if value not in known:
                raise InputError(f"q_critic: {name}={value!r}{nearest(str(value), known)}")
        if min(memory, states, batches, batch, size) < 1:
            raise InputError(
                f"q_critic: memory={memory}, states={states}, batches={batches}, batch={batch} and "
                f"size={size} must be at least 1"
            )
        self.model, self.rows, self.joint, self.reward = model, rows, joint, parse(reward)
        self.over = (over,) if isinstance(over, str) else tuple(over)
        self.memory, self.states, self.batches, self.batch, self.size = memory, states, batches, batch, size
        self.how: dict[str, Any] = {"gamma": gamma, "tau": tau}
        self.network_how = {"hidden": tuple(hidden), "lr": lr}
        self.table = TurnCritic(0, 0, gamma=gamma, tau=tau, rate=rate)
        self.network: NetworkCritic | None = None
        self.places: dict[str, int] = {}
        self.acts: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.replay: Replay | None = None
        self.kept: pl.DataFrame | None = None
        seen = set(self.over) if model == "table" else {"observation", "agent"}
        self.needs = {"episode", "turn", "agent", "policy", "state", "action", *seen, *self.reward.needs()}
        self.adds = {"q": "Q of the action, smaller of two", "v": "V of the state, smaller of two"} | (
            {"fresh": "the row is a replayed state with a newly sampled action"}
            if rows == "fresh"
            else {"action_values": "Q of every action of the agent", "probabilities": "the policy's, of every action"}
        )

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with q and v, or with rows added that have them."""
        policies = {policy.name: policy for policy in context.team.trainable}
        codes, acts = self._states(turns), self._actions(turns.frame)
        self._remember(turns, codes, acts, policies)
        if self.replay is None or self.kept is None or not len(self.replay.reward):
            return turns.with_column(q=np.full(len(turns), np.nan), v=np.full(len(turns), np.nan))
        pick = context.rng.integers(len(self.kept), size=self.states)
        asked = resample(self.kept[pick], policies, context.rng, self.names)
        context.spent.add(calls=len(asked), tokens=int(asked["action_ids"].list.len().sum()))
        fresh = Fresh(self.replay.state[pick], self._actions(asked))
        critic = self._critic(context.seed)
        critic.fit(self.replay, fresh, context.rng, batches=self.batches, size=self.batch)
        if self.rows == "fresh":
            q, v = critic.values(*fresh)
            return _joined(turns, asked.with_columns(pl.Series("q", q), pl.Series("v", v)))
        q, v = critic.values(codes, acts)
        return self._others(turns.with_column(q=q, v=v), codes, policies)

    # -- what is known as numbers -------------------------------------------------------------------------------------

    def _states(self, turns: Turns) -> np.ndarray:
        if self.model == "network":
            x = vectors(turns, self.size)
            return np.hstack([x, _bits(_others_of(turns))]) if self.joint else x
        keys = keys_of(turns, self.over)
        if self.joint:
            keys = keys + "\x1f" + pl.Series(_others_of(turns)).cast(pl.String)
        return _numbers(keys, self.places)

    def _actions(self, frame: pl.DataFrame) -> np.ndarray:
        """An action is its id where the policy chooses among a fixed number, else its text."""
        keys = _action_keys(frame)
        return hashed(keys, self.size) if self.model == "network" else _numbers(keys, self.acts)

    def _critic(self, seed: int) -> TurnCritic | NetworkCritic:
        if self.model == "table":
            self.table.grow(len(self.places), len(self.acts))
            return self.table
        if self.network is None:
            from palaestra.learning.critics import NetworkCritic

            assert self.replay is not None
            states, actions = self.replay.state.shape[1], self.replay.action.shape[1]
            options: dict[str, Any] = {**self.how, **self.network_how}
            self.network = NetworkCritic(states, actions, seed=seed, **options)
        return self.network

    def _remember(self, turns: Turns, codes: np.ndarray, acts: np.ndarray, policies: Mapping[str, Policy]) -> None:
        """Add the transitions of policies that learn; what was cut off goes on from where it stood."""
        earned = np.asarray(evaluate(turns, self.reward)[0], float)
        segments = turns.segments("episode", "agent")
        order = np.arange(len(turns)) if segments.order is None else segments.order
        after, last = np.arange(len(turns)), np.zeros(len(turns), bool)
        after[order[:-1]] = order[1:]
        ends = order[np.append(segments.starts[1:], len(order)) - 1]
        last[ends], after[ends] = True, ends
        frame = turns.frame
        cut = (
            frame["truncated"].fill_null(False).to_numpy()
            if "truncated" in frame.columns
            else np.zeros(len(turns), bool)
        )
        own = frame["policy"].cast(pl.String).is_in(list(policies)).fill_null(False).to_numpy() & ~np.isnan(earned)
        rows = np.flatnonzero(own)
        new = Replay(codes[rows], acts[rows], earned[rows], codes[after[rows]], (last & ~cut)[rows])
        kept = frame[rows].select(*(name for name in KEPT if name in frame.columns))
        shown = kept.filter(pl.col("action").is_not_null()) if len(kept) else kept
        self.names |= dict(zip(_action_keys(shown), shown["action"], strict=True))
        if self.replay is None or self.kept is None:
            self.replay, self.kept = new, kept.tail(self.memory)
        else:
            self.replay = Replay(*(np.concatenate(pair) for pair in zip(self.replay, new, strict=True)))
            self.kept = pl.concat([self.kept, kept], how="diagonal_relaxed").tail(self.memory)
        self.replay = Replay(*(column[-self.memory :] for column in self.replay))

    def _others(self, turns: Turns, codes: np.ndarray, policies: Mapping[str, Policy]) -> Turns:
        """`action_values` and `probabilities`; null for policies that speak."""
        import torch

        values: list[Any] = [None] * len(turns)
        chances: list[Any] = [None] * len(turns)
        for name, policy in policies.items():
            rows = np.flatnonzero((turns.frame["policy"].cast(pl.String) == name).fill_null(False).to_numpy())
            own = turns.frame[rows]
            if not len(own) or not _fixed(own).all():
                continue
            with torch.no_grad():
                p = policy.score(own).logits[:, 0].double().exp().cpu().numpy()  # type: ignore[attr-defined]
            number = p.shape[1]
            each = pl.Series([str(action) for action in range(number)])
            if self.model == "table":
                columns = _numbers(each, self.acts)
                self.table.grow(len(self.places), len(self.acts))
                q = self.table.q[:, codes[rows][:, None], columns].min(axis=0)
            else:
                assert self.network is not None
                state = np.repeat(codes[rows], number, axis=0)
                q = self.network.values(state, np.tile(hashed(each, self.size), (len(rows), 1)))[0].reshape(-1, number)
            for place, row in enumerate(rows.tolist()):
                values[row], chances[row] = q[place].tolist(), p[place].tolist()
        kind = pl.List(pl.Float64)
        return turns.with_column(
            action_values=pl.Series("action_values", values, kind), probabilities=pl.Series("p", chances, kind)
        )

    def state_dict(self) -> dict[str, Any]:
        """State: the replay, the critic, and the numbers of keys and actions."""
        return {
            "places": list(self.places),
            "acts": list(self.acts),
            "names": self.names,
            "replay": None if self.replay is None else list(self.replay),
            "table": self.table.state_dict(),
            "network": self.network and self.network.state_dict(),
            "kept": packed(self.kept),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.places = {key: place for place, key in enumerate(state["places"])}
        self.acts = {key: place for place, key in enumerate(state["acts"])}
        self.names = dict(state["names"])
        self.replay = None if state["replay"] is None else Replay(*map(np.asarray, state["replay"]))
        self.kept = unpacked(state["kept"])
        self.table.load_state_dict(state["table"])
        self.network = None
        if state["network"]:
            self._critic(0).load_state_dict(state["network"])


def resample(
    rows: pl.DataFrame, policies: Mapping[str, Policy], rng: np.random.Generator, names: Mapping[str, str]
) -> pl.DataFrame:
    """Copy of a table of turns, actions newly sampled by `policies` {name: Policy}; names {action id: its text}."""
    import torch

    from palaestra.agents.policy import Request
    from palaestra.envs.protocol import Observation

    rows = rows.with_row_index("_row")
    parts = []
    for name in rows["policy"].cast(pl.String).unique().sort().to_list():
        own, policy = rows.filter(pl.col("policy").cast(pl.String) == name), policies[name]
        if _fixed(own).all():
            with torch.no_grad():
                logp = policy.score(own).logits[:, 0].double().cpu().numpy()  # type: ignore[attr-defined]
            p = np.exp(logp)
            ids = (p.cumsum(axis=1) <= rng.random(len(own))[:, None] * p.sum(axis=1, keepdims=True)).sum(axis=1)
            chosen = logp[np.arange(len(own)), ids][:, None]
            entropy = -(p * np.where(p > 0, logp, 0.0)).sum(axis=1)[:, None]
            said = [names.get(str(action)) for action in ids.tolist()]
            lists = ids[:, None].tolist(), chosen.tolist(), entropy.tolist(), own["prompt_ids"].to_list()
        else:
            asked = [Request(Observation(text), agent, rng) for text, agent in zip(own["observation"], own["agent"])]
            answers = policy.act(asked)
            failed = next((answer.error for answer in answers if answer.error), None)
            if failed:
                raise InputError(f"q_critic: {name!r} could not be asked again: {failed}")
            said = [str(answer.action) for answer in answers]
            lists = tuple([list(getattr(answer, kind)) for answer in answers] for kind in SAMPLED)  # type: ignore[assignment]
        columns = (pl.Series(kind, each, SCHEMA[kind].dtype) for kind, each in zip(SAMPLED, lists, strict=True))
        parts.append(own.with_columns(pl.Series("action", said, pl.String), *columns))
    return pl.concat(parts, how="diagonal_relaxed").sort("_row").drop("_row")


def _joined(turns: Turns, asked: pl.DataFrame) -> Turns:
    """Played rows, which do not train, followed by the fresh rows as a group of its own."""
    frame = turns.frame
    scope = [pl.lit(frame[name][0], frame.schema[name]).alias(name) for name in SCOPE if name in frame.columns]
    number = int(frame["group"].to_numpy().max()) + 1
    asked = asked.with_columns(
        *scope,
        pl.lit(number, pl.Int32).alias("group"),
        pl.int_range(pl.len(), dtype=pl.Int32).alias("episode"),
        pl.lit(0, pl.Int32).alias("turn"),
        pl.lit(True).alias("fresh"),
    )
    none = pl.lit(None, pl.Float64)
    played = Turns(frame.with_columns(none.alias("q"), none.alias("v"), pl.lit(False).alias("fresh")))
    return Turns.concat([played, Turns(asked)])


def _fixed(frame: pl.DataFrame) -> pl.Series:
    """Rows of policies over a fixed number of actions: one id, and no prompt."""
    one = frame["action_ids"].list.len() == 1
    return (one & frame["prompt_ids"].is_null() if "prompt_ids" in frame.columns else one).fill_null(False)


def _action_keys(frame: pl.DataFrame) -> pl.Series:
    ids = frame["action_ids"].list.first().cast(pl.String)
    return frame.select(pl.when(_fixed(frame)).then(ids).otherwise(frame["action"].fill_null("")).alias("key"))["key"]


def _numbers(keys: pl.Series, places: dict[str, int]) -> np.ndarray:
    distinct, inverse = np.unique(keys.to_numpy().astype(str), return_inverse=True)
    at = np.array([places.setdefault(key, len(places)) for key in distinct.tolist()], np.int64)
    return np.asarray(at[inverse])


def _others_of(turns: Turns) -> np.ndarray:
    """Of each row: a hash of what everybody in the turn sees and what the others do, whatever their order; uint64."""
    turn = turns.codes("episode", "turn")
    seen, done = (_hash(turns.frame, name) for name in ("state", "action"))
    sums = np.zeros((2, turn.size), np.uint64)
    np.add.at(sums[0], turn.ids, seen)
    np.add.at(sums[1], turn.ids, done)
    return np.asarray(sums[0][turn.ids] * np.uint64(0x9E3779B97F4A7C15) + sums[1][turn.ids] - done)


def _hash(frame: pl.DataFrame, name: str) -> np.ndarray:
    import hashlib

    keys = frame.select(
        pl.concat_str([pl.col(c).cast(pl.String).fill_null("") for c in ("agent", name)], separator="\x1f")
    )
    distinct, inverse = np.unique(keys.to_series().to_numpy().astype(str), return_inverse=True)
    codes = [int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") for key in distinct]
    return np.asarray(np.array(codes, np.uint64)[inverse])


def _bits(codes: np.ndarray) -> np.ndarray:
    """Sixteen signs of a hash, as numbers."""
    return np.asarray(((codes[:, None] >> np.arange(16, dtype=np.uint64)) & np.uint64(1)) * 2.0 - 1.0)
