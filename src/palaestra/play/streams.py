"""Random streams with an address: what is drawn in one episode never depends on which other episodes are played.

Every address is hashed (BLAKE2b) to the 256 bits that seed a PCG64. That does the work of
`SeedSequence(seed, iteration, group, episode)` in a quarter of its time, and an address may contain the agent's name.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

from palaestra.errors import InputError, nearest
from palaestra.foundation.generators import Words

Stream = Literal["train", "eval"]
"""Training and evaluation draw their tasks from separate halves of the seeds."""

_STREAMS = ("train", "eval")


class Streams:
    """Random seeds of one rollout, addressed by (seed, iteration, stream): env seeds and agents' generators.

    Raises:
        InputError: the stream has another name.
    """

    def __init__(self, seed: int, iteration: int = 0, stream: Stream = "train") -> None:
        if stream not in _STREAMS:
            raise InputError(f"stream={stream!r} is not a kind of stream{nearest(stream, _STREAMS)}")
        self._address = f"{seed}/{iteration}/{stream}"
        self._half = _STREAMS.index(stream)

    def env_seed(self, group: int) -> int:
        """The reset seed of all episodes of a group, below 2**31: below 2**30 in training, from 2**30 in evaluation.

        The half is in the highest bit because envs look at the low ones: `seed % 4` is as likely 3 as 0 in both.

        Example:
            >>> Streams(0).env_seed(0) < 2**30 <= Streams(0, stream="eval").env_seed(0)
            True
        """
        digest = hashlib.blake2b(f"{self._address}/{group}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % 2**30 + self._half * 2**30

    def generator(self, group: int, episode: int, agent: str) -> np.random.Generator:
        """The random generator of one agent in one episode.

        >>> first, again = Streams(0).generator(0, 1, "a"), Streams(0).generator(0, 1, "a")
        >>> first.random() == again.random()
        True
        """
        digest = hashlib.blake2b(
            f"{self._address}/{group}/{episode}/{agent}".encode(errors="surrogatepass"), digest_size=32
        ).digest()
        return np.random.Generator(np.random.PCG64(Words(np.frombuffer(digest, _WORD))))  # type: ignore[arg-type]


_WORD = np.dtype("<u8")
