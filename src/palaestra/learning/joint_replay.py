"""Replay of joint steps: what all agents of a team saw, did, earned and saw next, for learners of a team's value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import LearnerError

FIELDS = ("seen", "legal", "action", "reward", "next_seen", "next_legal", "over", "duration")


class JointReplay:
    """Replay buffer of the last `capacity` joint steps of a team.

    seen, next_seen: float32[steps, agents, features], shorter observations filled up with 0. legal, next_legal:
    bool[steps, agents, actions]. action: int64[steps, agents]. reward: float32[steps, agents]. over: bool[steps], no
    step follows by the rules of the game. duration: float32[steps], time until the next joint step, of `clock`, else 1.

    Args:
        capacity: steps that are kept, the newest. features, actions: of each agent, by name, in the order of agents.
    """

    def __init__(self, capacity: int, features: Mapping[str, int], actions: Mapping[str, int]) -> None:
        self.capacity, self.features, self.actions = capacity, dict(features), dict(actions)
        self.agents = tuple(self.features)
        self.size = self.at = 0
        n, wide, many = len(self.agents), max(self.features.values()), max(self.actions.values())
        shapes = {"seen": (n, wide), "legal": (n, many), "action": (n,), "reward": (n,), "over": (), "duration": ()}
        kinds: dict[str, Any] = {
            "seen": np.float32,
            "legal": bool,
            "action": np.int64,
            "reward": np.float32,
            "over": bool,
            "duration": np.float32,
        }
        self.columns = {
            name: np.zeros((capacity, *shapes[name.removeprefix("next_")]), kinds[name.removeprefix("next_")])
            for name in FIELDS
        }

    def __len__(self) -> int:
        return self.size

    def add(self, rows: pl.DataFrame, reward: str, *, continuing: bool = False, clock: str | None = None) -> int:
        """Add the turns of whole episodes, one row per agent and turn; returns the number of joint steps.

        The last step of an episode that was cut off, or is `continuing`, is left out: nothing is known of what would
        have followed. clock: column with the time of a turn, see `duration`.

        Raises:
            LearnerError: agents do not all act in every turn.
        """
        keys = [key for key in ("run", "iteration", "group", "episode") if key in rows.columns]
        known = pl.DataFrame({"agent": self.agents, "place": range(len(self.agents))})
        rows = rows.with_columns(pl.col("agent").cast(pl.String)).join(known, on="agent").sort([*keys, "turn", "place"])
        n = len(self.agents)
        if len(rows) % n or not (rows["place"].to_numpy().reshape(-1, n) == np.arange(n)).all():
            raise LearnerError(
                f"learn.kind value_decomposition: in some turns not all of {', '.join(self.agents)} act; it "
                "learns what joint actions are worth, and needs envs in which all act at once"
            )
        first = rows.gather_every(n)
        episode = first.select(pl.struct(keys).rle_id()).to_series().to_numpy()
        follows = np.append(episode[1:] == episode[:-1], False)
        cut = np.full(len(first), continuing)
        if "truncated" in rows.columns and not continuing:
            cut = first["truncated"].fill_null(False).to_numpy()
        seen, legal = self._seen(rows, n), self._legal(rows, n)
        kept = np.flatnonzero(follows | ~cut)
        after = np.minimum(kept + 1, len(first) - 1)
        time = np.arange(len(first)) if clock is None else first[clock].to_numpy()
        new = {
            "seen": seen[kept],
            "legal": legal[kept],
            "action": rows["action_ids"].list.first().to_numpy().astype(np.int64).reshape(-1, n)[kept],
            "reward": rows[reward].cast(pl.Float32).fill_null(0.0).to_numpy().reshape(-1, n)[kept],
            "next_seen": seen[after],
            "next_legal": legal[after],
            "over": ~follows[kept],
            "duration": np.where(follows[kept], time[after] - time[kept], 1),
        }
        places = (self.at + np.arange(len(kept))) % self.capacity
        for name, values in new.items():
            self.columns[name][places] = values
        self.at = (self.at + len(kept)) % self.capacity
        self.size = min(self.capacity, self.size + len(kept))
        return len(kept)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, np.ndarray]:
        """Sample `number` joint steps uniformly, as arrays by name."""
        places = rng.integers(self.size, size=number)
        return {name: values[places] for name, values in self.columns.items()}

    def state_dict(self) -> dict[str, Any]:
        """The stored steps, for a checkpoint."""
        return {"size": self.size, "at": self.at, **{name: each[: self.size] for name, each in self.columns.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.size, self.at = int(state["size"]), int(state["at"])
        for name, values in self.columns.items():
            values[: self.size] = state[name]

    def _seen(self, rows: pl.DataFrame, n: int) -> np.ndarray:
        if rows["features"].null_count():
            raise LearnerError("learn.kind value_decomposition: a turn has no array that a network could read")
        widths: Sequence[int] = list(self.features.values())
        wide = max(widths)
        filled = rows["features"].list.concat(pl.Series([[0.0] * wide], dtype=pl.List(pl.Float64))).list.head(wide)
        return filled.explode().to_numpy().astype(np.float32).reshape(-1, n, wide)

    def _legal(self, rows: pl.DataFrame, n: int) -> np.ndarray:
        many = max(self.actions.values())
        legal = np.arange(many) < np.array(list(self.actions.values()))[:, None]
        legal = np.broadcast_to(legal, (len(rows) // n, n, many)).copy()
        if "legal" in rows.columns:
            flat, given = legal.reshape(-1, many), rows["legal"]
            for length in given.list.len().drop_nulls().unique().to_list():  # one per number of actions
                at = np.flatnonzero((given.list.len() == length).fill_null(False).to_numpy())
                flat[at, :length] &= given.gather(at).explode().to_numpy().astype(bool).reshape(-1, length)
        return legal
