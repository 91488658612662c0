"""Analyses of teams: `palaestra analyze 'coordination("single")' TURNS`, `palaestra analyze 'synergy(3, fidelity=.9)'`.

TURNS are what a run or a rollout wrote (Parquet), or a table of somebody else's with the same columns.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from palaestra.agents.allocation import Allocation
from palaestra.algebra.messages import EPISODE, messages
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation import teamwork
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.teamwork.diversity import vote_accuracy
from palaestra.evaluation.teamwork.synergy import best_team
from palaestra.evaluation.trials import with_own_keys
from palaestra.foundation.registry import load_object
from palaestra.foundation.search import Candidate, confidence_uct, search


def _turns(file: Path, *needed: str, over: Sequence[str] = ("group", "episode")) -> Turns:
    """A file of turns, with keys (`over`) that neither systems nor tasks share."""
    return Turns(with_own_keys(table(file, *needed), over))


@ANALYSES.register("coordination")
def coordination(baseline: str, by: str = "system") -> Analysis:
    """Returns a function (TURNS file) -> table per system: turns, overhead, success … against the system `baseline`.

    Columns of TURNS: `by`, episode, turn, agent, success.
    """

    def answer(turns: Path) -> pl.DataFrame:
        frame = _turns(turns, by, "episode", "success")
        return teamwork.coordination(frame, baseline=baseline, by=by)

    return answer


@ANALYSES.register("advise")
def advise(
    features: Sequence[str],
    interactions: Sequence[Sequence[str]] = (),
    by: Literal["law", "average"] = "law",
    tokens: float | None = None,
) -> Analysis:
    """Returns a function (CONFIGURATIONS file) -> table per task of null `success`: best architecture by `features`.

    By a fitted law of them, or with by="average" by the mean success of each architecture.

    New tasks are those whose success is null.

    Columns: task, architecture, success, features.
    """
    return lambda runs: teamwork.advise(
        table(runs, "task", "architecture", "success", *features), features, interactions, by=by, tokens=tokens
    )


@ANALYSES.register("importance")
def importance(answer: str = "answer", keep: int | None = None) -> Analysis:
    """Returns a function (TURNS file) -> table per agent: DyLAN importance for the answer, largest first, `keep` rows.

    Columns of TURNS: heard, heard_turn, answers.
    """

    def found(turns: Path) -> pl.DataFrame:
        read = _turns(turns, "heard", "heard_turn", answer).frame
        keys = [key for key in EPISODE if key in read.columns]  # a turn with several calls of tools has a row for each
        frame = Turns(read.unique([*keys, "agent", "turn"], keep="first", maintain_order=True))
        flow = teamwork.importance_flow(frame, messages(frame), answer=answer)
        episodes = frame.codes("episode").size
        by_agent = flow.group_by("agent").agg(pl.len().alias("turns"), pl.col("importance").sum() / episodes)
        ordered = by_agent.sort("importance", "agent", descending=[True, False])
        return ordered if keep is None else ordered.head(keep)

    return found


@ANALYSES.register("hindsight")
def hindsight(verdict: str = "helped", members: Sequence[str] = ()) -> Analysis:
    """Returns a function (TURNS file) -> table per agent: share of episodes it helped by a judge's `verdict` (BOAD).

    Columns of TURNS: agent, episode and `verdict`.
    """
    return lambda turns: teamwork.hindsight_credit(_turns(turns, "agent", "episode", verdict), verdict, members=members)


@ANALYSES.register("flips")
def flips(score: str = "score", right: float = 1.0, by: str | None = None) -> Analysis:
    """Returns a function (TURNS file) -> table per turn: agents that stay or turn right (`score` >= `right`) or wrong.

    TURNS: `score` of each turn; `by` is counted apart.
    """
    return lambda turns: teamwork.flips(_turns(turns, score), score=score, right=right, by=by)


@ANALYSES.register("channels")
def channels(embedding: str = "embedding", over: str | Sequence[str] = ("group", "turn")) -> Analysis:
    """Returns a function (TURNS file) -> table per group and turn (`over`): effective number of different answers.

    TURNS have embeddings as lists of numbers.
    """
    keys = (over,) if isinstance(over, str) else tuple(over)
    return lambda turns: teamwork.channels(_turns(turns, embedding, over=keys), embedding=embedding, over=keys)


@ANALYSES.register("added_channels")
def added_channels(embedding: str = "embedding", over: str | Sequence[str] = ("group", "turn")) -> Analysis:
    """Returns a function (TURNS file) -> table per agent: effective number of different answers that it adds, mean.

    Columns of TURNS: agent, and embeddings as lists of numbers.
    """
    keys = (over,) if isinstance(over, str) else tuple(over)
    return lambda turns: teamwork.added_channels(
        _turns(turns, embedding, "agent", over=keys), embedding=embedding, over=keys
    )


@ANALYSES.register("members")
def members(
    most: int,
    by: Literal["channels", "lot"] = "channels",
    embedding: str = "embedding",
    over: str | Sequence[str] = ("group", "turn"),
    seed: int = 0,
) -> Analysis:
    """Returns a function (TURNS file) -> table: at most `most` members with the most effective channels, or by lot.

    Columns of TURNS: agent and embeddings.
    """
    keys = (over,) if isinstance(over, str) else tuple(over)

    def answer(turns: Path) -> pl.DataFrame:
        frame = _turns(turns, embedding, "agent", over=keys)
        if by == "lot":
            agents = frame["agent"].cast(pl.String).unique().sort()
            return pl.DataFrame({"agent": agents.sample(min(most, len(agents)), shuffle=True, seed=seed)})
        return teamwork.diverse_members(frame, most, embedding=embedding, over=keys)

    return answer


@ANALYSES.register("vote")
def vote(signal: float, correlation: float = 0.0) -> Analysis:
    """Returns a function () -> table per n = 1, 2, 4 … 64: accuracy of a vote of n members of equal `signal`.

    signal: mean of a member's normal evidence, whose variance is 1; correlation: of two members' noise.
    """
    sizes = (1, 2, 4, 8, 16, 32, 64)
    return lambda: pl.DataFrame({"n": sizes, "right": [vote_accuracy(signal, n, correlation) for n in sizes]})


@ANALYSES.register("contribution")
def contribution(embedding: str = "embedding", over: str | Sequence[str] = ("group", "turn")) -> Analysis:
    """Returns a function (TURNS file) -> table per agent: mean cosine of its answers to the team's mean (SelfOrg's ψ).

    TURNS have embeddings.
    """
    keys = (over,) if isinstance(over, str) else tuple(over)

    def answer(turns: Path) -> pl.DataFrame:
        frame = _turns(turns, embedding, "agent", over=keys)
        psi = pl.Series("contribution", teamwork.cosine_contribution(frame, embedding=embedding, over=keys))
        return frame.frame.select("agent", psi.fill_nan(None)).group_by("agent").agg(
            pl.len().alias("turns"), pl.col("contribution").mean()
        ).sort("contribution", descending=True)  # fmt: skip

    return answer


@ANALYSES.register("synergy")
def synergy(branch: int = 3, fidelity: float = 1.0, correlation: float = 0.0) -> Analysis:
    """Returns a function () -> table of a majority tree's gain alpha, exponent, fixed signal, survival (alpha > 1)."""

    def answer() -> pl.DataFrame:
        found = teamwork.synergy(branch, fidelity, correlation)
        return pl.DataFrame([{"branch": branch, **found._asdict(), "survives": found.alpha > 1}])

    return answer


