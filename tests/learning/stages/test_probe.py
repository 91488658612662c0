"""Probes: what a table and a language model think of the true answer, before and after a turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra import envs
from palaestra.agents import LMPolicy, ScriptedPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.probe import probe
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan


def played(policy: Any, **options: Any) -> tuple[Turns, Context]:
    env, team = envs.make("native/inquiry", **options), Team(seeker=policy)
    context = Context(np.random.default_rng(0), 1, env, team, Local())
    return Local().play(env, team, Plan(groups=3, group_size=8, iteration=1)), context


def test_a_table_that_knows_nothing_believes_in_what_is_left() -> None:
    turns, context = played(TabularPolicy(18), bits=3, questions=10, turns=6)
    found = probe()(turns, context)
    left = 2.0 ** (found["known"].to_numpy() - 3)
    np.testing.assert_allclose(found["gold_logprob"].to_numpy(), np.log(left), rtol=1e-5)
    assert context.spent.calls == len(turns)
    frame = found.frame.sort("group", "episode", "turn")
    share = 2.0 ** (frame["known"] - 3)
    after = share.shift(-1).set(frame["turn"].shift(-1, fill_value=0) == 0, np.nan)
    expected = after.fill_nan(None).fill_null(share).to_numpy()
    np.testing.assert_allclose(frame["probe_accuracy"].to_numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(frame["probe_confidence"].to_numpy(), expected, rtol=1e-5)
    assert frame["known"].n_unique() > 2


def test_without_a_mask_all_legal_actions_count() -> None:
    turns, context = played(TabularPolicy(18), bits=3, questions=10, turns=6)
    whole = probe()(Turns(turns.frame.drop("answers")), context)
    legal = whole["legal"].list.sum().to_numpy()
    np.testing.assert_allclose(np.exp(whole["gold_logprob"].to_numpy()), 1 / legal)


@pytest.mark.parametrize("samples", [0, 2])
def test_a_language_model_is_asked_once_for_what_is_alike(samples: int) -> None:
    text = "known: nothing bit 0 is 1, bit 1 is 0 say 0 1 2 3 ask 0 1 The answer:"
    policy = LMPolicy.tiny([text], name="lm", seed=0, max_new_tokens=4)
    turns, context = played(policy, bits=2, questions=2, turns=2, values=True)
    stage = probe("gold_text", samples=samples)
    found = stage(turns, context)
    row = found.frame.row(0, named=True)
    prompt, ids = policy.encode(row["observation"] + stage.cue, row["gold_text"])
    scored = policy.score(pl.DataFrame({"prompt_ids": [prompt.tolist()], "action_ids": [ids.tolist()]}))
    logprobs = scored.logprobs[0].detach().numpy()
    assert row["gold_logprob"] == pytest.approx(logprobs.mean(), abs=1e-5)
    same = found.frame.group_by("observation", "gold_text").agg(pl.col("gold_logprob").n_unique())
    assert same["gold_logprob"].to_list() == [1] * len(same)
    assert ((found["probe_confidence"] > 0) & (found["probe_confidence"] <= 1)).all()
    pairs = found.frame.select("observation", "gold_text").unique().rows()
    read = sum(len(part) for seen, gold in pairs for part in policy.encode(seen + stage.cue, gold))
    assert context.spent.calls == len(turns) + samples * len(pairs)
    assert read + samples * len(pairs) <= context.spent.tokens <= read + 4 * samples * len(pairs)
    again = probe("gold_text", samples=samples)(turns, Context(**{**vars(context), "rng": np.random.default_rng(0)}))
    assert again["probe_confidence"].to_list() == found["probe_confidence"].to_list()


def test_what_cannot_be_probed_is_said() -> None:
    turns, context = played(ScriptedPolicy(lambda request: request.observation.legal[-1], name="script"))
    with pytest.raises(InputError, match="nobody here gives log-probabilities"):
        probe()(turns, context)
    turns, context = played(TabularPolicy(14))
    with pytest.raises(InputError, match="'gold_text' is text, but 'tabular' chooses"):
        probe("gold_text")(turns, context)
    with pytest.raises(InputError, match="samples=-1"):
        probe(samples=-1)
