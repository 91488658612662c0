"""Envs with one thing changed on purpose: calls that fail, prompts that are worded otherwise, other parameters.

Seeded, and with the task names of the env below, so that the same team on both is a paired comparison
(`palaestra.evaluation.robustness`). Whether and how to try again is left to the agent. Left out: network failures of
the policy's own endpoint, and snapshots.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.making import make
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import InputError, nearest

MIX = {"rate_limit": 0.35, "error": 0.35, "slow": 0.30}
"""How often which fault, as documented by Claw-Eval (arXiv 2604.06132)."""
SLOW = (2.0, 4.0)
FAILS: dict[str, tuple[str, dict[str, Any]]] = {
    "rate_limit": ("too many requests, retry after 2 s", {"status": 429, "retry_after": 2.0}),
    "error": ("internal server error", {"status": 500}),
}
FAULTS = {"fault": str, "status": int, "delay": float, "retry_after": float}
"""What a faulty env tells of its steps, beside what the env below tells."""
EXEMPT = r"\b(audit|health)\b"

Rewrite = Callable[[str, np.random.Generator], str]


class _Around:
    """An env that does as the one below does."""

    def __init__(self, env: EnvFactory) -> None:
        self.inner: Any = env()
        self.agents: tuple[str, ...] = self.inner.agents
        self.facts = facts_of(self.inner)
        self.task = ""

    @property
    def tolerates(self) -> bool:
        """Whether the env below goes on without an agent whose policy failed."""
        return bool(getattr(self.inner, "tolerates", False))

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode of the env below."""
        seen: Mapping[str, Observation] = self.inner.reset(seed)
        self.task = self.inner.task
        return seen

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions."""
        result: StepResult = self.inner.step(actions)
        return result


class FaultyEnv(_Around):
    """Env wrapper (of an env factory): steps fail at `rate`, by `kinds` (an error line, asked again), or are late.

    See `with_faults`.
    """

    def __init__(self, env: EnvFactory, rate: float, kinds: Mapping[str, float], seed: int, *,
                 only: str | None, exempt: str | None, patience: float) -> None:  # fmt: skip
        super().__init__(env)
        self.facts |= FAULTS
        self._rate, self._seed, self._patience, self._kinds = rate, seed, patience, tuple(kinds)
        below = np.cumsum(list(kinds.values()))
        self._below = below / below[-1]
        self._only = re.compile(only, re.IGNORECASE) if only else None
        self._exempt = re.compile(exempt, re.IGNORECASE) if exempt else None
        self._seen: Mapping[str, Observation] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode of the env below; the faults are drawn from a stream of their own."""
        self._rng = np.random.default_rng([self._seed, seed])
        self._seen = super().reset(seed)
        return self._seen

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions, or return the same observations with a fault, with the given chance."""
        hit, kind, seconds = self._rng.random(), self._rng.random(), self._rng.uniform(*SLOW)
        if not actions or actions.keys() != self._seen.keys() or hit >= self._rate or not self._may_fail(actions):
            return self._pass_on(actions)
        name = self._kinds[int(np.searchsorted(self._below, kind, side="right"))]
        if name == "slow" and seconds <= self._patience:
            return self._pass_on(actions, {"fault": "slow", "delay": round(seconds, 3)})
        late = f"timed out after {self._patience:g} s", {"status": 504, "delay": self._patience}
        said, fault = FAILS.get(name, late)
        line = f"[error {fault['status']}: {said}; the call did not go through]"
        told = {agent: _told(observation, line) for agent, observation in self._seen.items()}
        return StepResult(told, info={"fault": name, **fault})

    def _may_fail(self, actions: Mapping[str, Action]) -> bool:
        if any(seen.choices is not None and seen.index(actions[agent]) is None for agent, seen in self._seen.items()):
            return False
        texts = [_words(self._seen[agent], action) for agent, action in actions.items()]
        if self._exempt and any(self._exempt.search(text) for text in texts):
            return False
        return self._only is None or any(self._only.search(text) for text in texts)

    def _pass_on(self, actions: Mapping[str, Action], info: Mapping[str, Any] | None = None) -> StepResult:
        result = super().step(actions)
        self._seen = result.observations
        return replace(result, info={**result.info, **info}) if info else result


def with_faults(
    env: EnvFactory,
    rate: float = 0.25,
    kinds: str | Mapping[str, float] | Sequence[str] = tuple(MIX),
    seed: int = 0,
    *,
    only: str | None = None,
    exempt: str | None = EXEMPT,
    patience: float = np.inf,
) -> EnvFactory:
    """Wraps an env factory: in its envs each step fails or is delayed with chance `rate` (arXiv 2604.06132).

    The faults are those of Claw-Eval.

    Args:
        env: makes the env below.
        rate: chance that a step is hit, in [0, 1).
        kinds: "rate_limit" (429, retry after 2 s), "error" (500): the step does not go through, its agents see the same
            as before with a line that says so. "slow": it goes through 2 to 4 s late. A mapping gives weights; one
            name or several alone have those of `MIX` (35 : 35 : 30).
        seed: of the faults; together with the reset's seed, so that an episode fails in the same places again.
        only: a pattern: only actions that match it can fail, e.g. r"^(send|write)". None: all.
        exempt: a pattern of actions that never fail; default: the words audit and health.
        patience: seconds; a slow step that takes longer is lost with a 504.

    Nobody sleeps: delays are facts, columns of the table (`fault`, `status`, `delay`, `retry_after`). A step with an
    illegal action is not hit. Where several agents act at once, a step fails for all of them.

    Raises:
        InputError: the rate or a kind is unknown, or a pattern cannot be read.
    """
    if not 0 <= rate < 1:
        raise InputError(f"with_faults: rate={rate}, expected a share in [0, 1)")
    if not isinstance(kinds, Mapping):
        kinds = {name: MIX.get(name, 0.0) for name in ([kinds] if isinstance(kinds, str) else kinds)}
    weights = dict(kinds)
    for name, weight in weights.items():
        if name not in MIX:
            raise InputError(f"with_faults: no fault {name!r}{nearest(name, MIX)}")
        if not 0 <= weight < np.inf:
            raise InputError(f"with_faults: weight {name}={weight} must be a number of at least 0")
    if not sum(weights.values()) > 0:
        raise InputError("with_faults: no kind of fault has a weight")
    if not patience >= 0:
        raise InputError(f"with_faults: patience={patience} s")
    if seed < 0:
        raise InputError(f"with_faults: seed={seed}, expected at least 0")
    for pattern in (only, exempt):
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise InputError(f"with_faults: {pattern!r} is no pattern: {error}") from error
    return functools.partial(FaultyEnv, env, rate, weights, seed, only=only, exempt=exempt, patience=patience)


class RewordedEnv(_Around):
    """Env wrapper (of an env factory): each agent's first observation and repetitions are `rewrite(text, rng)`.

    See `with_prompts`.
    """

    def __init__(self, env: EnvFactory, rewrite: Rewrite, seed: int) -> None:
        super().__init__(env)
        self._rewrite, self._seed = rewrite, seed
        self._words: dict[str, tuple[tuple[str, str], ...]] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start; the wording depends on the task's name and not on the seed, so that equal tasks start alike."""
        self._words = {}
        return self._reword(super().reset(seed))

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions."""
        result = super().step(actions)
        return replace(result, observations=self._reword(result.observations))

    def _reword(self, observations: Mapping[str, Observation]) -> dict[str, Observation]:
        return {agent: self._one(agent, observation) for agent, observation in observations.items()}

    def _one(self, agent: str, seen: Observation) -> Observation:
        if agent not in self._words:
            texts = dict.fromkeys([seen.text, *(m["content"] for m in seen.messages or () if m["role"] != "system")])
            self._words[agent] = tuple((text, self._rewrite(text, self._rng(agent, text))) for text in texts if text)
        messages = seen.messages and tuple({**m, "content": self._say(agent, m["content"])} for m in seen.messages)
        return replace(seen, text=self._say(agent, seen.text), messages=messages)

    def _say(self, agent: str, text: str) -> str:
        for old, new in self._words[agent]:
            if old in text:
                return text.replace(old, new)
        return text

    def _rng(self, agent: str, text: str) -> np.random.Generator:
        digest = hashlib.blake2b(f"{self.task}\0{agent}\0{text}".encode(), digest_size=8).digest()
        return np.random.default_rng([self._seed, int.from_bytes(digest, "little")])


def typos(text: str, rng: np.random.Generator, rate: float = 0.1) -> str:
    """The text with typing errors by `rng`: two neighbouring letters swapped in words of 4 or more at chance `rate`.

    Digits, short words and first letters stay.

    >>> typos("Please set volume to 7", np.random.default_rng(0), 1.0)
    'Plaese set vloume to 7'
    """

    def swap(match: re.Match[str]) -> str:
        word = match[0]
        if rng.random() >= rate:
            return word
        at = int(rng.integers(1, len(word) - 2))
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]

    return re.sub(r"[^\W\d_]{4,}", swap, text)


def with_prompts(env: EnvFactory, rewrite: Rewrite | None = None, seed: int = 0, *, rate: float = 0.1) -> EnvFactory:
    """Wraps an env factory: task texts are reworded by `rewrite(text, rng)`, by default with `typos` at `rate`.

    What an agent reads first is reworded, and wherever the env repeats it word for word. Names of choices stay.

    Raises:
        InputError: the rate is no share, or the seed is negative.
    """
    if not 0 <= rate <= 1 or seed < 0:
        raise InputError(f"with_prompts: rate={rate}, expected a share in [0, 1]; seed={seed}, at least 0")
    return functools.partial(RewordedEnv, env, rewrite or functools.partial(typos, rate=rate), seed)


class ReparametrisedEnv(_Around):
    """Env wrapper (of an env factory) that draws task templates' parameters from another seed and renames the tasks.

    Tasks are named by template and number.

    See `with_parameters`.
    """

    def __init__(self, env: EnvFactory, seed: int | None) -> None:
        from palaestra.envs.worlds.templates import suite

        super().__init__(env)
        instances = getattr(self.inner, "suite", None)
        if not instances:
            raise InputError(f"with_parameters: {type(self.inner).__name__} has no suite of task templates")
        if seed is not None:
            templates = list(dict.fromkeys(instance.template for instance in instances))
            fresh = {
                (i.template.name, i.number): i for i in suite(templates, 1 + max(i.number for i in instances), seed)
            }
            self.inner.suite = [fresh[i.template.name, i.number] for i in instances]

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the instance that `seed` draws."""
        seen = super().reset(seed)
        drawn = self.inner.state.instance
        self.task = f"{drawn.template.name}#{drawn.number}"
        return seen