@ANALYSES.register("tree")
def tree(
    budget: float,
    scale: float,
    exponent: float,
    fidelity: float = 1.0,
    correlation: float = 0.0,
    window: int | None = None,
    message: int = 1,
) -> Analysis:
    """Returns a function () -> table: best tree of votes at `budget`, agents of `scale`, `exponent`, against one agent.

    It reads no file.

    See `best_team`.
    """

    def answer() -> pl.DataFrame:
        found = best_team(
            budget,
            scale=scale,
            exponent=exponent,
            fidelity=fidelity,
            correlation=correlation,
            window=window,
            message=message,
        )
        alone = min(1.0, scale * budget**exponent)
        return pl.DataFrame([{"team": found.depth > 0, **found._asdict(), "alone": alone}])

    return answer


@ANALYSES.register("best_of")
def best_of(chance: float, tpr: float = 1.0, fpr: float = 0.0) -> Analysis:
    """Returns a function () -> table per n = 1, 2, 4 … 64: accuracy of best-of-n by a verifier; `chance` of a try.

    It reads no file; the verifier has error rates.
    """
    return lambda: pl.DataFrame(
        [{"n": n, "right": teamwork.best_of_n(chance, n, tpr=tpr, fpr=fpr)} for n in (1, 2, 4, 8, 16, 32, 64)]
    )


