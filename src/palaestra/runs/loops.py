"""Loops of the library: what evolves, when, and by which signal, in the words of a survey [6] (arXiv 2507.21046).

A loop is anything that a recipe can name and that leaves something changed for what comes after it: a learner, a
rule of a league, a stage that keeps or makes something, a team procedure with rounds. Each declares its row in `LOOPS`,
one from outside by an attribute `loop`. `describe` reads the rows of a recipe, and `observe` plays it and says what did
change, so that a wrong declaration shows. Left out: the survey's fields of application.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from palaestra.errors import InputError
from palaestra.foundation.registry import REGISTRIES, read_call
from palaestra.learning.league.rules import MATCHMAKING
from palaestra.learning.protocol import LEARNERS
from palaestra.learning.stages.stage import STAGES, Stages
from palaestra.runs.recipe import Recipe
from palaestra.runs.steps import fit_of, has_weights, kind_of_stage, parts_of
from palaestra.teams import WORKFLOWS

What = Literal["weights", "memory", "prompt", "tool", "team", "task"]
When = Literal["within", "between"]
Sign = Literal["scalar", "text", "demonstration", "population"]
AXES: dict[str, tuple[str, ...]] = {"evolves": get_args(What), "when": get_args(When), "signal": get_args(Sign)}
"""Values of the three axes. within: in one episode; between: from one episode or iteration to later ones."""


class Loop(NamedTuple):
    """Data that classify a learning loop on `AXES`: what evolves, when, and by which signal."""

    evolves: What
    when: When
    signal: Sign


def _rows(evolves: What, when: When, signal: Sign, names: str) -> dict[str, Loop | None]:
    return dict.fromkeys(names.split(), Loop(evolves, when, signal))


def _none(names: str) -> dict[str, Loop | None]:
    return dict.fromkeys(names.split())


LOOPS: dict[str, dict[str, Loop | None]] = {
    "learner": {
        **_rows("weights", "between", "scalar",
                "bandit gradient_sharing meta_gradient policy_gradient q_learning value_decomposition"),
        **_rows("weights", "between", "population", "diversity generations"),
        **_rows("weights", "between", "demonstration", "inverse_soft_q"),
        "play": None,
    },
    "matchmaking": {**_rows("team", "between", "population", "latest partners pfsp psro uniform"), "scripts": None},
    "stage": {
        **_rows("weights", "between", "scalar",
                "agent_model alternate bilevel central_critic critic explors heron human_gain imagine "
                "minority_influence multipliers outcome_critics pair_reward preference_reward prefix_critic "
                "process_reward progress q_critic rnd token_critic utterance_reward weighted_attack"),
        **_rows("weights", "between", "demonstration", "evolving_teacher hops step_rewards"),
        **_rows("weights", "between", "population", "population share"),
        **_rows("memory", "between", "scalar", "counts replay running_scale"),
        **_rows("memory", "between", "text", "experience message_labels"),
        **_rows("memory", "between", "demonstration",
                "accumulate align_histories expert_failures goal_memory success_replay"),
        **_rows("prompt", "between", "text", "guidance reflect rubric_game"),
        **_rows("prompt", "between", "demonstration", "hints"),
        **_rows("team", "between", "scalar", "recruit"),
        **_rows("task", "between", "scalar",
                "control_filter curriculum difficulty failure_replay failure_tasks predicted_budget task_table"),
        # they keep a start, a cache or a plan, none of which gets better
        **_none("advised_actions against_start asynchronous corrected_actions demonstrate designed final_verdict "
                "fixed_data injection judge linearise omission_turns program proposed_tasks recovered_reward "
                "reference_logprobs "
                "references scene score search_paths shock"),
    },
    "workflow": {
        **_rows("memory", "within", "text",
                "advantage_feedback blackboard checked_chain debate plan_act_check relay self_summary"),
        **_rows("memory", "within", "scalar", "branches refine search stage_beam tree_search turn_tree"),
        **_rows("memory", "between", "scalar", "strategy_auction"),
        **_rows("team", "within", "scalar", "auction conducted directed layered orchestrated self_organized"),
        **_rows("team", "within", "text", "supervisor"),
        **_rows("task", "between", "scalar", "proposer"),
        # in these nothing of what is said comes back to whoever said it
        **_none("archetypes audited chain contest context_window coordinator graph handover mean_field nested omission "
                "one_conversation one_model options "
                "personas pipeline program self_consistency single star subgoals switching thoughts tree"),
    },
}  # fmt: skip
"""Rows by kind of name; None: it is no loop, and why stands beside it."""


@dataclass(frozen=True)
class Found:
    """Data of one learning loop found by name: its kind (`stage`, `learner`, …), name and `Loop`."""

    kind: str
    name: str
    row: Loop


def loop_of(kind: str, name: str) -> Loop | None:
    """The `Loop` of a registered kind ("stage", …) and name; None if it is no loop; InputError if it does not say.

    >>> loop_of("stage", "experience"), loop_of("stage", "weights")
    (Loop(evolves='memory', when='between', signal='text'), None)

    Raises:
        InputError: it may be a loop and declares nothing, or something that is not on the axes.
    """
    make = inspect.unwrap(REGISTRIES[kind].find(name))
    if name in LOOPS[kind] or hasattr(make, "loop"):
        row: Loop | None = LOOPS[kind].get(name, getattr(make, "loop", None))
        for axis, value in zip(AXES, row or ()):
            if value not in AXES[axis]:
                raise InputError(f"{kind} {name}: {axis}={value!r} is none of {', '.join(AXES[axis])}")
        return None if row is None else Loop(*row)
    if kind == "stage" and kind_of_stage(name) != "construct" and not hasattr(make, "state_dict"):
        return None  # it keeps nothing and makes nothing
    raise InputError(f"{kind} {name}: says not what evolves; give it a row in LOOPS, or an attribute loop")


def loops() -> tuple[list[Found], list[str]]:
    """(list of `Found`, list of names): all registered learning loops, and names that should declare one and do not."""
    found, missing = [], []
    for kind, registry in (
        ("learner", LEARNERS),
        ("matchmaking", MATCHMAKING),
        ("stage", STAGES),
        ("workflow", WORKFLOWS),
    ):
        for name in sorted(registry):
            try:
                row = loop_of(kind, name)
            except InputError:
                missing.append(f"{kind} {name}")
                continue
            found += [Found(kind, name, row)] if row is not None else []
    return found, missing


def describe(recipe: Recipe) -> list[Found]:
    """List of `Found`: the learning loops of a recipe's learner, stages, workflow and opponents.

    Those of its phases are its own. A learner that moves nothing is no loop; one that imitates has the signal
    "demonstration".
    """
    found: dict[Found, None] = {}
    for part in parts_of(recipe):
        named = [("stage", read_call(text)[0]) for text in part.stages]
        if isinstance(part.env.workflow, str):
            named.append(("workflow", read_call(part.env.workflow)[0]))
        if part.opponents is not None:
            named.append(("matchmaking", part.opponents.method.partition("(")[0].strip()))
        if has_weights(part) and (row := loop_of("learner", part.learn.kind)) is not None:
            sign: Sign = "demonstration" if fit_of(part) == "imitation" else row.signal
            found[Found("learner", part.learn.kind, row._replace(signal=sign))] = None
        rows = [(kind, name, loop_of(kind, name)) for kind, name in named if ":" not in name]
        found |= {Found(kind, name, row): None for kind, name, row in rows if row is not None}
    return list(found)


def places(found: Iterable[Found]) -> dict[str, dict[str, list[str]]]:
    """Dict from axis to value to sorted names of the given `Found` loops; empty lists where there is none."""
    rows = list(found)
    return {
        axis: {value: sorted({each.name for each in rows if getattr(each.row, axis) == value}) for value in values}
        for axis, values in AXES.items()
    }


class Observed(NamedTuple):
    """Result of `observe`: whether the team's weights changed, and the stages whose state changed."""

    weights: bool
    stages: list[str]


