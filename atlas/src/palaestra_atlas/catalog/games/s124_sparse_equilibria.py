"""[124] Sparse equilibria of Markov games: the gap of a mixture of few product policies, for two kinds of deviators.

Left out: the reduction behind the hardness, which was not read; no experiment can show a lower bound.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games import Game, zero_sum
from palaestra.evaluation.games.markov import MarkovGame, cce_gap
from palaestra_atlas.reproductions import Outcome, exact, reproduction

CHICKEN = np.array([[6.0, 2.0], [7.0, 0.0]])


def one_state(payoffs: tuple[np.ndarray, np.ndarray], horizon: int) -> MarkovGame:
    """A matrix game, played `horizon` times."""
    return MarkovGame(np.stack(payoffs)[:, None], np.ones((1, 2, 2, 1)), np.ones(1), horizon)


def pure(*actions: int) -> np.ndarray:
    """The policy of one player in one state that takes these actions, step by step."""
    return np.asarray(np.eye(2)[list(actions)][:, None])


def pennies(stake: float = 1.0) -> tuple[MarkovGame, list[list[np.ndarray]]]:
    """Two-step matching pennies, and two opposite profiles: what is seen in the first step tells the second."""
    payoff = stake * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return one_state((payoff, -payoff), 2), [[pure(0, 0), pure(0, 0)], [pure(1, 1), pure(1, 1)]]


def written(seed: int, folder: Path) -> None:
    """The game with a stake that is drawn, and the mixture, as the command reads them."""
    game, profiles = pennies(float(np.random.default_rng(seed).uniform(1, 2)))
    (folder / "game.json").write_text(
        json.dumps(
            {
                "rewards": game.rewards.tolist(),
                "transitions": game.transitions.tolist(),
                "start": game.start.tolist(),
                "horizon": game.horizon,
            }
        )
    )
    (folder / "profiles.json").write_text(json.dumps({"profiles": [[x.tolist() for x in each] for each in profiles]}))


@exact
def whole_profiles() -> None:
    """Chicken, (C, D) and (D, C) in equal parts: gap -.5; of the averaged policies it would be .25."""
    game = one_state((CHICKEN, CHICKEN.T), 1)
    profiles = [[pure(0), pure(1)], [pure(1), pure(0)]]
    assert abs(cce_gap(game, profiles)[0] + 0.5) < 1e-12
    assert abs(cce_gap(game, profiles, deviations="markov")[0] + 0.5) < 1e-12
    flat = [[policy[0, 0] for policy in profile] for profile in profiles]
    assert abs(Game((CHICKEN, CHICKEN.T)).cce_gap(flat) + 0.5) < 1e-12


@exact
def history_gains_more() -> None:
    """Matching pennies twice: who remembers gains 1 more than the best Markov deviation."""
    game, profiles = pennies()
    assert abs(cce_gap(game, profiles)[0] - cce_gap(game, profiles, deviations="markov")[0] - 1) < 1e-12


@exact
def one_player_alone_gains() -> None:
    """Always (heads, heads): the first player is content, the second gains 2 a step; the gap is the largest gain."""
    game, _ = pennies()
    gap, gains = cce_gap(game, [[pure(0, 0), pure(0, 0)]])
    np.testing.assert_allclose(gains, [0, 4], atol=1e-12)
    assert gap == 4


@exact
def one_profile_is_the_nash_gap() -> None:
    """Of one profile the gap is the Nash gap: 4 in two steps of pennies, 1 for (rock, rock)."""
    game, profiles = pennies()
    for deviations in ("history", "markov"):
        assert abs(cce_gap(game, profiles[:1], deviations=deviations)[0] - 4) < 1e-12
    rps = zero_sum(np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]))
    assert rps.cce_gap([[np.eye(3)[0], np.eye(3)[0]]]) == 1
    assert abs(rps.cce_gap([[np.eye(3)[k], np.eye(3)[k]] for k in range(3)])) < 1e-12


@exact
def written_out_for_two_steps() -> None:
    """Three players, two states and three profiles of unlike weight: both gaps of the third player by their sums."""
    rng = np.random.default_rng(0)
    rewards, moves = rng.normal(size=(3, 2, 2, 3, 2)), rng.dirichlet(np.ones(2), (2, 2, 3, 2))
    game = MarkovGame(rewards, moves, np.array([0.3, 0.7]), 2)
    weight, reward, start = np.array([0.5, 0.3, 0.2]), rewards[2], game.start
    profiles = [[rng.dirichlet(np.full(size, 0.1), (2, 2)) for size in (2, 3, 2)] for _ in weight]
    first, second, own = (np.stack(each) for each in zip(*profiles, strict=True))
    now, then = np.einsum("thsa,thsb->htsab", first, second)

    def worth(one: np.ndarray, two: np.ndarray) -> float:
        paid = np.einsum("t,s,tsab,tsc,sabc", weight, start, now, one, reward)
        later = np.einsum("t,s,tsab,tsc,sabcz,tzde,tzf,zdef", weight, start, now, one, moves, then, two, reward,
                          optimize=True)  # fmt: skip
        return float(paid + later)

    choices = np.eye(2)[list(itertools.product(range(2), repeat=4))].reshape(16, 2, 1, 2, 2).repeat(3, 2)
    markov = max(worth(*each) for each in choices)
    soon = np.einsum("t,tsab,sabc->sc", weight, now, reward)
    later = np.einsum("t,tsab,sabcz,tzde,zdef->scabzf", weight, now, moves, then, reward, optimize=True)
    remembers = start @ (soon + later.max(-1).sum((2, 3, 4))).max(1)
    assert remembers > markov + 0.01
    for deviations, best in (("history", remembers), ("markov", markov)):
        gains = cce_gap(game, profiles, 10 * weight, deviations=deviations)[1]  # type: ignore[arg-type]
        np.testing.assert_allclose(gains[2], best - worth(own[:, 0], own[:, 1]))


@exact
def the_limit_is_printed() -> None:
    """The command's answer names PPAD and the exponential number of samples."""
    with tempfile.TemporaryDirectory() as folder:
        written(0, Path(folder))
        row = analyze('cce_gap("history")', Path(folder) / "game.json", Path(folder) / "profiles.json").row(
            0, named=True
        )
    assert "PPAD" in row["limit"]
    assert "exponential" in row["limit"]
    assert row["gap"] > 0


@reproduction(
    124,
    claim="A deviator who remembers the past learns which profile is played, and gains more than a Markov one.",
    baseline="the best Markov deviation",
    criterion="never less in fifty random games and mixtures; more by 1 in pennies with opposite profiles (exact)",
    seeds=(0,),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Gaps of mixtures of three random deterministic profiles in random games of two steps."""
    history, markov = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            payoff = rng.normal(size=(2, 2, 2))
            game = one_state((payoff[0], payoff[1]), 2)
            profiles = [[pure(*rng.integers(2, size=2)) for _ in range(2)] for _ in range(3)]
            history.append(cce_gap(game, profiles)[0])
            markov.append(cce_gap(game, profiles, deviations="markov")[0])
    more = np.array(history) - np.array(markov)
    measured = {
        "history": float(np.mean(history)),
        "markov": float(np.mean(markov)),
        "share_more": float((more > 1e-9).mean()),
    }
    world, opposite = pennies()
    apart = cce_gap(world, opposite)[0] - cce_gap(world, opposite, deviations="markov")[0]
    measured["pennies"] = apart
    return Outcome(measured, bool((more >= -1e-9).all()) and abs(apart - 1) < 1e-9)