@ANALYSES.register("personas")
def personas() -> Analysis:
    """Returns a function (TABLE file) -> table per `method`: mean score and counts of texts that play personas (SPP).

    Columns of TABLE: method, text, right.
    """
    return lambda rows: teamwork.scored_personas(table(rows, "text", "right"))


@ANALYSES.register("budget")
def budget(cost: float | None = None, score: float | None = None, kind: str = "cost") -> Analysis:
    """Returns a function (POINTS file) -> one-row table: best score within `cost`, least cost of `score`, if given.

    Columns of POINTS: `system`, `score`, and the column `kind`.

    kind: of cost, such as tokens, seconds, steps or calls.
    """

    def answer(points: Path) -> pl.DataFrame:
        frame = table(points, "system", "score", kind)
        rows: dict[str, float | None] = {}
        if cost is not None:
            rows["score_at_cost"] = teamwork.score_at_cost(frame, cost, cost=kind)
        if score is not None:
            rows["cost_at_score"] = teamwork.cost_at_score(frame, score, cost=kind)
        return pl.DataFrame([rows])

    return answer


@ANALYSES.register("settings")
def settings(factors: Sequence[str], by: Literal["cost", "success"] = "cost") -> Analysis:
    """Returns a function (ATTEMPTS file) -> table per column of `factors`: best setting by cost per success (`by`).

    Columns of ATTEMPTS: task, success, cost.
    """
    return lambda attempts: teamwork.best_settings(table(attempts, "task", "success", "cost", *factors), factors, by=by)


@ANALYSES.register("cheapest")
def cheapest(kind: str) -> Analysis:
    """Returns a function (ATTEMPTS file) -> table per value of column `kind`: system with the least cost per success.

    Columns of ATTEMPTS: system, task, success, cost, `kind`.
    """
    return lambda attempts: teamwork.cheapest(table(attempts, "system", "task", "success", "cost", kind), kind)


@ANALYSES.register("cost_over_levels")
def cost_over_levels(over: str = "level") -> Analysis:
    """Returns a function (ATTEMPTS file) -> table per system: cost per solved task, a mean over values of `over`.

    Columns of ATTEMPTS: system, task, success, cost and `over`.
    """
    return lambda attempts: teamwork.cost_over_levels(table(attempts, "system", "task", "success", "cost", over), over)


@ANALYSES.register("conversation")
def conversation(
    shared: int, prompts: Sequence[int], outputs: Sequence[int], cached: float = 0.1, models: Sequence[str] = ()
) -> Analysis:
    """Returns a function () -> one-row table: cost of tokens `shared`, `prompts`, `outputs` as team and cached chat.

    It reads no file.
    """

    def answer() -> pl.DataFrame:
        team, alone = teamwork.workflow_cost(shared, prompts, outputs, cached=cached, models=models)
        return pl.DataFrame([{"team": team, "one_conversation": alone, "saved": 1 - alone / team}])

    return answer


@ANALYSES.register("decisions")
def decisions(threshold: float = 0.5, audit: bool = True) -> Analysis:
    """Returns a function (DECISIONS file) -> table per system: quality of proposed actions, checks for constant ones.

    Columns of DECISIONS: system, case, actions, truth.
    """

    def answer(rows: Path) -> pl.DataFrame:
        frame = table(rows, "system", "case", "actions", "truth")
        found = teamwork.decision_quality(frame, threshold=threshold)
        return found if audit else found.drop("variance", "elsewhere", "constant")

    return answer


