"""`Arms`: one choice, what it pays and what else it shows. The smallest world in which rewards are traded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _ArmsState:
    over: bool = False


@ENVS.register("native/arms")
class Arms(NativeEnv):
    """Multi-armed bandit env of one step: `player` picks an arm and is paid the arm's number in `pays`.

    shows: further numbers of each arm by name, told as facts with `noise`.

    Success: the reward is the largest there is.
    """

    agents: tuple[str, ...] = ("player",)

    def __init__(
        self,
        pays: Sequence[float] = (0.0, 1.0),
        *,
        shows: Mapping[str, Sequence[float]] | None = None,
        noise: float = 0.0,
    ) -> None:
        self.pays, self.shows = [float(each) for each in pays], {k: list(v) for k, v in (shows or {}).items()}
        self.noise = float(noise)
        if len(self.pays) < 2 or not noise >= 0 or any(len(each) != len(self.pays) for each in self.shows.values()):
            raise InputError(
                f"Arms: {len(self.pays)} arms, at least 2; as many numbers in shows, {noise=} not negative"
            )
        self.facts = dict.fromkeys(self.shows, float)
        self.choices = tuple(f"arm {number}" for number in range(len(self.pays)))

    def begin(self) -> tuple[str, _ArmsState]:
        """Start; every episode is the same."""
        return "arms", _ArmsState()

    def look(self) -> dict[str, Observation]:
        """Observation of the player: a fixed text that tells nothing of the arms."""
        return {} if self.state.over else {"player": Observation("choose an arm", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Pay the arm's number; an invalid choice pays nothing and shows nothing."""
        self.state.over, arm = True, chosen["player"]
        if arm is None:
            return {}, {"success": False}
        shown = {name: each[arm] + self.noise * float(self.rng.normal()) for name, each in self.shows.items()}
        return {"player": self.pays[arm]}, {**shown, "success": self.pays[arm] == max(self.pays)}


@ENVS.register("native/trade")
def trade(arms: int = 25, *, curve: float = 1.2, noise: float = 0.02) -> Arms:
    """Makes an `Arms` bandit env of a trade-off between two skills, reported as facts; rewards are 0.

    The sum of the skills is highest at both ends.

    Rewards are 0; the skills are facts.

    facts: first and second, arm k of n has (k / (n - 1)) ** curve of one and (1 - k / (n - 1)) ** curve of the other.
    """
    share = [number / (arms - 1) for number in range(arms)]
    skills = {"first": [each**curve for each in share], "second": [(1 - each) ** curve for each in share]}
    return Arms([0.0] * arms, shows=skills, noise=noise)
