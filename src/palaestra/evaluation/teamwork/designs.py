"""Search over designs of agents with a surrogate ([70] AgentSwift, arXiv 2506.06017).

A design fills slots (workflow, memory, tools, planning) with one of their options; a kernel of equal slots and pairs of
them stands for what was not evaluated. Left out: the paper's language model as surrogate and as mutator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.foundation.search import SearchTree, soft_mixed

Slots = Mapping[str, Sequence[Any]]


class Surrogate:
    """Surrogate model of scores of designs: kernel ridge regression on options and pairs of options, with deviations.

    Two designs with m equal slots share m + m(m - 1)/2 features. noise: variance of a score, beside a variance of 1 of
    the weights' prior.
    """

    def __init__(self, noise: float = 0.3) -> None:
        self.noise = noise
        self._designs: np.ndarray = np.zeros((0, 0), int)
        self._inverse: np.ndarray = np.zeros((0, 0))
        self._mean, self._scale, self._weights = 0.0, 1.0, np.zeros(0)

    @staticmethod
    def kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Kernel of designs, int[n, slots] and int[m, slots]: share of features in common, float64[n, m]."""
        equal = (one[:, None, :] == other[None, :, :]).sum(-1)
        slots = one.shape[1]
        return np.asarray(equal * (equal + 1) / (slots * (slots + 1)))

    def fit(self, designs: np.ndarray, scores: np.ndarray) -> Surrogate:
        """Fits the model to designs, int[n, slots], and scores, float64[n]; returns the model itself."""
        self._designs = np.asarray(designs)
        scores = np.asarray(scores, float)
        self._mean, self._scale = float(scores.mean()), float(scores.std()) or 1.0
        self._inverse = np.linalg.inv(self.kernel(self._designs, self._designs) + self.noise * np.eye(len(scores)))
        self._weights = self._inverse @ ((scores - self._mean) / self._scale)
        return self

    def predict(self, designs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard deviation) predicted for designs int[n, slots], float64[n] each."""
        cross = self.kernel(np.asarray(designs), self._designs)
        variance = 1 - np.einsum("ij,jk,ik->i", cross, self._inverse, cross)
        return self._mean + self._scale * cross @ self._weights, self._scale * np.sqrt(np.maximum(variance, 0))


def guided_search(
    slots: Slots,
    evaluate: Callable[[dict[str, Any]], float],
    *,
    budget: int,
    rng: np.random.Generator,
    start: int = 10,
    surrogate: Surrogate | None = None,
    guided: bool = True,
    alpha: float = 10.0,
    beta: float = 0.3,
    mix: float = 0.2,
    trained: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Table per evaluated design of `slots` (name -> options): surrogate-guided search in `budget` calls of `evaluate`.

    Rows are in the order of evaluation.

    Columns: step, parent (its step), the slots, predicted, score.

    `start` drawn designs, then one evaluation a step: a node is drawn by `soft_mixed` of what came of it and below it,
    and changed three times: an option that another evaluated design has, any option of any slot, and any again; of each
    the one that the surrogate likes best goes on. guided=False takes any of them instead. beta: weight of surprise.
    trained: designs that the surrogate learns from beside those that are evaluated, as `training_designs` gives them.

    Raises:
        InputError: there are fewer than two slots or designs, or the budget is not above `start`.
    """
    names, sizes = list(slots), [len(each) for each in slots.values()]
    if len(names) < 2 or min(sizes) < 1 or not 1 <= start < budget or np.prod(sizes) < budget:
        raise InputError(
            f"guided_search: {len(names)} slots of {sizes} options, budget={budget}: two slots at least, as many "
            f"designs as the budget, and 1 <= start={start} < budget"
        )
    model, tree, known = surrogate or Surrogate(), SearchTree(None), dict[tuple[int, ...], float]()
    surprise, rows = np.zeros(1), []
    further, scored = _coded(slots, trained)

    def add(design: np.ndarray, parent: int, predicted: float | None) -> None:
        nonlocal surprise
        chosen = {name: slots[name][at] for name, at in zip(names, design.tolist(), strict=True)}
        score = float(evaluate(chosen))
        known[tuple(design.tolist())] = score
        node = tree.add(design, parent)
        tree.back(node, score)
        surprise = np.append(surprise, 0.0)
        surprise[[node, *tree.ancestors(node)]] += abs(score - predicted) if predicted is not None else 0.0
        rows.append({"step": node, "parent": parent or None, **chosen, "predicted": predicted, "score": score})

    while len(tree) <= start:
        design = np.array([rng.integers(size) for size in sizes])
        if tuple(design.tolist()) not in known:
            add(design, 0, None)
    while len(tree) <= budget:
        designs = np.array(list(known))
        model.fit(np.concatenate([designs, further]), np.array([*known.values(), *scored]))
        mean, unforeseen = tree.total[1:] / tree.visits[1:], surprise[1:] / tree.visits[1:]
        parent = 1 + int(rng.choice(len(mean), p=soft_mixed(mean, unforeseen, alpha=alpha, beta=beta, mix=mix)))
        design = np.asarray(tree.items[parent])
        pool = [sorted(set(designs[:, at].tolist())) for at in range(len(names))]
        for options in (pool, [list(range(size)) for size in sizes], [list(range(size)) for size in sizes]):
            near = _changed(design, options)
            new = np.array([each for each in near if tuple(each.tolist()) not in known])
            near = new if len(new) else near
            at = int(model.predict(near)[0].argmax()) if guided else int(rng.integers(len(near)))
            design = near[at]
        while tuple(design.tolist()) in known:
            design = np.array([rng.integers(size) for size in sizes])
        add(design, parent, float(model.predict(design[None])[0][0]))
    return pl.DataFrame(rows, infer_schema_length=None)


