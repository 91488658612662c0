"""Who should be heard by whom, learned from how good exchanges were ([24] OPTAGENT, arXiv 2510.18032).

The paper's policy is verbal: what a model said of an exchange conditions which edges it picks next. This is a numeric
core of it, w_ij ← w_ij + η (q_ij - w_ij), with the best m senders of each receiver; its constants are ours. Left out:
the two meta-agents and their feedback in words (grades may come from the stage `judge`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest, need_columns


class EdgeScores:
    """Running quality scores of edges between `members`, updated by messages; `route(m)`: each one's m best senders.

    Raises:
        InputError: fewer than two members, or eta is not in (0, 1].

    >>> scores = EdgeScores(["a", "b", "c"], eta=0.5)
    >>> scores.update(pl.DataFrame({"sender": ["b", "c"], "receiver": ["a", "a"], "quality": [1.0, 0.0]}))
    >>> scores.route(1)["a"]
    ['b']
    """

    def __init__(self, members: Sequence[str], eta: float = 0.2, start: float = 0.5) -> None:
        if len(set(members)) < 2 or len(set(members)) < len(members) or not 0 < eta <= 1:
            raise InputError(
                f"EdgeScores: members={list(members)} at least two, of different names; eta={eta} in (0, 1]"
            )
        self.members, self.eta = tuple(members), eta
        self.scores = np.full((len(members), len(members)), float(start))
        """float64[sender, receiver]."""
        np.fill_diagonal(self.scores, -np.inf)

    def update(self, messages: pl.DataFrame) -> None:
        """Moves, in place, the score of each edge towards the `quality` of its messages, in order; nulls do not count.

        Raises:
            MissingColumnError, InputError: no such column, a member that is not known, or one who hears itself.
        """
        need_columns("EdgeScores", messages.columns, ("sender", "receiver", "quality"))
        rows = messages.select(
            pl.col("sender", "receiver").cast(pl.String), pl.col("quality").cast(pl.Float64).fill_nan(None)
        ).drop_nulls("quality")
        place = {name: at for at, name in enumerate(self.members)}
        for name in {*rows["sender"], *rows["receiver"]}:
            if name not in place:
                raise InputError(f"EdgeScores: {name!r} is no member{nearest(str(name), place)}")
        later = pl.int_range(pl.len(), dtype=pl.Int64).reverse().over("sender", "receiver")
        moved = (
            rows.with_columns(_share=self.eta * (1 - self.eta) ** later.cast(pl.Float64))
            .group_by("sender", "receiver")
            .agg((pl.col("_share") * pl.col("quality")).sum().alias("_add"), pl.len().alias("_n"))
        )
        sender = np.array([place[name] for name in moved["sender"]], int)
        receiver = np.array([place[name] for name in moved["receiver"]], int)
        if (sender == receiver).any():
            raise InputError("EdgeScores: somebody hears itself")
        kept = (1 - self.eta) ** moved["_n"].to_numpy()
        self.scores[sender, receiver] = kept * self.scores[sender, receiver] + moved["_add"].to_numpy()

    def route(self, most: int, rng: np.random.Generator | None = None) -> dict[str, list[str]]:
        """Dict of the best `most` senders of each receiver; ties in their order, or drawn with `rng`."""
        if not 1 <= most < len(self.members):
            raise InputError(f"EdgeScores.route: {most} of {len(self.members) - 1} senders: at least 1, at most all")
        luck = np.zeros_like(self.scores) if rng is None else rng.random(self.scores.shape)
        order = np.lexsort((luck, -self.scores), axis=0)[:most]
        return {
            name: [self.members[each] for each in sorted(order[:, at].tolist())] for at, name in enumerate(self.members)
        }

    def table(self, most: int) -> pl.DataFrame:
        """The scores as a table, a row for each edge: receiver, sender, score, kept; the best first."""
        kept = self.route(most)
        rows = [
            (receiver, sender, float(self.scores[s, r]), sender in kept[receiver])
            for r, receiver in enumerate(self.members)
            for s, sender in enumerate(self.members)
            if s != r
        ]
        found = pl.DataFrame(rows, schema=["receiver", "sender", "score", "kept"], orient="row")
        return found.sort("receiver", "score", descending=[False, True], maintain_order=True)
