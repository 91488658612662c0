"""Computes the status of a system from its worked numbers, its parts taken out, the code that runs, and its use.

`docs/evidence.md` says in one page how a row is judged. Nothing here is written by hand into a status.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
import re
import shlex
import time
import tokenize
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from palaestra.errors import InputError, PalaestraError
from palaestra.foundation.registry import REGISTRIES
from palaestra_atlas.reproductions import Exact, Reproduction, checks_of
from palaestra_atlas.rows import Mechanism, Part, System, read_mechanism, read_rows, row_files
from palaestra_atlas.verification.edits import applied
from palaestra_atlas.verification.evidence import CheckResult, Evidence, PartResult, Status, UseResult, origin
from palaestra_atlas.verification.tracing import traced
from palaestra_atlas.verification.uses import run_use

FRESH = 1000
"""First seed of the block that no choice was made on, unless `--seeds` says another."""

Say = Callable[[str], None]


@dataclass
class Findings:
    """What is found of one row, while it is looked for."""

    checks: list[CheckResult] = field(default_factory=list)
    parts: list[PartResult] = field(default_factory=list)
    untraced: tuple[str, ...] = ()
    use: UseResult | None = None
    reasons: list[str] = field(default_factory=list)


def verify(
    number: int,
    *,
    package: str = "palaestra_atlas",
    fresh: int = FRESH,
    fast: bool = False,
    say: Say = lambda text: None,
) -> Evidence:
    """Verify one system.

    Args:
        number: id of the system.
        package: the package with its row.
        fresh: first seed of the fresh block; experiments and uses run on as many seeds from it as documented.
        fast: leave out slow experiments, and run the use for two iterations; the status is then `unverified` at best.
        say: called with what is being done, for progress.

    Returns:
        The evidence; nothing is written.
    """
    row, mechanism = read_rows(package)[number], read_mechanism(number, package)
    digest = digest_of(number, package)
    if not row.where:
        return Evidence(id=number, status="planned", digest=digest, fast=fast, **origin())
    found = Findings()
    checks = checks_of(number, package)
    if fast:
        checks = [check for check in checks if isinstance(check, Exact) or not check.slow]
    _clean(row, checks, fresh, fast, found, say)
    for place, part in enumerate(mechanism.parts):
        say(f"part {place + 1} of {len(mechanism.parts)}")
        found.parts.append(_without(part, checks, found.checks, fresh, fast))
    if row.use is not None:
        say("use")
        found.use = run_use(row.use, [fresh + place for place in range(1, row.use.seeds + 1)], fast=fast)
    reasons = [*found.reasons, *_reasons(row, mechanism, found, fast)]
    status: Status = "partly" if reasons else "unverified" if fast else "works"
    evidence = Evidence(
        id=number,
        status=status,
        digest=digest,
        fast=fast,
        fresh=fresh,
        checks=tuple(found.checks),
        parts=tuple(found.parts),
        untraced=found.untraced,
        use=found.use,
        **origin(),
    )
    if not fast and (problem := note_problem(row, evidence)):
        reasons.append(problem)
        status = "partly"
    return evidence.model_copy(update={"reasons": tuple(reasons), "status": status})


def run_check(check: Exact | Reproduction, seeds: Sequence[int] = ()) -> CheckResult:
    """Run one check; an assertion that fails is a finding, any other exception is an error that is named."""
    start = time.perf_counter()
    measured: dict[str, float | None] = {}
    holds, error = False, None
    try:
        if isinstance(check, Exact):
            check()
            holds = True
        else:
            outcome = check.measure(seeds)
            values = {name: float(value) for name, value in outcome.measured.items()}
            measured = {name: value if math.isfinite(value) else None for name, value in values.items()}
            holds = bool(outcome.holds) and None not in measured.values()
    except AssertionError as failed:
        error = f"AssertionError: {str(failed).strip()[:300]}"
    except Exception as failed:  # whatever an experiment does
        error = f"{type(failed).__name__}: {str(failed).strip()[:300]}"
    return CheckResult(
        name=check.name,
        seeds=tuple(seeds),
        holds=holds,
        measured=measured,
        seconds=round(time.perf_counter() - start, 3),
        error=error,
    )


def blocks_of(check: Exact | Reproduction, fresh: int, fast: bool) -> list[tuple[int, ...]]:
    """The blocks of seeds of a check: none for an exact one; documented and fresh ones for an experiment."""
    if isinstance(check, Exact):
        return [()]
    documented = tuple(check.seeds)
    return [documented] if fast else [documented, tuple(fresh + place for place in range(len(documented)))]


def _clean(
    row: System, checks: Sequence[Exact | Reproduction], fresh: int, fast: bool, found: Findings, say: Say
) -> None:
    """All checks as they are, on both blocks; what they execute is noted on the first."""
    if not any(isinstance(check, Exact) for check in checks):
        found.reasons.append("no exact check: the card's worked numbers are not tested")
    names = [*row.where, *names_of_use(row)]
    with contextlib.ExitStack() as stack:
        called: set[str] = set()
        try:
            called = stack.enter_context(traced(names))
        except InputError as error:
            found.reasons.append(f"where: {error}")
        for check in checks:
            say(check.name)
            found.checks.append(run_check(check, blocks_of(check, fresh, fast)[0]))
        if not fast:
            found.untraced = tuple(name for name in dict.fromkeys(names) if name not in called)
    for check in checks:
        for seeds in blocks_of(check, fresh, fast)[1:]:
            say(f"{check.name}, fresh seeds")
            found.checks.append(run_check(check, seeds))


def _without(
    part: Part, checks: Sequence[Exact | Reproduction], clean: Sequence[CheckResult], fresh: int, fast: bool
) -> PartResult:
    """Whether a check turns red on all its blocks of seeds when the part is taken out."""
    if part.indistinguishable or part.missing:
        why = f"indistinguishable: {part.indistinguishable}" if part.indistinguishable else f"not here: {part.missing}"
        return PartResult(part=part.part, problem=why)
    if part.out is None:
        return PartResult(part=part.part, problem="not bound to code")
    failing = {result.name for result in clean if not result.holds}
    named = {check.name: check for check in checks if check.name not in failing}
    known = {check for check in part.checks if check in named}
    if not known:
        problem = None if fast else f"of the checks {', '.join(part.checks)} none exists and holds"
        return PartResult(part=part.part, problem=problem)
    red, green = [], []
    for name in sorted(known, key=lambda name: isinstance(named[name], Reproduction)):
        results = []
        for seeds in blocks_of(named[name], fresh, fast):
            try:
                with applied(part.out):
                    results.append(run_check(named[name], seeds))
            except InputError as error:
                return PartResult(part=part.part, problem=f"the edit does not fit: {error}")
            broken = results[-1].error or ""
            if broken and not broken.startswith("AssertionError"):
                return PartResult(part=part.part, problem=f"the edit breaks {name}: {broken}")
        if not any(result.holds for result in results):
            red.append(name)
            break
        green.append(name if all(result.holds for result in results) else f"{name} on some seeds")
    problem = None if red else f"green without it: {', '.join(green)}"
    return PartResult(part=part.part, red=tuple(red), problem=problem)


def _reasons(row: System, mechanism: Mechanism, found: Findings, fast: bool) -> list[str]:
    """Why a row is not `works`, from what was found."""
    reasons = []
    for check in found.checks:
        if not check.holds:
            where = f" on seeds {check.seeds[0]} to {check.seeds[-1]}" if check.seeds else ""
            reasons.append(f"{check.name} does not hold{where}" + (f": {check.error}" if check.error else ""))
    reasons += [f"part {each.part!r}: {each.problem}" for each in found.parts if each.problem]
    if found.untraced:
        reasons.append(f"not executed by any check: {', '.join(found.untraced)}")
    if row.use is None:
        reasons.append("no use")
    elif found.use is not None and found.use.problem:
        reasons.append(f"use: {found.use.problem}")
    return reasons


def names_of_use(row: System) -> list[str]:
    """Dotted names of what the `use:` line names: signals, stages, terms, envs, workflows, questions to files."""
    if row.use is None:
        return []
    for home in ("palaestra.interface.cli.names",):
        import_module(home).registered_names()
    _, command, *words = shlex.split(row.use.line)
    if command == "analyze" and words:
        return [_dotted(REGISTRIES["analysis"][words[0]])] if words[0] in REGISTRIES["analysis"] else []
    found = []
    for place, text in _texts(command, words):
        unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
        names = re.findall(r"[A-Za-z_][\w./-]*+(?!=)" if place in NAMING else r"[A-Za-z_]\w*(?=\()", unquoted)
        first = FIRST.get(place) or FIRST.get(command, ())
        for name in names:
            for kind, registry in sorted(REGISTRIES.items(), key=lambda each: each[0] not in first):
                if kind not in ("reader", "chart", "tracker", "measure") and name in registry:
                    found.append(_dotted(registry[name]))
                    break
    return list(dict.fromkeys(found))


NAMING = {"credit", "reward", "stages", "learn.terms", "learn.kind", "env.make", "env.workflow", "play.executor", ""}
"""Fields of a recipe whose text names things; elsewhere only what is called counts. Empty: an argument of a command."""

FIRST = {
    "fit-reward": ("reward_model", "pairing"),
    "stages": ("stage",),
    "credit": ("signal",),
    "reward": ("signal",),
    "learn.terms": ("term",),
    "env.make": ("env",),
}
"""Registries in which the names of a command or of a recipe's field are looked up before all others: `linear` is also
a schedule, `debate` a panel."""


def _texts(command: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """Field and text of what a command line says."""
    if command not in ("train", "compare"):
        return [("", word) for word in words if not word.startswith("-")]
    return [(word.partition("=")[0], word.partition("=")[2]) for word in words if "=" in word]


def _dotted(found: Callable[..., object]) -> str:
    inner = inspect.unwrap(found)
    return f"{inner.__module__}.{inner.__qualname__}"


def note_problem(row: System, evidence: Evidence) -> str | None:
    """What is wrong with a note: a number that no evidence has."""
    try:
        _Numbers(evidence.numbers()).fill(row.note or "")
    except (KeyError, IndexError, ValueError, TypeError) as error:
        return f"note: no number {error} in the evidence"
    return None


def note_of(row: System, evidence: Evidence | None) -> str:
    """The note of a row with its numbers filled in; those that no evidence has are left as their names."""
    return _Numbers(evidence.numbers() if evidence else {}, strict=False).fill(row.note or "")


class _Numbers:
    """Fills `{a.b:.2f}` from nested mappings; strict: what is not there is an error, else its name stands for it."""

    def __init__(self, numbers: dict[str, object], *, strict: bool = True) -> None:
        self.numbers, self.strict = numbers, strict

    def fill(self, note: str) -> str:
        return re.sub(r"\{([^{}:]+)(?::([^{}]*))?\}", self.value, note)

    def value(self, match: re.Match[str]) -> str:
        try:
            return format(self.find(match[1]), match[2] or "")
        except (KeyError, ValueError, TypeError):
            if self.strict:
                raise
            return f"<{match[1]}>"

    def find(self, path: str) -> object:
        found: object = self.numbers
        for part in path.split("."):
            if not isinstance(found, dict) or part not in found:
                raise KeyError(path)
            found = found[part]
        return found


def digest_of(number: int, package: str = "palaestra_atlas") -> str:
    """SHA-256 of a row, its experiment and the code of the modules that it names, as hexadecimal text."""
    family, file = row_files(package)[number]
    names: set[str] = {f"{package}.catalog.{family}.{file.name.removesuffix('.yaml')}"}
    row, mechanism = read_rows(package)[number], read_mechanism(number, package)
    names |= {edit.module for part in mechanism.parts for edit in part.out or ()}
    names |= set(_modules(row.where))
    sources = [file.read_text(encoding="utf-8")]
    for name in sorted(names):
        with contextlib.suppress(ModuleNotFoundError, TypeError):
            sources.append(_code_of(Path(str(inspect.getsourcefile(import_module(name))))))
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING}


def _code_of(file: Path) -> str:
    """Tokens of a source file without comments, docstrings and line breaks: other words make no evidence stale."""
    with file.open("rb") as stream:
        tokens = [token for token in tokenize.tokenize(stream.readline) if token.type != tokenize.COMMENT]
    starts = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.ENCODING}
    kept = []
    for place, token in enumerate(tokens):
        docstring = token.type == tokenize.STRING and tokens[place - 1].type in starts
        if token.type not in _LAYOUT and not (docstring and tokens[place + 1].type == tokenize.NEWLINE):
            kept.append(token.string if token.string.strip() or token.type == tokenize.DEDENT else "\t")
    return "\n".join(kept)


def _modules(names: Iterable[str]) -> list[str]:
    from palaestra_atlas.verification.tracing import resolve

    found = []
    for name in names:
        with contextlib.suppress(PalaestraError):
            found.append(getattr(inspect.unwrap(resolve(name)), "__module__", name.rpartition(".")[0]))
    return found
