"""[212] POLAR (arXiv 2507.05197): a reward that tells policies apart, learned without a label.

200 random bigram policies over eight symbols; what one of them said twice against what another said. The reward reads
counts of transitions beside those of a reference, and is asked about 50 policies that it never saw. A policy that is
paid by such a score, beside what a target said, learns to speak like it. Left out: language models.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.judges import PAIRINGS
from palaestra.judges.matched import policy_pairs
from palaestra.learning.reward_models import Preferences, ReferenceReward, load
from palaestra_atlas.catalog.reward_models.made import rows
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

SYMBOLS, LENGTH, SAID = 8, 12, 10
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def spoken(chance: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Counts of transitions of so many sequences of each policy, float64[policies · count, SYMBOLS²]."""
    table = np.repeat(chance.cumsum(-1), count, axis=0)
    at = rng.integers(SYMBOLS, size=len(table))
    counts, every = np.zeros((len(table), SYMBOLS, SYMBOLS)), np.arange(len(table))
    for _ in range(LENGTH - 1):
        after = (rng.random(len(table))[:, None] > table[every, at]).sum(1).clip(max=SYMBOLS - 1)
        counts[every, at, after] += 1
        at = after
    return counts.reshape(len(table), -1)


def triples(x: np.ndarray, seed: int, passes: int) -> Preferences:
    """References, chosen and rejected sequences of policies that said `SAID` each."""
    found = policy_pairs(pl.DataFrame({"policy": np.arange(len(x)) // SAID}), by=(), seed=seed, passes=passes)
    chosen, rejected, reference = (rows(x[found[name].to_numpy()]) for name in ("chosen", "rejected", "reference"))
    return Preferences(chosen, rejected, reference=reference)


def voices(count: int, said: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Who speaks, and what of it is read: two numbers by which speakers differ, and six that are loud and nobody's."""
    who = np.repeat(np.arange(count), said)
    own = rng.normal(size=(count, 2))[who] + 0.1 * rng.normal(size=(len(who), 2))
    return who, np.concatenate([own, 2 * rng.normal(size=(len(who), 6))], 1)


class Speaking(NativeEnv):
    """`speaker` speaks with one of eight voices; told are what is read of it, `x`, and of the target's, `target`."""

    agents: tuple[str, ...] = ("speaker",)
    choices = tuple(f"voice {n}" for n in range(8))
    facts = {"x": list[float], "target": list[float]}

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng([213, seed])
        self.own, self.wanted = rng.normal(size=(len(self.choices), 2)), int(rng.integers(len(self.choices)))

    def begin(self) -> tuple[str, bool]:
        """Nobody has spoken yet."""
        return "speaking", False

    def look(self) -> dict[str, Observation]:
        """Always the same."""
        return {} if self.state else {"speaker": Observation("speak", choices=self.choices)}

    def _said(self, voice: int) -> list[float]:
        heard = self.own[voice] + 0.1 * self.rng.normal(size=2)
        return [*map(float, heard), *map(float, 2 * self.rng.normal(size=6))]

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """The env pays nothing; success: the target's own voice."""
        self.state, voice = True, int(chosen["speaker"] or 0)
        told = {"x": self._said(voice), "target": self._said(self.wanted)}
        return {"speaker": 0.0}, {**told, "success": voice == self.wanted}


def heard(
    count: int, said: int, rng: np.random.Generator, *, likes: bool = False, name: str = "features"
) -> Preferences:
    """Triples of such speakers; likes: instead of their own, chosen is whose first number is nearer the reference's."""
    who, x = voices(count, said, rng)
    found = policy_pairs(pl.DataFrame({"policy": who}), by=(), seed=1, passes=2)
    chosen, rejected, reference = (x[found[name].to_numpy()] for name in ("chosen", "rejected", "reference"))
    if likes:
        near = np.abs(chosen - reference)[:, :1] < np.abs(rejected - reference)[:, :1]
        chosen, rejected = np.where(near, chosen, rejected), np.where(near, rejected, chosen)
    return Preferences(rows(chosen, name), rows(rejected, name), reference=rows(reference, name))


@exact
def triples_of_policies() -> None:
    """Reference and chosen are two rows of one policy, rejected is another's, and all answer one prompt."""
    group, policy = np.repeat([0, 1, 2], 6), np.tile(["a", "a", "b", "b", "b", "c"], 3)
    found = PAIRINGS.build("policy_pairs(passes=5)")(Turns({"group": group, "policy": policy}))
    sides = {name: found[name].to_numpy() for name in ("reference", "chosen", "rejected")}
    assert (policy[sides["reference"]] == policy[sides["chosen"]]).all()
    assert (sides["reference"] != sides["chosen"]).all()
    assert (policy[sides["rejected"]] != policy[sides["chosen"]]).all()
    assert (group[sides["chosen"]] == group[sides["reference"]]).all()
    assert (group[sides["chosen"]] == group[sides["rejected"]]).all()


@exact
def learned_likeness() -> None:
    """What tells unseen speakers apart is learned; a fixed likeness hears the loud numbers that are nobody's."""
    rng = np.random.default_rng(212)
    model = ReferenceReward(hidden=32)
    model.fit(heard(60, 6, rng), epochs=12, lr=1e-2, batch=64)
    unseen = heard(30, 6, rng)
    assert model.agrees(unseen).mean() > 0.8, model.agrees(unseen).mean()
    assert unseen.reference is not None
    shuffled = unseen.reference[rng.permutation(len(unseen))]
    blind = Preferences(unseen.chosen, unseen.rejected, reference=shuffled)
    assert model.agrees(blind).mean() < 0.65, model.agrees(blind).mean()
    # a target, and candidates that are mixed away from it
    target = rows(np.tile([[1.5, -1.5, 0, 0, 0, 0, 0, 0]], (5, 1)))
    away = np.zeros((5, 8))
    away[:, 0], away[:, 1] = 1.5 - 3 * np.array(SHARES), -1.5 + 3 * np.array(SHARES)
    paid = model.score(rows(away), reference=target).to_numpy()
    assert (np.diff(paid) < 0).all(), paid


@exact
def fine_tuned() -> None:
    """A few labelled triples teach a pre-trained discriminator more than one from scratch."""
    rng = np.random.default_rng(213)
    model = ReferenceReward(hidden=32)
    model.fit(heard(60, 6, rng), epochs=12, lr=1e-2, batch=64)
    labelled, unseen = heard(5, 4, rng, likes=True), heard(30, 6, rng, likes=True)
    before = model.agrees(unseen).mean()
    model.fit(labelled, epochs=5, lr=3e-3, batch=16)
    scratch = ReferenceReward(hidden=32)
    scratch.fit(labelled, epochs=5, lr=3e-3, batch=16)
    found = before, model.agrees(unseen).mean(), scratch.agrees(unseen).mean()
    assert found[1] > found[0], found
    assert found[1] > found[2] + 0.05, found


def file(seed: int, folder: Path) -> None:
    """What some speakers said, and what others did, who are not learned from."""
    rng = np.random.default_rng([212, seed])
    for name, count in (("learned", 60), ("unseen", 30)):
        who, x = voices(count, 6, rng)
        table = pl.DataFrame({"policy": who.astype(str), "group": who // 10, **rows(x, "x").to_dict()})
        table.write_parquet(folder / f"{name}.parquet")


def unseen_right() -> Measure:
    """Accuracy of the fitted model on triples of the others."""

    def measured(left: Left) -> list[float]:
        model, table = load(left.directory / "rm"), pl.read_parquet(left.directory / "unseen.parquet")
        assert isinstance(model, ReferenceReward)
        found = policy_pairs(table, passes=3)
        chosen, rejected, reference = (table[found[name]] for name in ("chosen", "rejected", "reference"))
        return [float(model.agrees(Preferences(chosen, rejected, reference=reference)).mean())]

    return measured


def towards_a_target(seed: int) -> float:
    """Success, at last, of a policy that is paid by the score beside what the target said; by chance it is 1 in 8."""
    model = ReferenceReward("x", hidden=32)
    model.fit(heard(60, 6, np.random.default_rng([214, seed]), name="x"), epochs=12, lr=1e-2, batch=64)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "rm")
        arm = {
            "env": {"make": f"{__name__}:Speaking", "options": {"seed": seed}},
            "policies": {"speaker": {"kind": "tabular", "options": {"capacity": 4}}},
            "team": {"speaker": "speaker"},
            "stages": [f"score('like', 'reward_model(\"{folder}/rm\")', reference='target')"],
            "reward": 'col("score.like")',
            "credit": 'centre("reward", over="agent")',
            "learn": {"lr": 0.3},
            "train": {"iterations": 60, "groups": 32, "group_size": 1},
        }
        arms = train_arms("world", {"paid": arm}, [seed], lambda learned: {"success": np.mean(learned.curve()[-5:])})
    return arms.mean("paid", "success")


def alike(pairs: Preferences) -> float:
    """Accuracy of a fixed likeness, minus the sum of absolute differences of counts; nothing is learned."""
    assert pairs.reference is not None
    chosen, rejected, reference = (
        np.array(each["features"].to_list()) for each in (pairs.chosen, pairs.rejected, pairs.reference)
    )
    return float((np.abs(chosen - reference).sum(1) < np.abs(rejected - reference).sum(1)).mean())


def one(seed: int) -> dict[str, float]:
    """Accuracy on unseen policies with the right reference, with anybody's and of a likeness; rewards by distance."""
    rng = np.random.default_rng([212, seed])
    policies = rng.dirichlet(np.full(SYMBOLS, 0.3), size=(250, SYMBOLS))
    model = ReferenceReward()
    model.fit(triples(spoken(policies[:200], SAID, rng), seed, 3), epochs=10, lr=2e-3, batch=128, seed=seed)
    new = policies[200:]
    unseen = triples(spoken(new, SAID, rng), seed, 4)
    assert unseen.reference is not None
    blind = Preferences(unseen.chosen, unseen.rejected, reference=unseen.reference[rng.permutation(len(unseen))])
    found = {"right": float(model.agrees(unseen).mean()), "right_wrong_reference": float(model.agrees(blind).mean())}
    found["right_likeness"] = alike(unseen)
    own, other = spoken(new, 40, rng), np.roll(new, 1, axis=0)
    for share in SHARES:
        mixed = spoken((1 - share) * new + share * other, 40, rng)
        found[f"reward_{share:g}"] = float(model.score(rows(mixed), reference=rows(own)).mean())  # type: ignore[arg-type]
    return found


@reproduction(
    212,
    claim="A reward that learned who says what, without labels, ranks unseen policies by their distance to a target, "
    "and leads a policy to it.",
    baseline="the same reward with somebody else's reference; a fixed likeness of the same counts",
    criterion="right on over 75 % of pairs of unseen policies (with another's reference on less than 60 %), and on "
    "over 2 % more than a fixed likeness of the same counts; the mean reward falls with every step away from the "
    "target, in every run; a policy that is paid by it speaks like the target in over half of its episodes, of 1/8 by "
    "chance, in the mean",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Means over runs; the criterion looks at each."""
    runs = [one(seed) for seed in seeds]
    falls = all(np.diff([run[f"reward_{share:g}"] for share in SHARES]).max() < 0 for run in runs)
    sure = min(run["right"] for run in runs) > 0.75 and max(run["right_wrong_reference"] for run in runs) < 0.6
    sure &= min(run["right"] - run["right_likeness"] for run in runs) > 0.02
    measured = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    measured["success_of_the_paid"] = float(np.mean([towards_a_target(seed) for seed in seeds]))
    return Outcome(measured, bool(falls and sure and measured["success_of_the_paid"] > 0.5))
