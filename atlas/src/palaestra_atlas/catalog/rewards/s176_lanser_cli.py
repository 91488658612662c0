"""[176] Lanser-CLI (report of 24 October 2025): the published formula pays for breaking and fixing, its potential not.

A toy repository of twelve modules, some broken. A fixer repairs one a turn and is done; an oscillator breaks three and
repairs them, for ever; a breaker breaks. As published, safety is paid again every turn: who never ends wins. (A fixer
that idles to the end gets 18 to the oscillator's 16: it is the length that is paid, not the loop.) Diagnostics are
counted by `PythonSyntax`, so that no server is needed; the tests use real ones. Left out: a model that edits.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Repair
from palaestra.errors import InputError
from palaestra.evaluation.audits.cycles import cycle_gain
from palaestra.judges import DiagnosticsCache, LanguageServer, PythonSyntax, apply_edits, bundle_id, check_turns, locate
from palaestra.learning.stages.workspaces import checked
from palaestra.play.rollout import rollout
from palaestra.rewards import lanser_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

MODULES, BROKEN, TURNS = 12, 4, 40
SOUND, UNSOUND = "x = 1\n", "x = (\n"
FORMS: dict[str, Signal] = {"published": lanser_reward(method="published"), "potential": lanser_reward()}
NAMES = ("diagnostics_before", "diagnostics", "safe", "confidence")
WORKED = (((5, 2, 1, 0.94), 1.894), ((3, 2, 1, 0.72), 0.872), ((7, 7, 0, 0.62), -0.038))


def edits(policy: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """bool[modules] before, bool[turns, modules] after each turn: which modules are broken."""
    broken = np.zeros(MODULES, bool)
    broken[rng.permutation(MODULES)[:BROKEN]] = True
    start, after = broken.copy(), []
    loop = rng.permutation(np.flatnonzero(~broken))[:3]
    for turn in range(TURNS):
        if policy == "fixer" and not broken.any():
            break
        if policy == "fixer":
            broken[rng.choice(np.flatnonzero(broken))] = False
        elif policy == "oscillator":
            broken[loop] = turn % 2 == 0
        elif policy == "breaker" and not broken.all():
            broken[rng.choice(np.flatnonzero(~broken))] = True
        after.append(broken.copy())
    return start, np.array(after)


def workspace(broken: np.ndarray) -> dict[str, str]:
    """Modules by path."""
    return {f"module_{number}.py": UNSOUND if bad else SOUND for number, bad in enumerate(broken)}


def played(policy: str, seed: int) -> Turns:
    """The turns of one episode, with the facts."""
    start, after = edits(policy, np.random.default_rng(seed))
    states = [int(np.packbits(row).view(np.uint16)[0]) for row in np.vstack([start, after[:-1]])]
    n = len(after)
    table = {"episode": [0] * n, "turn": range(n), "agent": [policy] * n, "state": states}
    files = [json.dumps(workspace(row)) for row in after]
    return check_turns(Turns(table | {"files": files}), PythonSyntax(), start=workspace(start))


@exact
def worked_rewards() -> None:
    """The card's three steps by the formula as published; as a potential the third is punished for what got worse."""
    table: dict[str, list[float]] = {"episode": [0, 1, 2]}
    for name, values in zip(NAMES, zip(*(facts for facts, _ in WORKED), strict=True), strict=True):
        table[name] = list(values)
    published = np.asarray(lanser_reward(method="published").evaluate(Turns(table)))
    np.testing.assert_allclose(published, [paid for _, paid in WORKED])
    np.testing.assert_allclose(np.asarray(lanser_reward().evaluate(Turns(table))), [1.494, 0.472, -0.438])


@exact
def each_episode_by_itself() -> None:
    """Two episodes in any order: what was before is of the same episode, a first turn without a start pays 0."""
    broken, mended = json.dumps({"a.py": UNSOUND, "b.py": UNSOUND}), json.dumps({"a.py": SOUND, "b.py": UNSOUND})
    table = {"episode": [1, 0, 0, 1], "turn": [1, 0, 1, 0], "files": [mended, mended, broken, broken]}
    turns = check_turns(Turns(table), PythonSyntax())
    assert turns["diagnostics_before"].fill_nan(None).to_list() == [2, None, 1, None]
    for method in ("potential", "published"):
        paid = np.asarray(lanser_reward(method=method).evaluate(turns))  # type: ignore[arg-type]
        np.testing.assert_allclose(paid - (0.4 if method == "published" else 0.0), [0.5, 0, -0.5, 0], atol=1e-12)


