"""[60] The collaboration gap (arXiv 2511.02687): what is lost between two, and a stronger agent that begins.

Scripted agents in `native/halves`: those who tell each other their halves and go the shortest way, those who tell
nothing, and two of whom one swaps rows and columns. Then a task of twelve moves that are easier once a schema is set,
which a strong agent sets sooner, played by `handover` after k of its turns. Left out: language models.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.halves import MOVES, Condition, Halves, distances
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.evaluation.teamwork import collaboration_gap
from palaestra.play.rollout import rollout
from palaestra.teams import handover
from palaestra_atlas.reproductions import Outcome, reproduction

MAZES, RUNS, TURNS, NEEDED = 60, 400, 12, 9
STRONG, WEAK = (0.8, 0.95, 0.5), (0.15, 0.85, 0.3)
"""Chance to set the schema, and to move rightly with and without it."""
CARD = {0: 0.424, 1: 0.811, 2: 0.900, 4: 0.942}


def walk(how: str, request: Request) -> str:
    """The next step of the shortest way, by the map that it knows; first of all it tells its half."""
    parts = request.observation.text.split(" | ")
    place, *maps = parts[0].split(" map ")
    _, at, _, to = place.split()
    here, goal = ((int(row), int(column)) for row, column in (each.split(",") for each in (at, to)))
    heard = parts[1].removeprefix("map ") if len(parts) > 1 else None
    if how != "alone":
        if heard is None and how != "silent":
            return f"wait map {maps[0]}"
        if heard is not None:
            swapped = "/".join("".join(row) for row in zip(*heard.split("/"), strict=True))
            maps.append(swapped if how == "swaps" else heard)
    rows = [
        "".join("#" if "#" in cells else "." for cells in zip(*lines)) for lines in zip(*(m.split("/") for m in maps))
    ]
    far = distances(rows, goal)
    ways = {
        word: far.get((here[0] + down, here[1] + right), 99) for word, (down, right) in list(MOVES.items())[:4]
    }  # fmt: skip
    best = min(ways.values())
    found = [word for word, steps in ways.items() if steps == best]
    return str(request.rng.choice(found)) if how == "silent" else found[0]


def maze(seats: dict[str, str], condition: Condition, seed: int) -> pl.DataFrame:
    """Success by task, and the steps of those that were solved beyond the shortest way."""
    policies = {how: ScriptedPolicy(functools.partial(walk, how), name=how) for how in set(seats.values())}
    env = functools.partial(Halves, condition=condition)
    turns = rollout(env, Team({seat: policies[how] for seat, how in seats.items()}), groups=MAZES, seed=seed).frame
    return turns.group_by("task", maintain_order=True).agg(pl.col("success").max(), steps=pl.col("turn").max() + 1)


@dataclass
class _State:
    schema: bool = False
    right: int = 0
    turns: int = 0


class Convention(NativeEnv):
    """`speaker` makes twelve moves, `right` or `wrong`, and may say `schema`, once."""

    agents: tuple[str, ...] = ("speaker",)

    def begin(self) -> tuple[str, Any]:
        """Nothing is agreed."""
        return "convention", _State()

    def look(self) -> dict[str, Observation]:
        """Whether the schema is set."""
        return {"speaker": Observation(str(self.state.schema))} if self.state.turns < TURNS else {}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Count."""
        state, said = self.state, chosen["speaker"] or ""
        state.schema |= "schema" in said
        state.right, state.turns = state.right + ("right" in said), state.turns + 1
        over = state.turns == TURNS
        return {}, {"success": state.right >= NEEDED} if over else {}


def speak(skill: tuple[float, float, float], request: Request) -> str:
    """Sets the schema if it can, and moves."""
    sets, with_it, without = skill
    ready = request.observation.text == "True" or request.rng.random() < sets
    right = request.rng.random() < (with_it if ready else without)
    return " ".join(["schema"] * ready + ["right" if right else "wrong"])


def relayed(after: int, seed: int) -> float:
    """Success if the strong one has the first `after` turns."""
    team = Team(
        speaker=ScriptedPolicy(functools.partial(speak, STRONG), name="strong"),
        weak=ScriptedPolicy(functools.partial(speak, WEAK), name="weak"),
    )
    turns = rollout(handover(Convention, "speaker", "weak", after), team, groups=RUNS, seed=seed)
    return float(turns.frame.unique("group")["success"].mean())  # type: ignore[arg-type]


@reproduction(
    60,
    claim="Two who tell each other their halves solve what one with the whole map solves; who tells nothing or swaps "
    "coordinates does not; a strong agent's first turn closes more than half of a weak pair's gap.",
    baseline="one agent with the whole map; a weak agent from the first turn",
    criterion="telling: every maze, in two steps more than alone at most; silent and swapping lose .2 or more; relay "
    "within .06 of the closed form .424, .811, .900, .942 at 0, 1, 2, 4 strong turns and rising up to 2, one turn "
    "closing half of the gap to a strong pair (.995), in every seed (held on both fresh blocks)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Mazes, then the relay."""
    rows, holds = [], True
    for seed in seeds:
        alone = maze({"a": "alone"}, "solo", seed)
        pairs = {"telling": ("tells", "tells"), "silent": ("silent", "silent"), "swapping": ("tells", "swaps")}
        played = {name: maze(dict(zip("ab", how)), "joint", seed) for name, how in pairs.items()}
        told = alone.join(played["telling"], on="task", suffix="_joint")
        table = pl.concat(
            frame.with_columns(pair=pl.lit(name), condition=pl.lit(condition))
            for name, joint in played.items() for condition, frame in (("solo", alone), ("joint", joint))
        )  # fmt: skip
        gap = dict(collaboration_gap(table).select("pair", "gap").iter_rows())
        relay = {k: relayed(k, seed) for k in CARD}
        holds &= gap["telling"] == 0 and bool(((told["steps_joint"] - told["steps"]) <= 2).all())
        holds &= min(gap["silent"], gap["swapping"]) >= 0.2
        holds &= all(abs(relay[k] - CARD[k]) <= 0.06 for k in CARD) and relay[0] < relay[1] < relay[2]
        holds &= relay[1] - relay[0] > (0.995 - relay[0]) / 2
        rows.append({f"gap_{name}": value for name, value in gap.items()} | {f"relay_{k}": v for k, v in relay.items()})
    return Outcome({name: float(np.mean([row[name] for row in rows])) for name in rows[0]}, bool(holds))
