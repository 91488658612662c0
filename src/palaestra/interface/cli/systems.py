"""`palaestra systems`, `reproduce`: the atlas, and the experiments behind it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from palaestra.errors import InputError
from palaestra.interface.cli.app import Json, app, err, out, show


@app.command(short_help="The atlas of published systems.")
def systems(
    identity: Annotated[str | None, typer.Argument(metavar="ID", help="show this system (id or name)")] = None,
    survey: Annotated[bool, typer.Option("--survey", help="by the parts of an agent, with what is missing")] = False,
    as_json: Json = False,
) -> None:
    """The atlas: published systems and what each became here."""
    from palaestra.atlas import system
    from palaestra.atlas import systems as all_systems
    from palaestra.atlas.render import page, parts, table

    if survey:
        from palaestra.atlas.taxonomy import taxonomy

        if identity is not None:
            raise InputError(f"systems: --survey is of all systems; leave {identity!r} out")
        placed = taxonomy()
        show(placed.to_dicts()) if as_json else out.print(parts(placed))
    elif identity is not None:
        one = system(identity)
        show(one.to_dict()) if as_json else out.print(page(one))
    else:
        everything = all_systems()
        show([each.to_dict() for each in everything]) if as_json else out.print(table(everything))


@app.command(short_help="Run the experiment of a system.")
def reproduce(
    identity: Annotated[str | None, typer.Argument(metavar="ID", help="system to reproduce (id or name)")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all systems that have a reproduction")] = False,
    as_json: Json = False,
) -> None:
    """Run the experiment that shows that a system's mechanism works; exit 0 iff its criterion holds."""
    from palaestra.atlas import system
    from palaestra.atlas.harness import all_ids
    from palaestra.atlas.harness import reproduce as run_one

    if (identity is None) == (not everything):
        raise InputError("reproduce: give the id of one system, or --all")
    results = []
    for each in [system(identity).id] if identity is not None else all_ids():
        with err.status(Text(f"reproducing [{each}]")):
            results.append(run_one(each))
        if not as_json:
            row = results[-1].to_dict()
            out.print(f"[{row['id']}] {row['claim']}")
            for field in ("baseline", "measured", "criterion"):
                out.print(f"    {field}: {row[field]}")
            out.print(f"    {'holds' if row['holds'] else 'does NOT hold'} ({row['seconds']:.1f} s)")
    if as_json:
        show([r.to_dict() for r in results] if everything else results[0].to_dict())
    if not all(result.holds for result in results):
        raise typer.Exit(1)
