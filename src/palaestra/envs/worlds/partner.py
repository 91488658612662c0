"""`Partner`: jobs that two must divide without a word, and a belief about what the other one will do.

Intentions are inferred as in ProAgent [94] (arXiv 2308.11339): expected before, corrected by what was really done. A
skill that cannot be carried out is refused with the reason, and asked for again. On a map of rows the cook walks to
its station around the partner. Left out: what is carried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.halves import MOVES, Cell, distances
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

JOBS = ("onions", "dishes", "plates")
Shows = Literal["intention", "last", "nothing"]
Type = Callable[[int, int], np.ndarray]
"""From the round and the number of jobs to how likely each job is."""


def _always(job: int) -> Type:
    return lambda _round, jobs: np.eye(jobs)[job]


TYPES: dict[str, Type] = {
    "onions": _always(0),
    "dishes": _always(1),
    "alternate": lambda round, jobs: np.eye(jobs)[(round + 1) % 2],
    "random": lambda _round, jobs: np.full(jobs, 1 / jobs),
}
"""Partners by name; who alternates begins with dishes."""


class Belief:
    """Mutable Bayesian belief over partner types: P(type | done) ∝ P(type) Π [(1 - ε) P(job | type, round) + ε / jobs].

    types: by name, as `TYPES`. noise: ε, how often a partner does something else than its type. forget: after
    each round the belief is mixed with the first one by so much; 1 never learns anything, 0 never forgets.

    >>> belief = Belief(TYPES, jobs=2)
    >>> belief.predict().round(3).tolist()
    [0.381, 0.619]
    >>> for _ in range(4):
    ...     belief.update(0)
    >>> max(belief.shares, key=belief.shares.get), int(belief.predict().argmax())
    ('onions', 0)

    Raises:
        InputError: no types, noise or forget not from 0 to 1, or noise is 0 and nobody does what was seen.
    """

    def __init__(self, types: Mapping[str, Type], *, jobs: int, noise: float = 0.05, forget: float = 0.0) -> None:
        if not types or not 0 <= noise <= 1 or not 0 <= forget <= 1:
            raise InputError(f"Belief: {len(types)} types of at least 1; {noise=} and {forget=} from 0 to 1")
        self._types, self._jobs, self._noise, self._forget = dict(types), jobs, noise, forget
        self._weights = np.full(len(types), 1 / len(types))
        self._round = 0

    @property
    def shares(self) -> dict[str, float]:
        """Probability of each type, by name."""
        return dict(zip(self._types, self._weights.tolist(), strict=True))

    def _doing(self) -> np.ndarray:
        plain = np.array([each(self._round, self._jobs) for each in self._types.values()])
        return (1 - self._noise) * plain + self._noise / self._jobs

    def predict(self) -> np.ndarray:
        """Probability of each job in the coming round, float64[jobs]."""
        return np.asarray(self._weights @ self._doing())

    def update(self, done: int) -> None:
        """Update the belief by the job that the partner did, and go on to the next round."""
        weights = self._weights * self._doing()[:, done]
        if not weights.sum() > 0:
            raise InputError(f"Belief: no type does job {done} in round {self._round}; give it some noise")
        kept = (1 - self._forget) * weights / weights.sum()
        self._weights = kept + self._forget / len(weights)
        self._round += 1


def step_around(
    rows: Sequence[str], at: Cell, goal: Cell, other: Cell, *, stuck: bool, rng: np.random.Generator
) -> Cell:
    """Next cell on a shortest path in map `rows` to the goal around the other agent; a random free one if `stuck`.

    It stays `at` where there is no way.

    Args:
        rows: The map; `#` is a wall.
        at: Where one stands.
        goal: Where one wants to be.
        other: Where somebody else stands.
        stuck: Whether the last step was none, and a free cell nearby is drawn.
        rng: Draws it.
    """
    if at == goal:
        return at
    walls = [list(row) for row in rows]
    walls[other[0]][other[1]] = "#"
    around = ["".join(row) for row in walls]
    near = [(at[0] + down, at[1] + right) for down, right in list(MOVES.values())[:4]]
    free = [(r, c) for r, c in near if 0 <= r < len(around) and 0 <= c < len(around[0]) and around[r][c] != "#"]
    if stuck and free:
        return free[int(rng.integers(len(free)))]
    far = distances(around, goal)
    ways = [cell for cell in free if cell in far]
    return min(ways, key=far.__getitem__) if ways else at


@dataclass
class _PartnerState:
    type: str
    belief: Belief
    blocked: int
    coming: int
    round: int = 0
    past: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    right: int = 0


@ENVS.register("native/partner")
class Partner(NativeEnv):
    """Coordination env with a hidden partner type: `cook` picks a job each round, paid 1 / rounds if the jobs differ.

    `rounds` rounds with 1 / rounds each.

    Reward 1 / rounds for two different ones.

    The cook reads what it may expect of the partner, or what it did last, or nothing (`shows`). A job may be
    `blocked` for the cook: taken all the same it is refused with the reason and asked for again, `retries` times in a
    round, then the cook waits; with 0 the round is lost. facts: hidden, the type; expected, the job that the belief
    names; done, the partner's; invalid, the job could not be done and the round was lost; refused. Success: nine rounds
    of ten were right.

    Args:
        types: of `TYPES`, of which one is drawn. jobs: 2 or 3. noise, forget: of `Belief`. blocked: how often a job of
            the cook is. last: how many rounds the cook reads, the newest last, if it is shown what the partner did.
        rows: a map; both walk each round from `c` and `p` to the station of their job, its number, in at most `steps`
            steps, the partner the shortest way and the cook around it. A cook that does not arrive has not done its
            job; the partner's counts as done.

    Raises:
        InputError: an option is out of range.
    """

    agents: tuple[str, ...] = ("cook",)
    facts = {"hidden": str, "expected": str, "done": str, "invalid": bool, "refused": bool}

    def __init__(
        self,
        *,
        types: Sequence[str] = tuple(TYPES),
        rounds: int = 20,
        jobs: int = 2,
        shows: Shows = "intention",
        noise: float = 0.05,
        forget: float = 0.0,
        blocked: float = 0.0,
        retries: int = 3,
        last: int = 1,
        rows: Sequence[str] = (),
        steps: int = 12,
    ) -> None:
        for name in types:
            if name not in TYPES:
                raise InputError(f"Partner: types has {name!r}{nearest(str(name), TYPES)}")
        if shows not in get_args(Shows):
            raise InputError(f"Partner: {shows=}{nearest(str(shows), get_args(Shows))}")
        if last < 1:
            raise InputError(f"Partner: {last=} of at least 1")
        self.last, self.steps = last, steps
        cells = {sign: (r, c) for r, row in enumerate(rows) for c, sign in enumerate(row)}
        signs = ("c", "p", *map(str, range(jobs)))
        if rows and (len({len(row) for row in rows}) > 1 or any(sign not in cells for sign in signs)):
            raise InputError(f"Partner: rows={list(rows)} of equal lengths, with each of {', '.join(signs)}")
        self.rows, self._cells = list(rows), cells
        if not types or rounds < 1 or not 2 <= jobs <= len(JOBS) or not 0 <= blocked <= 1 or retries < 0:
            raise InputError(f"Partner: {types=} and {rounds=} of at least 1, {jobs=} 2 or 3, {blocked=}, {retries=}")
        self.types, self.rounds, self.jobs, self.shows = tuple(types), rounds, JOBS[:jobs], shows
        self.noise, self.forget, self.blocked, self.retries = noise, forget, blocked, retries
        self._believe()

    def _believe(self) -> Belief:
        return Belief(TYPES, jobs=len(self.jobs), noise=self.noise, forget=self.forget)

    def begin(self) -> tuple[str, _PartnerState]:
        """Draw a partner's type."""
        state = _PartnerState(self.types[int(self.rng.integers(len(self.types)))], self._believe(), -1, 0)
        self._draw(state)
        return f"partner:{state.type}:{int(self.rng.integers(2**40))}", state

    def _arrives(self, job: int, coming: int) -> bool:
        """Whether the cook reaches the station of its job while the partner walks to its own."""
        if not self.rows:
            return True
        cook, partner, stuck = self._cells["c"], self._cells["p"], False
        goal, other = self._cells[str(job)], self._cells[str(coming)]
        far = distances(self.rows, other)
        for _ in range(self.steps):
            step = step_around(self.rows, cook, goal, partner, stuck=stuck, rng=self.rng)
            stuck = step in (cook, partner) and cook != goal
            cook = cook if step == partner else step
            near = [(partner[0] + down, partner[1] + right) for down, right in list(MOVES.values())[:4]]
            ahead = min((cell for cell in near if cell in far), key=far.__getitem__, default=partner)
            if partner != other and ahead != cook:
                partner = ahead
        return cook == goal

    def _draw(self, state: _PartnerState) -> None:
        """Draw the blocked jobs of this round and the partner's choice."""
        state.blocked = int(self.rng.integers(len(self.jobs))) if self.rng.random() < self.blocked else -1
        state.coming = int(self.rng.choice(len(self.jobs), p=TYPES[state.type](state.round, len(self.jobs))))
        state.refused = []

    def look(self) -> dict[str, Observation]:
        """Observation of the cook: what it may expect of the partner, and a job that was refused."""
        state = self.state
        if state.round >= self.rounds:
            return {}
        if self.shows == "intention":
            text = f"it will do {self.jobs[int(state.belief.predict().argmax())]}"
        else:
            seen = [] if self.shows == "nothing" else state.past[-self.last :]
            text = f"it did {', then '.join(self.jobs[job] for job in seen)}" if seen else "work"
        if state.refused:
            text += f"; you cannot do {self.jobs[state.refused[-1]]}: its station is taken"
        return {"cook": Observation(text, choices=self.jobs)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Check the cook's job, carry it out, and update the belief by the partner's."""
        state, job = self.state, chosen["cook"]
        told: dict[str, Any] = {
            "hidden": state.type,
            "expected": self.jobs[int(state.belief.predict().argmax())],
            "invalid": False,
            "refused": job is not None and job == state.blocked,
        }
        if told["refused"]:
            if len(state.refused) < self.retries:
                state.refused.append(job)
                return {}, told
            told["invalid"] = self.retries == 0
            job = None
        right = job is not None and job != state.coming and self._arrives(job, state.coming)
        told["done"] = self.jobs[state.coming]
        state.belief.update(state.coming)
        state.past.append(state.coming)
        state.round, state.right = state.round + 1, state.right + right
        if state.round >= self.rounds:
            told["success"] = state.right >= 0.9 * self.rounds
        else:
            self._draw(state)
        return {"cook": right / self.rounds}, told
