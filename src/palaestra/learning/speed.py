"""How fast language models play and learn: tokens per second by stage, and which share of the device's arithmetic.

A token that is read or written takes 2·N operations for N parameters, one that is learned from 6·N, or 4·N where only
adapters learn; attention is left out. Divided by what the device can do at most in 16 bits it is the MFU (model FLOPs
utilisation, arXiv 2204.02311, appendix B). Equal prompts and prefixes count once per row, though they are read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

PEAK = {
    "B200": 2250e12, "H200": 989e12, "H100": 989e12, "H800": 989e12, "A100": 312e12, "A800": 312e12, "L40S": 362e12,
    "L4": 121e12, "A10": 125e12, "RTX 4090": 165e12, "MI300X": 1307e12, "V100": 125e12, "T4": 65e12,
}  # fmt: skip
"""Dense operations per second in 16 bits, as the makers say, by a part of the device's name; longer names first."""


def peak_of(device: str) -> float | None:
    """Peak floating-point operations per second of a device, by its name; None for a CPU or an unknown device.

    >>> peak_of("NVIDIA H100 80GB HBM3"), peak_of("NVIDIA L40S"), peak_of("cpu")
    (989000000000000.0, 362000000000000.0, None)
    """
    return next((PEAK[name] for name in sorted(PEAK, key=len, reverse=True) if name in device), None)


def speed(
    turns: pl.DataFrame, policies: Mapping[str, Any], *, play: float | None, learn: float, rows: str, epochs: int
) -> dict[str, dict[str, float | None]]:
    """Dict "play", "learn" -> seconds (given), tokens_per_second, mfu on a table of turns; empty if no language model.

    Args:
        turns: What was played and learned from.
        policies: Those that learn, by name.
        play: Seconds of play; None where it goes on beside learning.
        learn: Seconds of the update.
        rows: What a row of the update is: "turn", whose prompt is read for each, or "conversation", read once.
        epochs: How often each is read.

    Returns:
        mfu is None where the most that a device can do is not known, or several devices hold the models.
    """
    models = {name: model for name, policy in policies.items() if (model := _model_of(policy)) is not None}
    mine = turns.filter(pl.col("policy").cast(pl.String).is_in(list(models)), pl.col("error").is_null())
    if not models or not {"tokens_in", "tokens_out"} <= set(turns.columns) or not len(mine):
        return {}
    length = (pl.col("tokens_in") + pl.col("tokens_out")).cast(pl.Int64)
    by = ["policy", *([] if rows == "turn" else ["group", "episode", "agent"])]
    read = mine.group_by(by).agg(read=length.sum() if rows == "turn" else length.max())
    learned = _by_policy(read.group_by("policy").agg(pl.col("read").sum() * epochs))
    played = _by_policy(mine.group_by("policy").agg(length.sum()))
    sizes = {name: _size(model) for name, model in models.items()}
    peak = _peak(models.values())
    found: dict[str, dict[str, float | None]] = {}
    for stage, seconds, tokens in (("play", play, played), ("learn", learn, learned)):
        work = sum(
            tokens[name] * (2 * whole if stage == "play" else (2 * whole + more))
            for name, (whole, more) in sizes.items()
            if name in tokens
        )
        found[stage] = {
            "seconds": seconds,
            "tokens_per_second": sum(tokens.values()) / seconds if seconds else None,
            "mfu": work / seconds / peak if seconds and peak else None,
        }
    return found


def _by_policy(table: pl.DataFrame) -> dict[str, int]:
    return {str(name): int(tokens) for name, tokens in table.iter_rows()}


def _model_of(policy: Any) -> Any:
    """The torch module of a language model, also of a served one; None for other policies."""
    return getattr(getattr(policy, "lm", policy), "model", None) if hasattr(policy, "score") else None


def _size(model: Any) -> tuple[int, int]:
    """Parameters that a token goes through, and operations per token of the backward pass."""
    layer = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    tied = bool(getattr(getattr(model, "config", None), "tie_word_embeddings", False))
    looked_up = 0 if layer is None or tied else sum(each.numel() for each in layer.parameters())
    whole = sum(each.numel() for each in model.parameters()) - looked_up
    learns = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return whole, 2 * whole + 2 * min(learns, whole)


def _peak(models: Iterable[Any]) -> float | None:
    devices = {parameter.device for model in models for parameter in model.parameters()}
    if len(devices) != 1 or (device := devices.pop()).type != "cuda":
        return None
    import torch

    return peak_of(torch.cuda.get_device_name(device))
