"""The conformance test of environments: whatever passes it can be rolled out, grouped and compared.

Left out: whether the game is any good, and how fast it is.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.envs.protocol import Action, Env, EnvFactory, Observation
from palaestra.play.streams import Streams
from palaestra.testing.step import check_names, check_observations, check_result, short

Play = Callable[[Observation, np.random.Generator], Action]
"""How to answer an observation legally, for envs whose actions are free text."""

SEEDS = (0, 1, 2**32 + 3, 2**64 - 2)
"""Reset seeds have 64 bits; some libraries only expect 32."""
WORDS = ("0", "1", "7", "ok", "yes", "a", "[0]", "[1 1]", "hello there")
GARBAGE = ("", "   ", "\x00", "no such action \N{BLACK CHESS KNIGHT}", "9" * 50)


def check_env(
    factory: EnvFactory,
    *,
    seeds: Iterable[int] = SEEDS,
    illegal: bool = True,
    varied: bool = True,
    max_steps: int = 1000,
    play: Play | None = None,
) -> None:
    """Check envs of a factory against `palaestra.envs.protocol` by random play; AssertionError at the first breach.

    Checked: the factory can be pickled; the same seed and actions give the same episode, in the same env, in another
    one and while a third one plays another seed; equal task names mean equal starts; Python's and NumPy's global
    generators are left alone; observations are consistent (choices, mask, array); only known agents act and are
    rewarded, by finite numbers or None; facts are what was declared, and nothing else in `info` has a column's name; an
    episode is over exactly when nobody is observed, within `max_steps`; an env that has `snapshot` and `restore` plays
    on from a snapshot as it did before, and so does another env of the factory; the snapshot survives that.

    Args:
        factory: makes a fresh env.
        seeds: the episodes to play, at least two for `varied`.
        illegal: also send illegal actions (numbers out of range, masked ones, garbage): they must not raise, and where
            there are `choices` they must be reported as `valid=False`.
        varied: at least two of the seeds must differ in what is seen, and the seeds of training and those of evaluation
            must not each have starts of their own; turn it off for games with one start.
        max_steps: steps after which an episode counts as endless.
        play: a legal answer to an observation; needed for free text of which random words are not legal.

    Raises:
        AssertionError: one sentence with the promise, the seed, the step and the agent.
    """
    seeds = list(seeds)
    try:
        # what was written in a notebook or a prompt cannot be found by another process in any case
        interactive = getattr(factory, "__module__", None) == "__main__"
        twin = factory if interactive else pickle.loads(pickle.dumps(factory))
    except Exception as error:
        raise AssertionError(f"the factory cannot be pickled, so no other process can use it: {error!r}") from error
    env = factory()  # imports its library, which may draw from the global generators
    _check_agents(env)
    before = _global_state()
    player = _Player(play, max_steps)
    traces = {}
    for seed in seeds:
        trace = traces[seed] = list(player.episode(env, seed))
        _same(trace, list(player.episode(env, seed)), f"seed {seed}, played twice in one env")
        other = player.episode(factory(), seed + 1)
        mixed = [step for step, _ in _alternate(player.episode(twin(), seed), other)]
        _same(trace, mixed, f"seed {seed}, played in another env while a third one plays")
        if hasattr(env, "snapshot") or hasattr(env, "restore"):
            _check_restart(factory(), factory(), seed, player)
    _check_starts(traces)
    if varied:
        _check_varied(env, seeds, player)
        _check_halves(env)
    if illegal:
        for seed in seeds:
            _check_illegal(factory(), seed, player, len(traces[seed]) - 1)
    if _global_state() != before:
        raise AssertionError("the env draws from Python's or NumPy's global random generator: other code would notice")


def check_episode(factory: EnvFactory, *, seed: int = 0, seconds: float = 1.0) -> None:
    """Check a factory's env quickly by one random episode, for at most `seconds`; raises AssertionError.

    Checked is what every step of play relies on: agents, observations and rewards by agent, `StepResult`. What the env
    raises in a step is no breach, but a failed episode; an env that hangs is left alone.

    Raises:
        AssertionError: one sentence with what was expected, what came and in which step.
    """
    found: list[AssertionError] = []
    late = threading.Event()

    def play() -> None:
        env = _Shield(factory())
        try:
            for _ in _Player(None, 1000).episode(env, seed):
                if late.is_set():
                    return
        except _Raised:
            pass
        except AssertionError as error:
            found.append(error)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    thread.join(seconds)
    late.set()
    if found:
        raise found[0]


class _Raised(Exception):
    """Exception raised by an env, as opposed to one about it."""


class _Shield:
    """An env whose own exceptions can be told from those of the check."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, seed: int) -> Any:
        return self._call(self._env.reset, seed)

    def step(self, actions: Mapping[str, Action]) -> Any:
        return self._call(self._env.step, actions)

    @staticmethod
    def _call(method: Callable[[Any], Any], value: Any) -> Any:
        try:
            return method(value)
        except Exception as error:
            raise _Raised from error


