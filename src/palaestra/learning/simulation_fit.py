"""Parameters of a simulation by gradient: the chance of infection that reproduces a curve.

`palaestra analyze fit_epidemic CURVE.csv` fits `native/epidemic`, as AgentTorch [87] (arXiv 2409.10568) calibrates its
models. Left out: a network that writes parameters from other data, and several parameters at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.envs.worlds.epidemic import Health, contact_graph, transition
from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table

if TYPE_CHECKING:
    import torch


def straight_through(chances: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Straight-through draws of 0 or 1, with the gradient of their `chances`: 1[u < p] + p - stop(p), u = `uniform`.

    The gradient is that of the expectation for one draw, and biased for functions of several.

    Args:
        chances: p, any shape.
        uniform: u, numbers from 0 to 1 of that shape.
    """
    return (uniform < chances).to(chances.dtype) + chances - chances.detach()


def epidemic_curve(
    infects: torch.Tensor,
    home: np.ndarray,
    *,
    people: int = 4000,
    contacts: int = 8,
    incubates: float = 0.4,
    recovers: float = 0.2,
    begins: float = 0.02,
    seed: int = 0,
) -> torch.Tensor:
    """Simulated share of infectious people a day, differentiable in `infects`, with the share at `home`: float64[days].

    The transitions are those of `native/epidemic`, in torch; what is random is drawn before, so that the same seed has
    the same numbers whatever the chance of infection.

    Args:
        infects: Chance of an infection by one contact, a scalar.
        home: Share of people who stay at home on each day, float[days].
        people: Size of the population.
        contacts: Of each person, an even number.
        incubates: Daily chance that who is exposed becomes infectious.
        recovers: Daily chance that who is infectious recovers.
        begins: Share that is infectious at first.
        seed: Of the graph and of all draws.
    """
    import torch

    rng = np.random.default_rng(seed)
    graph = torch.from_numpy(contact_graph(rng, people, contacts))
    ill = torch.zeros(people, dtype=torch.float64)
    ill[torch.from_numpy(rng.permutation(people)[: max(1, round(begins * people))])] = 1.0
    blank = torch.zeros_like(ill)
    health, found = Health(1.0 - ill, blank, ill, blank), []
    for share in home:
        uniform = torch.from_numpy(rng.random((4, people)))
        out = (uniform[3] >= float(share)).to(ill.dtype)
        health = transition(
            health,
            out,
            graph,
            (infects, incubates, recovers),
            lambda p, event, drawn=uniform: straight_through(p, drawn[event]),  # type: ignore[misc]
        )
        found.append(health.infectious.mean())
    return torch.stack(found)


def fit_chance(
    simulate: Callable[[torch.Tensor], torch.Tensor], observed: np.ndarray, *, start: float, steps: int, lr: float = 0.1
) -> tuple[float, float]:
    """Fit a chance by gradient such that `simulate(chance)`, a tensor, meets array `observed`; pair (chance, error).

    Adam on the log-odds of the chance, by the mean squared error in units of the observed mean.

    Args:
        simulate: From the chance, a scalar with gradient, to a curve.
        observed: The curve to reproduce.
        start: First guess.
        steps: Steps of the optimiser.
        lr: Its learning rate.

    Raises:
        InputError: The guess is not between 0 and 1, or the curve is 0 everywhere.
    """
    import torch

    scale = float(np.abs(observed).mean())
    if not 0 < start < 1 or not scale > 0:
        raise InputError(f"fit_chance: start={start} must be between 0 and 1, and the observed curve not 0 everywhere")
    odds = torch.tensor(float(np.log(start / (1 - start))), dtype=torch.float64, requires_grad=True)
    optimiser, target = torch.optim.Adam([odds], lr=lr), torch.tensor(observed.tolist(), dtype=torch.float64)
    best, least = start, float("inf")
    for _ in range(steps):
        error = (((simulate(odds.sigmoid()) - target) / scale) ** 2).mean()
        if (now := float(error.detach())) < least:
            best, least = float(odds.detach().sigmoid()), now
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
    return best, least**0.5


@ANALYSES.register("fit_epidemic")
def fit_epidemic(start: float = 0.3, steps: int = 60, seed: int = 0, **options: Any) -> Analysis:
    """Makes an analysis (file CURVE: day, ill, maybe home -> table of the fitted chance of infection, and the error).

    It is the chance that reproduces a curve of `native/epidemic`.
    home: share of people who stayed at home.

    start: first guess. steps: of the fit. Others: those of the simulation (people, contacts, incubates, recovers,
    begins). `error` is the root of the mean squared error, relative to the mean of the curve.
    """

    def answer(curve: Path) -> pl.DataFrame:
        frame = table(curve, "day", "ill").sort("day")
        home = frame["home"].to_numpy() if "home" in frame.columns else np.zeros(len(frame))
        found, error = fit_chance(
            lambda chance: epidemic_curve(chance, home, seed=seed, **options),
            frame["ill"].to_numpy(),
            start=start,
            steps=steps,
        )
        return pl.DataFrame({"infects": [found], "error": [error]})

    return answer
