"""Reference answers beside sampled ones, and pairs whose tokens are compared only in part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.agents import LMPolicy, Team
from palaestra.envs.worlds import Exam
from palaestra.errors import InputError
from palaestra.judges import current_vs_reference
from palaestra.learning.stages.references import references, thinking
from palaestra.learning.stages.stage import Context
from palaestra.learning.terms import MicroBatch, dpo
from palaestra.play.executors import Local, Plan


def env() -> Exam:
    return Exam(largest=1, free=True)


def test_every_group_has_a_row_that_says_the_reference() -> None:
    policy = LMPolicy.tiny(
        ["0 + 1", "two"], hidden=16, layers=1, heads=2, vocabulary=270, max_new_tokens=4, name="pupil"
    )
    team = Team(pupil=policy)
    turns = Local().play(env, team, Plan(groups=3, group_size=2, seed=0))
    context = Context(np.random.default_rng(0), 1, env, team, Local())
    made = references()(turns, context)
    assert len(made) == 9
    added = made.frame.filter(made["reference_row"])
    assert added["action"].to_list() == added["reference"].to_list()
    assert added["logprobs"].null_count() == added["reward"].null_count() == 3
    for row in added.iter_rows(named=True):
        assert row["action_ids"] == policy.encode(row["observation"], row["reference"])[1].tolist()
        assert row["episode"] == 2
    found = current_vs_reference("reference_row")(made)
    assert set(found["chosen"]) <= set(np.flatnonzero(made["reference_row"].to_numpy()).tolist())
    assert found.height == 6 - int((turns["action"] == turns["reference"]).sum())
    masked = thinking("+", "=")(made, context)
    assert [len(each) for each in masked["label_mask"]] == [len(each) for each in made["action_ids"]]
    with pytest.raises(InputError, match="method='some'"):
        thinking(method="some")  # type: ignore[arg-type]


def test_tokens_that_are_masked_move_no_pair() -> None:
    """Both sides have a thinking token and an answer; with the mask only the answer counts."""
    new = torch.tensor([[5.0, 1.0], [-7.0, -1.0]], dtype=torch.float64, requires_grad=True)
    columns = {"pair": [0, 0], "chosen": [True, False], "label_mask": [[0.0, 1.0], [0.0, 1.0]]}
    loss = dpo(0.5)(MicroBatch.of(new, reference=torch.zeros(2, 2, dtype=torch.float64), columns=columns))
    loss.backward()
    assert loss.item() == pytest.approx(np.log1p(np.exp(-0.5 * 2)))
    assert new.grad is not None
    assert new.grad[:, 0].abs().max() == 0
    assert new.grad[:, 1].abs().min() > 0