Trace = list[Any]


class _Player:
    """Plays episodes at random, checking every observation and result on the way."""

    def __init__(self, play: Play | None, max_steps: int) -> None:
        self._play = play
        self._max_steps = max_steps

    def choose(self, seen: Observation, rng: np.random.Generator) -> Action:
        if self._play is not None:
            return self._play(seen, rng)
        options = seen.legal if seen.choices is not None else WORDS
        return options[rng.integers(len(options))]

    def episode(self, env: Env, seed: int, stream: int | None = None) -> Iterator[Any]:
        """One item per step: everything that an agent or a learner could notice, comparable with ==."""
        rng = np.random.default_rng(seed if stream is None else stream)
        observations = env.reset(seed)
        where = f"seed {seed}, reset"
        check_names(env)
        check_observations(env, observations, where)
        if not observations:
            raise AssertionError(f"{where}: nobody is observed, so the episode is over before it began")
        if not isinstance(env.task, str) or not env.task:
            raise AssertionError(f"{where}: env.task is {env.task!r}; it must be a name")
        yield env.task, _plain(observations)
        for step in range(1, self._max_steps + 1):
            where = f"seed {seed}, step {step}"
            actions = {agent: self.choose(seen, rng) for agent, seen in observations.items()}
            legal = self._play is not None or all(seen.choices is not None for seen in observations.values())
            result = env.step(actions)
            check_result(env, actions, result, where)
            invalid = [agent for agent, valid in result.info.get("valid", {}).items() if not valid]
            if invalid and legal:
                raise AssertionError(
                    f"{where}: the legal action {actions[invalid[0]]!r} of {invalid[0]!r} is called invalid"
                )
            yield (
                {agent: str(action) for agent, action in actions.items()},
                _plain(result.observations),
                dict(result.rewards),
                (result.terminated, result.truncated),
                repr(result.info),
            )
            observations = result.observations
            if not observations:
                return
        raise AssertionError(f"seed {seed}: the episode is not over after {self._max_steps} steps of random play")


def _check_agents(env: Env) -> None:
    if not isinstance(env, Env):
        raise AssertionError(f"{type(env).__name__} lacks one of: agents, task, reset, step")
    agents = env.agents
    if not isinstance(agents, tuple) or not agents or len(set(agents)) < len(agents):
        raise AssertionError(f"env.agents is {agents!r}; it must be a tuple of different names")


def _check_starts(traces: Mapping[int, Trace]) -> None:
    starts: dict[str, tuple[int, Any]] = {}
    for seed, ((task, seen), *_) in traces.items():
        first, expected = starts.setdefault(task, (seed, seen))
        if seen != expected:
            raise AssertionError(f"seeds {first} and {seed} both have the task {task!r}, but do not start alike")


def _check_varied(env: Env, seeds: Sequence[int], player: _Player) -> None:
    """With the same random stream for the actions, only the env's own seed can make two episodes differ."""
    episodes = [[step[1] for step in player.episode(env, seed, stream=0)] for seed in seeds]
    if len(seeds) > 1 and all(episode == episodes[0] for episode in episodes):
        raise AssertionError(
            f"the seeds {list(seeds)} all give the same episode: is the seed used? (else varied=False)"
        )


