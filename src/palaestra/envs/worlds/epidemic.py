"""`Epidemic`: a population as columns; a disease spreads on a graph of contacts, and people may stay at home."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Action, Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.replies import read_reply
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

AGES = ("0-17", "18-29", "30-44", "45-59", "60-74", "75+")
JOBS = ("school", "office", "service", "home")
FEATURES = ("age", "job", "caution", "near", "all")


@dataclass
class Health:
    """Data of all people's health, float[people] of 0 or 1 each: susceptible, exposed, infectious, recovered.

    Arrays of NumPy or torch.
    """

    susceptible: Any
    exposed: Any
    infectious: Any
    recovered: Any


def transition(
    health: Health, out: Any, contacts: Any, chances: tuple[Any, Any, Any], draw: Callable[[Any, int], Any]
) -> Health:
    """New `Health` after one SEIR day on graph `contacts`: who is `out` may catch it, with `chances`, events by `draw`.

    Who is susceptible and out is infected with probability 1 - (1 - b)^k by its k infectious contacts that are out; the
    exposed become infectious and the infectious recover with a constant chance. Differentiable in the chances where
    `draw` is: all else are sums and products.

    Args:
        health: Today.
        out: 1 of who is not at home, float[people].
        contacts: Who meets whom, int[people, contacts].
        chances: Of an infection by one contact (b), of becoming infectious, of recovering.
        draw: From probabilities and the number of the event (0, 1, 2) to 0 or 1 for each person.
    """
    infects, incubates, recovers = chances
    met = (health.infectious * out)[contacts].sum(1) * out
    caught = health.susceptible * draw(1 - (1 - infects) ** met, 0)
    broke = health.exposed * draw(incubates + 0 * met, 1)
    healed = health.infectious * draw(recovers + 0 * met, 2)
    return Health(
        health.susceptible - caught,
        health.exposed + caught - broke,
        health.infectious + broke - healed,
        health.recovered + healed,
    )


def contact_graph(rng: np.random.Generator, number: int, contacts: int) -> np.ndarray:
    """Random regular contact graph as int[number, contacts], the contacts of each person; `contacts` is even."""
    orders = [rng.permutation(number) for _ in range(contacts // 2)]
    rings = [(np.roll(order, 1)[np.argsort(order)], np.roll(order, -1)[np.argsort(order)]) for order in orders]
    return np.stack([each for ring in rings for each in ring], 1)


@dataclass
class _EpidemicState:
    people: dict[str, np.ndarray]
    contacts: np.ndarray
    health: Health
    day: int = 0
    peak: float = 0.0


@ENVS.register("native/epidemic")
class Epidemic(NativeEnv):
    """Epidemic env of `horizon` days: people say their chance to stay home; that costs `cost` a day, an infection 1.

    `number` people; staying home and infections cost.

    A person has an age, a job, and a caution that is its own (uniform, at most `spread` from 1). It sees which share of
    its `contacts` and of all people is infectious. A day costs everybody who stays at home `cost`, and an infection 1.
    A success is an epidemic in which never more than a share `beds` of all is infectious; it ends after `horizon` days.

    An answer is a number from 0 to 1; what is none is no action (`valid` is false, and one goes out). With `levels`,
    answers are choices, evenly spread. The whole population can be played as columns, by `archetypes`: `start`,
    `attributes`, `people`, `seen`, `question`, `read`, `advance`.

    facts: day; ill, home, share of people who are infectious and at home; infected, share that has ever been, and
    infected_by_age, that share of each of `AGES`, 0 where nobody is of an age.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"day": int, "ill": float, "home": float, "infected": float, "infected_by_age": list[float]}
    attributes: Mapping[str, tuple[str, ...]] = {"age": AGES, "job": JOBS}

    def __init__(
        self,
        *,
        number: int = 400,
        horizon: int = 30,
        contacts: int = 8,
        infects: float = 0.1,
        incubates: float = 0.4,
        recovers: float = 0.2,
        begins: float = 0.02,
        cost: float = 0.01,
        beds: float = 0.15,
        spread: float = 0.5,
        levels: int | None = None,
    ) -> None:
        shares = (infects, incubates, recovers, begins, beds)
        if number < 10 or horizon < 1 or contacts < 2 or contacts % 2 or min(shares) < 0 or max(shares) > 1:
            raise InputError(
                f"Epidemic: number={number} must be at least 10, horizon={horizon} at least 1, "
                f"contacts={contacts} even; infects, incubates, recovers, begins and beds={shares} from 0 to 1"
            )
        if cost < 0 or not 0 <= spread <= 1 or (levels is not None and levels < 2):
            raise InputError(
                f"Epidemic: cost={cost} must be at least 0, spread={spread} from 0 to 1, levels={levels} at least 2"
            )
        self.horizon, self.degree, self.begins, self.cost, self.beds = horizon, contacts, begins, cost, beds
        self.spread = spread
        self.chances = (infects, incubates, recovers)
        self.choices = None if levels is None else tuple(f"{k / (levels - 1):.3g}" for k in range(levels))
        self.agents: tuple[str, ...] = tuple(f"person_{place}" for place in range(number))

    def begin(self) -> tuple[str, _EpidemicState]:
        """Draw a population, its contacts, and the first infectious people."""
        size, number = len(self.agents), int(self.rng.integers(2**62))
        ages = self.rng.integers(len(AGES), size=size)
        jobs = np.where(ages == 0, 0, np.where(ages >= 4, 3, self.rng.integers(1, 4, size)))
        people = {"age": ages, "job": jobs, "caution": self.rng.uniform(1 - self.spread, 1 + self.spread, size)}
        ill = np.zeros(size)
        ill[self.rng.choice(size, max(1, round(self.begins * size)), replace=False)] = 1.0
        blank = np.zeros(size)
        health = Health(1.0 - ill, blank, ill, blank.copy())
        return f"{size} people, {number}", _EpidemicState(people, contact_graph(self.rng, size, self.degree), health)

    def start(self, seed: int) -> None:
        """Begin the episode of `seed` without making observations."""
        self.rng = np.random.default_rng(seed)
        self.task, self.state = self.begin()

    @property
    def people(self) -> Mapping[str, np.ndarray]:
        """Index of every person's value in each of `attributes`: int[number] each."""
        return {name: self.state.people[name] for name in self.attributes}

    @property
    def over(self) -> bool:
        """Whether the last day is over."""
        return bool(self.state.day >= self.horizon)

    def seen(self) -> np.ndarray:
        """Features each person sees, float64[number, 5]: age, job, caution, infectious share of contacts and of all."""
        now = self.state
        near = now.health.infectious[now.contacts].mean(1)
        same = np.full(len(near), now.health.infectious.mean())
        return np.column_stack([now.people["age"], now.people["job"], now.people["caution"], near, same])

    def question(self, key: Mapping[str, str], size: int, seen: np.ndarray) -> Observation:
        """Observation that asks a group of `size` people with these attributes, who on average see `seen`."""
        seen = np.concatenate([seen[:2], seen[2:].round(9).round(2)])  # the array says what the text says
        named = ", ".join(f"{name} {value}" for name, value in key.items()) or "of any kind"
        one = size == 1
        text = (
            f"{'You are a person' if one else 'You speak for people'}: {named}. "
            f"{'Your' if one else 'Their'} caution is {seen[2]:.2f}, where 1 is usual. "
            f"{seen[3]:.0%} of {'your' if one else 'their'} contacts and {seen[4]:.0%} of all people are infectious. "
            f"With which probability, from 0 to 1, {'do you' if one else 'does each of them'} stay at home today?"
        )
        array = np.asarray(seen / [len(AGES) - 1, len(JOBS) - 1, 1, 1, 1], np.float32)
        return Observation(text, self.choices, array=array, fields=() if self.choices else ("probability",))

    def read(self, action: Action | None) -> float | None:
        """The probability that an action states, or None."""
        if self.choices is not None:
            place = Observation("", self.choices).index(action) if action is not None else None
            return None if place is None else place / (len(self.choices) - 1)
        if not isinstance(action, str):
            return None
        try:
            found = float(read_reply(action, "probability").text.strip())
        except ValueError:
            return None
        return found if 0 <= found <= 1 else None

    def advance(self, rates: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """Simulate a day: people stay at home by their rates, float64[number]; returns rewards and facts."""
        state, size = self.state, len(self.agents)
        home = self.rng.random(size) < rates
        before = state.health.susceptible
        state.health = transition(
            state.health, 1.0 - home, state.contacts, self.chances, lambda p, _: (self.rng.random(size) < p) * 1.0
        )
        state.day += 1
        ill = float(state.health.infectious.mean())
        state.peak = max(state.peak, ill)
        paid = state.health.susceptible - before - self.cost * home
        info: dict[str, Any] = {"day": state.day, "ill": ill, "home": float(home.mean())}
        info["infected"] = float(1.0 - state.health.susceptible.mean())
        ages = state.people["age"]
        of_age = np.bincount(ages, 1.0 - state.health.susceptible, len(AGES))
        info["infected_by_age"] = (of_age / np.maximum(np.bincount(ages, minlength=len(AGES)), 1)).tolist()
        if self.over:
            info["success"] = state.peak <= self.beds
        return paid, info

    def look(self) -> dict[str, Observation]:
        """Each person sees its age, job and caution, infectious shares, and is asked how probably it stays at home."""
        if self.over:
            return {}
        seen, people = self.seen(), self.state.people
        keys = [{"age": AGES[age], "job": JOBS[job]} for age, job in zip(people["age"], people["job"], strict=True)]
        return {agent: self.question(keys[k], 1, seen[k]) for k, agent in enumerate(self.agents)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Read everybody's probability and simulate a day; an invalid answer goes out."""
        said = [self.read(chosen.get(agent)) for agent in self.agents]
        rates = np.array([0.0 if each is None else each for each in said])
        paid, info = self.advance(rates)
        info["valid"] = {agent: each is not None for agent, each in zip(self.agents, said, strict=True)}
        return dict(zip(self.agents, paid.tolist(), strict=True)), info
