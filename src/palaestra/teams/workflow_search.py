"""Search over workflows: a designer proposes edits, a critic reviews them, results stand in a tree ([140] OneFlow).

    search_workflows(WorkflowDesign("chain", ("solver",)), evaluate, ["solver", "checker"], budget=24, rng=rng)

arXiv 2601.12307. There designer and critic are language models (`palaestra.judges.workflow_seats` has those); the rules
here are a smaller form: edits are drawn, and a surrogate of the rewards so far says which one to evaluate. The choice
of the node to edit is AgentSwift's and AFlow's mixture; the reward's form is a reconstruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.dominance import nondominated
from palaestra.foundation.search import SearchTree, soft_mixed
from palaestra.teams.workflow_edits import SHAPES, WorkflowDesign

Evaluate = Callable[[WorkflowDesign], tuple[float, float]]
"""From a workflow to its accuracy and its cost."""
Row = dict[str, Any]
PATIENCE = 3
"""Steps per evaluation, at most: those of which every proposal was rejected or could not be read evaluate nothing."""
_SCHEMA: Mapping[str, Any] = {
    "step": pl.Int64, "parent": pl.Int64, "status": pl.String, "edit": pl.String, "workflow": pl.String,
    "nodes": pl.Int64, "accuracy": pl.Float64, "cost": pl.Float64, "reward": pl.Float64, "reason": pl.String,
    "tokens": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True)
class SearchStep:
    """Data that designer and critic read at a step of the search over workflows.

    Attributes:
        number: of the step, from 1.
        design: the workflow to edit.
        edits: text of each edit of it that nobody tried, and the workflow that it makes.
        row: what is known of `design`, a row of the table.
        tried: workflows that were evaluated, and their rows.
        rejected: edits of `design` that the critic turned down.
    """

    number: int
    design: WorkflowDesign
    edits: Mapping[str, WorkflowDesign]
    row: Row
    tried: Sequence[tuple[WorkflowDesign, Row]]
    rejected: Sequence[str] = ()


@dataclass(frozen=True)
class Proposed:
    """Data of a designer's proposal: one of the step's edits, None if the reply was unreadable, its text and tokens."""

    edit: str | None
    said: str = ""
    tokens: int = 0


@dataclass(frozen=True)
class Review:
    """Data of a critic's verdict on a proposed edit: accepted (None: it could not be read), the reason, and tokens."""

    accepted: bool | None
    reason: str = ""
    tokens: int = 0


Designer = Callable[[SearchStep, np.random.Generator], Sequence[Proposed]]
Critic = Callable[[SearchStep, Sequence[str], np.random.Generator], Sequence[Review]]


def drawn_edits(width: int = 8) -> Designer:
    """Makes a designer that draws `width` different edits, each as likely as the others."""
    if width < 1:
        raise InputError(f"drawn_edits: {width=} must be at least 1")

    def propose(step: SearchStep, rng: np.random.Generator) -> list[Proposed]:
        made = {design: text for text, design in step.edits.items()}
        texts = list(made.values())
        return [Proposed(texts[at]) for at in rng.permutation(len(texts))[:width]]

    return propose


def surrogate_critic(roles: Sequence[str], ridge: float = 0.1) -> Critic:
    """Makes a critic that accepts, of the edits proposed, the one whose workflow has the best predicted reward.

    Rewards are predicted by ridge regression on the `features` of what was evaluated so far.

    Args:
        roles: those that can stand in a workflow.
        ridge: weight of the squared coefficients.
    """

    def review(step: SearchStep, edits: Sequence[str], rng: np.random.Generator) -> list[Review]:
        known = np.array([features(design, roles) for design, _ in step.tried], float)
        rewards = np.array([row["reward"] for _, row in step.tried])
        penalty = ridge * np.eye(known.shape[1])
        weights = np.linalg.solve(known.T @ known + penalty, known.T @ (rewards - rewards.mean()))
        predicted = rewards.mean() + np.array([features(step.edits[edit], roles) for edit in edits]) @ weights
        best = int(np.argmax(predicted))
        return [
            Review(at == best, f"a reward of {value:.3f} is predicted") for at, value in enumerate(predicted.tolist())
        ]

    return review


def features(design: WorkflowDesign, roles: Sequence[str]) -> list[int]:
    """Features of a workflow, 0 or 1: its shape, whether each role stands in it, and again, and which of two is first.

    >>> features(WorkflowDesign("chain", ("b", "a")), ["a", "b"])
    [1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1]
    """
    first = {role: design.roles.index(role) for role in roles if role in design.roles}
    pairs = [(a, b) for at, a in enumerate(roles) for b in roles[at + 1 :]]
    return [
        *(int(design.shape == shape) for shape in SHAPES),
        *(int(role in first) for role in roles),
        *(int(design.roles.count(role) > 1) for role in roles),
        *(int(a in first and b in first and first[a] < first[b]) for a, b in pairs),
        *(int(a in first and b in first and first[a] > first[b]) for a, b in pairs),
    ]


