"""What two ranks do: every scenario of `test_devices.py`, so that processes are started once.

Both run the same lines, as under torchrun; rank 0 writes what was found into FOLDER. The same functions, called in the
process of the test, are the one process that it is compared with.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra import LMPolicy, TabularPolicy, Team
from palaestra.agents.backends import head
from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.learning import PolicyGradient, ranks
from palaestra.learning.terms import MicroBatch, Term

ROWS = 16
WORDS = ["see 0 1 2 heard"]
MAIN = "surrogate(), kl(.1), entropy(.01)"
FULL: dict[str, dict[str, Any]] = {
    "main": {"terms": MAIN},
    "minibatches": {"terms": "surrogate(), corridor(.01)", "updates": 9, "epochs": 2, "minibatch": 10},
    "heads": {"terms": "surrogate(), value(.5, target='goal'), kl(.05, 'k3')", "alone": True},
    "whole": {"terms": "kl_cov(.1)", "alone": True},
    "chunks": {"terms": MAIN, "alone": True, "chunk": 2**9},
    "conversations": {"terms": "gspo([.2, .28]), kl(.1)", "rows": "conversation", "alone": True, "chunk": 2**7},
    "sequential": {"terms": "surrogate(ratio='sequence')", "sequential": "turn", "alone": True},
}


def places(size: int = 2) -> list[dict[str, str]]:
    """What torchrun would say to each of so many ranks, in the environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [common | {"RANK": str(rank)} for rank in range(size)]


