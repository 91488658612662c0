"""Probes: the policy is made to answer before each of its turns, and what it thinks of the true answer is written down.

IGPO [168] pays a turn for what it added to the log-probability of the true answer, SPAE [77] for what it added to
accuracy and confidence. Left out: endpoints, which give no log-probabilities of what they did not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Learnable, Request
from palaestra.algebra.signals import col, fill_missing, shift
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class probe(Stage):
    """Stage: adds `gold_logprob` and other log-probabilities of the true answer under each policy, by teacher forcing.

    Nothing is sampled from or trained by them: no gradient.
    gold: the column with the true answer: a number, the id of the action that says it, for policies that choose; a
    text for language models. answers: the mask of actions that answer, so that "if it had to answer now" is a
    distribution over them; default: the column `answers`, if the env tells it, else all legal actions. cue: put after
    what a language model saw. samples: short answers it is made to give (5 in SPAE), whose entropies are its
    confidence; 0: the entropies along the true answer. Policies that only choose have one token and need no samples.

    Its credits are `igpo()`, `spae()`.

    Raises:
        InputError: nobody's log-probabilities can be had, or gold is text and the policy chooses (or the reverse).
    """

    adds = {
        "gold_logprob": "mean log-probability of a token of the true answer, before the turn",
        "probe_accuracy": "mean probability of a token of the true answer, after the turn (on the last: before it)",
        "probe_confidence": "exp(-mean entropy of its answer), after the turn (on the last: before it)",
    }

    def __init__(
        self, gold: str = "gold", *, answers: str | None = None, cue: str = "\nThe answer: ", samples: int = 0
    ) -> None:
        if samples < 0:
            raise InputError(f"probe: samples={samples} is negative")
        self.gold, self.answers, self.cue, self.samples = gold, answers, cue, samples
        self.needs = {"episode", "turn", "agent", "policy", gold} | ({answers} if answers else set())

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with three more columns, missing where there is no true answer or the policy gives no scores."""
        found = np.full((len(turns), 3), np.nan)
        asked = turns[self.gold].is_not_null().to_numpy()
        for name, policy in context.team.policies.items():
            rows = np.flatnonzero(asked & (turns["policy"].cast(pl.String) == name).to_numpy())
            if len(rows) and isinstance(policy, Learnable):
                table = turns.frame[rows]
                choosing = turns[self.gold].dtype.is_integer()
                found[rows] = self._choices(table, policy) if choosing else self._text(table, policy, context)
                context.spent.add(calls=len(rows))
        if asked.any() and np.isnan(found[asked]).all():
            raise InputError("nobody here gives log-probabilities; probe policies of kind tabular, mlp, tiny or lm")
        before = dict(zip(("gold_logprob", "_accuracy", "_confidence"), found.T, strict=True))
        marked = turns.with_column(**before)
        after = {f"probe{name}": fill_missing(shift(name, n=-1), col(name)) for name in ("_accuracy", "_confidence")}
        return Turns(marked.with_column(**after).frame.drop("_accuracy", "_confidence"))

    def _choices(self, rows: pl.DataFrame, policy: Learnable) -> np.ndarray:
        """One token: the id of the action that says it, among those that answer."""
        if hasattr(policy, "encode"):
            raise InputError(f"{self.gold!r} is an action's number, but {policy.name!r} speaks: give a column of text")
        mask = self.answers or ("answers" if "answers" in rows.columns else None)
        forced = rows.with_columns(action_ids=pl.concat_list(pl.col(self.gold).cast(pl.Int32)))
        if mask is not None:
            forced = forced.with_columns(legal=pl.coalesce(mask, "legal"))
        logprobs, entropies = (np.array([row[0] for row in each]) for each in _scores(policy, forced))
        return np.stack([logprobs, np.exp(logprobs), np.exp(-entropies)], axis=1)

    def _text(self, rows: pl.DataFrame, policy: Any, context: Context) -> np.ndarray:
        """The answer's tokens after what was seen and the cue; what is alike is asked once."""
        if not hasattr(policy, "encode"):
            raise InputError(
                f"{self.gold!r} is text, but {policy.name!r} chooses: give the column of an action's number"
            )
        texts = [(seen or "") + self.cue for seen in rows["observation"]]
        distinct = {pair: place for place, pair in enumerate(dict.fromkeys(zip(texts, rows[self.gold], strict=True)))}
        tokens = [policy.encode(prompt, gold) for prompt, gold in distinct]
        forced = pl.DataFrame({"prompt_ids": [p for p, _ in tokens], "action_ids": [a for _, a in tokens]})
        pairs = list(zip(*_scores(policy, forced), strict=True))
        sure = [np.exp(-entropies.mean()) for _, entropies in pairs]
        if self.samples:
            sure = list(self._sampled(policy, [prompt for prompt, _ in distinct], context))
        table = np.array(
            [[logp.mean(), np.exp(logp).mean(), each] for (logp, _), each in zip(pairs, sure, strict=True)]
        )
        context.spent.add(tokens=sum(len(prompt) + len(answer) for prompt, answer in tokens))
        return table[[distinct[pair] for pair in zip(texts, rows[self.gold], strict=True)]]

    def _sampled(self, policy: Any, prompts: list[str], context: Context) -> Iterator[float]:
        requests = [
            Request(Observation(prompt), "probe", np.random.default_rng(int(stream)))
            for prompt in prompts
            for stream in context.rng.integers(2**63, size=self.samples)
        ]
        drawn = policy.act(requests)
        context.spent.add(calls=len(requests), tokens=sum(each.tokens_out or 0 for each in drawn))
        means = np.array([np.nan if each.entropies is None else np.mean(each.entropies) for each in drawn])
        yield from np.nanmean(np.exp(-means.reshape(-1, self.samples)), axis=1)


def _scores(policy: Learnable, rows: pl.DataFrame) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Log-probabilities and entropies of the rows' actions now, float64[tokens] for each."""
    import torch

    with torch.no_grad():
        scored = policy.score(rows)
    mask = scored.mask.cpu().numpy()
    values = (each.double().cpu().numpy() for each in (scored.logprobs, scored.entropies))
    logprobs, entropies = ([row[keep] for row, keep in zip(each, mask, strict=True)] for each in values)
    return logprobs, entropies
