"""`mean_field`: one upper seat sees a whole swarm as a distribution, and its action is the rule that all agents follow.

    mean_field(centres=8)                        features and rule by kernels around eight places of the circle
    mean_field(centres=8, blind=True)            the control: the upper seat sees nothing

A reconstruction of Dec-POMFC [125] (ICLR 2024) from its abstract and reviews. Left out: rules with hidden states, and a
policy of the features that agents work out by themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError

DRAWS = 41
"""Number of the stream from which the agents draw their actions."""


def kernel_weights(
    points: np.ndarray, centres: np.ndarray, bandwidth: float, period: float | None = None
) -> np.ndarray:
    """Gaussian kernel weights of `points` around `centres`, each point's summing to 1: float64[points, centres].

    w_b(x) = k(x, c_b) / Σ_b' k(x, c_b') with k(x, c) = exp(-|x - c|² / (2 bandwidth²)).

    Args:
        points: float[points, dimensions].
        centres: float[centres, dimensions].
        bandwidth: Standard deviation of a kernel.
        period: Length after which every coordinate comes again, as of angles; None: never.
    """
    apart = points[:, None, :] - centres[None]
    if period is not None:
        apart = (apart + period / 2) % period - period / 2
    nearness = -(apart**2).sum(-1) / (2 * bandwidth**2)
    found = np.exp(nearness - nearness.max(1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


def kernel_features(
    points: np.ndarray, centres: np.ndarray, bandwidth: float, period: float | None = None
) -> np.ndarray:
    """Mean over `points` of their Gaussian kernel weights at `centres`, which sum to 1 per point: float64[centres].

    Lipschitz in every point, unlike the shares of a histogram. Arguments as in `kernel_weights`.

    >>> centres = np.linspace(0, 1, 3)[:, None]
    >>> kernel_features(np.array([[0.0], [1.0]]), centres, 0.1).round(3).tolist()
    [0.5, 0.0, 0.5]
    """
    return np.asarray(kernel_weights(points, centres, bandwidth, period).mean(0))


class MeanFieldEnv:
    """Env wrapper with one seat that sees the population's distribution and sets the action rule of all agents.

    Before every step the seat sees the kernel features of the population, one number per centre. Its action is a text
    of one number per centre, each the number of one of the agents' choices (policy kind `factored`): at an observation
    y an agent takes choice u with probability Σ_b w_b(y) [θ_b = u], by the same kernels. So a step is one row with one
    reward, the mean over agents, however many there are; agents know the rule and their own observation and nothing
    else. An action that cannot be read counts as zeros.

    Args:
        env: Makes the env; all agents act in every step with the same choices and see arrays. If it has `states()`,
            float[agents, dimensions], the features are of these, else of what the agents see. If it has `period`, its
            coordinates come again after that length.
        centres: Centres along each dimension, spread evenly from `low` to `high`; the number of centres is this to the
            power of the dimensions.
        bandwidth: Of the kernels; None: three fifths of the distance between centres.
        low, high: Ends of every coordinate.
        blind: The features are zeros, for comparison.
        seat: Name of the upper seat.

    facts: those of `env`, as means over its agents where they differ; population, the features, as they were seen;
    obeyed, share of agents whose action was the likeliest one of the rule.

    Raises:
        InputError: A number is out of range, or an agent has the name of the seat.
        EnvError: When it is played, agents act in turns, or without arrays or choices.
    """

    def __init__(
        self,
        env: EnvFactory,
        *,
        centres: int = 8,
        bandwidth: float | None = None,
        low: float = -1.0,
        high: float = 1.0,
        blind: bool = False,
        seat: str = "swarm",
    ) -> None:
        self.inner: Env = env()
        if centres < 2 or not high > low or (bandwidth is not None and not bandwidth > 0) or not seat.strip():
            raise InputError(
                f"mean_field: centres={centres} at least 2, high={high} above low={low}, bandwidth={bandwidth} above "
                "0, and a seat's name"
            )
        self.period: float | None = getattr(self.inner, "period", None)
        gap = (high - low) / (centres if self.period else centres - 1)
        self.line = low + gap * (np.arange(centres) + (0.5 if self.period else 0.0))
        self.bandwidth = 0.6 * gap if bandwidth is None else float(bandwidth)
        self.blind, self.seat, self.task = blind, seat, ""
        self.agents: tuple[str, ...] = (seat,)
        told = {name: float if kind in (int, bool) else kind for name, kind in facts_of(self.inner).items()}
        self.facts: dict[str, Any] = {**told, "population": list[float], "obeyed": float}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode; the upper seat sees the population."""
        self._rng = np.random.default_rng([seed, DRAWS])
        self._seen: Mapping[str, Observation] = self.inner.reset(seed)
        self.task = self.inner.task
        first = next(iter(self._seen.values()))
        if first.choices is None or first.array is None or self._seen.keys() != set(self.inner.agents):
            raise EnvError("mean_field: every agent of the env must act in every step, with choices and arrays")
        self.choices = first.choices
        self.centres = self._grid(np.size(first.array))
        return self._shown()

    def rule(self, action: Action) -> np.ndarray | None:
        """One choice per centre, int[centres], from the seat's action; None if it cannot be read."""
        words = str(action).split()
        fits = len(words) == len(self.centres) and all(word.isdecimal() for word in words)
        found = np.array([int(word) for word in words]) if fits else None
        return found if found is not None and found.max() < len(self.choices) else None

    def chances(self, rule: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Action probabilities under a rule at agents' observations: float64[agents, choices]."""
        weights = kernel_weights(seen, self.centres, self.bandwidth, self.period)
        return np.asarray(weights @ np.eye(len(self.choices))[rule])

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Set the rule; every agent then draws its action by it from its observation."""
        if actions.keys() != {self.seat} or not self._seen:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agent to act is {self.seat}")
        rule = self.rule(actions[self.seat])
        theta = np.zeros(len(self.centres), int) if rule is None else rule
        seen = np.stack([np.ravel(each.array) for each in self._seen.values()]).astype(float)  # type: ignore[arg-type]
        chances = self.chances(theta, seen)
        drawn = (chances.cumsum(1) <= self._rng.random((len(seen), 1))).sum(1).clip(max=len(self.choices) - 1)
        features = self._features
        result = self.inner.step(dict(zip(self._seen, drawn.tolist(), strict=True)))
        self._seen = result.observations
        paid = [value for value in result.rewards.values() if value is not None]
        info: dict[str, Any] = {name: self._told(name, value) for name, value in result.info.items() if name != "valid"}
        info |= {"valid": {self.seat: rule is not None}, "population": features.tolist()}
        info["obeyed"] = float((drawn == chances.argmax(1)).mean())
        return StepResult(
            self._shown() if self._seen else {},
            {self.seat: sum(paid) / len(self.inner.agents)},
            terminated=result.terminated,
            truncated=result.truncated,
            info=info,
        )

    def _shown(self) -> dict[str, Observation]:
        states = getattr(self.inner, "states", None)
        points = states() if states else np.stack([np.ravel(each.array) for each in self._seen.values()])  # type: ignore[arg-type]
        found = kernel_features(points.astype(float), self._grid(points.shape[1]), self.bandwidth, self.period)
        self._features = np.zeros_like(found) if self.blind else found
        text = "population " + " ".join(f"{share:.3f}" for share in self._features.tolist())
        return {self.seat: Observation(text, array=self._features.astype(np.float32))}

    def _told(self, name: str, value: Any) -> Any:
        """The mean of a fact over agents; a success is everybody's."""
        if name == "success" and isinstance(value, Mapping):
            return all(value.values())
        if self.facts.get(name) is not float:
            return value
        return float(np.mean(list(value.values()) if isinstance(value, Mapping) else value))

    def _grid(self, dimensions: int) -> np.ndarray:
        """Centres, float64[centres, dimensions]."""
        return np.stack(np.meshgrid(*[self.line] * dimensions, indexing="ij"), -1).reshape(-1, dimensions)


def mean_field(
    env: EnvFactory,
    *,
    centres: int = 8,
    bandwidth: float | None = None,
    low: float = -1.0,
    high: float = 1.0,
    blind: bool = False,
    seat: str = "swarm",
) -> EnvFactory:
    """Env factory from another, `env`: one upper seat chooses the action rule of all agents, see `MeanFieldEnv`."""
    factory = functools.partial(
        MeanFieldEnv, env, centres=centres, bandwidth=bandwidth, low=low, high=high, blind=blind, seat=seat
    )
    factory()
    return factory
