"""`DonorGame`: what one gives away another receives doubled; donors may see what recipients did (arXiv 2412.10270).

Roles are drawn anew in each round, so with a constant share f the expected resources after T rounds are
start · (1 + f·(m - 1) / 2)^T, m the multiplier. Generations that inherit strategies: `learn.kind: generations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


class Gift(NamedTuple):
    """Data of one donation in a round: donor, recipient and share given; below 0, the share paid to punish."""

    round: int
    donor: int
    recipient: int
    share: float


@dataclass
class _DonorState:
    wallets: np.ndarray
    pairs: list[tuple[int, int]]
    gifts: list[Gift] = field(default_factory=list)
    round: int = 0


@ENVS.register("native/donor_game")
class DonorGame(NativeEnv):
    """Donor game env: each round half of the players give a share, which arrives multiplied; paid what they end with.

    Players are paid what they own in the end.

    The recipient gets `multiplier` times as much. Who gives to whom is drawn in each round. All give at once, out of
    what they had before the round. The reward of a player is what it has in the end. facts: `share` given in
    the turn, `resources` after it. An illegal action gives nothing. array: for each depth of a trace the share less
    ½, 0 where nothing is known.

    Args:
        players: how many, an even number.
        rounds, start, multiplier: length, resources at first, factor of what arrives.
        trace: how deep a donor sees: 1 the recipient's last gift, 2 also the last gift that the partner of that gift
            had made before, and so on; 0 nothing.
        shares: what can be given.
        punish: (share, factor): a donor may also pay that share, so that the recipient loses factor times as much.

    Raises:
        InputError: an option is out of range.
    """

    prompt = "native/donor_game"
    facts = {"share": float, "resources": float}
    DEPTH = 3

    def __init__(
        self,
        *,
        players: int = 12,
        rounds: int = 12,
        start: float = 10.0,
        multiplier: float = 2.0,
        trace: int = 3,
        shares: Sequence[float] = tuple(k / 10 for k in range(11)),  # type: ignore[name-defined]
        punish: tuple[float, float] | None = None,
    ) -> None:
        if players < 2 or players % 2 or rounds < 1 or not start > 0 or not multiplier >= 0:
            raise InputError(f"DonorGame: {players=} even, {rounds=} at least 1, {start=} above 0, {multiplier=}")
        if not 0 <= trace <= self.DEPTH or len(shares) < 2 or min(shares) < 0 or max(shares) > 1:
            raise InputError(f"DonorGame: {trace=} of 0 to {self.DEPTH}, at least two {shares=} in [0, 1]")
        if punish is not None and (len(punish) != 2 or not 0 < punish[0] <= 1 or not punish[1] >= 0):
            raise InputError(f"DonorGame: {punish=} is a share in (0, 1] and a factor of at least 0")
        self.rounds, self.start, self.multiplier, self.trace = rounds, start, multiplier, trace
        self.punish = None if punish is None else (float(punish[0]), float(punish[1]))
        self.loss = 0.0 if self.punish is None else self.punish[1]
        self.agents = tuple(f"player_{number}" for number in range(players))
        self.shares = [*([-self.punish[0]] if self.punish else []), *sorted(float(share) for share in shares)]
        self.moves = tuple("punish" if share < 0 else f"give {share:g}" for share in self.shares)

    def begin(self) -> tuple[str, _DonorState]:
        """Give everybody the same and draw the first pairs."""
        wallets = np.full(len(self.agents), self.start)
        return f"donor_game:{int(self.rng.integers(2**40))}", _DonorState(wallets, self._pairs())

    def _pairs(self) -> list[tuple[int, int]]:
        order = self.rng.permutation(len(self.agents)).tolist()
        half = len(order) // 2
        return list(zip(order[:half], order[half:], strict=True))

    def look(self) -> dict[str, Observation]:
        """The donors of the round see their recipients' record."""
        state = self.state
        if state.round == self.rounds:
            return {}
        return {self.agents[donor]: self._seen(donor, recipient) for donor, recipient in state.pairs}

    def _seen(self, donor: int, recipient: int) -> Observation:
        trace = self.gifts_of(recipient)
        text = f"round {self.state.round + 1} of {self.rounds}: you have {self.state.wallets[donor]:.1f}, "
        text += f"{self.agents[recipient]} has {self.state.wallets[recipient]:.1f}"
        for gift in trace:
            did = "paid to punish" if gift.share < 0 else f"gave {gift.share:g} to"
            text += f" | round {gift.round}: {self.agents[gift.donor]} {did} {self.agents[gift.recipient]}"
        array = np.zeros(self.DEPTH, np.float32)
        array[: len(trace)] = [gift.share - 0.5 for gift in trace]
        return Observation(text if trace else f"{text} | nothing is known of it", self.moves, array=array)

    def gifts_of(self, player: int) -> list[Gift]:
        """A player's last gift, then the previous gift of its recipient, and so on back, `trace` of them."""
        found: list[Gift] = []
        for gift in reversed(self.state.gifts):
            if len(found) == self.trace:
                break
            if gift.donor == player and (not found or gift.round < found[-1].round):
                found.append(gift)
                player = gift.recipient
        return found

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make all gifts of a round at once, then draw the next pairs."""
        state = self.state
        before, after = state.wallets, state.wallets.copy()
        state.round += 1
        given = {}
        for donor, recipient in state.pairs:
            move = chosen[self.agents[donor]]
            share = 0.0 if move is None else self.shares[move]
            factor = self.multiplier if share >= 0 else -self.loss
            after[donor] -= abs(share) * before[donor]
            after[recipient] += factor * abs(share) * before[donor]
            state.gifts.append(Gift(state.round, donor, recipient, share))
            given[self.agents[donor]] = share
        state.wallets = np.maximum(after, 0.0)
        state.pairs = self._pairs()
        owned = {agent: float(state.wallets[number]) for number, agent in enumerate(self.agents)}
        facts = {"share": given, "resources": owned}
        return (owned if state.round == self.rounds else {}), facts
