"""Commands of the atlas: `palaestra systems`, `reproduce` and `verify`. Loaded as a plugin of the command line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.text import Text

from palaestra.errors import InputError
from palaestra.interface.cli.app import Json, app, err, hint, out, show

if TYPE_CHECKING:
    from rich.status import Status

    from palaestra_atlas.verification.evidence import Evidence


@app.command(short_help="The atlas of published systems.")
def systems(
    identity: Annotated[str | None, typer.Argument(metavar="ID", help="show this system (id or name)")] = None,
    survey: Annotated[bool, typer.Option("--survey", help="by the parts of an agent, with what is missing")] = False,
    evolves: Annotated[bool, typer.Option("--evolves", help="loops by what evolves, when, by which signal")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="self-improvement lines as steps of a pipeline")] = False,
    as_json: Json = False,
) -> None:
    """List published systems and what each is here; with an ID, show one."""
    from palaestra_atlas import system
    from palaestra_atlas import systems as all_systems
    from palaestra_atlas.render import page, parts, plain, table

    if chosen := [name for name, asked in (("--evolves", evolves), ("--steps", steps)) if asked]:
        if identity is not None or survey or len(chosen) > 1:
            raise InputError(f"systems: {chosen[0]} stands alone; leave the other option or the id out")
        _lines(evolves, as_json)
    elif survey:
        from palaestra_atlas.taxonomy import taxonomy

        if identity is not None:
            raise InputError(f"systems: --survey is of all systems; leave {identity!r} out")
        placed = taxonomy()
        show(placed.to_dicts()) if as_json else out.print(parts(placed))
    elif identity is not None:
        one = system(identity)
        show(plain(one)) if as_json else out.print(page(one))
    else:
        everything = all_systems()
        show([plain(each) for each in everything]) if as_json else out.print(table(everything, out.width))


def _lines(evolves: bool, as_json: bool) -> None:
    """Loops by the axes of [6], or the training lines of self-improvement as steps in the words of [36]."""
    from palaestra_atlas.pipelines import evolution, pipelines
    from palaestra_atlas.render import lists

    rows = evolution().to_dicts() if evolves else pipelines()
    show(rows) if as_json else out.print(lists(rows, leave_out=("steps", "differs")))


@app.command(short_help="Run the experiment of a system.")
def reproduce(
    identity: Annotated[str | None, typer.Argument(metavar="ID", help="system to reproduce (id or name)")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all systems that have a reproduction")] = False,
    seeds: Annotated[str | None, typer.Option("--seeds", help="instead of the documented ones: 5, or 100..109")] = None,
    as_json: Json = False,
) -> None:
    """Run the experiments that show that a system's mechanism works; exit 0 iff their criteria hold."""
    from palaestra_atlas import system
    from palaestra_atlas.reproductions import all_ids
    from palaestra_atlas.reproductions import reproduce as run

    if (identity is None) == (not everything):
        raise InputError("reproduce: give the id of one system, or --all")
    results = []
    for each in [system(identity).id] if identity is not None else all_ids():
        with err.status(Text(f"reproducing [{each}]")):
            found = run(each, seeds=None if seeds is None else _seeds(seeds))
        results += found
        for row in () if as_json else (result.to_dict() for result in found):
            out.print(f"[{row['id']}] {row['claim']}")
            for field in ("baseline", "measured", "criterion"):
                out.print(f"    {field}: {row[field]}")
            out.print(f"    {'holds' if row['holds'] else 'does NOT hold'} ({row['seconds']:.1f} s)")
    if as_json:
        show([r.to_dict() for r in results] if everything or len(results) > 1 else results[0].to_dict())
    if not all(result.holds for result in results):
        raise typer.Exit(1)


