"""Debates about evidence, solved exactly: two sides reveal pieces in turn, a linear judge sums what was revealed."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from palaestra.errors import InputError


def _check(lead: np.ndarray, length: int) -> np.ndarray:
    lead = np.atleast_2d(np.asarray(lead, float))
    if not 1 <= length <= lead.shape[1] or lead.shape[1] > 12:
        raise InputError(f"debate: 1 <= length={length} <= {lead.shape[1]} pieces of evidence, of which 12 at most")
    return lead


@functools.cache
def _layers(pieces: int, length: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(itertools.combinations(range(pieces), size)) for size in range(length + 1))


def minimax(lead: np.ndarray, length: int, *, first: bool = True) -> np.ndarray:
    """Minimax value, 1, 0 or -1 for the decision, of each debate by `lead` [cases, pieces], `length`: float64[cases].

    lead: float64[cases, pieces], how much each piece speaks for it; the judge sums the `length` pieces that were
    revealed and the sign decides. The sides reveal in turn, each what is best for it; first: that side begins. Backward
    over the sets that were revealed (which side revealed what is all the same), so at most 12 pieces.

    >>> minimax(np.array([[3.0, -1.0, -1.0]]), 2), minimax(np.array([[3.0, -1.0, -1.0]]), 2, first=False)
    (array([1.]), array([1.]))
    """
    lead = _check(lead, length)
    layers = _layers(lead.shape[1], length)
    value = {sum(1 << i for i in each): np.sign(lead[:, each].sum(axis=1)) for each in layers[length]}
    for size in range(length - 1, -1, -1):
        choose = np.maximum if (size % 2 == 0) == first else np.minimum
        value = {
            (bits := sum(1 << i for i in each)): functools.reduce(
                choose, [value[bits | 1 << i] for i in range(lead.shape[1]) if not bits >> i & 1]
            )
            for each in layers[size]
        }
    return np.asarray(value[0])


def greedy(lead: np.ndarray, length: int, *, first: bool = True) -> np.ndarray:
    """Outcome 1, 0 or -1 of each debate by array `lead` [cases, pieces], `length` shown, each side its best in turn.

    float64[cases].
    """
    lead = _check(lead, length)
    order = np.argsort(-lead, axis=1, kind="stable")
    mine = (length + first) // 2
    theirs = length - mine
    shown = np.take_along_axis(lead, order, axis=1)
    return np.asarray(np.sign(shown[:, :mine].sum(axis=1) + shown[:, lead.shape[1] - theirs :].sum(axis=1)))


def one_sided(lead: np.ndarray, length: int, *, against: bool = False) -> np.ndarray:
    """Outcome 1, 0 or -1 of each debate by `lead` [cases, pieces] if one side chooses all `length`: float64[cases].

    That side nearly always wins.
    """
    shown = np.sort(_check(lead, length), axis=1)
    return np.asarray(np.sign((shown[:, :length] if against else shown[:, -length:]).sum(axis=1)))


def at_random(lead: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """Outcome 1, 0 or -1 of each debate, the sign of `length` random pieces' sum in array `lead` [cases, pieces]."""
    lead = _check(lead, length)
    shown = np.argsort(rng.random(lead.shape), axis=1)[:, :length]
    return np.asarray(np.sign(np.take_along_axis(lead, shown, axis=1).sum(axis=1)))