def climb(
    slots: Slots,
    evaluate: Callable[[dict[str, Any]], float],
    *,
    budget: int,
    rng: np.random.Generator,
    patience: int = 12,
) -> pl.DataFrame:
    """Table per evaluated design of `slots` (name -> options): greedy climb in `budget` calls of `evaluate`.

    A slot of the best is changed.

    A baseline of `guided_search`.

    It keeps improvements.

    No design is evaluated twice while there are others. After `patience` tries without a better one, or where all
    neighbours are known, it begins at another design.
    """
    names, rows, known = list(slots), [], set[tuple[int, ...]]()
    every = [list(range(len(slots[name]))) for name in names]
    here: list[int] | None = None
    level, still, parent = 0.0, 0, None
    for step in range(1, budget + 1):
        near = (
            [] if here is None else [each for each in _changed(np.array(here), every).tolist() if (*each,) not in known]
        )
        if near:
            design = near[int(rng.integers(len(near)))]
        else:
            here, parent, still, design = None, None, 0, [int(rng.choice(each)) for each in every]
            while (*design,) in known and len(known) < np.prod([len(each) for each in every]):
                design = [int(rng.choice(each)) for each in every]
        known.add((*design,))
        chosen = {name: slots[name][at] for name, at in zip(names, design, strict=True)}
        score = float(evaluate(chosen))
        rows.append({"step": step, "parent": parent, **chosen, "predicted": None, "score": score})
        if here is None or score > level:
            here, level, still, parent = design, score, 0, step
        else:
            still += 1
            here, parent, still = (None, None, 0) if still == patience else (here, parent, still)
    return pl.DataFrame(rows, infer_schema_length=None)


