"""Judges without a model: who errs or is silent does so as often as said."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.judges.reading import read_value
from palaestra.judges.scripted import mentions

SHOWN = Observation("Task: proof\n\nTranscript:\n[turn 0] observation: {}\nEnd of the transcript.\n\nCriterion: proof?")


def verdict(text: str, seed: int, errs: float = 0.0, silent: float = 0.0) -> float | None:
    play = mentions(["proof"], tag="VERDICT", errs=errs, silent=silent)
    return read_value(play(Request(Observation(SHOWN.text.format(text)), "judge", np.random.default_rng(seed))))


def test_it_looks_at_the_transcript_alone() -> None:
    assert (verdict("a proof", 0), verdict("chaff", 0)) == (1.0, 0.0)


def test_it_errs_and_is_silent_as_often_as_said() -> None:
    said = [verdict("a proof", seed, errs=0.2, silent=0.1) for seed in range(2000)]
    assert said.count(None) / 2000 == pytest.approx(0.1, abs=0.02)
    assert said.count(0.0) / (2000 - said.count(None)) == pytest.approx(0.2, abs=0.03)
    assert verdict("a proof", 7, errs=0.2, silent=0.1) == said[7], "the same question, the same answer"
