"""[8] XLand (arXiv 2107.12808): a filter of tasks against a control policy, Pareto fitness, generations.

A table learns tasks of taps of all lengths among tasks that cannot be done and tasks of chance. Left out: three
dimensions, pixels, several players and the attention to goals.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.agents import TabularPolicy, Team
from palaestra.envs.worlds import GradedTaps
from palaestra.evaluation.fitness import dominates, exploited, normalised, participation, percentile_vector
from palaestra.learning.stages import Context
from palaestra.learning.stages.control_filter import control_filter
from palaestra.learning.task_scores import judged
from palaestra.play.executors import Local, Plan
from palaestra.runs.inline import learn
from palaestra_atlas.reproductions import exact

SHARE = "max(col('share'), over='episode')"
VARY = {"lr": [0.5, 2.0], "solved": [0.7, 1.0], "better": [0.02, 0.2]}
LEVELS = [0.4, 0.5, 0.6, 0.7, 0.8]


def stages(size: int, *, filtered: bool, draws: int = 24, **options: Any) -> list[str]:
    """A population in the words of a recipe."""
    given = {"vary": VARY if filtered else {"lr": VARY["lr"]}, "score": SHARE, "levels": LEVELS} | options
    if filtered:
        given["inner"] = f"control_filter(draws={draws}, probes=4)"
    return [f"population({size}, {', '.join(f'{name}={value!r}' for name, value in given.items())})"]


def plain(**changes: Any) -> dict[str, Any]:
    """The recipe: two members, two generations."""
    made = {
        "name": "worlds",
        "env": {"make": "native/graded_taps",
                "options": {"longest": 20, "dead": 0.4, "lucky": 0.1, "buttons": 8}},
        "policies": {"solver": {"kind": "tabular", "options": {"capacity": 32}}},
        "team": {"*": "solver"},
        "stages": stages(2, filtered=True, every=3, generation=10, distil=3),
        "credit": "grpo() * (col('distilled') == 0)",
        "learn": {"lr": 0.1, "minibatch": 32, "terms": "surrogate(), pinned(1.0, 'distilled')"},
        "train": {"iterations": 41, "groups": 8, "group_size": 8, "evaluate_every": 41, "checkpoint_every": 41,
                  "save_turns": "all"},
        "evaluation": {"tasks": 50, "trials": 2, "look_tasks": 5, "look_trials": 1},
    }  # fmt: skip
    return made | changes


def recipe(seed: int, folder: Path) -> None:
    """Writes `worlds.yaml`, with the filter, and `uniform.yaml`: no filter, and as many episodes, probes included."""
    (folder / "worlds.yaml").write_text(json.dumps(plain()))
    made = plain(stages=stages(2, filtered=False, every=3, generation=10, distil=3))
    made["train"] = made["train"] | {"groups": 20}
    (folder / "uniform.yaml").write_text(json.dumps(made))


@exact
def only_what_can_be_learned_now() -> None:
    """Solved by the learner, by nobody, by the control policy too: refused, each for its own reason."""
    own = [[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]
    control = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]]
    found = judged(own, control)
    assert found.mastered.tolist() == [True, False, False, False]
    assert found.unlearned.tolist() == [False, False, True, False]
    assert found.trivial.tolist() == [False, False, False, True]
    assert found.accepted.tolist() == [False, True, False, False]
    assert judged([[1, 0]], [[1, 0]], better=0.2, easy=0.9).accepted[0], "better in one of four pairs"
    assert not judged([[1, 0]], [[1, 0]], better=0.25, easy=0.9).accepted[0]


@exact
def the_pool_is_the_edge() -> None:
    """A learner that knows three screens of eight gets tasks of four or five taps: none of chance, none impossible."""
    env = GradedTaps(longest=8, dead=0.3, lucky=0.3)
    policy = TabularPolicy(6, capacity=8, name="solver")
    shown = []
    for screen in range(3):
        env.reset(0)
        env.state.done = screen
        shown.append(env.look()["user_agent"].key())
    state = policy.state_dict()
    logits = state["logits"].clone()
    for screen in range(3):
        logits[screen, env.right[screen]] = 9.0
    policy.load_state_dict(
        state
        | {"logits": logits, "states": state["states"].new_tensor(np.array(shown, np.uint64).view(np.int64).tolist())}
    )
    team = Team(user_agent=policy)
    stage = control_filter(draws=150, probes=16, better=0.07, easy=0.2)
    made = Context(np.random.default_rng(0), 1, lambda: GradedTaps(longest=8, dead=0.3, lucky=0.3), team, Local())
    stage.plan(Plan(groups=8, group_size=4), made)
    assert len(stage.pool) >= 3, "some are found"
    for task in stage.pool:
        env.reset(task)
        assert (env.state.kind, env.state.length) in (("plain", 4), ("plain", 5)), (env.state.kind, env.state.length)


@exact
def low_percentiles_count() -> None:
    """[.14, .18, .26, .38, .5] dominates [.12, .14, .22, .36, .5]; a higher mean with a lower tenth does not win."""
    a, b = percentile_vector([[0.1, 0.2, 0.5, 0.6, 0.9], [0.1, 0.15, 0.5, 0.55, 0.8]])
    np.testing.assert_allclose(a, [0.14, 0.18, 0.26, 0.38, 0.5])
    np.testing.assert_allclose(b, [0.12, 0.14, 0.22, 0.36, 0.5])
    assert dominates(a, b)
    assert not dominates(b, a)
    steady, uneven = percentile_vector([[0.3, 0.4, 0.5, 0.6], [0.0, 0.9, 1.0, 1.0]])
    assert not dominates(uneven, steady), "its tenth percentile is lower"
    np.testing.assert_allclose(normalised([[1.0, 2.0, 0.0]], [2.0, 2.0, 0.0]), [[0.5, 1.0, 0.0]])
    assert participation([0.0, 0.2, 0.9, 0.0]) == 0.5


@exact
def the_dominated_become_copies() -> None:
    """Dominated members become copies; in a training they have their parent's rate, changed by the factor."""
    fitness = np.array([[0.2, 0.5], [0.1, 0.4]])
    assert exploited(fitness, np.random.default_rng(0)).tolist() == [0, 0]
    small = plain(stages=stages(3, filtered=True, draws=8, every=2, tasks=12))
    small["env"] = {"make": "native/graded_taps", "options": {"longest": 4, "dead": 0.2, "lucky": 0.1}}
    small["train"] = small["train"] | {"iterations": 19, "groups": 4, "evaluate_every": 19}
    lines = [each["stages"]["population"] for each in learn(small, seed=1).lines]
    compared = [at for at, line in enumerate(lines[:-1]) if line.get("copies", 0) > 0]
    assert compared, "somebody was copied"
    for at in compared:
        for child in range(3):
            parent = int(lines[at][f"parent_{child}"])
            if parent == child:
                continue
            before = next(line for line in reversed(lines[:at]) if line["member"] == parent)
            for name, (low, high) in VARY.items():
                after = next((line[name] for line in lines[at:-1] if line["member"] == child), None)
                assert after is None or any(
                    np.isclose(after, np.clip(before[name] * factor, low, high)) for factor in (1.2, 1 / 1.2)
                )


@exact
def students_begin_where_their_teacher_stood() -> None:
    """After the teacher's iterations the second generation solves as much as the first did; from scratch far less."""
    small = plain(stages=stages(1, filtered=False, every=5, generation=14, distil=5, vary={}))
    small["env"] = {"make": "native/graded_taps", "options": {"longest": 3, "dead": 0.0, "lucky": 0.0}}
    small["train"] = small["train"] | {"iterations": 21, "groups": 8, "evaluate_every": 21}
    lines = learn(small, seed=0).lines
    assert [each["stages"]["population"]["generation"] for each in lines[13:16]] == [0.0, 1.0, 1.0]
    first, reached, after = lines[5]["success"], lines[13]["success"], lines[19]["success"]
    assert reached > 0.7
    assert after > 0.8 * reached
    assert after > first