def launch(script: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    """One process for each of two ranks, as torchrun starts them."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, str(script), *arguments]
    return [subprocess.Popen(command, env=os.environ | place, **pipes) for place in places()]


def apart(one: Any, other: Any) -> float:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one if not one[name].is_floating_point())
    return max(float((one[name] - other[name]).abs().max()) for name in one if one[name].is_floating_point())


def team_of(seed: int = 0, *, alone: bool = False) -> Team:
    lm = LMPolicy.tiny(WORDS, name="lm", hidden=32, layers=2, heads=2, max_new_tokens=6, seed=seed)
    return Team(a=lm) if alone else Team(a=lm, b=TabularPolicy(3, name="table", capacity=16))


def table(*, alone: bool = False, seed: int = 0, credited: int | None = None) -> Turns:
    """Turns of unequal length, some without credit, of a language model and of a table. credited: so many have any."""
    rng, n = np.random.default_rng(seed), ROWS
    said = [[int(x) for x in rng.integers(3, 15, 1 + i % 6)] for i in range(n)]
    seen = [[int(x) for x in rng.integers(3, 15, 2 + i % 5)] for i in range(n)]
    for i in range(n):
        if i % 3 and i // 3 % 2:  # a turn of a conversation
            seen[i] = seen[i - 1] + said[i - 1] + seen[i]
    rows: dict[str, list[Any]] = {
        "policy": ["lm"] * n,
        "agent": ["a"] * n,
        "prompt_ids": seen,
        "action_ids": said,
        "logprobs": [[float(x) for x in rng.normal(-2.7, 0.1, len(a))] for a in said],
        "state": [None] * n,
    }
    if not alone:
        more = {"policy": "table", "agent": "b", "prompt_ids": None, "logprobs": [-1.1]}
        for i in range(n):
            for name, value in (more | {"action_ids": [i % 3], "state": i % 7}).items():
                rows[name].append(value)
    n = len(rows["policy"])
    advantage = rng.normal(size=n).round(3)
    advantage[np.arange(n) % 7 == 0] = 0.0
    if credited is not None:
        advantage[np.arange(n) % ROWS >= credited] = 0.0
    made = {"advantage": advantage, "goal": rng.normal(size=n), "reward": [0.0] * n, "turn": np.arange(n) % 3}
    made |= {"episode": np.arange(n) // 3, "group": [0] * n, "iteration": [0] * n}
    frame = pl.DataFrame(rows | made, schema_overrides={"state": pl.UInt64}, strict=False)
    return Turns(frame.with_columns(pl.col("logprobs").cast(pl.List(pl.Float32))))


def learner_of(kind: Any, *, alone: bool = False, seed: int = 0, **options: Any) -> PolicyGradient:
    """The team of another rank than 0 is another one at first."""
    rank = int(os.environ.get("RANK", "0")) if kind != "one" else 0
    options = {"terms": MAIN, "lr": 1e-3, "chunk_tokens": 48, "timeout": 60.0} | options
    return PolicyGradient(team_of(seed + rank, alone=alone), devices=kind, **options)


def weights(learner: PolicyGradient) -> dict[str, Tensor]:
    """Of rank 0's team: all that it plays with."""
    found: dict[str, Tensor] = {}
    for name, policy in learner.policies.items() if learner.rank == 0 else ():
        state = policy.state_dict()
        if "states" in state:  # rows of a table stand in the order in which they were met
            order = state["states"].argsort()
            state = {"states": state["states"][order], "logits": state["logits"][: len(order)][order]}
        found |= {f"{name}.{key}": value.clone() for key, value in state.items()}
    return found


def trained(
    kind: Any, *, alone: bool = False, steps: int = 3, chunk: int = head.CHUNK, **options: Any
) -> dict[str, Any]:
    """Three updates. One with credit in one row, which the other rank can only look at; one by the single verbs.

    chunk: numbers of logits that are held at once.
    """
    before, head.CHUNK = head.CHUNK, chunk
    try:
        return _trained(kind, alone, steps, options)
    finally:
        head.CHUNK = before


def _trained(kind: Any, alone: bool, steps: int, options: dict[str, Any]) -> dict[str, Any]:
    learner = learner_of(kind, alone=alone, **options)
    mine = learner.rank == 0
    for step in range(steps):
        turns = table(alone=alone, seed=step, credited=1 if step == 1 else None) if mine else None
        if step == 2 and "minibatch" not in options and "sequential" not in options:
            metrics = learner.forward_backward(turns)  # type: ignore[arg-type]
            learner.optim_step()
        else:
            metrics = learner.update(turns, rng=np.random.default_rng(step) if mine else None)  # type: ignore[arg-type]
    for said in metrics.values():
        said.pop("seconds")
    return {"weights": weights(learner), "metrics": metrics, "memory": learner.memory, "updates": learner.updates}


def moments(kind: Any, base: Path) -> dict[str, list[int]]:
    """Numbers in the moments of this rank, in what learns and in the model; with all weights, and with adapters."""
    found = {}
    for name, lora in (("full", None), ("lora", {"r": 2, "target_modules": ["q_proj", "v_proj"]})):
        policy = LMPolicy.from_pretrained(base, name="lm", lora=lora, max_new_tokens=6)
        learner = PolicyGradient(Team(a=policy), MAIN, devices=kind, timeout=60.0)
        learner.update(table(alone=True))
        held = [
            getattr(each[key], "to_local", lambda value=each[key]: value)().numel()
            for each in learner.optimisers["lm"].state.values()
            for key in ("exp_avg", "exp_avg_sq")
        ]
        learns = sum(p.numel() for p in policy.state_dict().values()) if learner.rank == 0 else 0
        found[name] = [sum(held), learns, sum(p.numel() for p in policy.model.parameters())]
    return found


def resumed(kind: Any, path: Path, *, seed: int = 5) -> dict[str, Tensor]:
    """Load what is there into a new learner, and go on by one update."""
    learner = learner_of(kind, seed=seed)
    learner.load(path)
    learner.update(table(seed=9))
    return weights(learner)


def kept(kind: Any, path: Path) -> dict[str, Tensor]:
    """Two updates, a checkpoint, and a third."""
    learner = learner_of(kind)
    for step in range(2):
        learner.update(table(seed=step))
    learner.save(path)
    learner.update(table(seed=9))
    return weights(learner)


def on_rank(rank: int, fault: Any) -> Term:
    """A term in which `fault` happens, on one rank; it is given 0 and returns what stands in its place."""

    def loss(piece: MicroBatch) -> Tensor:
        nothing = piece.new.sum() * 0.0
        return fault(nothing) if ARMED and int(os.environ["RANK"]) == rank else nothing  # type: ignore[no-any-return]

    return Term("fault", loss)


ARMED: list[bool] = []


def refused(kind: Any, fault: Any) -> dict[str, Any]:
    """An update that one rank cannot make; then one that all can."""
    learner = learner_of(kind, terms=["surrogate()", on_rank(1, fault)])
    learner.update(table())
    before, said = weights(learner), ""
    ARMED.append(True)
    try:
        learner.update(table(seed=1))
    except PalaestraError as error:
        said = f"{type(error).__name__}: {error}"
    ARMED.clear()
    after = weights(learner)
    learner.update(table(seed=1))
    same = all(torch.equal(before[name], after[name]) for name in before)
    return {"said": said, "same": same, "updates": learner.updates}


def full_disk(path: Path) -> dict[str, Any]:
    """A checkpoint for which rank 1 has no room, and one for which it has."""
    learner, said = learner_of("fsdp"), ""
    learner.update(table())
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if learner.rank:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        learner.save(path)
    except PalaestraError as error:
        said = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    left = sorted(each.name for each in path.parent.iterdir() if path.name in each.name)
    learner.save(path)
    return {"said": said, "left": left, "whole": (path / "manifest.json").exists() or learner.rank != 0}


def killed() -> dict[str, Any]:
    """Rank 1 is killed in the middle of an update."""
    learner = learner_of("fsdp", terms=["surrogate()", on_rank(1, lambda _: os.kill(os.getpid(), signal.SIGKILL))])
    learner.update(table())
    before, said = weights(learner), ""
    ARMED.append(True)
    start = time.monotonic()
    try:
        learner.update(table(seed=1))
    except PalaestraError as error:
        said = f"{type(error).__name__}: {error}"
    after = weights(learner)
    again = ""
    try:
        learner.update(table(seed=1))
    except PalaestraError as error:
        again = str(error)
    same = all(torch.equal(before[name], after[name]) for name in before)
    return {"said": said, "same": same, "seconds": time.monotonic() - start, "again": again}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    ranks.BEAT, ranks.PATIENCE = 0.2, 2.0  # nobody has to be sure that a rank is gone for as long as in a data centre
    rank = int(os.environ["RANK"])
    found: dict[str, Any] = {}
    for kind in ("ddp", "fsdp"):
        for name, options in FULL.items() if kind == "fsdp" else list(FULL.items())[:2]:
            found[f"{kind} {name}"] = trained(kind, **options)
    for kind in ("ddp", "fsdp"):
        found[f"{kind} kept"] = kept(kind, folder / kind)
        found[f"{kind} resumed"] = resumed(kind, folder / kind)
        found[f"{kind} from one"] = resumed(kind, folder / "one")
    found["moments"] = moments("fsdp", folder / "base")
    for kind in ("ddp", "fsdp"):
        found[f"{kind} nan"] = refused(kind, lambda nothing: nothing + torch.nan)
    found["ddp broken"] = refused("ddp", lambda nothing: {}["absent"])
    found["disk"] = full_disk(folder / "full")
    from matching import trainer

    done = trainer(folder / f"run-{rank}", tables=True, devices="ddp", iterations=3)
    lines = done.run()
    found["trainer"] = {"lines": len(lines), "weights": done.team.state_dict()}
    torch.save(found, folder / f"before-{rank}.pt")
    found["killed"] = killed()
    torch.save(found, folder / f"found-{rank}.pt")
