"""Searches over workflows for a recipe's tasks: `palaestra analyze 'search_workflow(["solver", "checker"])' RECIPE`.

Every workflow is played by one policy of the recipe in all roles; nobody learns. Designer and critic are rules, or
policies of the recipe.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from palaestra.agents.team import Team
from palaestra.errors import InputError, nearest
from palaestra.evaluation.analyses import ANALYSES, Analysis
from palaestra.evaluation.teamwork.price import play_cost
from palaestra.judges.kept_calls import KeptCalls
from palaestra.judges.templates import own_prompts
from palaestra.judges.workflow_seats import model_critic, model_designer
from palaestra.teams.workflow_edits import WorkflowDesign
from palaestra.teams.workflow_search import drawn_edits, search_workflows, surrogate_critic

if TYPE_CHECKING:
    from palaestra.agents.policy import Policy
    from palaestra.play.executors import Executor
    from palaestra.runs.recipe import Recipe

PROMPTS = ("edit_workflow", "review_edit")


class WorkflowPlay:
    """Evaluator of workflows: plays them on a recipe's tasks with one policy in all roles, the same tasks for all.

    Args:
        recipe: a `Recipe`; its env, without its workflow, and its executor.
        policy: who plays all roles.
        instructions: what each role is told.
        tasks: how many are played.
        cached: price of input that is in the cache, by that of new input.
        output: price of output, by that of new input.
        seed: of tasks and play.
    """

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        *,
        instructions: Mapping[str, str],
        tasks: int = 40,
        cached: float = 0.1,
        output: float = 4.0,
        seed: int = 0,
    ) -> None:
        from palaestra.runs.build import executor

        self.recipe, self.policy, self.instructions, self.tasks, self.seed = recipe, policy, instructions, tasks, seed
        self._price = functools.partial(play_cost, cached=cached, output=output)
        self.executor: Executor = executor(recipe.play, recipe.imports)

    def __call__(self, design: WorkflowDesign) -> tuple[float, float]:
        """(accuracy, mean cost of an episode) of a workflow on the search's tasks."""
        return self.measured(design, "train")

    def test(self, design: WorkflowDesign) -> float:
        """Accuracy on as many tasks that the search does not see."""
        return self.measured(design, "test")[0]

    def measured(self, design: WorkflowDesign, split: Literal["train", "test"]) -> tuple[float, float]:
        """(accuracy, mean cost of an episode) on tasks of a split; an episode that failed is not solved.

        Raises:
            InputError: no episode says whether it succeeded, or all failed.
        """
        from palaestra.play.executors import Plan
        from palaestra.runs.envs import agents_of, env

        part = self.recipe.env.model_copy(update={"workflow": design.text(self.instructions), "roles": None})
        factory = env(part, split)
        team = Team(dict.fromkeys(agents_of(factory), self.policy))
        plan = Plan(groups=self.tasks, seed=self.seed, stream="train" if split == "train" else "eval")
        turns = self.executor.play(factory, team, plan).frame
        solved = turns.group_by("group", "episode").agg(pl.col("success").cast(pl.Float64).max())["success"]
        if solved.null_count() == len(solved):
            failed = turns["error"].drop_nulls()
            why = f"all episodes failed: {failed[0]}" if len(failed) else "no episode says whether it succeeded"
            raise InputError(f"search_workflow: {design.text()}: {why}")
        return float(solved.fill_null(0.0).mean()), float(self._price(turns)["cost"].mean())  # type: ignore[arg-type]

    def example(self) -> str:
        """Question of one of the search's tasks."""
        from palaestra.runs.envs import env

        part = self.recipe.env.model_copy(update={"workflow": "single()", "roles": None})
        return next(iter(env(part, "train")().reset(self.seed).values())).text


