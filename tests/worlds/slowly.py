"""Signalling in which every step takes its time: so that a worker can be met in the middle of a shard."""

from __future__ import annotations

from signalling import Signalling


class Slowly(Signalling):
    """20 ms a step."""

    def __init__(self) -> None:
        super().__init__(pace=0.02)
