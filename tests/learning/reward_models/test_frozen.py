"""Every reward model on features, after a few steps on a few rows with ties and holes, gives what it gave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.frozen import Case, changed, kinds, texts, write

from palaestra.learning.reward_models import losses
from palaestra.learning.reward_models.against import Against
from palaestra.learning.reward_models.data import Labels, Preferences, matrix
from palaestra.learning.reward_models.features import joined, scale_of
from palaestra.learning.reward_models.held_out_scores import explained, held_out, preferences_from_labels
from palaestra.learning.reward_models.network import NetworkReward, by_length
from palaestra.learning.reward_models.reward_model import REWARD_MODELS

FROZEN = Path(__file__).with_name("frozen.json")


def listed(x: np.ndarray, name: str = "features") -> pl.DataFrame:
    """Lists of numbers, null where one is NaN."""
    rows = [None if np.isnan(row).any() else row for row in x.tolist()]
    return pl.DataFrame({name: rows}, schema={name: pl.List(pl.Float64)})


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Quarters around 2, the last row missing."""
    found = np.round(np.random.default_rng(seed).normal(2.0, 1.5, shape) * 4) / 4
    found[-1, 0] = np.nan
    return found


def pairs(**more: Any) -> Preferences:
    one, other = numbers(0, 7, 2), numbers(1, 7, 2)
    return Preferences(listed(one), listed(other), **more)


WEIGHT = np.array([1.0, 0.0, 2.0, 0.5, 1.0, 1.0, 1.0])
MARGIN = np.array([0.5, 0.0, 0.0, 0.25, 1.0, 0.0, 0.0])
KEY = np.array([0, 0, 0, 1, 1, 2, 2])
PAIRS = {
    "plain": {},
    "weighted": {"weight": WEIGHT},
    "margin": {"margin": MARGIN},
    "condition": {"condition": listed(numbers(2, 7, 1))},
    "reference": {"reference": listed(numbers(3, 7, 2))},
}


def labels(heads: int = 1, *, binary: bool = False, **more: Any) -> Labels:
    value = np.random.default_rng(4).integers(0, 3, (7, heads)) / 2
    if not binary:
        value = value * 3 - 1
    value[1, 0] = np.nan
    return Labels(listed(numbers(5, 7, 2)), value[:, 0] if heads == 1 else value, key=KEY, **more)


def after(model: Any, data: Preferences | Labels, **options: Any) -> list[object]:
    """What a fit tells, and what the model then says of other rows."""
    if isinstance(model, NetworkReward):
        options = {"epochs": 2, "batch": 2, "lr": 0.05, "seed": 3} | options
    told = model.fit(data, **options)
    assert 0 <= told.pop("seconds", 0.0) < 60
    said = []
    asked = {name: getattr(data, name) for name in ("reference", "condition") if getattr(data, name) is not None}
    rows = listed(numbers(6, 7, 2))
    if "condition" not in asked or model.kind != "vector":
        said.append(model.score(rows, **asked))
    if isinstance(data, Preferences):
        said.append(model.agrees(data))
    if isinstance(data, Labels) and options.get("loss") != "distill":
        said.append(explained(model, data))
    return [told, *said]