@app.command(short_help="Compute whether systems work, and write the evidence.")
def verify(
    identities: Annotated[list[str] | None, typer.Argument(metavar="ID", help="ids, names or a package")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all systems that are not planned")] = False,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="first seed of the fresh block")] = 1000,
    fast: Annotated[bool, typer.Option("--fast", help="without trainings: exact numbers and their parts")] = False,
    force: Annotated[bool, typer.Option("--force", help="also what has evidence of this code")] = False,
    again: Annotated[bool, typer.Option("--again", help="keep the evidence; add the status on these seeds")] = False,
    shard: Annotated[str, typer.Option("--shard", help="a part of the work: 1/4, 2/4 …")] = "1/1",
    directory: Annotated[Path | None, typer.Option("--out", help="folder for the evidence [the atlas]")] = None,
    as_json: Json = False,
) -> None:
    """Compute the status of systems: worked numbers, every part taken out, what runs, the line that a person uses.

    Writes a JSON file per system. What has evidence of the same code is not done again. Exit 1 if one works only
    partly.
    With `--again` the evidence stays, and the status on another block of seeds is written beside it.
    """
    from palaestra_atlas.verification import evidence
    from palaestra_atlas.verification.verify import digest_of
    from palaestra_atlas.verification.verify import verify as verify_one

    package, numbers = _chosen(identities or [], everything)
    first, parts = _shard(shard)
    folder = directory or evidence.folder()
    found = []
    for number in numbers[first - 1 :: parts]:
        before, digest = evidence.read(number, folder), digest_of(number, package)
        if again and (before is None or fast or before.fresh == seeds):
            raise InputError(_no_repeat(number, before, fast))
        if before is not None and not force and not fast and _known(before, digest, seeds if again else None):
            found.append(before)
        else:
            with err.status(Text(f"[{number}]")) as status:

                def say(text: str, number: int = number, status: Status = status) -> None:
                    status.update(Text(f"[{number}] {text}"))

                done = verify_one(number, package=package, fresh=seeds, fast=fast, say=say)
            found.append(done)
            if again and before is not None:
                done = before.repeated(done)
            elif before is not None:
                done = done.model_copy(update={"repeats": before.repeats})
            if not fast or directory is not None:
                evidence.write(done, folder)
        if not as_json:
            _say(found[-1])
    if as_json:
        show([each.model_dump(mode="json") for each in found])
    counts = Counter(each.status for each in found)
    hint(", ".join(f"{counts[status]} {status}" for status in get_args(evidence.Status) if counts[status]))
    if any(each.status == "partly" for each in found):
        raise typer.Exit(1)


def _known(before: Evidence, digest: str, block: int | None) -> bool:
    """Whether there is evidence of this code: of its fresh block, or of this further one."""
    if block is None:
        return not before.fast and before.digest == digest
    return any(each.fresh == block and each.digest == digest for each in before.repeats)


def _no_repeat(number: int, before: Evidence | None, fast: bool) -> str:
    if fast:
        return "verify: --again needs whole evidence; leave --fast out"
    if before is None:
        return f"verify: [{number}] has no evidence that --again could add to; run `palaestra verify {number}` first"
    return f"verify: [{number}] was verified on block {before.fresh}; name another one with --seeds"


def _seeds(text: str) -> list[int]:
    """The seeds that `5`, `1,2,3` or `100..109` names."""
    first, dots, last = text.partition("..")
    numbers = [first, last] if dots else text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise InputError(f"--seeds {text!r}: write e.g. 5, 1,2,3 or 100..109")
    if dots and int(first) > int(last):
        raise InputError(f"--seeds {text!r}: names no seed; write {last}..{first}")
    return list(range(int(first), int(last) + 1)) if dots else [int(number) for number in numbers]


def _chosen(identities: list[str], everything: bool) -> tuple[str, list[int]]:
    """The package and the ids that the command line names."""
    from palaestra_atlas import system
    from palaestra_atlas.rows import read_rows

    if not identities and not everything:
        raise InputError("verify: give ids of systems, a package with rows, or --all")
    if len(identities) == 1 and not identities[0].isdecimal():
        try:
            rows = read_rows(identities[0])
            return identities[0], list(rows)
        except ModuleNotFoundError:
            pass
    if everything:
        return "palaestra_atlas", [number for number, row in read_rows().items() if row.where]
    return "palaestra_atlas", [system(each).id for each in identities]


def _shard(text: str) -> tuple[int, int]:
    first, _, parts = text.partition("/")
    if not (first.isdecimal() and parts.isdecimal() and 1 <= int(first) <= int(parts)):
        raise InputError(f"--shard {text!r}: write e.g. 1/4")
    return int(first), int(parts)


def _say(found: Evidence) -> None:
    out.print(f"[{found.id}] {found.status}")
    for reason in found.reasons:
        out.print(f"    {reason}")
