"""[7] Chain-of-Agents / AFM (arXiv 2508.13167): a team's episodes as one model's sequences, cloned, then rewarded.

Pages of names instead of web tools, scripts instead of a team of large models, a transformer of 100,000 parameters.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import LMPolicy, ScriptedPolicy, Team
from palaestra.agents.conversation import sequences
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Trail
from palaestra.envs.worlds.trail import NAMES
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.dynamic_sampling import dynamic_sampling
from palaestra.learning.stages.linearise import linearise, linearised
from palaestra.play.executors import Local, Plan
from palaestra.rewards import every_part
from palaestra.runs.inline import learn
from palaestra.teams import one_model
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure

KEEP = {
    "success": "success",
    "easy": "mean('success', over='group') < 1",
    "reflection": "total('reflected', over=('group', 'episode')) > 0",
}
"""Progressive filters."""


Rng = np.random.Generator


def turn(text: str, rng: Rng, errs: float, lazy: float) -> tuple[str, str]:
    """Whose turn it is after this transcript, and what that seat says."""
    lines = text.splitlines()
    said = [line.split(": ", 1) for line in lines[1:] if not line.startswith("result: ")]
    names = [words.split() for role, words in said if role in ("plan", "reflect")]
    wanted, left = names[-1][:2] if names else lines[0].split()[1:]
    last, looked = said[-1] if said else ("", "")
    if not said:
        return "plan", f"{wanted} {left}"
    if last != "search":
        if left == "0" or sum(role == "search" for role, _ in said) == 4:
            return "answer", wanted
        return "search", str(rng.choice(NAMES[:8])) if rng.random() < errs else wanted
    found = f"{lines[-1].removeprefix('result: ')} {int(left) - 1}"
    if rng.random() < lazy:
        return "reflect", f"{found} taken"
    return "reflect", f"{found} right" if looked == wanted else f"{wanted} {left} wrong"


def team(errs: float = 0.4, lazy: float = 0.3) -> Any:
    """A script for all four seats; errs: chance to look up any name. lazy: chance to take a name without a look."""
    return lambda request: turn(request.observation.text, request.rng, errs, lazy)[1]


def together(errs: float = 0.4, lazy: float = 0.3) -> Any:
    """The same team in the seat of the one model, as it is measured: its seats speak until a page is looked up."""

    def play(request: Request) -> str:
        text = request.observation.text
        lines: list[str] = []
        while not lines or not lines[-1].startswith(("search", "answer")):
            lines.append(": ".join(turn("\n".join([text, *lines]), request.rng, errs, lazy)))
        return "\n".join(lines)

    return play


def words() -> Any:
    """A script that says words of the world in any order, from which a tokenizer is made."""

    def play(request: Request) -> str:
        roles, verdicts = ("plan", "search", "reflect", "answer"), ("right", "wrong", "taken")
        one, other = request.rng.choice(NAMES[:8], 2)
        role, then = request.rng.choice(roles, 2)
        return f"{role}: {one} {request.rng.integers(4)} {request.rng.choice(verdicts)}\n{then}: {other}"

    return play


def made(*, clone: int = 45, reward: int = 30, groups: int = 20, keep: Any = KEEP) -> dict[str, Any]:
    """The recipe. clone, reward: iterations of each phase; groups: questions that the team is asked in each."""
    stage = f"linearise('team', groups={groups}, group_size=4, keep={keep!r})"
    phases: list[dict[str, Any]] = [
        {
            "name": "distil", "until": clone, "stages": [stage], "train": {"groups": 1, "group_size": 1},
            "learn": {"terms": "clone(column='loss_mask')", "lr": 0.006, "epochs": 4, "minibatch": 16},
        },
        {
            "name": "reward", "env": {"options": {"hops": [1, 2, 2]}}, "stages": ["dynamic_sampling()"],
            "credit": "grpo()", "learn": {"terms": "surrogate(clip=(.2, .28))", "lr": 0.003, "epochs": 2},
        },
    ]  # fmt: skip
    student = {"hidden": 64, "layers": 1, "vocabulary": 320, "chat": True, "max_new_tokens": 20}
    return {
        "name": "afm",
        "env": {"make": "native/trail", "options": {"hops": [1, 2], "names": 8}, "workflow": "one_model(turns=6)"},
        "policies": {
            "student": {"kind": "tiny", "options": student},
            "team": {"kind": "script", "options": {"script": f"{__name__}:team"}},
        },
        "team": {"model": "student"},
        "warm_start": {"script": f"{__name__}:words", "groups": 64, "steps": 0},
        "learn": {"rows": "conversation"},
        "phases": phases if reward else phases[:1],
        "train": {
            "iterations": clone + reward, "groups": 8, "group_size": 8, "evaluate_every": 250,
            "checkpoint_every": 250, "save_turns": "last",
        },
        "evaluation": {
            "tasks": 200, "trials": 1, "look_tasks": 5, "look_trials": 1,
            "controls": {"team": {"script": f"{__name__}:together"}},
        },
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes `afm.yaml`, and `copy.yaml`, in which all of the team's episodes are cloned for as long."""
    (folder / "afm.yaml").write_text(json.dumps(made()))
    (folder / "copy.yaml").write_text(json.dumps(made(clone=75, reward=0, groups=8, keep={"all": "turn >= 0"})))


