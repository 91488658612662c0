"""`palaestra judge`: a rubric asked about any logs, at any endpoint, each verdict paid for once, within a budget."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaestra.errors import InputError, nearest
from palaestra.interface.cli.app import Json, app, hint, out, prefix_errors, say, show, table_of
from palaestra.interface.cli.evaluate import Format, Paths, System, read

if TYPE_CHECKING:
    import polars as pl

    from palaestra.judges import Endpoint, Progress

EPISODE = ("run", "iteration", "group", "episode")
MOST = 0.5
"""Share of missing verdicts from which on the last line says so."""
_EVERY = 5.0
"""Seconds between two lines of progress."""
_WRITE = {".parquet": "write_parquet", ".csv": "write_csv", ".jsonl": "write_ndjson"}


@app.command(short_help="Ask a model on a rubric about any logs.")
def judge(
    paths: Paths,
    target: Annotated[Path, typer.Option("--out", metavar="FILE", help="verdicts: .parquet, .csv or .jsonl")],
    rubric: Annotated[
        Path | None, typer.Option(help="YAML: items with name, question and perhaps weight, scale …")
    ] = None,
    model: Annotated[str | None, typer.Option(help="as the endpoint calls it")] = None,
    instructions: Annotated[
        Path | None, typer.Option(metavar="FILE.j2", help="Jinja template of every question instead of the shipped one")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(metavar="TEXT", help="instead of a rubric and a model: any of `names scorer`")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="OpenAI-compatible, with /v1 [default: $OPENAI_BASE_URL]")
    ] = None,
    key_env: Annotated[
        str, typer.Option(metavar="NAME", help="environment variable with the key; none: there is no key")
    ] = "OPENAI_API_KEY",
    level: Annotated[str, typer.Option(help="episode, or turn: each turn with what came before it")] = "episode",
    baseline: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM", help="compare with this system on the same tasks, in both orders"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--reference", metavar="COLUMN", help="compare with the text in this column, in both orders"),
    ] = None,
    votes: Annotated[int, typer.Option(min=1, help="ask each question so often")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="of the answers")] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="of one answer; one that is cut off has no verdict")] = 512,
    concurrency: Annotated[int, typer.Option(min=1, help="requests at a time")] = 16,
    timeout: Annotated[float, typer.Option(help="seconds for one request")] = 60.0,
    patience: Annotated[float, typer.Option(help="seconds that the endpoint may be absent before this stops")] = 600.0,
    budget_calls: Annotated[int | None, typer.Option(help="most requests of the ledger, in all its runs")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="most tokens of it, both directions")] = None,
    budget_price: Annotated[
        float | None, typer.Option(help="most that it may cost; needs --price-in/--price-out")
    ] = None,
    price_in: Annotated[float | None, typer.Option(help="price of a million tokens of prompt")] = None,
    price_out: Annotated[float | None, typer.Option(help="price of a million tokens of answer")] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="what was asked and answered; none: nothing is kept [default: beside --out]"),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="also ask what may have been paid for and never came")] = False,
    calls: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="also write the judge's calls as a table of turns")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would take, ask nobody")] = False,
    format: Format = None,
    system: System = None,
    as_json: Json = False,
) -> None:
    """Ask a model on a rubric about logs, write verdicts to a file; resumes a killed run; exit 1 if one is missing."""
    from palaestra.evaluation.logs import Names
    from palaestra.evaluation.triage import by_system
    from palaestra.judges import Budget, Endpoint, Ensemble, Judged, Ledger, cases, read_rubric
    from palaestra.judges.judged import endpoints_of
    from palaestra.judges.kept_calls import KeptCalls
    from palaestra.judges.scorers import build

    write = _writer(target)
    if scorer is not None and instructions is not None:
        raise InputError("judge: --instructions is of --rubric and --model; a --scorer has its own")
    if instructions is not None and not instructions.is_file():
        raise InputError(f"--instructions {instructions}: there is no such file")
    if (scorer is None) == (rubric is None or model is None):
        raise InputError("judge: give --rubric and --model, or --scorer")
    made: Any = Ensemble([build(scorer)]) if scorer else None
    items = read_rubric(rubric) if rubric else []
    with prefix_errors(paths):
        rows, reference = _pairs(cases(by_system(read(paths, format, Names(system)).turns), level), baseline)  # type: ignore[arg-type]
        if against is not None:
            reference = _beside(rows, against, baseline)
    asker: Endpoint | None = None
    file = ledger or target.with_name(f"{target.stem}.calls.sqlite")
    nowhere = str(file).casefold() == "none"
    calls_of = KeptCalls(file.with_suffix(""), limit=None)
    if made is not None and not nowhere:
        calls_of.attach(made, again=again)
        for each in endpoints_of(made):
            each.watch = _ProgressLine(each)
    if made is None:
        kept = Ledger() if nowhere or (dry_run and not file.exists()) else Ledger(file)
        asker = Endpoint(
            str(model), base_url=endpoint, api_key_env=None if dry_run or key_env.casefold() == "none" else key_env,
            temperature=temperature, max_tokens=max_tokens, concurrency=concurrency, timeout=timeout, patience=patience,
            price_in=price_in, price_out=price_out, again=again, ledger=kept,
            budget=Budget(budget_calls, budget_tokens, budget_price),
        )  # fmt: skip
        asker.watch = _ProgressLine(asker)
        told = None if instructions is None else instructions.read_text("utf-8")
        made = Judged(items, asker, votes=votes, instructions=told)
    if dry_run:
        if asker is None:
            raise InputError("judge: --dry-run tells what an endpoint would take; a --scorer costs what it costs")
        estimate = asker.estimate(made.questions(rows, reference=reference)[0])
        show(estimate) if as_json else _plan(estimate, asker)
    else:
        table = made.verdicts(rows, reference=reference, samples=votes)
        whole = _file(rows, reference, table, made)
        write(whole)
        if calls is not None and isinstance(made, Judged):
            made.calls.save(calls)
        _report(whole, asker, target, as_json)
    if asker is not None:
        asker.ledger.close()
    calls_of.close()
    if not dry_run and not table["ok"].all():
        raise typer.Exit(1)


def _file(rows: pl.DataFrame, reference: pl.DataFrame | None, verdicts: pl.DataFrame, scorer: Any) -> pl.DataFrame:
    """The verdicts with what they are about (texts, length in characters) and the weighted `score` of their item."""
    import polars as pl

    from palaestra.judges import Judged
    from palaestra.judges.judged import item_scores
    from palaestra.judges.panels import Panel

    judges = (each for each in (scorer, *getattr(scorer, "members", ())) if isinstance(each, Judged | Panel))
    made = next(judges, None)
    if isinstance(made, Panel):
        scored = made.item_scores(verdicts)
    else:
        scored = item_scores(verdicts, made.weights if made else None)
    keys = [name for name in (*EPISODE, "turn", "system", "task", "item") if name in rows.columns]
    about = rows.select(*keys, "prompt", "response", length=pl.col("response").str.len_chars())
    if reference is not None:
        about = about.with_columns(reference=reference["response"])
    about = about.join(scored, on="item", how="left", maintain_order="left")
    return about.join(verdicts, on="item", how="left", maintain_order="left_right")


def _writer(target: Path) -> Any:
    from palaestra.foundation.files import atomic_write

    if target.suffix not in _WRITE:
        raise InputError(f"--out {target}: verdicts are written as {', '.join(_WRITE)}")

    def write(table: pl.DataFrame) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as path:
            getattr(table, _WRITE[target.suffix])(path)

    return write


def _pairs(rows: pl.DataFrame, baseline: str | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The cases, numbered; with a baseline those of the others, and the baseline's of the same task and trial."""
    import polars as pl

    if baseline is None:
        return rows.with_row_index("item"), None
    systems = rows["system"].unique().to_list() if "system" in rows.columns else []
    if baseline not in systems:
        raise InputError(f"--baseline {baseline!r}: no such system{nearest(baseline, systems)}")
    if "task" not in rows.columns:
        raise InputError("--baseline: the logs name no tasks on which two systems could be compared")
    trial = pl.int_range(pl.len()).over("system", "task").alias("_trial")
    numbered = rows.with_columns(trial)
    theirs = numbered.filter(pl.col("system") == baseline).select("task", "_trial", pl.col("response").alias("_other"))
    met = numbered.filter(pl.col("system") != baseline)
    met = met.join(theirs, on=["task", "_trial"], how="inner", maintain_order="left").with_row_index("item")
    if not len(met):
        raise InputError(f"--baseline {baseline!r}: no other system played one of its tasks")
    return met.drop("_trial", "_other"), met.select(response="_other")


