"""The least and the greatest value that each option of a native world may have, as its refusal says them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.bounds import kept, table

from palaestra import envs
from palaestra.envs import Observation

RANGES = """
answers: tasks >= 1; answers >= 2; right in [1, 8]; wordings >= 1
assistance: work in [1, 6]; human in [0., 1.]; pick in [0., 1.]; alone in [0., 1.]; cost >= 0.
backward: letters in [2, 26]; shortest in [1, 4]
bargaining: rounds >= 1; offers >= 2
beach: people >= 1; sections >= 2; psi > 0.; first in [0., 1.]
bertrand: sellers >= 2; rounds >= 1
brink: near in [0., 1.]; luck in [0., 1.]; horizon >= 1
candidates: keep >= 1
cases: cases >= 1; pieces in [1, 12]; cost in [0., 1.]
codes: length in [1, 12]; signs >= 2; horizon >= 4
commons: people >= 1; rounds >= 1; pool in [5., 100.]; most >= 1; speakers in [1, 5]
corridor: cells >= 2; horizon >= 1
craft: agents >= 1; horizon >= 1; games >= 1; view >= 0
cups: cups in [3, 26]; pages >= 1; swaps >= 1; filler >= 0
denoise: steps >= 1; noise >= 0.; push > 0.
desktop: instances >= 1; values >= 2
dial: target >= 1; horizon >= 1
dilemma: rounds >= 1; scale > 0.
discs: walkers >= 1; steps >= 1; stride > 0.; radius > 0.; sensors >= 0; flicker >= 0
discussion: agents >= 1; questions >= 1; answers >= 2; rounds >= 1; critics >= 1; memory >= 0; sure in [0., 1.]
donor_game: rounds >= 1; start > 0.; multiplier >= 0.; trace in [0, 3]
dossier: clue in [0, 7]; careless in [0.025, 1.]; slips in [0., 0.7]; words >= 0
epidemic: number >= 10; horizon >= 1; infects in [0., 1.]; incubates in [0., 1.]; recovers in [0., 1.];
    begins in [0., 1.]; beds in [0., 1.]; cost >= 0.; spread in [0., 1.]; levels >= 2
errand_grid: horizon >= 1; fixed >= 1; kept >= 2
errands: goals in [1, 7]; fresh in [0., 1.]; stale in [0., 1.]; drift in [0., 1.]; price >= 0.; tasks >= 0
evidence_debate: length in [1, 6]; levels >= 1
exam: largest in [1, 5]
exchange: values >= 2; turns >= 2
experiment: questions >= 0; particles >= 1
explored_grid: explore >= 0; size >= 2; worlds >= 1
fetch: side >= 3; horizon >= 1
film: horizon >= 1; noise >= 0.
gems: collectors >= 1; horizon >= 1
goal_grid: side >= 2; horizon >= 1
grounding: screens >= 1; cells >= 1
guardians: kinds >= 1
halves: density in [0., 0.6]; least in [1, 10]
hidden_roles: roles in [1, 4]; rounds >= 1; units >= 0; sight >= 6
hops: tasks >= 1; hops >= 1; documents >= 2
inquiry: bits in [1, 6]; questions >= 3; turns >= 1; doubt in [0., 1.]
investigation: alerts >= 2; steps >= 1; gamma in [0., 1.]; incidents >= 1
jobs: seconds > 0.; broken in [0, 7]; improve in [0., 1.]
judging: glitches in [0., 1.]
kitchen: things in [1, 3]; tasks >= 1; horizon >= 1
kuramoto: number >= 2; horizon >= 1; speed >= 0.; spread >= 0.; coupling >= 0.; drift >= 0.; noise >= 0.;
    modes in [1, 2]
landmarks: walkers >= 1; side >= 2; horizon >= 1
lattice: size >= 3; rounds >= 1; dilemma >= 0.
layers: steps >= 1; places >= 2; actions >= 2; goals in (0., 1.)
lexicon: entities >= 8; masks in [1, 4]; steps >= 1
lock: locks >= 1; steps >= 1; numbers >= 2; gamma in [0., 1.]
market: customers >= 1; sellers >= 1; items >= 1; proposals >= 1; patience in (0., 1.]
maze: horizon >= 1; accuracy in [0., 1.]
negotiation: rounds >= 1
nodes: nodes >= 1; questions >= 1; answers >= 2
off_switch: certainty in [0., 1.]
opponents: rounds >= 1; habit in [0.3333333334, 1.]; noise >= 0
papers: labs >= 1; papers >= 1; links in [1, 11]; bits in [4, 60]; top >= 1
partner: rounds >= 1; jobs in [2, 3]; noise in [0., 1.]; forget in [0., 1.]; blocked in [0., 1.]; retries >= 0;
    last >= 1
persuasion: q in [0., 1.]; bad_value < 1.; value > 1.; rounds >= 1
phrases: shortest in [1, 8]; actions >= 2; dead in [0, 5]; errs in [0., 1.]
places_grid: walkers in [1, 33]; places in [1, 35]; horizon >= 1; side >= 2 with walkers=1 places=3
plan: tasks >= 1; details >= 1
proactive: events >= 1; need in [0., 1.]; blur in [0., 1.]; error in [0., 1.]
procedure: questions >= 1; plans >= 2; executions >= 2; planners >= 1; executors >= 1; thoughts >= 1; corrections >= 0;
    sure in [0., 1.]
