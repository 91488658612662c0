"""[67] AdvEvo-MARL (arXiv 2510.01586): an attacker who learns makes defenders safer.

Six kinds of attack; three defenders with weights of their own vote whether to refuse; half of the requests are benign.
The attacker starts from one known kind (its warm-up) and is then frozen or trained as well. Every agent is credited
against the mean of its functional team. What that shared baseline adds to an own one is small here too, and is
reported. Left out: language models, rewriting of prompts, format rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, col
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import advevo_marl, phase, where

KINDS, DEFENDERS, BATCH, ITERATIONS, RATE = 6, 3, 16, 300, 1.0
KNOWN, TRUSTING = 3.0, 1.5
"""Initial logits: of the attack that is known, and of complying with any request."""
AGENTS = np.array(["defender_0", "defender_1", "defender_2", "attacker_0"])
REWARD = where(
    col("attacker"),
    1.0 - col("safe"),
    phase(0.7, 0.3, at=ITERATIONS // 2) * col("safe") + phase(0.3, 0.7, at=ITERATIONS // 2) * col("useful"),
)
"""Defenders: that the team is safe counts more in the first half, that one is useful oneself in the second. Attackers:
that the team is unsafe."""


def worked() -> tuple[Turns, np.ndarray, np.ndarray]:
    """Two episodes of three defenders: the table, credit by team, credit by agent."""
    table = {"group": [0] * 6, "episode": np.repeat([0, 1], 3), "turn": [0] * 6, "agent": np.tile(AGENTS[:3], 2)}
    public, own = [0.5, 0.5, 0, -0.5, 0, -0.5], [0.5, 0.25, 0.25, -0.5, -0.25, -0.25]
    return Turns(table | {"reward": [1, 1, 0.5, 0, 0.5, 0]}), np.array(public), np.array(own)


def train(credit: Signal, seeds: Sequence[int], *, attacker_learns: bool) -> tuple[np.ndarray, np.ndarray]:
    """Chance that a uniformly drawn attack succeeds, and that a benign request is served, per seed; both exact.

    A request is a number: 0 benign, else the kind of attack. Action 1 refuses; two of three decide.
    """
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs = len(seeds)
    defend = np.zeros((runs, DEFENDERS * (KINDS + 1), 2))  # a policy per defender and request
    defend[..., 0] = TRUSTING
    attack = np.zeros((runs, 1, KINDS))
    attack[..., 0] = KNOWN
    run, episode = (axis.ravel() for axis in np.indices((runs, BATCH)))
    for iteration in range(ITERATIONS):
        chances, luck = softmax(defend), uniform(streams, BATCH, 2 + DEFENDERS)
        kind = sample(softmax(attack), luck[..., 0])
        request = np.where(luck[..., 1] < 0.5, 0, kind + 1).ravel()
        state = request[:, None] + (KINDS + 1) * np.arange(DEFENDERS)
        refuse = luck[..., 2:].reshape(-1, DEFENDERS) < chances[run[:, None], state, 1]
        refused = refuse.sum(axis=1) >= 2
        safe = (request == 0) | refused

        attacked = np.flatnonzero(request > 0)
        game = np.concatenate([np.repeat(np.arange(len(run)), DEFENDERS), attacked])
        seat = np.concatenate([np.tile(np.arange(DEFENDERS), len(run)), np.full(len(attacked), DEFENDERS)])
        keys = {"run": run[game].astype(str), "iteration": np.full(len(game), iteration), "episode": episode[game]}
        useful = np.append(((request == 0)[:, None] & ~refuse).ravel(), attacked < 0)
        facts = {"attacker": seat == DEFENDERS, "safe": safe[game], "useful": useful}
        turns = Turns(keys | {"group": game * 0, "turn": game * 0, "agent": AGENTS[seat]} | facts)
        advantage = np.asarray(credit.evaluate(turns))
        ours, theirs = advantage[: len(run) * DEFENDERS], advantage[len(run) * DEFENDERS :]
        who = np.repeat(run, DEFENDERS)
        defend += RATE * policy_gradient(chances, who, state.ravel(), refuse.ravel().astype(int), ours) / BATCH
        if attacker_learns:
            index = run[attacked], attacked * 0, kind.ravel()[attacked]
            attack += RATE * policy_gradient(softmax(attack), *index, theirs) / BATCH
    p = softmax(defend)[..., 1].reshape(runs, DEFENDERS, KINDS + 1)
    a, b, c = np.moveaxis(p, 1, 0)
    majority = a * b + b * c + a * c - 2 * a * b * c
    return (1 - majority[:, 1:]).mean(axis=1), 1 - majority[:, 0]


@reproduction(
    67,
    claim="A functional team shares one baseline; defenders trained against an attacker who learns withstand attacks "
    "that defenders trained against a fixed one do not, and stay useful.",
    baseline="the same defenders against the frozen attacker; a baseline per agent instead of per team",
    criterion="worked advantages exact; uniform attacks succeed at least 0.2 less after co-evolution; benign requests "
    "served >= 0.95 in both",
    seeds=tuple(range(10)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then frozen, co-evolved, and co-evolved with own baselines."""
    turns, public, own = worked()
    credits = {"public": advevo_marl(), "own": advevo_marl(teams="agent")}
    by_hand = {"public": public, "own": own}
    errors = [np.abs(np.asarray(credits[name].evaluate(turns)) - by_hand[name]).max() for name in credits]
    measured = {"worked_error": float(max(errors))}
    team, alone = advevo_marl(reward=REWARD), advevo_marl(reward=REWARD, teams="agent")
    arms = {"static": (team, False), "coevolved": (team, True), "coevolved_own_baseline": (alone, True)}
    for name, (credit, learns) in arms.items():
        attacks, served = train(credit, seeds, attacker_learns=learns)
        measured |= {f"attacks_{name}": float(attacks.mean()), f"served_{name}": float(served.mean())}
    gain = measured["attacks_static"] - measured["attacks_coevolved"]
    useful = min(measured["served_static"], measured["served_coevolved"])
    return Outcome(measured, measured["worked_error"] <= 1e-12 and gain >= 0.2 and useful >= 0.95)
