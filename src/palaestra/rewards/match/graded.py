"""Graded rewards: partial credit for what is nearly right, without changing what is best.

Tiers of a distance, milestones in a log, overlap of boxes. A grade must never outweigh success; `sweet_spot` checks it.
Left out: what measures the distance in a given world; that is a column.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import is_scored
from palaestra.algebra.signals import Signal, SignalLike, as_signal, fill_missing, is_missing, register, where
from palaestra.algebra.turns import Ragged
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards.match.words import text_of

Levels = tuple[float, ...]


@register()
def tier(distance: SignalLike, *, edges: Levels, levels: Levels) -> Signal:
    """Signal: graded reward by distance, levels[k] for the first k with distance < edges[k], 0 beyond the last edge.

    Raises:
        ExpressionError: edges do not rise, levels do not fall, one lies outside [0, 1], or their numbers differ.

    >>> from palaestra.algebra.turns import Turns
    >>> tier("cost", edges=(0.1, 0.8), levels=(1.0, 0.3)).evaluate(Turns({"cost": [0.05, 0.1, 0.9]}))
    array([1. , 0.3, 0. ])
    """
    edges, levels = tuple(map(float, edges)), tuple(map(float, levels))
    if len(edges) != len(levels) or not edges:
        raise ExpressionError(f"tier: {len(edges)} edges for {len(levels)} levels; give one level per edge")
    if list(edges) != sorted(set(edges)) or list(levels) != sorted(set(levels), reverse=True):
        raise ExpressionError(f"tier: edges {edges} must rise and levels {levels} must fall")
    if levels[0] > 1 or levels[-1] < 0:
        raise ExpressionError(f"tier: levels {levels} lie outside [0, 1]")
    graded = 0.0 * as_signal(distance)
    for edge, level in zip(reversed(edges), reversed(levels), strict=True):
        graded = where(as_signal(distance) < edge, level, graded)
    return graded


@register()
def sweet_spot(
    distance: SignalLike,
    *,
    success: SignalLike = "success",
    alpha: float = 0.5,
    edges: Levels = (0.1, 0.3, 0.8, 1.6),
    levels: Levels = (1.0, 0.6, 0.3, 0.1),
) -> Signal:
    """Signal: [145] SSL's reward, success + α · `tier` of the distance to the target (arXiv 2601.22491).

    A value of each row: where episodes have several turns, of which each knows `success`, it is paid once by
    `sweet_spot("distance") * is_last()`.

    What is solved always earns more than what is not: α·levels[0] < 1 is checked. For puzzles the distance is 1 -
    `block_share`. From secondary text; edges and levels are reconstructions.

    Raises:
        ExpressionError: an unsolved episode could earn as much as a solved one; or see `tier`.
    """
    graded = tier(distance, edges=edges, levels=levels)
    if not 0 <= alpha * levels[0] < 1:
        raise ExpressionError(f"sweet_spot: alpha={alpha} times the highest level {levels[0]} must be in [0, 1)")
    return as_signal(success) + alpha * graded


def block_share(answer: np.ndarray, target: np.ndarray, block: tuple[int, int] = (1, 1)) -> float:
    """Share in [0, 1] of the blocks of grid `target` that `answer` has right in every cell; 0 for another shape.

    For mazes, sudoku, ARC.

    Raises:
        InputError: blocks of this size do not tile the target.
    """
    (rows, columns), (height, width) = target.shape, block
    if rows % height or columns % width:
        raise InputError(f"block_share: blocks of {block} do not tile a grid of {target.shape}")
    if answer.shape != target.shape:
        return 0.0
    equal = (answer == target).reshape(rows // height, height, columns // width, width)
    return float(equal.all(axis=(1, 3)).mean())


@register()
def milestones(log: str = "metadata", *, patterns: tuple[str, ...], value: float = 0.1) -> Signal:
    """Signal: `value` times the number of the regular expressions `patterns` that a text column matches.

    Raises:
        ExpressionError: there is no pattern.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"metadata": ["data loaded, model trained", "data loaded", None]})
    >>> milestones(patterns=("data loaded", "model trained")).evaluate(turns)
    array([0.2, 0.1, 0. ])
    """
    if not patterns:
        raise ExpressionError("milestones: no patterns; give at least one regular expression")
    text = text_of(log).fill_null("")
    return value * as_signal(pl.sum_horizontal([text.str.contains(each).cast(pl.Float64) for each in patterns]))


@register()
def ml_engineering_reward(
    outcome: SignalLike = "reward",
    log: str = "metadata",
    *,
    patterns: tuple[str, ...],
    value: float = 0.1,
    failure: float = -10.0,
) -> Signal:
    """Signal: reward of [27], outcome + `value` per regular expression of `patterns` in the log; `failure` if neither.

    arXiv 2509.01684.

    outcome: the score of a valid submission in [-1, 1], missing if there is none. From secondary text.
    """
    reached, score = milestones(log, patterns=patterns, value=value), as_signal(outcome)
    return where(is_missing(score) & (reached == 0.0), failure, fill_missing(score, 0.0) + reached)


# -- boxes: list columns (left, top, right, bottom) -------------------------------------------------------------------


@register()
def hit(box: SignalLike = "box", target: SignalLike = "target_box") -> Signal:
    """Signal: 1 if the centre of the box lies in the target box, else 0; missing without a box."""
    return Signal("hit", as_signal(box), as_signal(target))


@register()
def iou(box: SignalLike = "box", target: SignalLike = "target_box", *, whole_pixel: bool = False) -> Signal:
    """Signal: intersection over union of two boxes (list columns), in [0, 1]; missing without a box.

    0 if both are empty.

    whole_pixel: as in GUI-G1's code, where an overlap of one pixel or less in a direction counts as none.
    """
    return Signal("iou", as_signal(box), as_signal(target), whole_pixel=whole_pixel or None)


@register()
def edge_closeness(
    box: SignalLike = "box", target: SignalLike = "target_box", size: SignalLike = "image_size"
) -> Signal:
    """Signal: closeness of two boxes, harmonic mean of 1 - |Δ| / (image width or height) over the four edges.

    0 if one edge is far off.

    Far off is an error of the whole image.

    size: a list column (width, height) of the image.
    """
    return Signal("edge_closeness", as_signal(box), as_signal(target), as_signal(size))


def _boxes(evaluation: Evaluation, node: Signal) -> list[np.ndarray]:
    """The inputs as float64[rows, 4 or 2], missing where a row has another number of entries."""
    matrices = []
    for number, child in zip((4, 4, 2), node.inputs, strict=False):
        value = evaluation(child)
        if not isinstance(value, Ragged):
            raise ExpressionError(f"{node}: {child} is not a list column of {number} numbers per row")
        matrix = np.full((len(value.lengths), number), np.nan)
        whole = value.lengths == number
        matrix[whole] = value.values[np.repeat(whole, value.lengths)].reshape(-1, number)
        matrices.append(matrix)
    return matrices


@kernel("hit", range="row")
def _hit(evaluation: Evaluation, node: Signal) -> np.ndarray:
    box, target = _boxes(evaluation, node)
    centre = (box[:, :2] + box[:, 2:]) / 2
    inside = ((target[:, :2] <= centre) & (centre <= target[:, 2:])).all(axis=1)
    return np.where(np.isnan(box + target).any(axis=1), np.nan, inside)


@kernel("iou", range="row")
def _iou(evaluation: Evaluation, node: Signal) -> np.ndarray:
    box, target = _boxes(evaluation, node)
    overlap = np.minimum(box[:, 2:], target[:, 2:]) - np.maximum(box[:, :2], target[:, :2])
    least = 1.0 if node.options["whole_pixel"] else 0.0
    shared = np.where((overlap <= least).any(axis=1), 0.0, overlap.prod(axis=1))
    union = (box[:, 2:] - box[:, :2]).prod(axis=1) + (target[:, 2:] - target[:, :2]).prod(axis=1) - shared
    return np.asarray(shared / np.where(union == 0, 1.0, union))


@kernel("edge_closeness", range="row")
def _edge_closeness(evaluation: Evaluation, node: Signal) -> np.ndarray:
    box, target, size = _boxes(evaluation, node)
    near = 1 - np.abs(box - target) / np.tile(np.where(size > 0, size, np.nan), 2)
    with np.errstate(divide="ignore"):
        return np.where((near <= 0).any(axis=1), 0.0, 4 / (1 / near).sum(axis=1))


@register()
def gui_g1_reward(
    box: SignalLike = "box",
    target: SignalLike = "target_box",
    size: SignalLike = "image_size",
    *,
    whole_pixel: bool = False,
) -> Signal:
    """Signal: [172] GUI-G1, hit + 0.25·IoU + 0.125·edge closeness; 0 if no box was read.

    arXiv 2505.15810.

    Missing where the target or the size of the image is.

    A hit alone pays boxes of any size as long as their centre is right. Checked against the released code.
    """
    parts = hit(box, target) + 0.25 * iou(box, target, whole_pixel=whole_pixel)
    paid = fill_missing(parts + 0.125 * edge_closeness(box, target, size), 0.0)
    return where(is_scored(target) & is_scored(size), paid)