pulls: pulls >= 1; known in [0., 1.]
queue: fee >= 0.
rag: questions >= 1
refusals: harmful in [0., 1.]
rendezvous: walkers >= 2; cells >= 3; horizon >= 1; sight >= 0
repair: broken in [1, 5]; turns >= 1
repository: issues >= 1; options >= 2; noise >= 0.; weak in [0., 1.]; rank_noise >= 0.; trivial >= 0
reputation: players >= 4; players >= 2 with third=False; encounters >= 1; cost >= 0.; fine >= 0.
retries: causes >= 2; tries >= 2; skill in [0., 1.]; progress in [0., 1.)
review: classes >= 2
routing: weight >= 0.
second_look: items >= 1; classes >= 2; first in [0., 1.]; second in [0., 1.]
shelf: steps >= 1; letters >= 2; alphabet in [2, 26]
sieve: accuracy in [0., 1.]; worked in [0., 1.]; stride >= 1
sites: workers >= 1; sites >= 1; horizon >= 1
slips: cells >= 1; moves >= 2; spare >= 0; paths >= 0
stage_games: rounds >= 1
stakeholder: asked in [1, 12]; outputs >= 2
steps: decisive in [1, 12]; actions >= 2
stories: stories >= 2; flaws >= 3
subagents: members in [1, 20]; batch >= 1; alone in [0., 1.]; noise in [0., 1.]
supervised_choice: rounds >= 1; low in (0., 3.); high > 1.; audit in [0., 1.]; history >= 0
talk: turns in [1, 6]
taps: longest >= 1; buttons >= 2; spare >= 0; luck in [0., 1.]
tax_economy: workers >= 2; years >= 1; timescale >= 1; candidates >= 1; term >= 1
team_builder: horizon >= 1; cost >= 0.; rational >= 0.
threshold_game: needed in [1, 8]; rounds >= 1; normal in [0.8, 1.2]; low >= 0.
tool_steps: steps >= 2; judges in [0., 1.]
trail: calls >= 3; names in [4, 16]
traffic: walkers >= 1; drivers in [1, 8]; gates in [1, 9]; horizon >= 1; habit in [0.3333333334, 1.];
    missing in [0., 1.]; cost >= 0.
voxels: cells >= 8; rounds >= 1; noise >= 0.
widgets: trained >= 1
wishes: wishes >= 1; answers >= 2; offset >= 0.
working: work in [0, 19]; horizon >= 4
workshop: levels in [1, 4]; steps >= 1
"""
BOUNDS = table(RANGES)


@pytest.mark.parametrize("world", BOUNDS)
def test_an_option_may_have_its_bounds_and_nothing_beyond(world: str) -> None:
    kept(lambda **options: envs.make(f"native/{world}", **options)(), BOUNDS[world])


LENGTHS = """
horizon: brink corridor craft dial epidemic errand_grid fetch film gems goal_grid halves kitchen kuramoto landmarks maze
    places_grid rendezvous sites team_builder traffic codes(length=2) working(work=1)
rounds: bertrand dilemma donor_game hidden_roles lattice opponents partner stage_games supervised_choice threshold_game
    voxels
steps: assistance denoise discs investigation layers lock steps tool_steps workshop
turns: exchange inquiry repair talk
longest: graded_taps taps(buttons=2)
pulls: pulls
"""
"""Worlds by the option that says how many joint steps an episode has at most."""
IN_TURN = {
    "bargaining": ("rounds", 6, "an offer and its answer"),
    "negotiation": ("rounds", 6, "an offer and its answer"),
    "persuasion": ("rounds", 6, "the seller, then the buyer"),
    "shelf": ("steps", 6, "one says, one puts"),
    "discussion": ("rounds", 9, "each of three agents, one after the other"),
    "reputation": ("encounters", 9, "who is chosen, both moves, what a third one does"),
    "graph_game": ("rounds", 4, "three rounds of messages, then the answers"),
    "commons": ("rounds", 5, "harvests, and talk between two of them"),
}
EPISODES = [(world, name, 3) for name, worlds in (
    each.split(":") for each in LENGTHS.replace("\n    ", " ").strip().splitlines()
) for world in worlds.split()] + [(world, name, steps) for world, (name, steps, _) in IN_TURN.items()]  # fmt: skip


@pytest.mark.parametrize(("world", "name", "steps"), EPISODES, ids=lambda each: str(each))
def test_an_episode_has_as_many_steps_as_are_allowed_and_no_more(world: str, name: str, steps: int) -> None:
    bare, _, others = world.rstrip(")").partition("(")
    made = envs.make(f"native/{bare}", **{name: 3}, **({others.split("=")[0]: int(others[-1])} if others else {}))
    longest = 0
    for seed in range(100):
        env, rng = made(), np.random.default_rng([9, seed])  # other draws than the env's
        seen, count = env.reset(seed), 0
        while seen:
            seen = env.step({agent: _any(each, rng) for agent, each in seen.items()}).observations
            count += 1
        longest = max(longest, count)
        if longest >= steps:
            break
    assert longest == steps


def _any(seen: Observation, rng: np.random.Generator) -> Any:
    if seen.choices is None:
        return "nothing"
    legal = np.arange(len(seen.choices)) if seen.mask is None else np.flatnonzero(seen.mask)
    return seen.choices[int(rng.choice(legal))]