class Shuffled:
    """A checker that tells the same facts in another order of their fields each time, and counts how often."""

    name = "shuffled"

    def __init__(self) -> None:
        self.asked = 0

    def diagnostics(self, files: Mapping[str, str]) -> list[dict[str, Any]]:
        """One for each file that Python cannot read."""
        self.asked += 1
        return [dict(list(fact.items())[:: (-1) ** self.asked]) for fact in PythonSyntax().diagnostics(files)]


@exact
def bundles_are_replayed() -> None:
    """Two runs on one snapshot have equal identifiers and rewards, the second without a checker."""
    broken = {"a.py": UNSOUND, "b.py": SOUND}
    assert bundle_id(broken) == bundle_id(dict(reversed(broken.items())))
    assert bundle_id(broken) != bundle_id({**broken, "b.py": "x = 2\n"})
    first, second = (bundle_id(facts) for facts in map(Shuffled().diagnostics, [broken] * 2))
    assert first == second
    table = Turns({"episode": [0, 0], "turn": [0, 1], "files": [json.dumps(broken), json.dumps({"a.py": SOUND})]})
    with tempfile.TemporaryDirectory() as folder:
        seen = check_turns(table, DiagnosticsCache(Shuffled(), folder), start=broken)
        again = check_turns(table, DiagnosticsCache(store=folder, name="shuffled"), start=broken)
    assert again["bundle"].to_list() == seen["bundle"].to_list()
    for turns in (seen, again):
        np.testing.assert_allclose(np.asarray(lanser_reward().evaluate(turns)), [0, 0.5])


@exact
def addresses_survive() -> None:
    """Three lines inserted above: symbol and text are found three lines below; what is ambiguous is worth less."""
    text = "class Bill:\n    def total(self):\n        return 0\n\n\ndef total():\n    return 1\n"
    for address in ({"symbol": "Bill.total"}, {"text": "return 1"}):
        target = {"path": "a.py", "line": 0, **address}
        one, other = (locate({"a.py": inserted + text}, target) for inserted in ("", "# a\n# b\n# c\n"))
        assert [line + 3 for line in one] == other
        assert len(one) == 1
    targets = [json.dumps({"path": "a.py", "symbol": symbol}) for symbol in ("Bill.total", "total", "gone")]
    files = [json.dumps({"a.py": text})] * 3
    table = Turns({"episode": [0] * 3, "turn": range(3), "files": files, "target": targets})
    assert check_turns(table, PythonSyntax(), target="target")["confidence"].to_list() == [1.0, 0.5, 0.0]


@exact
def all_or_none() -> None:
    """A turn of which one edit fails or leads out changes no file and is not safe; what was shown stays as it was."""
    files = {"a.py": UNSOUND, "b.py": SOUND}
    mend = {"path": "a.py", "new": SOUND}
    for bad in ({"path": "b.py", "old": "y", "new": "z"}, {"path": "../c.py", "new": ""}):
        try:
            made: dict[str, str] | None = apply_edits(files, [mend, bad])
        except InputError:
            made = None
        assert made is None
        assert files == {"a.py": UNSOUND, "b.py": SOUND}
    turns = [[mend, {"path": "../c.py", "new": ""}], [mend], [{"path": "b.py", "old": "1", "new": "("}]]
    start = [json.dumps(files)] * 3
    table = {"episode": [0] * 3, "turn": range(3), "edits": [json.dumps(each) for each in turns], "start": start}
    checked_ = check_turns(Turns(table), PythonSyntax(), edits="edits", start="start")
    assert checked_["safe"].to_list() == [False, True, True]
    assert checked_["diagnostics"].to_list() == [1, 0, 1]
    assert checked_["diagnostics_before"].to_list() == [1, 1, 0]


