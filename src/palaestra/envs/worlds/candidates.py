"""`Candidates`: requests for workers whose state is seen, screened before the router chooses ([120] Symphony-Coord).

arXiv 2602.00966. Of each worker the router sees how like the request is to what it says of itself, its load, latency
and availability, and how often it was right with such requests in a warm-up. Left out: the network between workers, and
plans of several steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen
from palaestra.envs.worlds.routing import SKILLS, Routing
from palaestra.errors import InputError

LATENCIES = (500.0, 300.0, 700.0, 200.0, 400.0)
"""Milliseconds of each worker without load."""
SLOW = 2000.0
WRONG = 3
"""Wrong answers that there are."""


def stability(load: Any, latency: Any, available: Any) -> np.ndarray:
    """Stability score per worker, array in [0, 1]: .4 (1 - load) + .4 (1 - latency / 2000 ms) + .2 available.

    >>> stability([0.5], [500.0], [1.0]).round(3).tolist()
    [0.7]
    """
    slow = np.minimum(np.asarray(latency, float) / SLOW, 1.0)
    return np.asarray(0.4 * (1 - np.asarray(load, float)) + 0.4 * (1 - slow) + 0.2 * np.asarray(available, float))


def screening(similarity: Any, prior: Any, stable: Any) -> np.ndarray:
    """Screening score per worker, array: .5 similarity + .35 prior success + .15 stability.

    >>> screening([0.8], [0.6], [0.7]).round(3).tolist()
    [0.715]
    """
    return np.asarray(
        0.5 * np.asarray(similarity, float) + 0.35 * np.asarray(prior, float) + 0.15 * np.asarray(stable, float)
    )


def reward_without_labels(ran: bool, agrees: bool, latency: float) -> float:
    """Reward without ground truth: 1 if it ran + .5 if it agrees with the majority - .2 √(latency / 2000 ms).

    The root's argument is at most 1.

    >>> reward_without_labels(True, True, 500.0), reward_without_labels(False, False, 2000.0)
    (1.4, -0.2)
    """
    return float(ran) + 0.5 * float(agrees) - 0.2 * float(np.sqrt(min(1.0, latency / SLOW)))


@dataclass
class _CandidatesState:
    kind: int
    shifted: bool
    over: bool = False
    similarity: np.ndarray = field(default_factory=lambda: np.zeros(0))
    load: np.ndarray = field(default_factory=lambda: np.zeros(0))
    latency: np.ndarray = field(default_factory=lambda: np.zeros(0))
    available: np.ndarray = field(default_factory=lambda: np.zeros(0))
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


@ENVS.register("native/candidates")
class Candidates(Routing):
    """Routing env of one turn: `router` picks one of the `keep` best workers; paid if others agree, and for speed.

    The score is `screening`'s.

    The array that is seen has a row for each worker: 1, similarity, load, latency / 2000 ms, prior success, available.
    After the shock the best worker for requests of kind 0 is hardly ever right, or with announced=True not available.
    The reward is `reward_without_labels`: what most candidates say stands for what is right. facts: kind, latency and
    agrees, of the choice; answered, whether it was right. Success: rightly answered.

    Args:
        skills: [workers][kinds], how often each worker is right. prior: the same in the warm-up; default: skills.
        latencies: of each worker without load, in milliseconds. keep: workers that pass the screening. announced:
            whether the worker that fails is known not to be available.

    Raises:
        InputError: the numbers do not fit together.
    """

    facts = {"kind": int, "latency": float, "agrees": bool, "answered": bool}

    def __init__(
        self,
        *,
        skills: Sequence[Sequence[float]] = SKILLS,
        prior: Sequence[Sequence[float]] | None = None,
        latencies: Sequence[float] = LATENCIES,
        keep: int = 3,
        announced: bool = False,
    ) -> None:
        super().__init__(skills=skills, prices=[0.0] * len(skills), weight=0.0, announced=announced)
        self.prior = self.skills if prior is None else np.array(prior, float)
        self.latencies, self.keep = np.array(latencies, float), keep
        if self.prior.shape != self.skills.shape or len(self.latencies) != len(self.skills) or keep < 1:
            raise InputError(
                f"Candidates: prior of shape {self.prior.shape}, {len(self.latencies)} latencies and keep={keep} for "
                f"skills of shape {self.skills.shape}: one for each worker, and at least one is kept"
            )

    def begin(self) -> tuple[str, Any]:
        """A request, and the state of every worker when it comes."""
        task, found = super().begin()
        workers, rng = len(self.skills), self.rng
        state = _CandidatesState(found.kind, found.shifted)
        state.similarity = np.clip(self.prior[:, state.kind] + rng.normal(0, 0.15, workers), 0, 1)
        state.load = rng.random(workers)
        state.latency = self.latencies * (0.5 + state.load)
        state.available = np.ones(workers)
        if self.announced and state.shifted and state.kind == 0:
            state.available[int(self.skills[:, 0].argmax())] = 0.0
        stable = stability(state.load, state.latency, state.available)
        score = screening(state.similarity, self.prior[:, state.kind], stable)
        state.kept = np.argsort(-score, kind="stable")[: self.keep]
        return task, state

    def look(self) -> dict[str, Observation]:
        """Observation of the router: the kind of the request, and the state of the workers."""
        state = self.state
        if state.over:
            return {}
        rows = np.stack(
            [np.ones(len(self.skills)), state.similarity, state.load, np.minimum(state.latency / SLOW, 1.0),
             self.prior[:, state.kind], state.available], axis=1,
        )  # fmt: skip
        mask = np.isin(np.arange(len(self.skills)), state.kept)
        text = f"request of kind {state.kind}"
        return {"router": Observation(text, self.choices, mask, rows.astype(np.float32).ravel())}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Answer the request: all candidates answer, the chosen one's counts, and agreement hints at its truth."""
        state, worker = self.state, chosen["router"]
        state.over = True
        told: dict[str, Any] = {"kind": state.kind}
        if worker is None:
            return {"router": 0.0}, told | {"success": False}
        said = {int(each): self._answer(int(each)) for each in {*state.kept.tolist(), worker}}
        given = [answer for answer in said.values() if answer is not None]
        own, latency = said[worker], float(state.latency[worker])
        agrees = own is not None and given.count(own) * 2 > len(given)
        answered = own == 0
        return {"router": reward_without_labels(own is not None, agrees, latency)}, told | {
            "latency": latency,
            "agrees": agrees,
            "answered": answered,
            "success": answered,
        }

    def _answer(self, worker: int) -> int | None:
        """0 is right; nothing of who is not available."""
        right = self.rng.random() < self.skill(worker, self.state.kind, self.state.shifted)
        wrong = int(self.rng.integers(1, WRONG + 1))
        return None if not self.state.available[worker] else 0 if right else wrong


def by_prior() -> Callable[[Any], Any]:
    """Makes a policy function (request -> action), no arguments, that picks the candidate of highest prior success.

    For the router; of those that are legal.
    """

    def play(request: Any) -> Any:
        seen = request.observation
        prior = np.asarray(seen.array, float).reshape(len(seen.choices), -1)[:, 4]
        return seen.choices[int(np.where(seen.mask, prior, -np.inf).argmax())]

    return play
