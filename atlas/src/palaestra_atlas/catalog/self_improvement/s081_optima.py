"""[81] Optima (arXiv 2410.08115): conversations that are effective, short and readable, by cloning and tree DPO.

Two speakers know a number each. The reward is success, less the conversation's share of the longest one's words, plus
one over the loss of its least likely utterance under a base language model, here word pairs of eight sentences. Phases
alternate: cloning of the best of ten conversations, and DPO on siblings of a tree of conversations. Left out: language
models of billions of weights, the pool of format prompts, training anew from the base model in every round; all pairs
of a tree are learned from, where the paper keeps that half of a task's whose chosen ones are worth most.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import backup
from palaestra.envs.worlds import Exchange
from palaestra.judges.value_pairs import mine
from palaestra.learning.stages import Context
from palaestra.learning.stages.selection import keep, pairs
from palaestra.learning.stages.text_loss import BigramModel, text_loss
from palaestra.play.rollout import rollout
from palaestra.rewards import optima_reward
from palaestra.runs.inline import learn
from palaestra.teams import turn_tree
from palaestra.teams.turn_tree import TurnNode, expandable, softmax_chances
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure

SENTENCES = (
    "my number is 0", "my number is 1", "my number is 2", "my number is 3", "we are done", "thank you for asking",
    "let me think about it for a while please", "let me tell you that my number is 2",
)  # fmt: skip
"""Training texts of the base language model."""
TREE = ("group", "episode")
VALUE = 'backup("reward", over=("group", "episode"), method="rollouts")'
PAIRS = (
    f'pairs({VALUE!r}, by=("group", "episode", "parent"), per="best_worst", unit="turn", min_gap=0.4, min_chosen=0.2)'
)
BEST = [
    'keep("episode_return()", by="group", top=1, ties="first", drop=True)',
    'keep("episode_return()", between=[0.5, None], quantile=[0.2, 0.9])',
]
"""The best of each task's conversations, of which those above .5 and between two ranks are cloned."""