def with_parameters(env: EnvFactory, seed: int | None = None) -> EnvFactory:
    """Wraps an env factory of task templates (`native/desktop`): parameters are drawn from another seed ([164]).

    AndroidWorld's test of robustness.

    seed: of the parameters; None leaves them, and only names the tasks alike, for the base of a comparison.
    """
    return functools.partial(ReparametrisedEnv, env, seed)


def faulty(
    env: str,
    rate: float = 0.25,
    kinds: str | Mapping[str, float] | Sequence[str] = tuple(MIX),
    seed: int = 0,
    only: str | None = None,
    exempt: str | None = EXEMPT,
    patience: float = np.inf,
    **options: Any,
) -> Env:
    """Makes an env (no factory) by its registered name `env`, in which a share of the steps fails.

    See `with_faults`.
    """
    inner = make(env, **options)
    return with_faults(inner, rate, kinds, seed, only=only, exempt=exempt, patience=patience)()


def _told(seen: Observation, line: str) -> Observation:
    messages = seen.messages and (*seen.messages, {"role": "user", "content": line})
    return replace(seen, text=f"{seen.text}\n{line}" if seen.text else line, messages=messages)


def _words(seen: Observation, action: Action) -> str:
    if isinstance(action, str) or seen.choices is None:
        return str(action)
    return seen.choices[action] if 0 <= action < len(seen.choices) else str(action)
