"""`TabularPolicy`: one row of softmax logits per state, the baseline that a language policy has to be compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from palaestra.agents.discrete import DiscretePolicy
from palaestra.envs.protocol import Observation

if TYPE_CHECKING:
    import polars as pl


class TabularPolicy(DiscretePolicy):
    """Trainable softmax policy with a row of logits per observation key, uniform until learned.

    The key is `Observation.key()`; agents may share the policy.

    States take rows in the order in which they are first learned from. Acting adds none, so it does not matter who acts
    and where.

    actions: how many ids. capacity: rows that the table begins with; a full table is doubled, and learners extend the
    moments of their optimisers with it.
    """

    KIND = "tabular"
    SETTINGS: ClassVar[tuple[str, ...]] = ("actions", "name", "capacity")

    def __init__(self, actions: int, *, name: str = "tabular", capacity: int = 4096) -> None:
        super().__init__(torch.nn.Module(), actions=actions, name=name)
        self.capacity = capacity
        self.module.register_parameter("logits", torch.nn.Parameter(torch.zeros(capacity, actions)))
        self._places: dict[int, int] = {}

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logits of observations from the table; zeros for a state that nothing was learned of."""
        return self._known([observation.key() for observation in observations])

    def _known(self, keys: list[int]) -> torch.Tensor:
        fresh = set(keys) - self._places.keys()
        rows = self._rows([self._places.get(key, 0) for key in keys])
        known = [key not in fresh for key in keys] if fresh else None
        return rows if known is None else torch.where(torch.tensor(known, device=rows.device)[:, None], rows, 0.0)

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logits from the table by the column `state`; where a gradient is wanted, new states get a row."""
        keys = rows["state"].to_list()
        if not torch.is_grad_enabled():  # only looked at
            return self._known(keys)
        self.meet(rows)
        return self._rows([self._places[key] for key in keys])

    def meet(self, rows: pl.DataFrame) -> None:
        """Add a row of zeros to the table for each new state of these rows, in this order."""
        met = len(self._places)
        for key in rows["state"].to_list():
            self._places.setdefault(key, len(self._places))
        self._make_room(len(self._places))
        if len(self._places) > met:
            with torch.no_grad():  # as it was played
                self.module.get_parameter("logits")[met : len(self._places)] = 0.0

    def write(self, states: Sequence[int], logits: np.ndarray) -> None:
        """Set the logits of these states by their keys, float[states, actions]; new ones get places."""
        places = [self._places.setdefault(key, len(self._places)) for key in states]
        self._make_room(len(self._places))
        with torch.no_grad():
            table = self.module.get_parameter("logits")
            table[torch.tensor(places, dtype=torch.long, device=table.device)] = torch.from_numpy(logits).to(table)

    def _make_room(self, states: int) -> None:
        """Double the table until it holds so many states."""
        if states > self.capacity:
            self._resize(max(states, 2 * self.capacity))

    def _resize(self, capacity: int) -> None:
        """A table of so many rows: the same parameter, with what it holds and its gradient."""
        logits, self.capacity = self.module.get_parameter("logits"), capacity
        old, gradient, logits.grad = logits.detach(), logits.grad, None
        logits.data = padded(old, capacity)
        if gradient is not None:
            logits.grad = padded(gradient, capacity)

    def _rows(self, places: list[int]) -> torch.Tensor:
        table = self.module.get_parameter("logits")
        return table[torch.tensor(places, dtype=torch.long, device=table.device)]

    def state_dict(self) -> dict[str, Any]:
        """The table of logits, and the states in the order of its rows (uint64 keys as int64)."""
        keys = np.fromiter(self._places, np.uint64, len(self._places)).view(np.int64)
        return {**super().state_dict(), "states": torch.from_numpy(keys)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`. Raises InputError if it does not fit."""
        rows = len(state["logits"]) if "logits" in state else self.capacity
        if rows != self.capacity:  # it was saved after it had grown, or before
            self._resize(rows)
        super().load_state_dict({key: value for key, value in state.items() if key != "states"})
        keys = state["states"].cpu().numpy().view(np.uint64).tolist()
        self._places = {key: place for place, key in enumerate(keys)}


def padded(table: torch.Tensor, rows: int) -> torch.Tensor:
    """Copy of a tensor's first `rows` rows, filled with zero rows where it has fewer."""
    found = table.new_zeros(rows, *table.shape[1:])
    found[: len(table)] = table[:rows]
    return found