def search_workflows(
    start: WorkflowDesign,
    evaluate: Evaluate,
    roles: Sequence[str],
    *,
    budget: int,
    rng: np.random.Generator,
    price: float = 0.1,
    most: int = 6,
    designer: Designer | None = None,
    critic: Critic | None = None,
    alpha: float = 10.0,
    mix: float = 0.2,
    write: Callable[[WorkflowDesign], str] = WorkflowDesign.text,
) -> pl.DataFrame:
    """Table of a search over workflows: edits of `start` and of what comes of it, `budget` evaluations at most.

    A step draws an evaluated workflow by `soft_mixed` of the mean reward of it and all below it, has the designer
    propose edits of it, and evaluates the first that the critic accepts. The reward is accuracy - price · cost / cost
    of `start`, so that with price=0.1 what costs as much as the start once more must bring ten points.

    Args:
        start: the first workflow, which is evaluated first.
        evaluate: a workflow -> (accuracy, cost).
        roles: those that an edit can add.
        budget: evaluations at most.
        rng: of all draws.
        price: λ, weight of the cost.
        most: nodes of a workflow at most.
        designer: default, `drawn_edits()`.
        critic: such as `surrogate_critic(roles)`; None: the first proposal is evaluated.
        alpha: sharpness of the choice of the workflow to edit.
        mix: share of that choice that is uniform.
        write: text of a workflow for the table.

    Returns:
        A row per step: step, parent (its step), status (evaluated; rejected, by the critic; unread, what designer or
        critic said), edit, workflow, nodes, accuracy, cost, reward, reason (of the critic; what could not be read),
        tokens (of replies of designer and critic), pareto (no other has as much accuracy for less), best (the largest
        reward; of equal ones the fewest nodes).

    Raises:
        InputError: the budget is below 1, the price below 0, no role is given, or the start is free of cost.
    """
    if budget < 1 or not price >= 0 or not roles or len(start.roles) > most:
        raise InputError(
            f"search_workflows: budget={budget} must be at least 1, price={price} at least 0, roles={list(roles)} "
            f"not empty, and start has {len(start.roles)} nodes of at most most={most}"
        )
    designer = designer or drawn_edits()
    tree, tried, rows = SearchTree(start), dict[WorkflowDesign, Row](), list[Row]()
    rejected: dict[WorkflowDesign, list[str]] = {}
    edits: dict[WorkflowDesign, dict[str, WorkflowDesign]] = {}
    base = 0.0

    def record(status: str, parent: Row | None, **told: Any) -> Row:
        row = {"step": len(rows), "parent": parent and parent["step"], "status": status} | told
        rows.append(row)
        return row

    def add(design: WorkflowDesign, parent: int | None, **told: Any) -> None:
        nonlocal base
        accuracy, cost = evaluate(design)
        if parent is None and not cost > 0:
            raise InputError(f"search_workflows: the start {design.text()} costs {cost}; its cost must be above 0")
        base = base or cost
        reward = accuracy - price * cost / base
        above = None if parent is None else tried[tree.items[parent]]
        known = {"workflow": write(design), "nodes": len(design.roles), "accuracy": accuracy, "cost": cost}
        tried[design] = record("evaluated", above, **told, **known, reward=reward)
        edits[design] = design.edits(roles, most=most)
        tree.back(0 if parent is None else tree.add(design, parent), reward)

    def untried(design: WorkflowDesign) -> Iterator[tuple[str, WorkflowDesign]]:
        out = {edits[design][edit] for edit in rejected.get(design, ())}
        return ((edit, made) for edit, made in edits[design].items() if made not in tried and made not in out)

    add(start, None)
    for number in range(1, PATIENCE * budget):
        able = [at for at, each in enumerate(tree.items) if next(untried(each), None)]
        if len(tried) == budget or not able:
            break
        mean = (tree.total / tree.visits)[able]
        at = able[int(rng.choice(len(able), p=soft_mixed(mean, np.zeros(len(able)), alpha=alpha, beta=0, mix=mix)))]
        design = tree.items[at]
        open_, refused = dict(untried(design)), rejected.setdefault(design, [])
        step = SearchStep(number, design, open_, tried[design], list(tried.items()), tuple(refused))
        proposed = designer(step, rng)
        for each in proposed:
            if each.edit is None:
                record("unread", tried[design], reason=f"designer: {each.said}", tokens=each.tokens)
        texts = list(dict.fromkeys(each.edit for each in proposed if each.edit is not None))
        if not texts:
            continue
        spent = {each.edit: each.tokens for each in proposed}
        reviews = critic(step, texts, rng) if critic else [Review(True)] * len(texts)
        spent |= {edit: spent[edit] + review.tokens for edit, review in zip(texts, reviews, strict=True)}
        accepted = [edit for edit, review in zip(texts, reviews, strict=True) if review.accepted]
        for edit, review in zip(texts, reviews, strict=True):
            told: Row = {"edit": edit, "reason": review.reason or None, "tokens": spent[edit]}
            if accepted:
                if edit == accepted[0]:
                    add(open_[edit], at, **told | {"tokens": sum(spent[each] for each in texts)})
            elif review.accepted is None:
                record("unread", tried[design], **told | {"reason": f"critic: {review.reason}"})
            else:
                refused.append(edit)
                record("rejected", tried[design], **told)
    return _marked(rows)


def _marked(rows: Sequence[Row]) -> pl.DataFrame:
    table = pl.DataFrame([{name: row.get(name) for name in _SCHEMA} for row in rows], schema=dict(_SCHEMA))
    known = table.filter(pl.col("status") == "evaluated")
    front = known.filter(pl.Series(nondominated(known.select(-pl.col("cost"), "accuracy").to_numpy())))["step"]
    best = known.sort("reward", "nodes", descending=[True, False], maintain_order=True)["step"][0]
    return table.with_columns(pareto=pl.col("step").is_in(front.to_list()), best=pl.col("step") == best)
