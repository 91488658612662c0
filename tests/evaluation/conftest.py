from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
import pytest

Maker = Callable[[Mapping[str, np.ndarray]], pl.DataFrame]


@pytest.fixture
def make_trials() -> Maker:
    """Trials from {system: array[tasks, trials] or [runs, tasks, trials]}; a bool array fills success, floats score."""

    def make(systems: Mapping[str, np.ndarray]) -> pl.DataFrame:
        frames = []
        for system, values in systems.items():
            values = np.asarray(values)
            values = values[None] if values.ndim == 2 else values
            run, task, trial = (index.ravel() for index in np.indices(values.shape))
            flat = values.ravel()
            success = flat.astype(bool) if values.dtype == bool else np.zeros(len(flat), bool)
            frames.append(
                pl.DataFrame(
                    {
                        "system": system,
                        "run": run.astype(str),
                        "task": [f"task-{t}" for t in task],
                        "trial": trial,
                        "success": success,
                        "score": flat.astype(float),
                        "error": pl.Series([None] * len(flat), dtype=pl.String),
                        "turns": 2,
                        "tokens_in": 10,
                        "tokens_out": 3,
                        "cost": 0.5,
                    }
                )
            )
        return pl.concat(frames)

    return make