def fewer_words(within: float = 0.05) -> Measure:
    """Percent of words that the student says less than its team on the same held-out questions, for a right answer.

    A student whose success is more than `within` below the team's counts as 0.
    """

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = pl.read_parquet(seed / "evaluation.parquet")
            said, right = {}, {}
            for system in ("after", "team"):
                rows = table.filter(pl.col("system") == system)
                ends = rows.group_by("task", "group", "episode").agg(pl.col("success").last().fill_null(False))
                right[system] = float(ends["success"].mean())  # type: ignore[arg-type]
                said[system] = float(rows["action"].str.count_matches(r"\w+").sum()) / len(ends)
            enough = right["after"] >= right["team"] - within
            cost = {system: said[system] / max(right[system], 1e-9) for system in said}
            found.append(100 * (1 - cost["after"] / cost["team"]) if enough else 0.0)
        return found

    return measured


TWO_HOPS = (
    ("plan", "ann 2", None), ("search", "ann", "bob"), ("reflect", "bob 1 right", None), ("search", "bob", "cal"),
    ("reflect", "cal 0 taken", None), ("answer", "cal", None),
)  # fmt: skip
"""Role, what it said, and what a tool answered."""


def table(*episodes: tuple[tuple[Any, ...], ...], **columns: list[Any]) -> pl.DataFrame:
    """Turns of these episodes, one group, in an order that is not that of play."""
    rows = [
        {"group": 0, "episode": at, "turn": turn, "agent": role, "action": said, "result": result}
        for at, each in enumerate(episodes)
        for turn, (role, said, result) in enumerate(each)
    ]
    frame = pl.DataFrame(rows).with_columns(**{name: pl.Series(values) for name, values in columns.items()})
    return frame.sample(fraction=1.0, shuffle=True, seed=1)


@exact
def one_sequence_in_the_order_of_play() -> None:
    """All roles' turns of a two-hop episode, tagged, in the order of play, in three parts between two tool answers."""
    assert linearised(table(TWO_HOPS))["action"].to_list() == [
        "plan: ann 2\nsearch: ann",
        "reflect: bob 1 right\nsearch: bob",
        "reflect: cal 0 taken\nanswer: cal",
    ]


def taught(*, groups: int = 6, seed: int = 0, **options: Any) -> tuple[pl.DataFrame, Team, Context]:
    """Rows of the stage beside one own episode of an untrained model, the team, and the context."""
    env = one_model(functools.partial(Trail, names=8), turns=6)
    corpus = [f"{role}: {name} 1 right taken wrong result: from" for role in Trail.agents for name in NAMES[:8]]
    student = LMPolicy.tiny(corpus, hidden=32, layers=1, vocabulary=320, chat=True, seed=seed, max_new_tokens=8)
    team = Team(model=student)
    advisers = {"team": ScriptedPolicy(script(), name="team")}
    told = Context(np.random.default_rng(seed), 1, env, team, Local(), advisers=advisers)
    own = Local().play(env, team, Plan(1, 1, seed=seed))
    return linearise("team", groups=groups, **options)(own, told).frame, team, told


def script() -> Any:
    """The team of a world with eight names."""
    return lambda request: turn(request.observation.text, request.rng, 0.0, 0.3)[1]


@exact
def what_tools_answer_is_not_learned_from() -> None:
    """The gradient of cloning is that of the sequences whose tool answers and questions weigh exactly nothing."""
    rows, team, _ = taught()
    shown = rows.filter("loss_mask")
    assert len(shown) > 6, "the team's episodes can be said in the seat of the model"
    assert not shown["action"].str.contains("result").any()
    model: Any = team.policies["lm"]
    learner = PolicyGradient(team, "clone(column='loss_mask')", lr=1e-9, rows="conversation", max_grad_norm=1e9)
    of_learner: dict[int, torch.Tensor] = {}
    hooks = [
        each.register_post_accumulate_grad_hook(lambda p, at=at: of_learner.update({at: p.grad.clone()}))
        for at, each in enumerate(model.parameters())
    ]
    learner.update(Turns(rows.with_columns(advantage=pl.lit(0.0))))
    for hook in hooks:
        hook.remove()
    for weight, same in ((0.0, True), (1.0, False)):
        total, count = torch.zeros(()), 0.0
        for each in model.parameters():
            each.grad = None
        for ids, mask in sequences(shown).select("ids", "mask").iter_rows():
            said = torch.tensor(mask, dtype=torch.float32)[1:]
            said = said + weight * (1 - said)
            logprobs = model.model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
            total = total - (logprobs.gather(-1, torch.tensor(ids)[1:, None])[:, 0] * said).sum()
            count += float(said.sum())
        (total / count).backward()
        apart = max(float((of_learner[at] - p.grad).abs().max()) for at, p in enumerate(model.parameters()))
        assert (apart < 1e-5) == same, (weight, apart)