def _beside(rows: pl.DataFrame, column: str, baseline: str | None) -> pl.DataFrame:
    """The texts of a column as the reference."""
    import polars as pl

    if baseline is not None:
        raise InputError("--reference and --baseline: give one of them")
    if column not in rows.columns:
        raise InputError(f"--reference {column!r}: the logs have no such column{nearest(column, rows.columns)}")
    return rows.select(response=pl.col(column).cast(pl.String))


class _ProgressLine:
    """A line on stderr now and then: how far, how long still, the price so far."""

    def __init__(self, asker: Endpoint) -> None:
        self.asker, self.next = asker, time.monotonic() + _EVERY

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + _EVERY
        left = progress.seconds_left
        if progress.absent:
            hint(
                f"{progress.known + progress.done} of {progress.total} answered; the endpoint has been absent for "
                f"{progress.absent:.0f} s, all wait ({progress.why}); after {self.asker.patience:g} s this ends"
            )
            return
        hint(
            f"{progress.known + progress.done} of {progress.total} answered, {progress.failed} failed, "
            f"{'?' if left is None else f'{left:.0f}'} s left, {_price(self.asker)}"
        )


def _price(asker: Endpoint) -> str:
    spent = asker.ledger.spent
    return f"{spent.calls} calls, {spent.tokens} tokens" + (f", price {spent.cost:.4g}" if spent.cost else "")