def observe(recipe: Recipe, *, seed: int = 0, iterations: int = 2) -> Observed:
    """Train a recipe in memory for some iterations; returns an `Observed`: whether weights changed, which stages did.

    Args:
        recipe: with its own groups and stages; its `train.iterations` count for nothing.
        seed: of the run.
        iterations: how many are played.
    """
    from palaestra.runs.inline import learn

    before = learn(recipe, {"train": {"iterations": 0}}, seed=seed)
    after = learn(recipe, {"train": {"iterations": iterations}}, seed=seed)
    first, last = ({} if each.stages is None else _states(each.stages) for each in (before, after))
    changed = sorted(name for name, state in last.items() if state != first.get(name))
    return Observed(fingerprint(before.team.state_dict()) != fingerprint(after.team.state_dict()), changed)


def _states(stages: Stages) -> dict[str, str]:
    states = zip(stages.texts, stages.state_dict(), strict=True)
    return {read_call(text)[0]: fingerprint(state) for text, state in states if state is not None}


def fingerprint(state: Any) -> str:
    """SHA-256, as hex, of a state: nested mappings and lists of arrays, tensors and plain values."""
    digest = hashlib.sha256()
    _add(digest, state)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(f"{key}:".encode())
            _add(digest, value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            _add(digest, each)
    elif isinstance(value, np.ndarray) or hasattr(value, "detach"):
        array = np.ascontiguousarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
        digest.update(f"{array.dtype}{array.shape}".encode() + (array.tobytes() if array.dtype != object else b""))
    else:
        digest.update(repr(value).encode())
