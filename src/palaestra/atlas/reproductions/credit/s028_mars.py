"""[28] MARS (arXiv 2510.15414): self-play in which every seat has its own baseline.

Two tabular policies play Kuhn poker against each other: 12 information sets, REINFORCE with a small entropy pull.
Play is vectorised over games and runs, credit is the library's own, exploitability is exact. One baseline for both
seats learns as well here, because their values differ little (±1/18); what it cannot do is leave no seat biased. The
released code centres on *distinct* values and so leaves a bias of its own, `seat_bias_mars` (in standard deviations).
Left out: language models, transfer to other games, the clipped loss (one update per batch, so the ratio is 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from palaestra.algebra.signals import Signal, centre, col, evaluate, mean
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import entropy_gradient, policy_gradient, softmax, uniform
from palaestra.credit import mars, reinforce, return_to_go
from palaestra.envs.worlds.exact.exploitability import exploitability

GAMES, UPDATES, RATE, ENTROPY = 256, 400, 1.0, 0.01
DEALS = np.array([(first, second) for first in range(3) for second in range(3) if first != second])
SEATS = np.array(["player_0", "player_1"])
INFORMATION_SETS = [f"{card}{history}" for history in ("", "pb", "p", "b") for card in range(3)]
"""The card and what was played (p = pass, b = bet), as OpenSpiel names them; index 3 * history + card."""


class Play(NamedTuple):
    """A batch of games of all runs, one entry per turn: run, game, turn, seat, information set, action, reward."""

    run: np.ndarray
    game: np.ndarray
    turn: np.ndarray
    seat: np.ndarray
    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray

    def turns(self) -> Turns:
        """The same as a table."""
        where = {"run": self.run.astype(str), "group": np.zeros_like(self.run), "episode": self.game, "turn": self.turn}
        return Turns(where | {"agent": SEATS[self.seat], "reward": self.reward})


def play(policy: np.ndarray, streams: Sequence[np.random.Generator], games: int = GAMES) -> Play:
    """Self-play of `policy` float64[runs, 12, 2] (pass, bet); the winner of the pot is decided when the game ends."""
    runs = np.arange(len(policy))[:, None]
    bet = policy[:, :, 1]
    luck = uniform(streams, games, 4)
    first, second = np.moveaxis(DEALS[(luck[..., 0] * len(DEALS)).astype(int)], -1, 0)
    opening = luck[..., 1] < bet[runs, first]
    reply_state = np.where(opening, 9, 6) + second
    reply = luck[..., 2] < bet[runs, reply_state]
    last = luck[..., 3] < bet[runs, 3 + first]
    raised = ~opening & reply  # only then the first player acts again
    higher = np.where(first > second, 1.0, -1.0)
    after_pass = np.where(reply, np.where(last, 2 * higher, -1.0), higher)
    gain = np.where(opening, np.where(reply, 2 * higher, 1.0), after_pass)

    moves = (  # of each turn: seat, information set, action, reward, and the games that have this turn
        (0, first, opening, np.where(raised, 0.0, gain), np.ones_like(opening)),
        (1, reply_state, reply, -gain, np.ones_like(opening)),
        (0, 3 + first, last, gain, raised),
    )
    parts = []
    for turn, (seat, state, action, reward, on) in enumerate(moves):
        run, game = np.nonzero(on)
        now, who = np.full(len(run), turn), np.full(len(run), seat)
        parts.append(Play(run, game, now, who, state[on], action[on].astype(int), reward[on]))
    return Play(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def exploitability_of(bet: np.ndarray) -> float:
    """What a best response gains, averaged over the seats, against the betting probabilities float64[12]; exact."""
    return exploitability("kuhn_poker", {name: {0: 1 - p, 1: p} for name, p in zip(INFORMATION_SETS, bet, strict=True)})


class Trained(NamedTuple):
    """Of each run: exploitability of the average and of the last policy; and the last batch of games."""

    average: np.ndarray
    last: np.ndarray
    batch: Play


def self_play(credit: Signal, seeds: Sequence[int], updates: int = UPDATES) -> Trained:
    """Train both seats with one credit. The average weights each policy by its own chance to reach the decision."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), len(INFORMATION_SETS), 2))
    weighted, weight = np.zeros(theta.shape[:2]), np.zeros(theta.shape[:2])
    for _ in range(updates):
        policy = softmax(theta)
        batch = play(policy, streams)
        advantage = np.asarray(credit.evaluate(batch.turns()))
        gradient = policy_gradient(policy, batch.run, batch.state, batch.action, advantage) / GAMES
        theta += RATE * (gradient + ENTROPY * entropy_gradient(policy))
        reach = np.ones_like(weight)
        reach[:, 3:6] = policy[:, 0:3, 0]  # the first player decides twice only if it passed
        weighted += reach * policy[:, :, 1]
        weight += reach
    average = np.array([exploitability_of(bet) for bet in weighted / weight])
    last = np.array([exploitability_of(bet) for bet in softmax(theta)[:, :, 1]])
    return Trained(average, last, batch)


def seat_bias(batch: Play) -> dict[str, float]:
    """Largest |mean advantage| of any seat in any run, by kind of credit, and the largest |value of a seat|.

    A seat counts once per game: on its first turn, where its return-to-go is the game's result.
    """
    opening = col("turn") < 2
    result = return_to_go()
    kinds = {
        "seat_value": result,
        "seat_bias_own": centre(result, over="agent", where=opening),
        "seat_bias_pooled": centre(result, over=(), where=opening),
        "seat_bias_mars": mars(),
    }
    means = evaluate(batch.turns(), *(mean(credit, over="agent", where=opening) for credit in kinds.values()))
    return {name: float(np.abs(np.asarray(value)).max()) for name, value in zip(kinds, means, strict=True)}


@reproduction(
    28,
    claim="Self-play credited by MARS nears the equilibrium of Kuhn poker; a baseline per seat leaves no seat biased.",
    baseline="uniform policies; the same self-play with one baseline for both seats",
    criterion="average policy's exploitability <= 0.15 in every seed, by MARS and by REINFORCE centred per seat; a "
    "seat's mean advantage is 0 ± 1e-9 with its own centring, ± the seat's value with pooled centring",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Train with each kind of credit, then look at the seats' mean advantages in the last batch of `mars()`."""
    measured = {"exploitability_uniform": exploitability_of(np.full(len(INFORMATION_SETS), 0.5))}
    kinds = {"mars": mars(), "own": reinforce(over="agent"), "pooled": reinforce()}
    trained = {name: self_play(credit, seeds) for name, credit in kinds.items()}
    for name, result in trained.items():
        measured[f"exploitability_average_{name}"] = float(result.average.mean())
        measured[f"exploitability_last_{name}"] = float(result.last.mean())
    worst = max(trained["mars"].average.max(), trained["own"].average.max())
    bias = seat_bias(trained["mars"].batch)
    pooled_is_value = abs(bias["seat_bias_pooled"] - bias["seat_value"]) <= 1e-9 < bias["seat_value"]
    holds = worst <= 0.15 and bias["seat_bias_own"] <= 1e-9 and pooled_is_value
    return Outcome(measured | {"exploitability_average_worst": float(worst)} | bias, bool(holds))