def of_fits() -> Iterator[tuple[str, Case]]:
    for text in texts("""
        head(); plain | head(layers=1); weighted margin condition | head(layers=3, hidden=2, activation='tanh'); plain |
        head(layers=1, join='outer'); condition | linear(); plain weighted margin condition |
        linear(ridge=0.5, standardise=False); plain condition | linear(join='concat'); condition |
        mixture(); plain weighted condition margin | mixture(heads=3, entropy=0.5); plain weighted condition |
        online_linear(inertia=0.5); plain weighted | online_linear(weights=[1.0, -1.0], bias=0.5); plain weighted |
        reference(layers=1); reference
    """):
        model, _, given = text.partition("; ")
        for kind in given.split():
            yield (
                f"pairs {model} {kind}~~",
                lambda t=model, m=PAIRS[kind]: after(REWARD_MODELS.build(t), pairs(**m)),
            )
    for options in (
        {"centre": 0.5},
        {"weight_decay": 0.5},
        {"batch": 1},
        {"batch": 9, "epochs": 1},
        {"seed": 0},
        {"centre": -0.1},
        {"centre": 0.0, "weight_decay": 0.0},
        {"weight_decay": -0.1},
        {"lr": 0.0},
    ):
        yield f"options {options}~~", lambda o=options: after(REWARD_MODELS.build("head(layers=1)"), pairs(), **o)
    for loss in ("regression", "binary", "ranknet", "listnet", "ce"):
        for weight in (None, WEIGHT):
            yield (
                f"labels {loss} {weight is None}~~",
                lambda k=loss, w=weight: after(
                    REWARD_MODELS.build("head(layers=1)"), labels(binary=True, weight=w), loss=k
                ),
            )
    for options in ({"alpha": 0.0}, {"alpha": 1.0, "temperature": 1.0}, {}):
        yield (
            f"labels distill {options}~~",
            lambda o=options: after(REWARD_MODELS.build("head(layers=1)"), labels(2), loss="distill", **o),
        )
    for text, loss, weight in (
        ("linear()", "regression", None),
        ("linear()", "regression", WEIGHT),
        ("linear()", "binary", None),
        ("linear()", "binary", WEIGHT),
        ("linear()", "bt", None),
        ("linear(ridge=0.5, standardise=False)", "regression", WEIGHT),
        ("linear(ridge=0.5, standardise=False)", "binary", WEIGHT),
        ("linear()", "regression", 0 * WEIGHT),
    ):
        yield (
            f"labels {text} {loss} {None if weight is None else weight.sum()}~~",
            lambda t=text, k=loss, w=weight: after(
                REWARD_MODELS.build(t), labels(binary=k == "binary", weight=w), loss=k
            ),
        )
    yield "labels vector~~", lambda: after(REWARD_MODELS.build("vector()"), labels(2))
    for text in texts("""
        head(layers=1, hidden=1) | head(hidden=0) | vector(heads=1) | vector(heads=2) | mixture(heads=1) |
        mixture(entropy=-0.1) | online_linear(inertia=0) | online_linear(inertia=0.1) | sequence(heads=0) |
        sequence(heads=1, max_length=1) | sequence(max_length=0) | implicit(beta=0) | implicit(beta=0.1)
    """):
        yield f"made {text}", lambda t=text: [REWARD_MODELS.build(t).kind]


