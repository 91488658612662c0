"""Everything that a plugin needs: registration for each kind of thing, and the classes and protocols of each.

Registration has one form for all kinds, `@extend.KIND("name")`; without a name the function's or class's own counts:

    from palaestra import extend

    @extend.signal()
    def half(x: str = "reward") -> extend.Signal:
        \"\"\"Half of a column.\"\"\"
        return 0.5 * extend.col(x)

A module is loaded as a plugin if an installed package names it under the entry point group `palaestra.plugins`, or a
recipe under `imports`. Nothing is imported before it is asked for, so this module needs no torch.
`docs/extending.md` has an example of every kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestra.agents import ScriptedPolicy, Team
    from palaestra.agents.policy import Decision, Learnable, Policy, Request, Scored
    from palaestra.agents.streaming import AnswerStream, AsyncStream
    from palaestra.algebra.kernels import Evaluation, kernel
    from palaestra.algebra.signals import Signal, SignalLike, as_signal, col
    from palaestra.algebra.turns import Ragged, Turns
    from palaestra.envs.protocol import Env, EnvFactory, Observation, StepResult
    from palaestra.envs.tool_calls.formats import Call, Format
    from palaestra.envs.tools import Tool
    from palaestra.envs.worlds.native import NativeEnv
    from palaestra.evaluation.analyses import Analysis
    from palaestra.evaluation.logs.readers import LogReader
    from palaestra.evaluation.logs.rows import Rows
    from palaestra.interface.report.load import Run
    from palaestra.interface.report.panels import Chart, panel
    from palaestra.judges.planning import Search
    from palaestra.judges.protocol import Judge, Scorer
    from palaestra.learning.objective import Term
    from palaestra.learning.protocol import Learner
    from palaestra.learning.reward_models.reward_model import RewardModel
    from palaestra.learning.stages.stage import Context, Stage
    from palaestra.learning.terms.term import MicroBatch, Step
    from palaestra.learning.trackers import Tracked, Tracker
    from palaestra.play.executors import Executor
    from palaestra.play.plan import Plan
    from palaestra.runs.policies import Making

KINDS = {
    "aggregate": "palaestra.teams.rules:AGGREGATES",
    "analysis": "palaestra.evaluation.analyses:ANALYSES",
    "audit": "palaestra.teams.audit:AUDITS",
    "chart": "palaestra.interface.report.panels:CHARTS",
    "env": "palaestra.envs.registry:ENVS",
    "executor": "palaestra.play.executors:EXECUTORS",
    "format": "palaestra.envs.tool_calls.formats:FORMATS",
    "gate": "palaestra.teams.rules:GATES",
    "learner": "palaestra.learning.protocol:LEARNERS",
    "matchmaking": "palaestra.learning.league.rules:MATCHMAKING",
    "measure": "palaestra.runs.measures:MEASURES",
    "pairing": "palaestra.judges.pairs:PAIRINGS",
    "policy": "palaestra.runs.policies:POLICIES",
    "reader": "palaestra.evaluation.logs.readers:READERS",
    "reward_model": "palaestra.learning.reward_models.reward_model:REWARD_MODELS",
    "route": "palaestra.teams.rules:ROUTES",
    "scorer": "palaestra.judges.protocol:SCORERS",
    "script": "palaestra.runs.scripts:SCRIPTS",
    "search": "palaestra.judges.planning:SEARCHES",
    "signal": "palaestra.algebra.tree:REGISTRY",
    "solver": "palaestra.evaluation.games.solvers:SOLVERS",
    "stage": "palaestra.learning.stages.stage:STAGES",
    "stop": "palaestra.teams.rules:STOPS",
    "term": "palaestra.learning.objective:TERMS",
    "tool": "palaestra.envs.tools:TOOLS",
    "tracker": "palaestra.learning.trackers:TRACKERS",
    "verifier": "palaestra.teams.rules:VERIFIERS",
    "workflow": "palaestra.teams:WORKFLOWS",
}
"""Kinds of things that have names, as `palaestra names` lists them, and the registry of each."""

NAMES = {
    "Analysis": "palaestra.evaluation.analyses",
    "AnswerStream": "palaestra.agents.streaming",
    "AsyncStream": "palaestra.agents.streaming",
    "Call": "palaestra.envs.tool_calls.formats",
    "Chart": "palaestra.interface.report.panels",
    "Context": "palaestra.learning.stages.stage",
    "Decision": "palaestra.agents.policy",
    "Env": "palaestra.envs.protocol",
    "EnvFactory": "palaestra.envs.protocol",
    "Evaluation": "palaestra.algebra.kernels",
    "Executor": "palaestra.play.executors",
    "Format": "palaestra.envs.tool_calls.formats",
    "Judge": "palaestra.judges.protocol",
    "Learnable": "palaestra.agents.policy",
    "Learner": "palaestra.learning.protocol",
    "LogReader": "palaestra.evaluation.logs.readers",
    "Making": "palaestra.runs.policies",
    "MicroBatch": "palaestra.learning.terms.term",
    "NativeEnv": "palaestra.envs.worlds.native",
    "Observation": "palaestra.envs.protocol",
    "Plan": "palaestra.play.plan",
    "Policy": "palaestra.agents.policy",
    "Ragged": "palaestra.algebra.turns",
    "Request": "palaestra.agents.policy",
    "RewardModel": "palaestra.learning.reward_models.reward_model",
    "Rows": "palaestra.evaluation.logs.rows",
    "Run": "palaestra.interface.report.load",
    "Scored": "palaestra.agents.policy",
    "Scorer": "palaestra.judges.protocol",
    "ScriptedPolicy": "palaestra.agents",
    "Search": "palaestra.judges.planning",
    "Signal": "palaestra.algebra.signals",
    "SignalLike": "palaestra.algebra.signals",
    "Stage": "palaestra.learning.stages.stage",
    "Step": "palaestra.learning.terms.term",
    "StepResult": "palaestra.envs.protocol",
    "Team": "palaestra.agents",
    "Term": "palaestra.learning.objective",
    "Tool": "palaestra.envs.tools",
    "Tracked": "palaestra.learning.trackers",
    "Tracker": "palaestra.learning.trackers",
    "Turns": "palaestra.algebra.turns",
    "as_signal": "palaestra.algebra.signals",
    "col": "palaestra.algebra.signals",
    "kernel": "palaestra.algebra.kernels",
    "panel": "palaestra.interface.report.panels",
}
"""Classes, protocols and functions that the definitions of these kinds need, and their modules."""

__all__ = [
    "Analysis", "AnswerStream", "AsyncStream", "Call", "Chart", "Context", "Decision", "Env", "EnvFactory",
    "Evaluation", "Executor", "Format",
    "Judge", "Learnable", "Learner", "LogReader", "Making", "MicroBatch", "NativeEnv", "Observation", "Plan",
    "Policy", "Ragged", "Request", "RewardModel", "Rows", "Run", "Scored", "Scorer", "ScriptedPolicy", "Search",
    "Signal", "SignalLike", "Stage", "Step", "StepResult", "Team", "Term", "Tool", "Tracked", "Tracker", "Turns",
    "aggregate", "analysis", "as_signal", "audit", "chart", "col", "command", "env", "executor", "format", "gate",
    "kernel", "learner", "matchmaking", "measure", "pairing", "panel", "policy", "reader", "reward_model", "route",
    "scorer", "script", "search", "signal", "solver", "stage", "stop", "term", "tool", "tracker", "verifier",
    "workflow",
]  # fmt: skip


def command(*names: str) -> Callable[[Any], Any]:
    """Returns a decorator that adds a function to the command line, as `palaestra NAME`, its parameters as options."""
    from palaestra.interface.cli.app import app

    return app.command(*names)


def _registration(kind: str) -> Callable[..., Any]:
    module, _, registry = KINDS[kind].partition(":")
    register: Callable[..., Any] = getattr(importlib.import_module(module), registry).register
    return register


if TYPE_CHECKING:

    def _register(*names: str) -> Callable[[Any], Any]: ...

    aggregate = analysis = audit = chart = env = executor = format = gate = learner = matchmaking = _register
    measure = pairing = policy = reader = reward_model = route = scorer = script = search = signal = _register
    solver = stage = stop = term = tool = tracker = verifier = workflow = _register
else:

    def __getattr__(name: str) -> Any:
        if name in KINDS:
            return _registration(name)
        if name in NAMES:
            return getattr(importlib.import_module(NAMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __all__