def made(corpus: str, *, rounds: int = 5, length: int = 10, tasks: int = 16) -> dict[str, Any]:
    """The recipe. rounds: of both fits. length: iterations of a fit. tasks: of an iteration of cloning."""
    loss, iterations = f"text_loss({corpus!r})", 2 * rounds * length
    phases = [
        {"name": "clone", "until": length},
        {
            "name": "prefer", "until": length, "env": {"workflow": "turn_tree(8, 3)"}, "stages": [loss, PAIRS],
            "learn": {"terms": "dpo(beta=0.2)"}, "train": {"groups": max(tasks // 4, 1), "group_size": 1},
        },
    ]  # fmt: skip
    return {
        "name": "optima",
        "env": {"make": "native/exchange", "options": {"values": 10}, "workflow": "turn_tree(1, 1, seats=3)"},
        "policies": {name: {"kind": "tabular", "options": {"actions": 5}} for name in Exchange.agents},
        "team": {f"{name}-{k}": name for name in Exchange.agents for k in (1, 2, 3)},
        "reward": "optima_reward()",
        "stages": [loss, *BEST],
        "credit": "grpo()",
        "learn": {"lr": 0.1, "terms": 'clone(column="kept")'},
        "phases": [{"alternate": phases, "repeat": rounds}],
        "train": {
            "iterations": iterations, "groups": tasks, "group_size": 10, "evaluate_every": iterations,
            "checkpoint_every": iterations, "save_turns": "all",
        },
        "evaluation": {"tasks": 300, "trials": 1, "look_tasks": 5, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes the base model's text, `corpus.txt`, and the recipe, `optima.yaml`."""
    (folder / "corpus.txt").write_text("\n".join(SENTENCES))
    (folder / "optima.yaml").write_text(json.dumps(made("corpus.txt")))


def words_per_success() -> Measure:
    """Words of all held-out conversations of the trained team for each one in which both numbers were known."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after", pl.col("leaf"))
            found.append(float(table["words"].sum()) / max(float(table["success"].sum()), 1.0))
        return found

    return measured


def told() -> Context:
    """Context of a stage that asks nobody."""
    return Context(np.random.default_rng(0), 1, env=None, team=None, executor=None)  # type: ignore[arg-type]


@exact
def worked_reward() -> None:
    """F1 .8, 60 of at most 120 tokens and a worst loss of 2.5 are worth .8 - .6 · .5 + 1 / 2.5 = .9."""
    rows = {"group": [0] * 3, "episode": [0, 0, 1], "node": ["0.1", "0.1.1", "0.1"], "parent": ["0", "0.1", "0"]}
    rows |= {"leaf": [False, True, True], "words": [20, 60, 120], "text_loss": [2.5, 1.0, 2.0]}
    turns = Turns(rows | {"reward": [0.0, 0.8, 0.0]})
    np.testing.assert_allclose(np.asarray(optima_reward().evaluate(turns), float), [0, 0.9, -0.1])
    apart = Turns(turns.frame.with_columns(group=pl.col("episode")))
    np.testing.assert_allclose(np.asarray(optima_reward().evaluate(apart), float), [0, 0.6, -0.1])


@exact
def codes_are_less_likely_than_sentences() -> None:
    """The base model's loss of a sentence is below 1.2, that of a code above 3.5; the stage gives each row its own."""
    base = BigramModel(SENTENCES)
    assert base.loss("my number is 2") < 1.2 < 3.5 < base.loss("#2")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "corpus.txt").write_text("\n".join(SENTENCES))
        stage = text_loss(str(Path(folder) / "corpus.txt"))
        found = stage(Turns({"action": ["#2", "my number is 2", None]}), told())["text_loss"].to_list()
    assert found == [base.loss("#2"), base.loss("my number is 2"), None]


@exact
def best_of_a_task_above_a_threshold_within_a_band() -> None:
    """Of two conversations the better; of five tasks' best .3 is below .5, and .95 is the first of all ranks."""
    best = [0.3, 0.6, 0.7, 0.8, 0.95]
    rewards = [each for value in best for each in (value, value - 0.2)]
    rows = {"group": [k // 2 for k in range(10)], "episode": [0, 1] * 5, "turn": [0] * 10, "reward": rewards}
    first = keep("episode_return()", by="group", top=1, ties="first", drop=True)(Turns(rows), told())
    assert first["reward"].to_list() == best
    metrics = told()
    second = keep("episode_return()", between=[0.5, None], quantile=[0.2, 0.9])(first, metrics)
    assert second.frame.filter("kept")["reward"].to_list() == [0.6, 0.7, 0.8]
    assert (metrics.metrics["dropped_between"], metrics.metrics["dropped_quantile"]) == (1, 1)


@exact
def chances_of_expansion() -> None:
    """Values .9, .5 and .1 give .4718, .3162 and .2120; with room for two nodes the third has none."""
    np.testing.assert_allclose(softmax_chances([0.9, 0.5, 0.1]), [0.4718, 0.3162, 0.2120], atol=5e-5)
    np.testing.assert_allclose(softmax_chances([0.1, 0.9, 0.5], most=2), [0, 0.5987, 0.4013], atol=5e-5)
    node = TurnNode("0")
    for value in (1.0, 0.0, 0.2):
        node.add(value)
    assert abs(node.value - 0.4) < 1e-12, "the mean of what came of it"


def tree(*, values: int = 100, expansions: int = 8) -> pl.DataFrame:
    """One tree of two speakers who mostly tell their numbers in sentences that differ in a letter at most."""

    def play(request: Any) -> int:
        return int(request.rng.choice([0, 2, 3, 4], p=[0.3, 0.2, 0.3, 0.2]))

    env = turn_tree(lambda: Exchange(values=values), expansions, 3)
    policies = {name: ScriptedPolicy(play, name=name) for name in Exchange.agents}
    team = Team({seat: policies[seat.partition("-")[0]] for seat in env().agents})
    return rollout(env, team, groups=4, group_size=1, seed=0).frame


@exact
def nodes_that_may_be_expanded() -> None:
    """No leaf, no parent of one, and no conversation like an expanded one; the start is expanded first."""
    far, near = "my number is 3", "we are done"
    nodes = {name: TurnNode(name, talk=talk) for name, talk in (("1", far), ("2", near), ("3", f"{near}!"), ("4", "#"))}
    for name, node in nodes.items():
        node.children = [TurnNode(f"{name}.1", children=[TurnNode(f"{name}.1.1")])]
    nodes["4"].children = [TurnNode("4.1")]
    root = TurnNode("0", expanded=True, children=list(nodes.values()))
    assert [each.name for each in expandable(root)] == ["1", "2", "3"], "4 is the parent of a leaf"
    nodes["2"].expanded = True
    assert [each.name for each in expandable(root)] == ["1"]


@exact
def later_conversations_share_a_beginning() -> None:
    """A part of the 24 conversations of a tree begins at an inner node, so first utterances are fewer."""
    frame = tree()
    leaves = frame.filter("leaf").group_by("group").len()["len"].to_list()
    assert leaves == [24] * 4
    assert (frame.filter(pl.col("parent") == "0").group_by("group").len()["len"] < 24).all()


@exact
def near_duplicates_are_one_node() -> None:
    """No two children of a node say the same and go on alike; several rows are one node instead."""
    frame = tree().unique(["group", "node"])
    assert len(frame) < len(tree())
    assert frame.select("group", "parent", "action", "leaf").is_duplicated().sum() == 0


@exact
def values_are_means_of_rollouts() -> None:
    """Three rollouts below a node, two of which are one leaf, with 1, 0 and 1: the node is worth 2/3, not 3/4."""
    rows = {"group": [0] * 4, "node": ["0.1", "0.1.1", "0.1.1", "0.1.2"], "parent": ["0", "0.1", "0.1", "0.1"]}
    found = backup(method="rollouts").evaluate(Turns(rows | {"reward": [0.0, 1.0, 0.0, 1.0]}))
    np.testing.assert_allclose(np.asarray(found, float), [2 / 3, 1 / 2, 1 / 2, 1])


@exact
def a_lucky_silence_is_no_best_answer() -> None:
    """Silence is worth 1.2 in one of five rollouts, a told number 1 in two of three: the latter is chosen."""
    said = ["we are done"] * 5 + ["my number is 3"] * 3
    node, won = ["0.1"] * 5 + ["0.2"] * 3, [0.0, 0, 0, 0, 1.2, 1, 0, 1]
    turns = Turns({"group": [0] * 8, "episode": [0] * 8, "node": node, "parent": ["0"] * 8, "action": said,
                   "reward": won})  # fmt: skip
    found, _ = mine(turns, backup(over=TREE, method="rollouts"), (*TREE, "parent"), per="best_worst", unit="row")
    assert said[found["chosen"][0]] == "my number is 3"


@exact
def pairs_of_a_good_child_and_a_much_worse_one() -> None:
    """Best and worst of three differ by .6; elsewhere the best is at .15, the gap is .3, or there is one child."""
    rows = {"group": [0] * 8, "episode": [0] * 8, "turn": [0] * 8, "action": list("abcdefgh")}
    rows |= {"node": list("ABCDEFGH"), "parent": ["p", "p", "q", "q", "r", "r", "s", "p"]}
    rows |= {"reward": [0.9, 0.3, 0.15, -0.5, 0.9, 0.6, 1.0, 0.4]}
    metrics = told()
    stage = pairs(VALUE, by=(*TREE, "parent"), per="best_worst", unit="turn", min_gap=0.4, min_chosen=0.2)
    found = stage(Turns(rows), metrics).frame.drop_nulls("pair")
    assert sorted(found["action"].to_list()) == ["a", "b"]
    assert metrics.metrics["kept"] == 1


@exact
def fits_take_turns() -> None:
    """Two rounds of one iteration each are clone, prefer, clone, prefer; each has the loss of its own fit."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "corpus.txt"
        file.write_text("\n".join(SENTENCES))
        done = learn(made(str(file), rounds=2, length=1, tasks=2))
    assert [line["phase"] for line in done.lines] == ["clone", "prefer", "clone", "prefer"]
    assert ["pairs" in line["stages"] for line in done.lines] == [False, True, False, True]
