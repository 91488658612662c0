"""Evaluated genomes, their archives and novelty, kept and computed by pyribs (`palaestra[diversity]`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.errors import missing_extra

if TYPE_CHECKING:
    from ribs.archives import ProximityArchive


@dataclass(frozen=True)
class Evaluated:
    """Data: genomes with their evaluation: rewards, observed behaviour and descriptors.

    Attributes:
        genomes: float64[n, size].
        reward: float64[n].
        seen: what their behaviour looked like, float64[n, width], from which descriptors are made.
        place: their descriptors, float64[n, dimensions].
    """

    genomes: np.ndarray
    reward: np.ndarray
    seen: np.ndarray
    place: np.ndarray

    def __len__(self) -> int:
        return len(self.genomes)

    def __getitem__(self, rows: np.ndarray | slice) -> Evaluated:
        return Evaluated(self.genomes[rows], self.reward[rows], self.seen[rows], self.place[rows])

    @staticmethod
    def concat(parts: Sequence[Evaluated]) -> Evaluated:
        """One object with the genomes of all parts, one after the other; at least one part."""
        names = ("genomes", "reward", "seen", "place")
        return Evaluated(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays by name, for a checkpoint."""
        return {"genomes": self.genomes, "reward": self.reward, "seen": self.seen, "place": self.place}


def ribs_archives() -> Any:
    """Import and return the module `ribs.archives`; raises if pyribs is not installed.

    Raises:
        MissingExtraError: pyribs is not installed.
    """
    try:
        from ribs import archives
    except ModuleNotFoundError as error:
        raise missing_extra("ribs", "diversity") from error
    return archives


def archive_of(kept: Evaluated, neighbours: int) -> ProximityArchive:
    """Make a pyribs `ProximityArchive` of all `Evaluated` genomes, whose novelty is by the `neighbours` nearest ones.

    Descriptors are its measures, rewards its objectives.

    It keeps whatever it is given; what is worth keeping is decided by the search.
    """
    found: ProximityArchive = ribs_archives().ProximityArchive(
        solution_dim=kept.genomes.shape[1],
        measure_dim=kept.place.shape[1],
        k_neighbors=neighbours,
        novelty_threshold=-np.inf,
    )
    if len(kept):
        found.add(kept.genomes, kept.reward, kept.place)
    return found


def novelty(of: Evaluated, among: Sequence[Evaluated], *, k: int = 15, inside: bool = False) -> np.ndarray:
    """Novelty of each `Evaluated` genome, float64[n]: mean distance of its place to the k nearest of `among`.

    It is inf without any.

    Args:
        of: whose novelty.
        among: the others.
        k: neighbours; all, if there are fewer.
        inside: whether each of `of` stands in `among` once, and does not count as its own neighbour.

    Source: Lehman and Stanley 2011; over population, offspring and archives as in SERENE (arXiv 2203.01027).

    >>> x = np.array([[0.0], [1.0], [4.0]])
    >>> whole = Evaluated(x, x[:, 0], x, x)
    >>> novelty(whole[::2], [whole], k=2, inside=True).tolist()
    [2.5, 3.5]
    """
    others = Evaluated.concat(among)
    count = min(k, len(others) - inside)
    if count < 1 or not len(of):
        return np.full(len(of), np.inf)
    mean = archive_of(others, count + inside).compute_novelty(of.place)
    return np.asarray(mean * (count + inside) / count)


def table(kept: Evaluated, name: str) -> pl.DataFrame:
    """Table of an archive's `Evaluated` genomes, a row each: archive, reward, descriptor place_0 ..., genome."""
    held = archive_of(kept, 1).data()
    places = {f"place_{at}": held["measures"][:, at] for at in range(kept.place.shape[1])}
    genome = pl.Series("genome", held["solution"].tolist(), dtype=pl.List(pl.Float64))
    return pl.DataFrame({"archive": [name] * len(kept), "reward": held["objective"], **places, "genome": genome})