@ANALYSES.register("search_workflow")
def search_workflow(
    roles: Sequence[str] | Mapping[str, str],
    budget: int = 24,
    *,
    price: float = 0.1,
    tasks: int = 40,
    start: Sequence[str] = (),
    most: int = 6,
    policy: str | None = None,
    designer: str = "rule",
    critic: str = "rule",
    width: int = 8,
    cached: float = 0.1,
    output: float = 4.0,
    seed: int | None = None,
    instructions: Mapping[str, str] | None = None,
    trust: bool = False,
) -> Analysis:
    """Makes an analysis (RECIPE -> table per step): search over workflows for its tasks, by accuracy and cost, [140].

    Columns: those of `palaestra.teams.workflow_search.search_workflows`, and test, the accuracy on as many other tasks
    of the start, of the best and of those that are Pareto-optimal. What stands under `workflow` is what
    `env.workflow=` takes. OneFlow, arXiv 2601.12307.

    Args:
        roles: names, or name -> instruction for chat models.
        budget: workflows that are played at most.
        price: λ of the reward, accuracy - λ · cost / cost of the start.
        tasks: episodes of each.
        start: roles of the chain that the search begins with; default: the first role alone.
        most: nodes of a workflow at most.
        policy: of the recipe, which plays all roles; default: the only one, or the only one beside designer and critic.
        designer: "rule", edits are drawn; or a policy of the recipe.
        critic: "rule", a surrogate of the rewards so far; "none"; or a policy of the recipe.
        width: edits that the rule draws at each step; one, if the critic is a policy.
        cached: price of input that is in the cache, by that of new input.
        output: price of output, by that of new input.
        seed: of tasks, play and search; default, the first of the recipe.
        instructions: Jinja templates of the questions `edit_workflow` and `review_edit`, or their files `….j2`.
        trust: run the code that the recipe names.
    """
    own = own_prompts(instructions, PROMPTS, "search_workflow")
    told = dict(roles) if isinstance(roles, Mapping) else dict.fromkeys(roles, "")
    if not told:
        raise InputError("search_workflow: roles is empty; name at least one")
    for role in start:
        if role not in told:
            raise InputError(f"search_workflow: start has {role!r}, which is no role{nearest(role, told)}")

    def answer(recipe: Path) -> pl.DataFrame:
        from palaestra.runs.envs import env
        from palaestra.runs.recipe import load

        made = load(recipe, trust=trust)
        first = made.seeds[0] if seed is None else seed
        seats = [name for name in (designer, critic) if name not in ("rule", "none")]
        player = policy or _only(made.policies, seats)
        calls = KeptCalls(recipe.with_suffix(""), limit=None)
        plain = env(made.env.model_copy(update={"workflow": "single()", "roles": None}), "train")
        asked = {name: _policy(made, name, plain, first, calls) for name in dict.fromkeys([player, *seats])}
        try:
            play = WorkflowPlay(
                made, asked[player], instructions=told, tasks=tasks, cached=cached, output=output, seed=first
            )
            shown: dict[str, Any] = {"task": play.example(), "own": own} if seats else {}
            proposing = (
                model_designer(asked[designer], told, most=most, **shown)
                if designer in asked
                else drawn_edits(width if critic in ("rule", "none") else 1)
            )
            reviewing = model_critic(asked[critic], **shown) if critic in asked else surrogate_critic(list(told))
            designs: dict[str, WorkflowDesign] = {}

            def write(design: WorkflowDesign) -> str:
                text = design.text(told)
                designs[text] = design
                return text

            found = search_workflows(
                WorkflowDesign("chain", tuple(start) or (next(iter(told)),)),
                play,
                list(told),
                budget=budget,
                rng=np.random.default_rng(first),
                price=price,
                most=most,
                designer=proposing,
                critic=None if critic == "none" else reviewing,
                write=write,
            )
            tested = [
                play.test(designs[row["workflow"]]) if row["best"] or row["pareto"] or row["step"] == 0 else None
                for row in found.iter_rows(named=True)
            ]
            play.executor.close()
            return found.with_columns(test=pl.Series(tested, dtype=pl.Float64))
        finally:
            calls.close()

    return answer


def _only(policies: Mapping[str, Any], seats: Sequence[str]) -> str:
    left = [name for name in policies if name not in seats] or list(policies)
    if len(left) != 1:
        raise InputError(f"search_workflow: who plays? policy= one of {', '.join(left)}")
    return left[0]


def _policy(recipe: Recipe, name: str, factory: Any, seed: int, calls: KeptCalls) -> Policy:
    from palaestra.runs.build import policy

    if name not in recipe.policies:
        raise InputError(f"search_workflow: the recipe has no policy {name!r}{nearest(name, recipe.policies)}")
    made = policy(name, recipe.policies[name], factory=factory, seed=seed * 1000)
    calls.attach(made)
    return made