@ANALYSES.register("modules")
def modules(score: str = "success", task: str = "task", pairs: bool = False) -> Analysis:
    """Returns a function (RUNS file) -> table per module of `coalition`: Shapley value; `pairs`: interactions.

    Columns of RUNS: coalition, task, `score`.
    """
    ask = teamwork.module_interactions if pairs else teamwork.module_values
    return lambda runs: ask(table(runs, "coalition", score, task), score=score, task=task)


@ANALYSES.register("compose")
def compose(
    budget: float,
    top: int = 5,
    weights: Mapping[str, float] | None = None,
    by: Literal["tried", "described"] = "tried",
) -> Analysis:
    """Returns a function (TRIALS file) -> table per component: `accepted` into a team within `budget`, skills covered.

    Columns of TRIALS: component, cost, skill, similarity, verdict of a sandbox.

    by: what was tried, or what is described best for each skill, as far as the budget goes.
    """

    def answer(trials: Path) -> pl.DataFrame:
        frame = table(trials, "component", "cost", "skill", "similarity", "verdict")
        if by == "tried":
            return teamwork.compose(frame, budget, weights=weights, top=top)
        taken = teamwork.retrieve(frame, budget, weights=weights)
        own = frame.with_columns(pl.col("component").cast(pl.String)).filter(pl.col("component").is_in(taken))
        covers = pl.col("skill").filter(pl.col("verdict") > 0)
        return own.group_by("component", maintain_order=True).agg(
            pl.col("cost").first(), accepted=pl.lit(True), covers=covers
        )

    return answer


@ANALYSES.register("auction")
def auction(cost: float = 1.0, entropy: float = 0.0, jury: float = 1.0) -> Analysis:
    """Returns a function (BIDS file) -> its rows with `score` and `winner`, the least score of each task (SALE).

    Columns of BIDS: task, agent, price, tokens, jury (marks), entropy.
    """
    weights = teamwork.Weights(cost, entropy, jury)
    return lambda bids: teamwork.award(table(bids, "task", "agent", "price", "tokens", "jury"), weights)


@ANALYSES.register("contest")
def contest(window: int = 5, method: Allocation = "positive", most: int = 3) -> Analysis:
    """Returns a function (REWARDS file) -> table per day: `earned` if work is shared by past rewards, and if `equal`.

    Columns of REWARDS: day, agent, reward.
    """

    def answer(rewards: Path) -> pl.DataFrame:
        found = teamwork.contest(table(rewards, "day", "agent", "reward"), window=window, method=method, most=most)
        part = pl.col("weight") * pl.col("reward")
        leads = pl.col("agent").sort_by("weight", descending=True).first()
        return found.group_by("day", maintain_order=True).agg(
            earned=part.sum(), equal=pl.col("reward").mean(), invested=pl.col("weight").sum(), most_on=leads
        )

    return answer


@ANALYSES.register("gap")
def gap(by: str = "pair") -> Analysis:
    """Returns a function (RUNS file) -> table per pair: success alone (`condition` solo) less that together (joint).

    Columns of RUNS: `by`, task, condition (solo, solo_halves, joint), success.
    """
    return lambda runs: teamwork.collaboration_gap(table(runs, by, "task", "condition", "success"), by=by)


@ANALYSES.register("order")
def order(by: str = "pair") -> Analysis:
    """Returns a function (RUNS file) -> table per unequal pair: success if the stronger begins less if the weaker does.

    Columns of RUNS: `by`, task, order (strong_first, weak_first), success.
    """
    return lambda runs: teamwork.order_effect(table(runs, by, "task", "order", "success"), by=by)


