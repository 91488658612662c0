"""`to_preferences` and `to_sft` in TRL's own trainers, on a tiny model, as text and as messages.

Skipped where TRL is not installed; `make parity` brings it.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestra import Turns
from palaestra.agents.tiny import build

pytest.importorskip("trl")


def played(talks: bool) -> Turns:
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {name: [] for name in ("group", "episode", "observation", "action", "reward")}
    for group in range(8):
        for episode in range(4):
            good = bool(rng.random() < 0.5)
            for name, value in zip(rows, (group, episode, f"ask {group}", "yes" if good else "no", float(good))):
                rows[name].append(value)
    if talks:
        rows["messages"] = [json.dumps([{"role": "user", "content": text}]) for text in rows["observation"]]
    return Turns(rows)


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("kind", ["DPO", "SFT", "Reward"])
def test_their_trainers_take_our_tables(kind: str, talks: bool, tmp_path: Path) -> None:
    import transformers
    import trl
    from datasets import Dataset

    turns = played(talks)
    table = turns.to_sft() if kind == "SFT" else turns.to_preferences()
    model, tokenizer = build(turns["action"].to_list(), hidden=16, layers=1, heads=2, chat=talks)
    if kind == "Reward":
        model.config.num_labels = 1
        model = transformers.LlamaForSequenceClassification(model.config)
    options = getattr(trl, f"{kind}Config")(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True, bf16=False,
        save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
    )  # fmt: skip
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = Dataset.from_polars(table)
    more = {"ref_model": copy.deepcopy(model)} if kind == "DPO" else {}
    trainer = getattr(trl, f"{kind}Trainer")(
        model=model, args=options, train_dataset=data, processing_class=tokenizer, **more
    )
    assert np.isfinite(trainer.train().training_loss)
    assert any(not (value == before[name]).all() for name, value in trainer.model.state_dict().items())
