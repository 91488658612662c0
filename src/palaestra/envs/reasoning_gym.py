"""reasoning-gym: procedurally made questions, scored by the data set's own `score_answer`.

Questions come from a weighted mix of data sets. Whether a question belongs to training or to test is decided by a hash
of its text (of its short wording, where there is one), so the two never share a question, whatever the seeds, weights,
settings and wordings, and even if two data sets ask the same.
Left out: reasoning-gym's curricula and composite data sets (the mix does their work).
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from palaestra.envs.discrete import NUMPY_RANDOM, isolated, source_mentions
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.questions import shorten
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError, InputError, missing_extra, nearest

Split = Literal["train", "test", "all"]
Datasets = str | Sequence[str] | Mapping[str, Mapping[str, Any] | None]

ITEMS = 2**31
"""reasoning-gym makes item i with the seed i, so items are drawn from this many."""
ATTEMPTS = 1000
"""So many items without one of the wanted split mean that the data set hardly has any."""


class ReasoningGymEnv(TaskEnv):
    """One-turn env that asks generated questions of Reasoning Gym's data sets, selected by the reset seed.

    task: `name:hash`, the data set and the hash of the question.
    """

    def __init__(
        self,
        datasets: Datasets,
        *,
        split: Split = "train",
        prompt: Literal["raw", "short"] = "raw",
        threshold: float = 1.0,
    ) -> None:
        """See `reasoning_gym` for the arguments."""
        wanted = _settings(datasets)
        self._sets = [(name, *_dataset(name, settings)) for name, (_, settings) in wanted.items()]
        self._until = list(itertools.accumulate(weight for weight, _ in wanted.values()))
        for found, known in ((split, ("train", "test", "all")), (prompt, ("raw", "short"))):
            if found not in known:
                raise InputError(f"reasoning_gym: {found!r} is not one of {', '.join(known)}{nearest(found, known)}")
        self._split, self._prompt = split, prompt
        self.threshold = threshold

    def draw(self, seed: int) -> Task:
        """The first question of the wanted split among the items that `seed` leads to."""
        rng = np.random.default_rng(seed)
        which = bisect.bisect_right(self._until, rng.random() * self._until[-1])
        name, dataset, items, numpy = self._sets[which]
        for _ in range(ATTEMPTS):
            item = int(rng.integers(items))
            if numpy:  # some of these use NumPy's global generator
                with isolated(item, numpy=True):
                    entry = dataset[item]
            else:
                entry = dataset[item]
            short = shorten(name, entry["question"])
            if self._split in ("all", split_of(short)):
                question = short if self._prompt == "short" else entry["question"]
                score = functools.partial(_score, dataset, entry)
                return Task(f"{name}:{_hash(question).hex()}", question, score, entry["answer"])
        raise EnvError(f"reasoning_gym: none of {ATTEMPTS} questions of {name!r} is of the {self._split} split")


def _score(dataset: Any, entry: Any, answer: str) -> float:
    """Its score; some data sets trip over text that they did not expect."""
    try:
        return float(dataset.score_answer(answer, entry=entry))
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def split_of(question: str) -> Literal["train", "test"]:
    """The split of a question, "train" or "test" (one in five), by a hash of its text."""
    return "test" if int.from_bytes(_hash(question), "little") % 5 == 0 else "train"


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _settings(datasets: Datasets) -> dict[str, tuple[float, dict[str, Any]]]:
    """{name: (weight, settings)} of whatever form the mix was given in."""
    if isinstance(datasets, str):
        datasets = [name.strip() for name in datasets.split(",")]
    if not isinstance(datasets, Mapping):
        datasets = dict.fromkeys(datasets)
    mix = {}
    for name, given in datasets.items():
        settings = dict(given or {})
        weight = settings.pop("weight", 1.0)
        if not isinstance(weight, int | float) or not 0 < weight < float("inf"):
            raise InputError(f"reasoning_gym: the weight of {name!r} is {weight!r}; it must be a positive number")
        mix[name] = (float(weight), settings)
    if not mix:
        raise InputError("reasoning_gym: no data set is named")
    return mix


_MADE: dict[str, tuple[Any, int, bool]] = {}


def _dataset(name: str, settings: Mapping[str, Any]) -> tuple[Any, int, bool]:
    """The data set, how many items it can make, and whether it needs NumPy's global generator guarded.

    Made once per process and settings: some read word lists for 100 ms, and items depend on nothing but their number.
    """
    key = f"{name} {sorted(settings.items())!r}"
    if key not in _MADE:
        if importlib.util.find_spec("reasoning_gym") is None:
            raise missing_extra("reasoning-gym", "reasoning-gym")
        from reasoning_gym.factory import DATASETS, create_dataset

        known = [known for known in DATASETS if known != "composite"]
        if name not in known:
            raise InputError(f"reasoning_gym has no data set {name!r}{nearest(name, known)}")
        try:
            dataset = create_dataset(name, **{"seed": 0, **settings})
        except (TypeError, AssertionError, ValueError) as error:
            raise InputError(f"reasoning_gym: {name!r} rejects its settings {dict(settings)}: {error}") from error
        try:
            with isolated(0, numpy=True):
                dataset[ITEMS - 1]
            items = ITEMS
        except IndexError:  # a few data sets make all their items beforehand
            items = len(dataset)
        _MADE[key] = dataset, items, source_mentions(type(dataset).__module__, NUMPY_RANDOM)
    return _MADE[key]


def reasoning_gym(
    datasets: Datasets,
    *,
    split: Split = "train",
    prompt: Literal["raw", "short"] = "raw",
    threshold: float = 1.0,
) -> EnvFactory:
    """Env factory of one-turn questions of Reasoning Gym's `datasets` (names, or {name: settings}), checked at once.

    Args:
        datasets: one name, several (`"chain_sum,gcd"` or a list), or `{name: settings}`; `weight` among the settings is
            the share of the data set in the mix, the rest goes to the data set.
        split: "train", "test" (one question in five) or "all".
        prompt: "short" words the questions of `palaestra.envs.questions.FORMS` in a few characters.
        threshold: the least score that counts as success.

    >>> env = reasoning_gym({"chain_sum": {"max_terms": 2, "max_digits": 1}}, prompt="short")()
    >>> env.reset(seed=0)["solver"].text, env.answer
    ('8 + 4 =', '12')
    """
    factory = functools.partial(ReasoningGymEnv, datasets, split=split, prompt=prompt, threshold=threshold)
    factory()
    return factory