@exact
def filters_drop_in_order() -> None:
    """Of four episodes one fails, two have an easy question, of which one lacks a reflection, too: one is kept."""
    frame = pl.concat([table(TWO_HOPS).with_columns(group=pl.lit(group), episode=pl.lit(at)) for group, at in PLACES])
    facts = {
        (0, 0): (True, True),
        (0, 1): (False, True),
        (1, 0): (True, True),
        (2, 0): (True, False),
        (2, 1): (False, True),
    }
    rows = pl.DataFrame(
        [(*place, *fact) for place, fact in facts.items()], schema=["group", "episode", "won", "looked"], orient="row"
    )
    turns = frame.join(rows, on=["group", "episode"]).with_columns(
        success=pl.when(pl.col("agent") == "answer").then("won"),
        reflected=pl.col("looked") & (pl.col("agent") == "reflect"),
    )
    found = linearise("team", keep=KEEP)._filtered(Turns(turns))
    assert found.counts == {"units": 5, "kept": 1, "dropped_success": 2, "dropped_easy": 1, "dropped_reflection": 1}
    assert set(turns.filter(pl.Series(found.kept)).select("group", "episode").iter_rows()) == {(0, 0)}


PLACES = ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1))


@exact
def the_reward_phase_goes_on_from_the_clone() -> None:
    """After two iterations of cloning come two on held-back questions, from the same parameters, and these move."""
    seen: dict[int, list[np.ndarray]] = {}
    hops: dict[int, set[int]] = {}

    def note(iteration: int, team: Team) -> dict[str, float]:
        student: Any = team.policies["student"]
        seen[iteration] = [each.detach().numpy().copy() for each in student.parameters()]
        return {}

    def look(iteration: int, turns: Turns) -> None:
        hops[iteration] = set(turns["hops"].drop_nulls())

    small = made(clone=2, reward=2)
    small["phases"][1] |= {"env": {"options": {"hops": [3]}}, "stages": [], "credit": "1.0"}
    done = learn(
        small,
        {"train": {"iterations": 4, "groups": 4, "group_size": 2}},
        after_iteration=note,
        on_turns=look,
        trust=True,
    )
    assert [line.get("phase") for line in done.lines] == ["distil"] * 2 + ["reward"] * 2
    cloned = learn(made(clone=2, reward=0), {"train": {"iterations": 2, "groups": 4, "group_size": 2}}, trust=True)
    last: Any = cloned.team.policies["student"]
    for each, then in zip(last.parameters(), seen[2], strict=True):
        np.testing.assert_array_equal(each.detach().numpy(), then)
    assert max(float(np.abs(a - b).max()) for a, b in zip(seen[2], seen[4], strict=True)) > 0
    assert len(hops[1]) > 1


@exact
def groups_that_agree_are_replaced() -> None:
    """Of six groups of questions for the team none agrees in its outcome, and six are in the batch."""
    env = one_model(Trail, turns=6)
    team = Team(model=ScriptedPolicy(together(), name="team"))
    told = Context(np.random.default_rng(0), 1, env, team, Local())
    stage = dynamic_sampling(rounds=20)
    plan = stage.plan(Plan(6, 4, seed=3), told)
    first = Local().play(env, team, plan)
    frame = stage(first, told).frame
    won = frame.group_by("group", "episode").agg(pl.col("success").last()).group_by("group").agg(pl.mean("success"))
    assert len(won) == 6
    assert won["success"].is_between(0, 1, closed="none").all()
    assert told.metrics["uninformative"] > 0


@exact
def every_part_must_be_right() -> None:
    """'a|b' for {a} is wrong, 'The B!' for {a, b} right, 'b|a' too; the env pays 1 or 0 and nothing for the form."""
    answers = {"said": ["x|b", "The B!", "b|x", "", None], "gold": [["x"], ["x", "b"], ["x", "b"], ["x"], ["x"]]}
    np.testing.assert_allclose(
        np.asarray(every_part("said", "gold").evaluate(Turns(answers)), float), [0, 1, 1, 0, np.nan]
    )
    for hedge, pays in ((False, 1.0), (True, 0.0)):
        env = one_model(functools.partial(Trail, hops=(1,)))()
        start = env.reset(4)["model"].text.split()[1]
        told = env.step({"model": f"plan: {start} 1\nsearch: {start}"})
        name = told.info["result"]
        end = env.step({"model": f"reflect: {name} 0 right\nanswer: {name}" + f"|{start}" * hedge})
        assert end.rewards == {"model": pays}
        assert end.info["success"] == bool(pays)
