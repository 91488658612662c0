"""`MultiHop`: questions that need two look-ups in a search index, over a generated corpus of ships and ports.

The corpus has a document for each ship (its home port) and for each port (what it sells, the colour of its lamp). A
question names a ship and asks about its port, so the second query can only be written once the first was answered.
Ports are invented words; the corpus is the same in every process. Questions about some ships are held out. Each ware
and each colour is the answer to equally many questions, in training and among the held-out ones, so a word that is said
whatever was found is right once in twelve times. Ports are the same on both sides. Left out: questions of three and
more hops.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from palaestra.envs.local_tools import Library
from palaestra.envs.registry import ENVS
from palaestra.envs.task_keys import task_id, task_key
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.envs.tools import TOOLS, Tool, plain
from palaestra.errors import InputError, nearest

COLOURS = ("amber", "black", "blue", "brown", "golden", "green", "grey", "pink", "red", "silver", "violet", "white")
BIRDS = ("crane", "eagle", "falcon", "gull", "heron", "kestrel", "lark", "owl", "petrel", "raven", "swan", "tern")
WARES = ("barley", "cheese", "copper", "cotton", "honey", "iron", "linen", "pepper", "rope", "salt", "timber", "wool")
SYLLABLES = ("ba", "do", "fi", "ka", "lu", "mo", "ne", "ri", "sa", "tu", "ve", "zo")
ROUNDS = 2
"""Ports that sell each ware, and that have a lamp of each colour."""
SPLITS = ("train", "test", "all")
ASKED: Mapping[str, str] = {
    "sells": "What does the home port of the {} sell?",
    "lamp": "What colour is the lamp in the home port of the {}?",
}


class Port(NamedTuple):
    """Data of a port in the corpus of `roles/multi_hop`: its name, what it sells and its lamp's colour."""

    name: str
    sells: str
    lamp: str


@functools.cache
def _ports() -> tuple[Port, ...]:
    """The 24 ports: of the first 12, each sells another ware and has a lamp of another colour; so do the last 12."""
    rng = np.random.default_rng(219)
    pairs = [first + second for first in SYLLABLES for second in SYLLABLES if first != second]
    names = iter(rng.choice(pairs, ROUNDS * len(WARES), replace=False))
    return tuple(
        Port(str(next(names)), str(ware), str(lamp))
        for _ in range(ROUNDS)
        for ware, lamp in zip(rng.permutation(WARES), rng.permutation(COLOURS), strict=True)
    )


@functools.cache
def ships() -> Mapping[str, Port]:
    """Corpus of `roles/multi_hop` as {ship: home `Port`}, 144 ships, six per port; the same in every process."""
    names = [f"{colour} {bird}" for colour in COLOURS for bird in BIRDS]
    homes = np.random.default_rng(220).permutation(np.arange(len(names)) % len(_ports()))
    return {ship: _ports()[home] for ship, home in zip(names, homes.tolist(), strict=True)}


def _held_out(share: float) -> frozenset[str]:
    """Ships that only "test" asks about: about `share` of all, equally many for each ware and each colour.

    In each port, they are those with the smallest hashes. The two ports of a ware may differ by one ship, and so may
    those of a colour; the share is thus met within 1/12 of the ships.
    """
    if not 0 <= share < 1:
        raise InputError(f"MultiHop: held_out={share}: expected a share in [0, 1)")
    out: set[str] = set()
    for place, port in enumerate(_ports()):
        crew = sorted((ship for ship, home in ships().items() if home == port), key=task_key)
        out.update(crew[: round(share * len(crew) + (0.25 if place < len(WARES) else -0.25))])
    return frozenset(out)


@functools.cache
def _library() -> Library:
    documents = {ship: f"The {ship} sails from {port.name}." for ship, port in ships().items()}
    told = {port.name: f"{port.name} sells {port.sells}. Its lamp is {port.lamp}." for port in _ports()}
    return Library(documents | told)


@TOOLS.register()
def multi_hop_index(most: int = 1) -> Tool:
    """Makes a `Tool` that searches the corpus of `roles/multi_hop` by BM25 and returns the best `most` documents.

    >>> multi_hop_index().run({"query": "red heron"})
    ('red heron: The red heron sails from ...', None)
    """
    if most < 1:
        raise InputError(f"multi_hop_index: most={most} must be at least 1")
    return _library().tool(most)


@ENVS.register("roles/multi_hop")
class MultiHop(TaskEnv):
    """One-turn question env whose two-hop answers need a search tool: `solver` is paid 1 for an exact match.

    Case and full stop do not count.

    A task env: `env.workflow` makes a team of it, and `env.tools` gives its roles `multi_hop_index()`. 144 ships, two
    questions about each. Questions of your own over files of your own are the env `dataset` with the tool
    `search(folder)`.

    Args:
        split: "train", "test" or "all".
        held_out: share of the ships that only "test" asks about, met within 1/12.

    Raises:
        InputError: there is no such split, or the share is out of range.
    """

    def __init__(self, *, split: Literal["train", "test", "all"] = "train", held_out: float = 0.25) -> None:
        if split not in SPLITS:
            raise InputError(f"MultiHop: split={split!r}{nearest(str(split), SPLITS)}")
        out = _held_out(held_out)
        self.ships = [ship for ship in ships() if split == "all" or (ship in out) == (split == "test")]
        if not self.ships:
            raise InputError(f"MultiHop: held_out={held_out} leaves no ship for {split!r}")

    def draw(self, seed: int) -> Task:
        """A question about a ship of the split."""
        rng = np.random.default_rng(seed)
        ship, asked = self.ships[int(rng.integers(len(self.ships)))], str(rng.choice(list(ASKED)))
        question, answer = ASKED[asked].format(ship), str(getattr(ships()[ship], asked))
        return Task(
            task_id("multi_hop", task_key(question)), question, lambda said: float(plain(said) == answer), answer
        )


def lookups(skill: float = 1.0, hop: Mapping[str, int] | None = None) -> Callable[[Any], str]:
    """Makes a policy function (request -> action): right query or answer, or with chance 1 - `skill` a random answer.

    For `roles/multi_hop`.

    A role without a tool guesses what it would have to look up.

    Args:
        skill: Probability of the right action, in [0, 1].
        hop: Role to the hop after which it answers: 1 names the port, 2 answers the question. Default: 1 for
            `finder`, 2 for all others. A role that answers after hop 2 reads the port in what it heard, if anybody
            named one.

    Raises:
        InputError: the skill is no probability.
    """
    if not 0 <= skill <= 1:
        raise InputError(f"lookups: skill={skill} must be in [0, 1]")
    last = {"finder": 1} if hop is None else dict(hop)
    ports = sorted(port.name for port in _ports())

    def play(request: Any) -> str:
        text = request.observation.text
        ship = next(ship for ship in ships() if f" {ship} " in text or f" {ship}?" in text)
        wares = "sell" in text.split("?", maxsplit=1)[0]
        stop = last.get(request.agent, 2)
        guess = str(request.rng.choice(ports if stop == 1 else WARES if wares else COLOURS))
        if request.rng.random() >= skill:
            return guess
        found = re.findall(r"sails from (\w+)|\? \| (\w+)", text)
        port = next((one or other for one, other in found), None)
        if port is None:
            return f"[search(query='{ship}')]" if request.observation.tools else guess
        if stop == 1:
            return str(port)
        told = re.search(r"sells (\w+)\. Its lamp is (\w+)\.", text)
        if told is None:
            return f"[search(query='{port}')]" if request.observation.tools else guess
        return told[1] if wares else told[2]

    return play
