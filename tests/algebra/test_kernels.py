"""The same table gives the same numbers, to the bit, whatever the machine does at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np

from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit import gigpo, grpo, mars, quantile
from palaestra.testing.signal import sample_turns

SCRIPT = """
import hashlib
import numpy as np
from palaestra.credit import gigpo, grpo, mars, quantile
from palaestra.algebra.signals import evaluate
from palaestra.testing.signal import sample_turns
turns = sample_turns(np.random.default_rng(0), groups=[8] * 60, agents=("a", "b", "c"), longest=40)
values = evaluate(turns, gigpo(), grpo(), mars(), quantile("logprobs", q=0.8, over="group"))
digest = hashlib.sha256()
for value in values:
    digest.update(np.ascontiguousarray(getattr(value, "values", value)).tobytes())
print(digest.hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    def digest(threads: int) -> str:
        names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS")
        environment = os.environ | {name: str(threads) for name in names}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    one, two = digest(1), digest(2)
    assert one == two
    assert len(one) == len(hashlib.sha256().hexdigest())


def test_results_do_not_depend_on_what_was_evaluated_before() -> None:
    turns = sample_turns(np.random.default_rng(1), groups=(4, 5))
    together = evaluate(turns, gigpo(), grpo(), mars(), quantile("reward", q=0.8, over="group"))
    alone = [
        signal.evaluate(Turns(turns.frame))
        for signal in (gigpo(), grpo(), mars(), quantile("reward", q=0.8, over="group"))
    ]
    for one, other in zip(together, alone, strict=True):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, np.ndarray)
        assert one.tobytes() == other.tobytes()


def test_evaluating_changes_neither_the_table_nor_what_is_cached() -> None:
    turns = sample_turns(np.random.default_rng(2), groups=(3, 3), missing=0.2)
    before = turns.frame.clone()
    first = np.asarray(gigpo().evaluate(turns)).copy()
    for signal in (mars(), grpo(flavour="art"), gigpo(scale=False)):
        np.asarray(signal.evaluate(turns))[:] = 7.0
    assert turns.frame.equals(before)
    assert np.array_equal(first, np.asarray(gigpo().evaluate(turns)), equal_nan=True)
