"""Cost of a turn of an adapter beside the library's own loop: legal actions at random, from a table, from a network.

Both sides make features and mask of every turn, and one function chooses the action for both, asked about one state at
a time, as a bare loop asks. A table is a dictionary from a state's key to a row of logits; the key is
`Observation.key()` here, the state's own text in pyspiel's loop, and the bytes of the board in PettingZoo's. The
network has two tanh layers of 64, in torch. Then the same with `pa.rollout` and the policies `TabularPolicy` and
`MLPPolicy`: it asks for 256 episodes at once, checks every answer, and leaves a table of turns, which the bare loops
do not.

No seed comes twice but in the rows that say so, which are as the episodes of a group. In the loops seeds are told
beforehand, 256 at a time, as by the engine. Times are CPU times, medians of seven in turn.

Run: python benchmarks/adapters.py
"""

from __future__ import annotations

import functools
import itertools
import statistics
import sys
from collections.abc import Callable, Hashable
from time import process_time
from typing import Any

import numpy as np
import torch

import palaestra as pa
from palaestra.agents.discrete import DiscretePolicy
from palaestra.agents.mlp import MLPPolicy
from palaestra.agents.tabular import TabularPolicy
from palaestra.envs.discrete import describe
from palaestra.envs.protocol import Observation
from palaestra.foundation.generators import remember

CONCURRENCY = 256
EPISODES = {"kuhn_poker": 500, "leduc_poker": 500, "tic_tac_toe": 200, "connect_four": 100}
ROLLOUT = 1000
"""Episodes of a rollout, which has fixed costs of some milliseconds."""
MOST_OF_SPIEL, MOST_OF_PETTINGZOO = 2.0, 1.0
NUMBERS = np.random.default_rng(0).random(4096).tolist()


class Chooser:
    """Chooser of an action: at random, by a table, or by a network; the same for all loops."""

    reads_key = False

    def __init__(self, inputs: int, actions: int) -> None:
        self.actions, self.turn = actions, 0

    def number(self) -> float:
        """The next number in [0, 1)."""
        self.turn = (self.turn + 1) % 4096
        return float(NUMBERS[self.turn])

    def choose(self, key: Hashable, array: np.ndarray, mask: np.ndarray) -> int:
        """A legal action, uniformly."""
        legal = mask.nonzero()[0]
        return int(legal[int(self.number() * len(legal))])

    def draw(self, logits: np.ndarray, mask: np.ndarray) -> int:
        """A legal action from the softmax of its logits."""
        weights = (np.exp(logits) * mask).cumsum()
        return int(weights.searchsorted(self.number() * weights[-1], side="right"))


class Table(Chooser):
    """A row of logits for each state that was met."""

    reads_key = True

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__(inputs, actions)
        self.rows: dict[Hashable, np.ndarray] = {}
        self.rng = np.random.default_rng(0)

    def choose(self, key: Hashable, array: np.ndarray, mask: np.ndarray) -> int:
        """Draw from the state's row."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = self.rng.normal(size=self.actions)
        return self.draw(row, mask)


class Network(Chooser):
    """Logits of a network of two layers."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__(inputs, actions)
        self.module = MLPPolicy(inputs, actions).module

    def choose(self, key: Hashable, array: np.ndarray, mask: np.ndarray) -> int:
        """Draw from what the network says of one array."""
        with torch.no_grad():
            logits = self.module(torch.tensor(array)).numpy()
        return self.draw(logits, mask)


CHOOSERS = {"random": Chooser, "table": Table, "MLP": Network}


def ours(factory: Callable[[], Any], chooser: Chooser, seeds: Callable[[int], list[int]], told: bool, most: int) -> int:
    """Play so many episodes through the adapter; returns turns."""
    env, turns = factory(), 0
    for played, seed in enumerate(all_seeds := seeds(most)):
        if played % CONCURRENCY == 0:
            remember(all_seeds[played : played + CONCURRENCY])
        seen: Any = env.reset(seed)
        while seen:
            moves = {}
            for agent, each in seen.items():
                assert not told or each.text
                moves[agent] = chooser.choose(each.key() if chooser.reads_key else 0, each.array, each.mask)
            seen, turns = env.step(moves).observations, turns + 1
    return turns


def spiel(name: str, chooser: Chooser, told: bool, most: int) -> int:
    """The same in a loop over pyspiel."""
    import pyspiel

    game, turns = pyspiel.load_game(name), 0
    poker, told = name.endswith("poker"), told or chooser.reads_key
    rng, key = np.random.default_rng(0), ""
    for _ in range(most):
        state = game.new_initial_state()
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes = state.chance_outcomes()
                state.apply_action(outcomes[int(rng.random() * len(outcomes))][0])
                continue
            player = state.current_player()
            if told:
                key = state.information_state_string(player) if poker else state.observation_string(player)
            numbers = state.information_state_tensor(player) if poker else state.observation_tensor(player)
            array, mask = np.array(numbers, np.float32), np.array(state.legal_actions_mask(player), bool)
            state.apply_action(chooser.choose(key, array, mask))
            turns += 1
    return turns


