"""Debates are won as the exact solution says, and their stage tells nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Cases, EvidenceDebate
from palaestra.envs.worlds.exact.debate import at_random, greedy, minimax, one_sided
from palaestra.errors import InputError
from palaestra.learning.stages.debate import debate
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan


def by_hand(lead: np.ndarray, length: int, mine: bool, shown: tuple[int, ...] = ()) -> float:
    """Minimax by trying every order."""
    if len(shown) == length:
        return float(np.sign(lead[list(shown)].sum()))
    left = [piece for piece in range(len(lead)) if piece not in shown]
    values = [by_hand(lead, length, not mine, (*shown, piece)) for piece in left]
    return max(values) if mine else min(values)


def test_the_exact_value_is_that_of_every_order_of_moves() -> None:
    rng = np.random.default_rng(0)
    lead = rng.integers(-3, 4, size=(40, 5)).astype(float)
    for length, first in itertools.product((1, 2, 3, 4), (True, False)):
        expected = [by_hand(each, length, first) for each in lead]
        assert minimax(lead, length, first=first).tolist() == expected
        assert greedy(lead, length, first=first).tolist() == expected  # a sum is best served by one's strongest piece


def test_both_sides_choosing_agrees_with_all_the_evidence_and_one_side_proves_anything() -> None:
    """[162]: 12 features, a linear judge, 3000 states."""
    rng = np.random.default_rng(3)
    lead = rng.normal(size=12) * rng.normal(size=(3000, 12))
    full = np.sign(lead.sum(axis=1))
    four, six = ((minimax(lead, length) == full).mean() for length in (4, 6))
    chance, one = (at_random(lead, 4, rng) == full).mean(), (one_sided(lead, 4) == full).mean()
    assert six > four > chance + 0.1
    assert chance > one + 0.1
    assert one == pytest.approx(0.5, abs=0.05)
    assert (one_sided(lead, 4) != one_sided(lead, 4, against=True)).mean() > 0.9


def test_the_game_ends_as_its_solution_says_when_both_sides_play_it() -> None:
    def strongest(request: Any) -> str:
        own = [int(word) for word in request.observation.text.split(";")[0].split()]
        legal = np.flatnonzero(request.observation.mask)
        return f"piece {legal[np.argmax(np.array(own)[legal])]}"

    team = Team(dict.fromkeys(("pro", "con"), ScriptedPolicy(strongest, name="strongest")))
    turns = Local().play(EvidenceDebate, team, Plan(groups=30, group_size=1, seed=1))
    assert len(turns) == 30 * 4
    last = turns.frame.filter(turns["agent"].cast(str) == "pro").group_by("group").last().sort("group")
    lead = np.array(last["lead"].to_list())
    values = [minimax(each, 4, first=begins)[0] for each, begins in zip(lead, last["begins"], strict=True)]
    assert last["success"].to_list() == [value > 0 for value in values]


def context(seed: int = 0) -> Context:
    return Context(np.random.default_rng(seed), 1, Cases, None, Local())  # type: ignore[arg-type]


def test_the_stage_tells_who_wins_and_leaves_out_what_has_no_evidence() -> None:
    lead = [[3.0, -1.0, -1.0, 0.5], [-3.0, 1.0, 1.0, -0.5], None]
    turns = Turns({"group": range(3), "episode": [0] * 3, "lead": lead})
    for play in ("minimax", "greedy"):
        assert debate(length=2, play=play)(turns, context())["debate_won"].to_list() == [1.0, 0.0, None]
    assert debate(length=2, play="one_sided")(turns, context())["debate_won"].to_list() == [1.0, 1.0, None]
    even = Turns({"group": [0], "episode": [0], "lead": [[1.0, -1.0]]})
    for play in ("minimax", "greedy", "random", "one_sided"):
        assert debate(length=2, play=play)(even, context())["debate_won"].to_list() == [0.0], "a draw is not won"
    with pytest.raises(InputError, match="did you mean 'minimax'"):
        debate(play="minmax")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="length=9"):
        debate(length=9)(turns, context())


def test_what_pays_more_and_what_is_justified_are_drawn_apart() -> None:
    env = Cases(cases=400)
    best = env.lead.sum(axis=1) > 0
    assert (best == (env.pays == 0)).mean() == pytest.approx(0.5, abs=0.08)