SERVER = """
import json, sys

texts = {}
while head := sys.stdin.buffer.readline():
    size = int(head.split(b":")[1])
    sys.stdin.buffer.readline()
    asked = json.loads(sys.stdin.buffer.read(size))
    params = asked.get("params") or {}
    document = params.get("textDocument", {})
    if asked["method"] == "textDocument/didOpen":
        texts[document["uri"]] = document["text"]
    at = {"range": {"start": {"line": 0, "character": 0}}, "message": "not closed"}
    answers = {
        "initialize": {"capabilities": {"diagnosticProvider": {"workspaceDiagnostics": False}}},
        "textDocument/diagnostic": {"items": [at] * texts.get(document.get("uri"), "").count("(\\n")},
        "textDocument/definition": [at, at],
    }
    if "id" in asked:
        body = json.dumps({"id": asked["id"], "result": answers.get(asked["method"])}).encode()
        sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        sys.stdout.buffer.flush()
"""
"""A server that speaks the protocol: a diagnostic for each line that ends open, two definitions of everything."""


@exact
def a_server_is_asked() -> None:
    """Facts of a workspace by the protocol of language servers: diagnostics, and how many definitions a place has."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.py"
        path.write_text(SERVER, "utf-8")
        with LanguageServer((sys.executable, str(path))) as server:
            files = {"a.py": UNSOUND, "b.py": SOUND}
            assert [fact["path"] for fact in server.diagnostics(files)] == ["a.py"]
            target = json.dumps({"path": "b.py", "line": 0, "character": 0})
            table = {"episode": [0], "turn": [0], "files": [json.dumps(files)], "target": [target]}
            turns = check_turns(Turns(table), server, target="target")
    assert (turns["diagnostics"][0], turns["confidence"][0]) == (1, 0.5)


@exact
def repairs_are_paid() -> None:
    """Play of the env of the use: half for each module that is mended, the other way for one that is broken."""
    turns = rollout(Repair, Team(coder=random_legal()), groups=12, seed=0)
    turns = checked("edits", start="start")(turns, None).with_column(reward=lanser_reward())  # type: ignore[arg-type]
    safe = pl.col("safe").cast(float)
    mended = 0.5 * (pl.col("diagnostics_before") - pl.col("diagnostics"))
    became_safe = 0.4 * (safe - safe.shift(1, fill_value=1.0).over("group", "episode"))
    frame = turns.frame.with_columns(expected=mended + became_safe)
    np.testing.assert_allclose(frame["reward"], frame["expected"], atol=1e-9)
    assert not frame["safe"].all()
    credit = np.asarray(parse('centre(return_to_go(gamma=1.0), over=("group", "turn"))').evaluate(turns))
    assert np.abs(credit).max() < 1e-9  # each group has one episode here


def left_at_the_end() -> Measure:
    """Diagnostics after the last turn of the last training episodes, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            frame = Turns.load(seed / "turns").frame
            ended = frame.filter(pl.col("turn") == pl.col("turn").max().over("group", "episode"))
            found.append(float(ended["diagnostics"].mean()))  # type: ignore[arg-type]
        return found

    return measured


@reproduction(
    176,
    claim="With levels in the reward a loop of breaking and fixing beats repairing once; the potential form pays it "
    "nothing.",
    baseline="the formula as published",
    criterion="published: best loop .4 a step and the oscillator's 40 turns at least as "
    "good as the fixer's, in every seed; potential: the loop 0, fixer above oscillator above breaker",
    seeds=tuple(range(5)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Loops, and the order of three policies."""
    tables = {policy: [played(policy, seed) for seed in seeds] for policy in ("fixer", "oscillator", "breaker")}
    measured, returns = dict[str, float](), {}
    for form, reward in FORMS.items():
        loops = [cycle_gain(turns, reward).numbers for turns in tables["oscillator"]]
        measured |= {f"loop_{form}": float(np.mean([loop["gain_per_lap"] / loop["length"] for loop in loops]))}
        for policy, played_by in tables.items():
            sums = np.array([np.asarray(reward.evaluate(turns)).sum() for turns in played_by])
            returns[form, policy] = sums
            measured[f"return_{form}_{policy}"] = float(sums.mean())
    holds = abs(measured["loop_published"] - 0.4) < 1e-9 and abs(measured["loop_potential"]) < 1e-9
    holds &= bool((returns["published", "oscillator"] >= returns["published", "fixer"]).all())
    order = [returns["potential", policy] for policy in ("fixer", "oscillator", "breaker")]
    return Outcome(measured, bool(holds and (order[0] > order[1]).all() and (order[1] > order[2]).all()))