def aec(chooser: Chooser, told: bool, most: int) -> int:
    """The same in PettingZoo's loop."""
    import pettingzoo.classic.tictactoe_v3 as tictactoe

    env, turns = tictactoe.env(), 0
    for seed in range(most):
        env.reset(seed=seed)
        for _ in env.agent_iter():
            seen, _, over, cut, _said = env.last()
            if over or cut:
                env.step(None)
                continue
            if told:
                describe(seen["observation"])
            array = np.array(seen["observation"], np.float32).ravel()
            key = array.tobytes() if chooser.reads_key else 0
            env.step(chooser.choose(key, array, seen["action_mask"].astype(bool)))
            turns += 1
    return turns


class Everyone:
    """A team of one policy."""

    def __init__(self, policy: DiscretePolicy) -> None:
        self.policy = policy

    def for_agent(self, agent: str) -> DiscretePolicy:
        """The one."""
        return self.policy


def rollout(factory: Callable[[], Any], policy: DiscretePolicy, seeds: Callable[[int], list[int]], most: int) -> int:
    """The same with `pa.rollout`."""
    played = pa.rollout(factory, Everyone(policy), groups=most, concurrency=CONCURRENCY, seed=seeds(1)[0])
    if isinstance(policy, TabularPolicy):
        policy.meet(played.frame)
    return len(played)


def medians(*calls: Callable[[], int]) -> list[float]:
    """Microseconds per turn of each, in turn, seven times; once before that does not count."""
    times: tuple[list[float], ...] = tuple([] for _ in calls)
    for call in calls:
        call()
    for _ in range(7):
        for call, found in zip(calls, times, strict=True):
            began = process_time()
            played = call()
            found.append((process_time() - began) / played * 1e6)
    return [statistics.median(found) for found in times]


def shape(factory: Callable[[], Any]) -> tuple[int, int]:
    """Features and actions."""
    seen: Observation = next(iter(factory().reset(0).values()))
    assert seen.array is not None
    assert seen.choices is not None
    return seen.array.size, len(seen.choices)


def main() -> bool:
    """Print both sides and the ratios; whether every adapter's turn with a table or a network is cheap enough."""
    torch.set_num_threads(1)
    fresh, holds = itertools.count(), True

    def new(count: int) -> list[int]:
        return list(itertools.islice(fresh, count))

    def again(count: int) -> list[int]:
        return list(range(count))

    Row = tuple[str, str, Callable[[], Any], Callable[[int], list[int]], bool]
    rows: list[Row] = [
        ("random", name, pa.envs.openspiel(name), new, told) for told in (True, False) for name in EPISODES
    ]
    rows += [("random", name, pa.envs.openspiel(name), again, False) for name in ("kuhn_poker", "leduc_poker")]
    rows += [(kind, name, pa.envs.openspiel(name), new, False) for kind in ("table", "MLP") for name in EPISODES]
    zoo = pa.envs.pettingzoo("classic.tictactoe_v3")
    rows += [(kind, "PettingZoo", zoo, new, False) for kind in CHOOSERS]
    print(
        f"{'actions':<8} {'adapter':<32} {'ours us':>8} {'library us':>11} {'ratio':>6} {'rollout us':>11} {'ratio':>6}"
    )
    for kind, name, factory, seeds, told in rows:
        inputs, actions = shape(factory)
        here, there = (CHOOSERS[kind](inputs, actions) for _ in range(2))
        most = EPISODES.get(name, 100)
        calls = [functools.partial(ours, factory, here, seeds, told, most)]
        bare = aec if name == "PettingZoo" else functools.partial(spiel, name)
        calls.append(functools.partial(bare, there, told, most))
        if kind != "random":
            policy = TabularPolicy(actions) if kind == "table" else MLPPolicy(inputs, actions)
            calls.append(functools.partial(rollout, factory, policy, seeds, ROLLOUT))
        found = medians(*calls)
        what = name + (", text" if told else "") + (", seeds again" if seeds is again else "")
        engine = f"{found[2]:>11.1f} {found[2] / found[1]:>6.2f}" if len(found) > 2 else ""
        print(
            f"{kind:<8} {what:<32} {found[0]:>8.1f} {found[1]:>11.1f} {found[0] / found[1]:>6.2f} {engine}", flush=True
        )
        most_allowed = MOST_OF_PETTINGZOO if name == "PettingZoo" else MOST_OF_SPIEL
        holds = holds and (kind == "random" or found[0] / found[1] <= most_allowed)
    print(f"criterion: with a table or a network at most {MOST_OF_SPIEL} of pyspiel's loop and {MOST_OF_PETTINGZOO} of "
          f"PettingZoo's: {'holds' if holds else 'FAILS'}")  # fmt: skip
    return holds


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
