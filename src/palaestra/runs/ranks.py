"""Processes that learn together in a run: started here (`--ranks 2`), or by torchrun.

Rank 0 is the process of the seed: it plays, evaluates, writes and says how far it is, as if it were alone. The others
are told for whom to make a learner, and follow it. Left out: seeds side by side under torchrun, which gives the ranks
of one learner only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from palaestra.errors import PalaestraError, RecipeError
from palaestra.learning.ranks import leave, world
from palaestra.play import forkserver
from palaestra.runs.recipe import Recipe, import_modules

END = 10.0
"""Seconds that other ranks have to end by themselves."""


def by_torchrun() -> bool:
    """Whether this process is one of several ranks, by the environment variable `WORLD_SIZE`, as torchrun sets it."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def ranks_fit(recipe: Recipe, ranks: int) -> None:
    """Raise RecipeError if several ranks are asked for and the recipe cannot use them.

    Raises:
        RecipeError: says what to write.
    """
    if ranks > 1 and by_torchrun():
        raise RecipeError(
            f"--ranks {ranks} under torchrun, which has started {os.environ['WORLD_SIZE']}: give one of both"
        )
    if ranks == 1 and not by_torchrun():
        return
    if recipe.learn.kind != "policy_gradient":
        raise RecipeError(f"learn.kind: {recipe.learn.kind!r} learns in one process; leave --ranks out")
    if recipe.learn.devices == "one":
        raise RecipeError("learn.devices: several ranks need 'ddp' (each has the models) or 'fsdp' (each has a part)")


@contextlib.contextmanager
def started(count: int, timeout: float) -> Iterator[None]:
    """Context manager: makes this process rank 0 of `count` local processes, starts the others, ends them at exit."""
    if count < 2:
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    context = forkserver.context(*forkserver.TORCH)
    numbered = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    others = [
        context.Process(target=serve, args=(timeout, dict(os.environ) | each), daemon=True) for each in numbered[1:]
    ]
    for process in others:
        process.start()
    os.environ.update(numbered[0])
    try:
        world(timeout)
        with dismissed():
            yield
    finally:
        end = time.monotonic() + END
        for process in others:
            process.join(max(end - time.monotonic(), 0.0))
            process.kill()  # one that hangs does not hear anything less
        leave()
        for name in numbered[0]:
            del os.environ[name]


@contextlib.contextmanager
def dismissed() -> Iterator[None]:
    """Context manager that tells the other ranks at its end that there is no more to do."""
    try:
        yield
    finally:
        group = world(END)
        if group is not None and group.broken is None:
            with contextlib.suppress(RuntimeError, PalaestraError):
                group.announce(None)


def invite(recipe: Mapping[str, Any], seed: int, corpus: list[str]) -> None:
    """Tell the other ranks to make the team and learner of this recipe, seed and corpus; rank 0 then makes its own."""
    group = world(recipe["learn"]["timeout"])
    if group is not None:
        group.announce((dict(recipe), seed, corpus))


def serve(timeout: float, variables: Mapping[str, str]) -> None:
    """Entry point of a local process of rank > 0 with environment `variables`: follows rank 0 to its end."""
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts means rank 0
    try:
        _follow(timeout)
    except PalaestraError as error:
        sys.exit(f"palaestra, rank {os.environ['RANK']}: {error}")


def followed(recipe: Recipe) -> bool:
    """On ranks other than 0 under torchrun, serve `recipe` until rank 0 ends, then True; elsewhere False at once."""
    if not by_torchrun() or os.environ["RANK"] == "0":
        return False
    ranks_fit(recipe, 1)
    _follow(recipe.learn.timeout)
    return True


def _follow(timeout: float) -> None:
    import torch

    from palaestra.runs.build import resolve

    group = world(timeout)
    assert group is not None
    while (job := group.heard()) is not None:
        written, seed, corpus = job
        import_modules(written["imports"])
        recipe = Recipe.model_validate(written)
        torch.set_num_threads(recipe.train.threads)
        setup = resolve(recipe)
        learner: Any = setup.learner(setup.team(seed, corpus))
        learner.follow()