@ANALYSES.register("specialists")
def specialists(score: str = "success", spread: float = 0.165) -> Analysis:
    """Returns a function (RUNS file) -> table per module: win rate of the whole over it without the module, kind.

    A win is of one model: the whole team scores more than without the module, summed over tasks. kind: universal, helps
    all models, or conditional, some.

    Does it help every model, or some?

    RUNS (with all, without each): model, coalition, task, `score`.
    """
    return lambda runs: teamwork.module_utility(
        teamwork.removals(table(runs, "model", "coalition", "task", score), score=score), spread=spread
    )


@ANALYSES.register("edges")
def edges(keep: int = 2, eta: float = 0.2) -> Analysis:
    """Returns a function (MESSAGES file) -> table per receiver and sender: score by quality, `kept` if best (OPTAGENT).

    Columns of MESSAGES: sender, receiver, quality, in their order.
    """

    def answer(messages: Path) -> pl.DataFrame:
        frame = table(messages, "sender", "receiver", "quality")
        members = sorted({str(name) for column in ("sender", "receiver") for name in frame[column]})
        scores = teamwork.EdgeScores(members, eta)
        scores.update(frame)
        return scores.table(keep)

    return answer


@ANALYSES.register("designs")
def designs(score: str = "score", most: int = 5, kappa: float = 1.0) -> Analysis:
    """Returns a function (DESIGNS file, a column per slot) -> table of untried agent designs to try next (AgentSwift).

    DESIGNS: a column per slot, and `score`.
    """
    return lambda tried: teamwork.propose(table(tried, score), score, most=most, kappa=kappa)


@ANALYSES.register("search_designs")
def search_designs(
    evaluate: str,
    budget: int = 60,
    *,
    by: Literal["guided", "unguided", "climb"] = "guided",
    repeats: int = 1,
    seed: int = 0,
) -> Analysis:
    """Returns a function (SLOTS.json) -> table per design tried in a search, scored by `evaluate`, a "module:function".

    SLOTS: name: options.

    by: a tree guided by a surrogate, the tree without it, or a greedy climb. repeats: searches that know nothing of
    each other.
    """
    play = load_object(evaluate, "evaluate")

    def answer(slots: Path) -> pl.DataFrame:
        options = json.loads(slots.read_text(encoding="utf-8"))
        parts = []
        for number in range(repeats):
            rng = np.random.default_rng([seed, number])
            found = (
                teamwork.climb(options, play, budget=budget, rng=rng)
                if by == "climb"
                else teamwork.guided_search(options, play, budget=budget, rng=rng, guided=by == "guided")
            )
            parts.append(found.select(pl.lit(number).alias("search"), pl.all()))
        return pl.concat(parts, how="vertical_relaxed")

    return answer


@ANALYSES.register("tree_search")
def tree_search(budget: int, c: float = 0.3, trust: float = 2.0) -> Analysis:
    """Returns a function (NODES file) -> table: steps of MASTER's tree search with `budget` on a recorded tree.

    Columns of NODES: node, parent (none: root), reward, confidence, terminal, valid.
    """

    def answer(nodes: Path) -> pl.DataFrame:
        frame = table(nodes, "node", "parent", "reward", "confidence", "terminal", "valid")
        roots = frame.filter(pl.col("parent").is_null())
        if len(roots) != 1:
            raise InputError(f"{nodes}: {len(roots)} nodes have no parent; one is the root")
        below = {key: part.to_dicts() for (key,), part in frame.group_by("parent", maintain_order=True)}
        valid = dict(frame.select("node", "valid").iter_rows())
        steps: list[dict[str, object]] = []

        def expand(node: str) -> list[Candidate]:
            steps.append({"node": node, "done": "expanded"})
            return [
                Candidate(row["node"], float(row["reward"]), float(row["confidence"]), bool(row["terminal"]))
                for row in below.get(node, ())
            ]

        def validate(node: str) -> bool:
            steps.append({"node": node, "done": "passed" if valid[node] else "failed"})
            return bool(valid[node])

        select = functools.partial(confidence_uct, c=c, trust=trust)
        found = search(roots["node"][0], expand, validate, budget=budget, select=select)
        return pl.DataFrame([*steps, {"node": found.item, "done": "answer"}])

    return answer