def _check_halves(env: Env, count: int = 16) -> None:
    """Training and evaluation draw their reset seeds from two halves; both must reach the same kinds of starts."""
    halves = {
        stream: [repr(_plain(env.reset(Streams(0, stream=stream).env_seed(group)))) for group in range(count)]
        for stream in ("train", "eval")
    }
    train, test = (set(starts) for starts in halves.values())
    if max(len(train), len(test)) <= count // 2 and not train & test:
        raise AssertionError(
            f"{count} seeds of training give {len(train)} different starts, {count} of evaluation {len(test)}, and "
            f"none is in both: the start is chosen by a part of the seed that says which half it is "
            "of; use np.random.default_rng(seed) or the seed's low bits"
        )


def _check_restart(env: Any, other: Any, seed: int, player: _Player) -> None:
    """Play, with a snapshot before every step; then go back to each of them, in another env too, and step again."""
    rng = np.random.default_rng(seed)
    observations: Mapping[str, Observation] = env.reset(seed)
    kept: list[Any] = []
    while observations and len(kept) < 20:
        actions = {agent: player.choose(seen, rng) for agent, seen in observations.items()}
        snapshot = env.snapshot()
        result = env.step(actions)
        kept.append((snapshot, _plain(observations), actions, result))
        observations = result.observations
    for number, (snapshot, seen, actions, result) in reversed(list(enumerate(kept))):
        for how, restored in (("once", env), ("in another env", other)):
            where = f"seed {seed}, step {number + 1}, restored {how}"
            _require_same(seen, _plain(restored.restore(snapshot)), f"{where}: it shows")
            again = restored.step(actions)
            _require_same(_plain(result.observations), _plain(again.observations), f"{where}: the next step shows")
            _require_same(dict(result.rewards), dict(again.rewards), f"{where}: the next step pays")


def _require_same(expected: Any, found: Any, what: str) -> None:
    if expected != found:
        raise AssertionError(f"{what} {short(found)} instead of {short(expected)}")


def _check_illegal(env: Env, seed: int, player: _Player, steps: int) -> None:
    """Send each illegal action at the start, and one somewhere later."""
    rng = np.random.default_rng(seed)
    first = next(iter(env.reset(seed).values()))
    count = len(first.choices or ())
    attempts: list[tuple[int, Action]] = [(0, action) for action in (count, -1, 10**6, *GARBAGE)]
    attempts += [(int(rng.integers(steps)), action) for action in (10**6, "", "masked")] if steps else []
    for late, action in attempts:
        observations = env.reset(seed)
        sent = False
        for step in range(1, 2 * steps + 100):
            actions = {agent: player.choose(seen, rng) for agent, seen in observations.items()}
            offender, seen = next(iter(observations.items()))
            where = f"seed {seed}, step {step}, illegal action {action!r} of {offender!r}"
            now = not sent and step > late
            if now and action == "masked":
                now = seen.mask is not None and not seen.mask.all()
                if now and seen.mask is not None:
                    actions[offender] = int(seen.mask.argmin())
            elif now:
                actions[offender] = action
            try:
                result = env.step(actions)
            except Exception as error:
                raise AssertionError(f"{where}: step raised {error!r}") from error
            check_result(env, actions, result, where)
            if now:
                sent = True
                expected = seen.choices is not None or not isinstance(action, str)
                if expected and result.info.get("valid", {}).get(offender, True):
                    raise AssertionError(f"{where}: it is not reported as valid=False")
            observations = result.observations
            if not observations:
                break


def _plain(observations: Mapping[str, Observation]) -> dict[str, Any]:
    return {
        agent: (
            seen.text,
            seen.choices,
            None if seen.mask is None else seen.mask.tobytes(),
            None if seen.array is None else (seen.array.shape, seen.array.tobytes()),
            None if seen.messages is None else [dict(message) for message in seen.messages],
        )
        for agent, seen in observations.items()
    }


def _same(expected: Trace, found: Trace, where: str) -> None:
    for step, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            raise AssertionError(
                f"{where}: step {step} differs from the first time: {short(one)} became {short(other)}"
            )
    if len(expected) != len(found):
        raise AssertionError(f"{where}: the episode has {len(found)} steps instead of {len(expected)}")


def _alternate(first: Iterator[Any], second: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """All of `first`, with a step of `second` after each step as long as it lasts."""
    for step in first:
        yield step, next(second, None)


def _global_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    return random.getstate(), repr(state), state["state"]["key"].tobytes()
