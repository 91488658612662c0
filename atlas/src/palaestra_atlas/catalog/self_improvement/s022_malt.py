"""[22] MALT (arXiv 2412.01928): a tree of drafts, checks and answers, whose leaves say which nodes were correct.

The untrained team answers once. Every role is cloned from its own correct nodes of that sample; then verifier and
refiner learn what to prefer among siblings. Cloning of a sample ends where the shares of the sample are; comparing
siblings goes on. Left out: language models, mathematics, temperature .3 of the paper's inference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Review
from palaestra.learning.stages import Context
from palaestra.learning.stages.fixed_data import fixed_data
from palaestra.learning.stages.siblings import correct_nodes, sibling_pairs
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.teams import branches
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure

ROLES = {"generator": 5, "verifier": 2, "refiner": 5}
"""Number of actions of each role."""
A = [[1, 1, 0], [1, 0, 0], [0, 0, 0]]
B = [[1, 1, 1], [1, 1, 0], [0, 1, 0]]


def made(
    *, groups: int = 100, cloned: int = 40, preferred: int = 40, leaves: bool = False, lr: float = 0.2
) -> dict[str, Any]:
    """The recipe: one sample of trees, cloned, then compared; `leaves` as of `correct_nodes`."""
    stages = ["fixed_data(1)", f"correct_nodes(leaves={leaves})"]
    clone: dict[str, Any] = {"stages": stages, "learn": {"terms": 'clone(column="correct")'}}
    prefer = {"stages": [*stages, "sibling_pairs()"], "learn": {"terms": "dpo(beta=0.2)", "freeze": "generator"}}
    phases = [
        {"name": "sample", "until": 1, **clone},
        {"name": "clone", **({"until": cloned - 1} if preferred else {}), **clone, "train": {"groups": 1}},
    ]
    if preferred:
        phases.append({"name": "prefer", **prefer, "train": {"groups": 1}})
    iterations = cloned + preferred
    return {
        "name": "malt",
        "env": {"make": "native/review", "workflow": "branches(3, 3, 3)"},
        "policies": {role: {"kind": "tabular", "options": {"actions": size}} for role, size in ROLES.items()},
        "team": {f"{role}-{k}": role for role in ROLES for k in range(1, 28)},
        "credit": "grpo()",
        "learn": {"lr": lr},
        "phases": phases,
        "train": {
            "iterations": iterations, "groups": groups, "group_size": 1, "evaluate_every": iterations,
            "checkpoint_every": iterations, "save_turns": "all",
        },
        "evaluation": {"tasks": 500, "trials": 3, "look_tasks": 5, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes `malt.yaml`, and `leaves.yaml`, in which episodes with a right answer are cloned, as long."""
    (folder / "malt.yaml").write_text(json.dumps(made()))
    (folder / "leaves.yaml").write_text(json.dumps(made(cloned=80, preferred=0, leaves=True)))