def _plan(told: dict[str, Any], asker: Endpoint) -> None:
    say(f"{told['questions']} questions, {told['known']} of them answered or lost already; {told['calls']} calls")
    say(f"about {told['tokens']} tokens, at most {told['most_tokens']} without retries")
    if asker.price_in or asker.price_out:
        say(f"about {told['price']:.4g} to pay, at most {told['most_price']:.4g} without retries")
    say(f"the ledger has {_price(asker)}")


def _report(table: pl.DataFrame, asker: Endpoint | None, target: Path, as_json: bool) -> None:
    import polars as pl

    from palaestra.judges import order_balance

    by = [name for name in ("system", "criterion") if name in table.columns]
    rows = table.group_by(by, maintain_order=True).agg(
        verdicts=pl.col("ok").sum(), failed=(~pl.col("ok")).sum(), mean=pl.col("value").mean()
    )
    compared = table["order"].is_not_null().any()
    if compared:
        balance = order_balance(table, by=by).select(*by, "consistent", "first")
        rows = rows.join(balance, on=by, how="left", maintain_order="left")
    if as_json:
        spent = vars(asker.ledger.spent) if asker else {}
        show({"verdicts": rows.to_dicts(), "spent": spent, "out": str(target)})
    else:
        shown = table_of(*rows.columns)
        for row in rows.rows():
            shown.add_row(*("–" if x is None else f"{x:.3g}" if isinstance(x, float) else str(x) for x in row))
        out.print(shown)
        if compared:
            say("consistent: share of pairs with the same winner in both orders; first: share won by what came first")
        say(f"{_price(asker)}; verdicts: {target}" if asker else f"verdicts: {target}")
    for why, number in _failures(table, asker is not None):
        hint(f"no verdict: {number} × {why}")
    unanswered = table.filter(~pl.col("ok") & pl.col("rationale").str.contains(r"(^|\n)error: ").fill_null(False))
    if (missing := len(unanswered)) and missing >= MOST * len(table):
        hint(
            f"{'NOTHING' if missing == len(table) else 'LITTLE'} WAS JUDGED: {missing:,} of {len(table):,} questions "
            f"got no answer, most often because of: {_failures(unanswered, True)[0][0][:200]}"
        )


def _failures(table: pl.DataFrame, asked: bool) -> list[tuple[str, int]]:
    import polars as pl

    said = pl.col("rationale").is_not_null() | asked  # what has no words had a value, or none
    unread = pl.when(said).then(pl.lit("an answer that cannot be read")).otherwise(pl.lit("the scorer has no value"))
    why = pl.col("rationale").fill_null("").str.extract(r"error: ([^\n]*)$").fill_null(unread)
    return table.filter(~pl.col("ok")).group_by(why.alias("why")).len().sort("len", "why", descending=True).rows()[:5]
