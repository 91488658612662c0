"""`palaestra export`, `play`: what a run has trained, as a folder that others load, and at work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from palaestra.algebra.schema import episode_failed
from palaestra.errors import InputError
from palaestra.interface.cli.app import Trust, app, err, modules_here, say

Run = Annotated[Path, typer.Argument(metavar="RUN", help="what `train` wrote")]
Seed = Annotated[int | None, typer.Option("--seed", help="of the run [default: its first]")]


@app.command(short_help="Write a trained policy as a folder that others load.")
def export(
    run: Run,
    seed: Seed = None,
    policy: Annotated[str | None, typer.Option("--policy", help="only this one [default: all]")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder [default: RUN/seed-N/policies, or best]")] = None,
    best: Annotated[
        bool, typer.Option("--best", help="the kept checkpoint whose look was best, not the last; it flatters")
    ] = False,
    push: Annotated[str | None, typer.Option("--push", metavar="OWNER/NAME", help="also upload it to a hub")] = None,
    trust: Trust = False,
) -> None:
    """Write the trained policies of a run's folder: language models for transformers and peft, others as safetensors.

    `LMPolicy.load(FOLDER)` and `Team.load(RUN)` read them back.
    """
    from palaestra.learning import need_torch

    need_torch()
    if trust:
        modules_here()
    from palaestra.runs import saved_teams

    folders = saved_teams.export(run, seed=seed, policy=policy, out=out, best=best, trust=trust)
    for folder in folders.values():
        say(str(folder))
    if push is not None:
        if len(folders) != 1:
            raise InputError(f"--push: a repository holds one policy: add --policy, one of {', '.join(folders)}")
        say(saved_teams.push(next(iter(folders.values())), push))


@app.command(short_help="Watch a trained team play, or take a seat.")
def play(
    run: Run,
    seed: Seed = None,
    human: Annotated[str | None, typer.Option("--human", metavar="AGENT", help="take this seat yourself")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="how many")] = 1,
    task: Annotated[int, typer.Option(min=0, help="number of the first held-out task")] = 0,
    turns: Annotated[Path | None, typer.Option("--turns", help="write the turns into this Parquet file")] = None,
    trust: Trust = False,
) -> None:
    """Play held-out tasks with a run's team, turn by turn: what each agent sees, what it does, what it receives.

    With --human you see what that agent sees, and nothing else. With --turns all turns are kept as a table, those of a
    person included, and only the seat of the person is shown.
    """
    from palaestra.learning import need_torch

    need_torch()
    if trust:
        modules_here()
    from palaestra.agents import Team
    from palaestra.runs import interactive, saved_teams
    from palaestra.runs.envs import env

    recipe, _ = saved_teams.load_run(run, trust=trust)
    factory = env(recipe.env, "test")
    team = Team.load(run, seed=seed, trust=trust)

    def ask(prompt: str) -> str | None:
        err.print(prompt, end="", soft_wrap=True)
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    if turns is not None:
        played = interactive.play_recorded(factory, team, episodes=episodes, first=task, say=say, human=human, ask=ask)
        failed = played.frame.filter(episode_failed())
        errors = (
            f" ({failed.n_unique(('group', 'episode'))} with an error: {failed['error'][0]})" if len(failed) else ""
        )
        say(f"{len(played)} turns of {episodes} episodes{errors}: {played.save(turns)}")
        return
    for number in range(episodes):
        interactive.episode(factory, team, seed=task + number, say=say, human=human, ask=ask)
