"""Corrected actions that the policy is trained on: a judge who corrects, an arbiter between both actions ([1])."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.foundation.registry import load_object, read_call
from palaestra.judges.metering import Limits
from palaestra.judges.panels import CorrectingPanel
from palaestra.judges.protocol import Scorer
from palaestra.judges.scorers import build
from palaestra.learning.stages.asking import Adviser, bind, load_state, state_of
from palaestra.learning.stages.hints import rewritten
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class corrected_actions(Stage):
    """Stage: replaces actions by a `domain` judge's corrections where an `arbiter` agrees; rewards stay as played.

    It is MagicGUI-RMS's reflux [1] (arXiv 2601.13060).

    A row whose action was replaced has the new one, with the log-probabilities that the policy has for it now; `played`
    keeps what was done, to which the reward belongs. `settled` is where the final action was found right or replaced,
    what the agent learns from: `learn.terms="clone(column='settled')"`. `overruled` marks what the domain judge learns
    from: one with a method `fit` is given these rows in every iteration. Metrics: `replaced`, `overruled`, `settled`,
    shares of the rows.

    Args:
        domain: `module:name(…)` of what makes the domain judge, or itself: from turns, with `prompt` and `response`, to
            a table with `verdict`, `corrected_action` and, if the policy takes one of numbered actions, `corrected_id`.
        arbiter: text of a scorer of pairs, or itself; None takes every correction.
        budget: most calls of a policy of the arbiter's in the run, or {"tokens": …}. cache: a file of answers.

    Raises:
        InputError: a corrected action has no number, and the policy needs one.
    """

    adds = {
        "played": "what was done",
        "verdict": "the domain judge found the action right",
        "corrected_action": "what it would do instead",
        "final_action": "what the arbiter left",
        "overruled": "found wrong, and kept",
        "settled": "found right, or replaced",
    }

    def __init__(
        self,
        domain: str | Callable[[pl.DataFrame], pl.DataFrame],
        arbiter: str | Scorer | None = None,
        *,
        budget: Limits = None,
        cache: str | None = None,
    ) -> None:
        self.panel = CorrectingPanel(_made(domain), build("verifier('0.0')" if arbiter is None else arbiter))
        self.asks: Sequence[str] = tuple(getattr(self.panel.arbiter, "asks", ()))
        self.advisers = {policy: Adviser(policy, budget=budget, cache=cache) for policy in self.asks}
        self.needs = {"observation", "action", "policy"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the panel's columns and the final actions."""
        bind(self.panel.arbiter, self.advisers, context)
        seen = {"prompt": pl.col("observation"), "response": pl.col("action")}
        found = self.panel(Turns(turns.frame.with_columns(**seen))).frame.drop("prompt", "response")
        replaced = pl.col("final_action").ne_missing(pl.col("action"))
        found = found.with_columns(played="action", settled=(replaced | pl.col("verdict")).fill_null(False))
        number = pl.col("corrected_id") if "corrected_id" in found.columns else pl.lit(None, pl.Int64)
        found = found.with_columns(_new=replaced, _action="final_action", _number=number)
        for name, column in (("replaced", "_new"), ("overruled", "overruled"), ("settled", "settled")):
            context.metrics[name] = int(found[column].sum()) / max(len(found), 1)
        if hasattr(self.panel.domain, "fit"):
            self.panel.domain.fit(found.filter(pl.col("overruled").fill_null(False)))
        made = rewritten(found, context, "_new", "_action", "_number")
        return Turns(made.drop("_new", "corrected_id", strict=False))

    def state_dict(self) -> dict[str, object]:
        """State of the arbiter's policies and endpoints: amounts spent and answers."""
        return state_of(self.panel.arbiter, self.advisers)

    def load_state_dict(self, state: dict[str, dict[str, object]]) -> None:
        """Inverse of `state_dict`."""
        load_state(self.panel.arbiter, self.advisers, state)


def _made(domain: str | Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    if not isinstance(domain, str):
        return domain
    name, values, options = read_call(domain, "my.module:domain()")
    made: Callable[[pl.DataFrame], pl.DataFrame] = load_object(name, "domain judge")(*values, **options)
    return made