def majority() -> Measure:
    """Share of held-out questions whose most frequent answer of three passes, the first of equals, is right."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            last = table.filter(pl.col("answer").is_not_null() & pl.col("success").is_not_null())
            last = last.filter(pl.col("agent").cast(pl.String).str.starts_with("refiner"))
            answers = last.group_by("task", "answer", maintain_order=True)
            votes = answers.agg(pl.len().alias("n"), pl.col("success").any())
            chosen = votes.group_by("task", maintain_order=True).agg(pl.col("success").get(pl.col("n").arg_max()))
            found.append(float(chosen["success"].mean()))  # type: ignore[arg-type]
        return found

    return measured


def tree() -> Turns:
    """The two drafts of the card with three checks of each and three answers to each check."""
    rows: list[dict[str, Any]] = []
    for draft, leaves in (("A", A), ("B", B)):
        rows.append({"node": draft, "parent": None, "policy": "generator", "reward": 0.0})
        for check, answers in enumerate(leaves):
            rows.append({"node": f"{draft}{check}", "parent": draft, "policy": "verifier", "reward": 0.0})
            for answer, right in enumerate(answers):
                name = f"{draft}{check}{answer}"
                rows.append({"node": name, "parent": name[:2], "policy": "refiner", "reward": float(right)})
    frame = pl.DataFrame(rows, schema={"node": str, "parent": str, "policy": str, "reward": float})
    return Turns(frame.with_columns(iteration=pl.lit(1), group=pl.lit(0), episode=pl.lit(0), turn=pl.lit(0)))


def told() -> Context:
    """Context of a stage."""
    return Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]


@exact
def means_of_means() -> None:
    """V(A) = 1/3 and V(B) = 2/3; of A's checks one is above one half, of B's two."""
    stage = correct_nodes()
    values = dict(zip(tree()["node"].to_list(), np.asarray(stage.value.evaluate(tree()), float), strict=True))
    np.testing.assert_allclose([values[name] for name in ("A", "A0", "A1", "A2")], [1 / 3, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose([values[name] for name in ("B", "B0", "B1", "B2")], [2 / 3, 1, 2 / 3, 1 / 3])


@exact
def each_role_from_its_correct_nodes() -> None:
    """The generator keeps B alone, the verifier three checks of six, the refiner nine answers of eighteen."""
    labelled = correct_nodes()(tree(), told()).frame.filter("correct")
    assert labelled.filter(pl.col("policy") == "generator")["node"].to_list() == ["B"]
    assert labelled.filter(pl.col("policy") == "verifier")["node"].to_list() == ["A0", "B0", "B1"]
    assert labelled.filter(pl.col("policy") == "refiner").height == 9
    half = Turns(tree().frame.filter(pl.col("node").is_in(["A0", "A00", "A02"])).with_columns(parent=pl.when(
        pl.col("node") == "A0").then(None).otherwise("parent")))  # fmt: skip
    assert not correct_nodes()(half, told())["correct"][0], "one half is not above one half"


@exact
def pairs_of_one_parent() -> None:
    """Two pairs of checks under each draft, eight of answers, none of a parent whose children agree."""
    context = told()
    paired = sibling_pairs()(correct_nodes()(tree(), context), context).frame.filter(pl.col("pair").is_not_null())
    parents = paired.group_by("pair").agg(pl.col("parent").n_unique(), pl.col("chosen").sum(), pl.len())
    assert parents["parent"].to_list() == [1] * len(parents)
    assert (parents["chosen"] == 1).all()
    assert (parents["len"] == 2).all()
    counts = dict(paired.filter("chosen").group_by("policy").len().iter_rows())
    assert counts == {"verifier": 4, "refiner": 8}
    other = tree().frame.with_columns(group=pl.lit(1))  # the same names of nodes, of another question
    labelled = correct_nodes()(Turns(pl.concat([tree().frame, other])), context)
    both = sibling_pairs()(labelled, context).frame.drop_nulls("pair")
    assert (both.group_by("pair").agg(pl.col("group").n_unique())["group"] == 1).all()


@exact
def no_pairs_of_the_role_that_begins() -> None:
    """A and B differ and have no parent: they are not compared."""
    context = told()
    paired = sibling_pairs()(correct_nodes()(tree(), context), context).frame.filter(pl.col("pair").is_not_null())
    assert "generator" not in paired["policy"].to_list()


@exact
def the_generator_stays_as_it_was_cloned() -> None:
    """The last phase leaves its table as it was, bit for bit, and moves those of the other two."""
    held = {}
    for preferred in (0, 2):
        done = learn(made(groups=6, cloned=2, preferred=preferred), seed=3)
        assert [line["phase"] for line in done.lines] == ["sample", "clone"] + ["prefer"] * preferred
        held[preferred] = {
            role: np.concatenate([each.detach().numpy().ravel() for each in done.team.learnable[role].parameters()])
            for role in ROLES
        }
    np.testing.assert_array_equal(held[0]["generator"], held[2]["generator"])
    first = done.lines[2]["policies"]  # before an update of its own a policy is its reference, that of its cloning
    np.testing.assert_allclose([first[role]["dpo_loss"] for role in ("verifier", "refiner")], np.log(2), rtol=1e-6)
    for role in ("verifier", "refiner"):
        assert np.abs(held[0][role] - held[2][role]).max() > 1e-3


@exact
def the_sample_is_that_of_the_untrained_team() -> None:
    """The second iteration learns from the rows of the first, with its own iteration number."""
    stage = fixed_data(1)
    first = stage(tree(), told())
    other = Turns(tree().frame.with_columns(iteration=pl.lit(2), reward=pl.lit(0.0)))
    second = stage(other, told())
    assert second["reward"].to_list() == first["reward"].to_list()
    assert set(second["iteration"].to_list()) == {2}


@exact
def every_answer_is_gone_on_from() -> None:
    """Three answers to each of three checks of three drafts; siblings saw the same, cousins did not."""
    policies = {role: TabularPolicy(size, name=role) for role, size in ROLES.items()}
    env = branches(Review, 3, 3, 3)
    team = Team({seat: policies[seat.rpartition("-")[0]] for seat in env().agents})
    frame = rollout(env, team, groups=4, group_size=1, seed=0).frame
    assert frame.group_by("group").len()["len"].to_list() == [39] * 4
    assert frame.filter("leaf").group_by("group").len()["len"].to_list() == [27] * 4
    seen = frame.group_by("group", "parent").agg(pl.col("observation").n_unique(), pl.len())
    assert seen["observation"].to_list() == [1] * len(seen)
    assert seen["len"].to_list() == [3] * len(seen)


def accuracy(*, signs: tuple[float, float, float], questions: int = 1500) -> float:
    """Of the three roles by hand: the verifier doubts a draft unlike its sign; then the refiner says its own sign."""

    def draft(request: Any) -> str:
        return str(request.observation.text.split()[-1])

    def check(request: Any) -> str:
        words = request.observation.text.replace(",", "").split()
        return "fine" if words[1] == words[3] else "wrong"

    def answer(request: Any) -> str:
        words = request.observation.text.replace(",", "").split()
        return str(words[1] if words[2] == "fine" else words[4])

    roles = {"generator": draft, "verifier": check, "refiner": answer}
    team = Team({role: ScriptedPolicy(play, name=role) for role, play in roles.items()})
    turns = rollout(lambda: Review(sure=signs), team, groups=questions, group_size=1, seed=0).frame
    return float(turns.filter(pl.col("agent") == "refiner")["right"].mean())  # type: ignore[arg-type]


@exact
def all_three_are_needed() -> None:
    """With signs that are right .5, .9 and .6 of the time .45 + .05 · .6 + .5 · .975 · .6 = .7725 are answered rightly.

    That is more than the draft's .5 or the refiner's .6.
    """
    expected = 0.5 * (0.9 + 0.1 * 0.6) + 0.5 * (1 - 0.1 / 4) * 0.6
    assert abs(accuracy(signs=(0.5, 0.9, 0.6)) - expected) < 0.035
    assert expected > 0.6 + 0.1