def training_designs(
    slots: Slots,
    evaluate: Callable[[dict[str, Any]], float],
    *,
    number: int,
    rng: np.random.Generator,
    kappa: float = 1.0,
) -> pl.DataFrame:
    """Table of `number` designs of `slots` (name -> options) scored by `evaluate`, for a surrogate: all pairs first.

    Each pair of options stands in it once; best and worst are predicted.

    The first are a covering array of pairs, made greedily. After those, as far as `number` goes, the untried design of
    the largest mean + κ · deviation and that of the least mean - κ · deviation alternate (balanced Bayesian sampling).

    Raises:
        InputError: there are fewer than two slots, fewer designs than `number`, or more than 100,000.
    """
    names, sizes = list(slots), [len(each) for each in slots.values()]
    total = int(np.prod(sizes, dtype=float)) if names else 0
    if len(names) < 2 or not 1 <= number <= total <= 100_000:
        raise InputError(f"training_designs: {number=} of {total:,} designs of {len(names)} slots; at most 100,000")
    every = np.stack([axis.ravel() for axis in np.meshgrid(*map(np.arange, sizes), indexing="ij")], axis=1)
    every = every[rng.permutation(total)]
    pairs = [(one, other) for one in range(len(names)) for other in range(one + 1, len(names))]
    open_ = {pair: np.ones((sizes[pair[0]], sizes[pair[1]]), bool) for pair in pairs}
    taken = np.zeros(total, bool)
    chosen: list[int] = []
    while len(chosen) < number and any(each.any() for each in open_.values()):
        gain = sum(open_[one, other][every[:, one], every[:, other]].astype(int) for one, other in pairs)
        at = int(np.argmax(np.where(taken, -1, gain)))
        for one, other in pairs:
            open_[one, other][every[at, one], every[at, other]] = False
        taken[at] = True
        chosen.append(at)

    def score(at: int) -> float:
        return float(evaluate({name: slots[name][each] for name, each in zip(names, every[at].tolist(), strict=True)}))

    scores = [score(at) for at in chosen]
    while len(chosen) < number:
        mean, deviation = Surrogate().fit(every[chosen], np.array(scores)).predict(every)
        best = len(chosen) % 2 == 0
        bound = mean + kappa * deviation if best else -mean + kappa * deviation
        at = int(np.argmax(np.where(taken, -np.inf, bound)))
        taken[at] = True
        chosen.append(at)
        scores.append(score(at))
    columns = {name: [slots[name][at] for at in every[chosen, place]] for place, name in enumerate(names)}
    return pl.DataFrame({**columns, "score": scores})


def _coded(slots: Slots, trained: pl.DataFrame | None) -> tuple[np.ndarray, list[float]]:
    """Designs of a table as int[n, slots], and their scores."""
    if trained is None:
        return np.zeros((0, len(slots)), int), []
    need_columns("guided_search", trained.columns, [*slots, "score"])
    rows = [[list(options).index(row[name]) for name, options in slots.items()] for row in trained.to_dicts()]
    return np.array(rows, int).reshape(-1, len(slots)), trained["score"].to_list()


def propose(frame: pl.DataFrame, score: str = "score", *, most: int = 5, kappa: float = 1.0) -> pl.DataFrame:
    """Table of designs to try next, of a table of scored ones: slots, predicted, deviation, by mean + κ · deviation.

    The two are a fitted surrogate's, and κ is kappa.

    frame: a row per evaluated design, its slots as columns, and `score`; equal designs are repetitions.

    Raises:
        MissingColumnError, InputError: no such column, fewer than two slots, or more than 100,000 designs.
    """
    need_columns("propose", frame.columns, [score])
    names = [name for name in frame.columns if name != score]
    known = frame.with_columns(pl.col(score).cast(pl.Float64).fill_nan(None)).drop_nulls(score)
    given = known.select(pl.col(names).cast(pl.String).fill_null(""), score)
    options = [sorted(set(given[name])) for name in names]
    total = int(np.prod([len(each) for each in options], dtype=float)) if names else 0
    if len(names) < 2 or not len(given) or total > 100_000:
        raise InputError(
            f"propose: {len(names)} slots with {total:,} designs; 2 slots at least, 100,000 designs at most"
        )
    codes = np.stack([np.searchsorted(each, given[name].to_list()) for name, each in zip(names, options)], axis=1)
    every = np.stack([axis.ravel() for axis in np.meshgrid(*map(np.arange, map(len, options)), indexing="ij")], axis=1)
    seen = {tuple(row) for row in codes.tolist()}
    new = np.array([row for row in every.tolist() if tuple(row) not in seen], int).reshape(-1, len(names))
    if not len(new):
        return given.select(names).clear().with_columns(predicted=pl.lit(0.0), deviation=pl.lit(0.0))
    mean, deviation = Surrogate().fit(codes, given[score].to_numpy()).predict(new)
    best = np.argsort(-(mean + kappa * deviation), kind="stable")[:most]
    columns = {name: [options[at][code] for code in new[best, at]] for at, name in enumerate(names)}
    return pl.DataFrame({**columns, "predicted": mean[best], "deviation": deviation[best]})


def _changed(design: np.ndarray, options: Sequence[Sequence[int]]) -> np.ndarray:
    """The design with one slot changed, in every way, int[n, slots]; itself if there is none."""
    rows = [
        np.concatenate([design[:at], [option], design[at + 1 :]])
        for at, own in enumerate(options)
        for option in own
        if option != design[at]
    ]
    return np.array(rows) if rows else design[None]