def of_parts() -> Iterator[tuple[str, Case]]:
    exact = REWARD_MODELS.build("online_linear(weights=[1.0, -1.0])")  # of quarters: what is equal is equal
    one, other = numbers(0, 7, 2), numbers(1, 7, 2)
    other[2] = one[2] + 1
    for key in (None, KEY):
        told = Labels(listed(one), np.array([1.0, 2, 2, np.nan, 0, 1, 1]), key=key)
        yield (
            f"held out {key is None}",
            lambda k=key, t=told: [
                exact.agrees(Preferences(listed(one), listed(other))),
                held_out(exact, Preferences(listed(one), listed(other), key=k)),
                held_out(exact, t),
            ],
        )
    yield (
        "explained",
        lambda: [explained(exact, Labels(listed(one), v)) for v in (np.ones(7), one[:, 0], 2 * one[:, 1])],
    )
    for key in (None, KEY):
        yield (
            f"ordered {key is None}",
            lambda k=key: [
                each
                for pair in [
                    preferences_from_labels(
                        Labels(listed(numbers(5, 7, 2)), np.array([1.0, 2, 2, np.nan, 0, 1, 1]), key=k)
                    )
                ]
                for each in (pair.chosen["features"].to_list(), pair.rejected["features"].to_list())
            ],
        )
    for share in (0.0, 0.3, 0.5, 0.7, 1.0):
        yield (
            f"split {share}",
            lambda s=share: [part.key for part in pairs(key=KEY).split(s)] + [len(pairs().split(s, seed=1)[0])],
        )
    x = np.array([[1.0, 1.0, 5.0, 0.0], [3.0, 1.0, 5.0, 0.0], [2.0, 1.0, np.nan, 1e-12]])
    yield "scale", lambda: scale_of(x)
    yield "joined", lambda: [joined(x, method=how, condition=x[:, :2] + 1) for how in ("concat", "outer")]
    for column in (
        [1, 2, None],
        [True, False, None],
        [[1.0], None, [None]],
        [[1.0], [1.0, 2.0], None],
        ["a", None, "b"],
    ):
        yield f"matrix {column}", lambda c=column: matrix(pl.DataFrame({"x": c}, strict=False), "x", "test")
    for size, waste in ((3, 0.25), (2, 0.5), (1, 0.25), (9, 0.0)):
        yield (
            f"by length {size} {waste}",
            lambda n=size, w=waste: [
                [each for part in by_length(np.array(lengths), n, w) for each in (len(part), *part)]
                for lengths in ([3, 100, 4, 97, 99], [4, 4, 3, 2, 2, 1], [8, 4, 4, 4], [0, 0, 1], [])
            ],
        )
    score = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 1.0], [3.0, 1.0, 0.0]], dtype=torch.double)
    goal = torch.tensor([[1.0, 0.0, 0.5], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], dtype=torch.double)
    some = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    weight = torch.tensor([1.0, 0.0, 2.0], dtype=torch.double)
    a, b = score[:, 0], score[:, 1]
    for given in (
        {},
        {"weight": weight},
        {"weight": 0 * weight},
        {"mask": some[:, 1]},
        {"weight": weight, "mask": some[:, 2]},
    ):
        name = ", ".join(f"{key}={value.tolist()}" for key, value in given.items())
        yield (
            f"losses of {name}",
            lambda g=given: [
                float(each)
                for each in (
                    losses.bradley_terry_loss(a, b, **g),
                    losses.bradley_terry_loss(a, b, margin=goal[:, 0], centre=0.5, **g),
                    losses.bradley_terry_loss(a, b, centre=0.5, centring="mean", **g),
                    losses.mixture_bt_loss(score[:, :2], goal[:, :2].log_softmax(-1), entropy=0.5, **g),
                    losses.both_orders_loss(-a, -b, **g),
                    losses.regress(a, goal[:, 0], **g),
                    losses.regress(score, goal, **g),
                    losses.binary_loss(a, goal[:, 0], **g),
                )
            ],
        )
    for kind in ("ranknet", "listnet", "ce"):
        yield (
            f"rank {kind}",
            lambda k=kind: [float(losses.rank_loss(score, goal, k, mask=m)) for m in (None, some, some & False)],
        )
    for alpha, temperature in ((0.25, 2.0), (1.0, 1.0), (0.0, 2.0)):
        yield (
            f"distilled {alpha} {temperature}",
            lambda x=alpha, t=temperature: [
                float(
                    losses.distill_rank_loss(
                        score, goal, temperature=t, alpha=x, rank=k, positive=(goal == 1).double(), mask=m
                    )
                )
                for k in ("ce", "ranknet")
                for m in (None, some)
            ],
        )

    class Known:
        """Says what stands there."""

        name = "known"

        def score(self, rows: pl.DataFrame, **_: Any) -> pl.Series:
            return rows["x"]

    yield (
        "against",
        lambda: Against(Known()).score(
            pl.DataFrame({"x": [1.0, 0.0, None]}), reference=pl.DataFrame({"x": [0.5, 0, 1]})
        ),  # type: ignore[arg-type]
    )


CASES = dict((*of_fits(), *of_parts()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_reward_models_give_what_they_gave(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
