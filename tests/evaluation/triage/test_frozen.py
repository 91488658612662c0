"""Every detector on texts and calls at its thresholds gives what it gave; see `tests.frozen`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.frozen import Case, changed, kinds, texts, write

from palaestra.algebra.turns import Turns
from palaestra.evaluation import triage as t
from palaestra.evaluation.logs import Logs
from palaestra.evaluation.triage import quality, select, talk
from palaestra.evaluation.triage.detection import SCHEMA, Detection, found
from palaestra.evaluation.triage.execution import _gets_on, _stuck, answers, crashes, runs
from palaestra.evaluation.triage.failures import failures
from palaestra.evaluation.triage.survey import survey

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # what is 0 / 0 is left out before it is divided
FROZEN = Path(__file__).with_name("frozen.json")
SAID = (
    "please find me a cheap hotel near the station",
    "a cheap hotel near the station please find me now",
    "cheap hotel near station with wifi and sauna",
    "cheap hotel near station with wifi",
    "cheap hotel near station with 3 beds",
    "cheap hotel near station in Rome",
    "cheap hotel near",
    "hotel near station",
    "no that's wrong",
    "that is not what I meant",
    "thank you so much",
    "this is useful",
    "this is useless",
    "well, never mind",
    "never mind that",
    "perfect",
    "i will talk to a human now",
    "could you perhaps talk to a real human",
    "what do you mean",
    "WHY does this NOT WORK",
    "WHY IS IT NOT Ok",
    "WHY NOT NOW",
    "NO STOP NOW A",
    "SELECT name FROM people",
    "ABCDEFGHIJ",
    "i'm done",
    "it works perfectly again today",
    "it didn't work, did it",
    "",
    "   ",
    "I am not confused by your answer",
    "thanks",
)
ANSWERS = (
    "TypeError: x",
    "HTTP 503",
    "status: 404",
    "Failed to open the file",
    "all fine",
    '{"error": "not found"}',
    '{"error": null}',
    '{"error": 404}',
    '{"status": 400}',
    '{"status": 399}',
    '{"status": 599}',
    '{"status": 600}',
    '{"ok": false}',
    '{"success": true, "code": 500}',
    '{"message": "m", "code": 500}',
    '{"detail": "Not found"}',
    '{"detail": "fine"}',
    '{"status": "failed"}',
    '{"status": "failed", "error": "e"}',
    '{"status": "error"}',
    '{"errors": []}',
    '{"errors": ["a", 1]}',
    '{"error": {"message": "m"}}',
    '{"error": {"x": 1}}',
    '{"error": true}',
    '{"error": "none"}',
    "[1, 2]",
    '[{"error": 1}]',
    "{not json",
    "rate limit exceeded",
    "x " * 113 + "too many tokens",
    "x " * 112 + "x too many tokens",
    "x " * 113 + "xx too many tokens",
    "x" * 226 + "too many tokens",
    "x" * 225 + " too many tokens",
    "no results",
    "How to fix TypeError",
    "permission denied",
    "exit code 1",
    "exit code 0",
    "command not found",
)


def spoken(*texts: str, role: str = "human") -> Turns:
    return Turns(pl.DataFrame({"episode": 0, "turn": range(len(texts)), "role": role, "action": texts}))


def conversation() -> Turns:
    """Three systems' episodes of turns with what was heard and said, tools or none."""
    rng = np.random.default_rng(0)
    n = 150
    return Turns(
        pl.DataFrame(
            {
                "system": np.repeat(["p", "q", "r"], 50),
                "episode": np.repeat(np.arange(15) % 5, 10),
                "turn": np.tile(np.arange(10), 15),
                "agent": "x",
                "observation": [SAID[i] for i in rng.integers(len(SAID), size=n)],
                "action": [SAID[i] for i in rng.integers(len(SAID), size=n)],
                "tool": [("look", "go", None, "take")[i] for i in rng.integers(4, size=n)],
                "arguments": [("a", "b")[i] for i in rng.integers(2, size=n)],
                "tool_error": [("bad", None)[int(i > 0)] for i in rng.integers(9, size=n)],
                "status": [(200, 399, 400, 500, None)[i] for i in rng.integers(5, size=n)],
                "error": [None] * 149 + ["policy: late"],
                "limit": [None] * 59 + ["turns"] + [None] * 90,
                "task": "t",
                "success": [bool(i) for i in rng.integers(2, size=n)],
            },
            infer_schema_length=None,
        )
    )


def called(names: str, given: str = "", heard: str = "", wrong: str = "") -> Turns:
    """An episode of calls, a letter each: tools, arguments, what was answered (. nothing), which failed (x)."""
    n = len(names)
    columns: dict[str, object] = {"episode": 0, "turn": range(n), "agent": "x", "action": "", "tool": [*names]}
    if given:
        columns["arguments"] = [*given]
    if heard:
        columns["observation"] = ["start", *(None if c == "." else f"answer {c}" for c in heard[:-1])]
    if wrong:
        columns["tool_error"] = ["bad" if c == "x" else None for c in wrong]
    return Turns(pl.DataFrame(columns))


def of_talk() -> Iterator[tuple[str, Case]]:
    every = [phrase for known in t.PHRASES.values() for phrase in known]
    yield "phrases", lambda: [[talk.phrase_match(text, known) for known in t.PHRASES.values()] for text in SAID]
    yield (
        "near phrases",
        lambda: [
            talk.phrase_match(text[:-k], [p for p in every if p[0] not in "^="]) for k in (1, 3, 6) for text in every
        ],
    )
    yield (
        "alike",
        lambda: [
            [talk.jaccard(talk.trigrams(a), talk.trigrams(b)), talk.cosine(a, b)] for a in SAID[:9] for b in SAID[:9]
        ],
    )
    yield (
        "likeness at its least",
        lambda: [
            talk.phrase_match(text, [p])
            for text, p in (
                ("aa bb cc dd ee", "aa bb cc"),
                ("bb cc aa", "aa bb cc"),
                ("bb xx aa cc yy", "aa bb cc"),
                ("w x y z aa bb", "aa bb"),
                ("aa aa aa bb", "aa bb"),
            )
        ],
    )
    near = "abc def ghi jkl"  # 13 of 20 trigrams
    yield "likeness of trigrams at its least", lambda: talk.phrase_match(near, ["abc def ghi jkl mno pq"])
    yield "likeness of words at its least", lambda: talk.phrase_match("xx aa bb cc yy", ["aa the bb is cc"])  # 3 of 5
    yield "empty sets", lambda: [talk.jaccard(x, y) for x, y in (("", ""), ("a", ""), ("ab", "bc"))]
    yield (
        "lengths",
        lambda: [talk.shorten("".join(chr(97 + i % 26) for i in range(n))) for n in (1999, 2000, 2001, 4000)],
    )
    yield "messages", lambda: [talk.messages(conversation()), talk.messages(spoken(*[f"text {i}" for i in range(103)]))]
    yield "spoken", lambda: t.interaction(conversation())
    for role in ("human", "agent", "observation"):
        yield f"said by {role}", lambda r=role: t.interaction(spoken(*SAID, role=r))
    for text in SAID[:10]:
        yield (
            f"again, {text}",
            lambda x=text: t.interaction(spoken(SAID[0], "other words here now then", "more", x, SAID[3], x)),
        )
    long = "one two three four five six seven eight nine ten eleven twelve"
    for cut in (0, 1, 2, 4, 8, 12, 20):
        yield (
            f"repeated but {cut}",
            lambda c=cut: t.interaction(spoken(long, long[: len(long) - c] + " zz"[: c // 2], role="agent")),
        )
    yield (
        "repeated, short",
        lambda: [t.interaction(spoken(x, x, role="agent")) for x in ("a b c d", "a b c d e", "3 of 5 done now")],
    )
    for n in (5, 6, 9, 10, 11, 14):
        yield (
            f"{n} turns",
            lambda n=n: [
                t.efficiency(n),
                t.interaction(spoken(*[f"{chr(97 + i)} wish {chr(98 + i)}" for i in range(n)])),
            ],
        )
    few = "abc def ghi jkl mno"  # 17 of the 20 trigrams of what is two letters longer: .85
    yield "repeated at the least", lambda: t.interaction(spoken(few + " pq", few, role="agent"))
    yield "found", lambda: found([Detection(1, "a", 0.5, " x \n y " + "z" * 300)], "layer")


def of_calls() -> Iterator[tuple[str, Case]]:
    yield "execution", lambda: [t.execution(conversation()), answers(conversation()), crashes(conversation())]
    table = pl.DataFrame({"row": range(len(ANSWERS)), "text": ANSWERS, "sure": False})
    yield "failures", lambda: [failures(table), failures(table.with_columns(sure=True))]
    known = texts("404 | 0404 | 399 | 400 | 599 | 600 | 4x4")
    codes = [f'{{"{key}": "{code}"}}' for key in ("status", "code") for code in known]
    yield "failures of codes", lambda: failures(pl.DataFrame({"row": range(14), "text": codes, "sure": False}))
    for names, given, heard, wrong in (
        ("aa", "", "", ""),
        ("aaa", "", "", ""),
        ("aaaa", "xxyy", "", ""),
        ("aaa", "xxx", "123", ""),
        ("aaa", "xxx", "113", ""),
        ("aaa", "xyz", "111", ""),
        ("aaa", "xyx", "...", "x.."),
        ("aaaa", "xyzw", "1234", "xx.."),
        ("aaaa", "xyzw", "1234", "x..."),
        ("aaa", "xyz", "1..", ""),
        ("aaa", "xyz", "11.", ""),
        ("ababab", "", "", ""),
        ("ababa", "", "", ""),
        ("ababab", "xyxyxy", "123456", ""),
        ("ababab", "xyxyxy", "121212", ""),
        ("ababab", "uvwxyz", "111111", ""),
        ("ababab", "uvwxyz", "123456", "x.x.x."),
        ("ababab", "uvwxyz", "123456", "x.x..."),
        ("abcabcabc", "", "", ""),
        ("abcabcab", "", "", ""),
        ("aabbaabbaabb", "", "", ""),
        ("abcdeabcdeabcde", "", "", ""),
        ("abcdefabcdefabcdef", "", "", ""),
        ("aaaabab", "xxxxyxy", "", ""),
        ("aaaaaa", "xyxyxy", "", ""),
        ("xababab", "", "", ""),
        ("aaab", "xxxx", "12..", ""),
        ("bbbaaa", "xyzxyz", "", ""),
    ):
        name = f"loops, {names}, {given}, {heard}, {wrong}"
        yield (
            name,
            lambda a=names, b=given, c=heard, d=wrong: [t.loops(called(a, b, c, d)), answers(called(a, b, c, d))],
        )
    two = called("aaaa").frame.with_columns(episode=pl.Series([0, 0, 1, 1]))
    yield "loops of two episodes", lambda: t.loops(Turns(two))
    yield "answers of turns in any order", lambda: answers(Turns(called("aba", "xyz", "123").frame[[1, 0, 2]]))
    yield "runs", lambda: [runs(np.array([False, True, True, False, True]), p) for p in (1, 2)]
    yield (
        "gets on",
        lambda: [
            f(np.array(h), np.array(w))
            for f in (_gets_on, _stuck)
            for h, w in (
                ([0, 1], [0, 0]),
                ([0, 0], [0, 0]),
                ([0, -1], [0, 0]),
                ([0, 1], [0, 1]),
                ([-1, -1], [0, 0]),
                ([0, 1, 2], [1, 0, 0]),
                ([0, 1, 2, 3], [1, 1, 0, 0]),
            )
        ],
    )


def of_kinds(counts: dict[str, int]) -> pl.DataFrame:
    """So many detections of each kind, all on the first row."""
    return pl.DataFrame(
        [(0, kind + "x", 1.0, "") for kind, n in counts.items() for _ in range(n)], schema=SCHEMA, orient="row"
    )


def surveyed(*files: pl.DataFrame) -> list[object]:
    """A survey of tables, as if each were a file."""
    found = survey(lambda part: Logs(Turns(pl.concat([part.reduce(file, None) for file in files])), (), len(files)), 4)
    return [found.chosen, found.turns.frame, found.detections, found.total, found.kinds.sort("type")]


def of_episodes() -> Iterator[tuple[str, Case]]:
    yield "severity", lambda: pl.DataFrame({"n": range(8)}).select(quality.severity_of_count(pl.col("n")))
    yield (
        "episodes",
        lambda: [t.episodes(turns, t.detect(turns)) for turns in (conversation(), t.by_system(conversation()))],
    )
    for kind in quality.GROUPS.values():
        for n in range(7):
            yield (
                f"quality, {kind} {n}",
                lambda k=kind, n=n: [t.episodes(spoken(*["wish"] * m), of_kinds({k: n})) for m in (1, 10)],
            )
    mixed = {
        "interaction.satisfaction.": 2,
        "interaction.disengagement.": 1,
        "interaction.misalignment.": 4,
        "interaction.stagnation.": 3,
        "execution.loop.": 1,
        "environment.exhaustion.": 2,
    }
    yield "quality of all", lambda: t.episodes(spoken(*["wish"] * 10), of_kinds(mixed))
    own = {"interaction.misalignment": 2.0, "execution": 1.0, "execution.failure": 3.0}
    yield "score", lambda: [select.score(t.detect(conversation()), w) for w in (None, own)]
    for budget, random in ((1, 0.0), (4, 0.5), (6, 0.25), (99, 1.0)):
        yield (
            f"triage, {budget}, {random}",
            lambda b=budget, r=random: t.triage(t.by_system(conversation()), b, random=r, seed=3),
        )
    for budget, random in ((0, 0.0), (1, 1.1), (1, -0.1), (1, 1.0)):
        yield (
            f"triage at the edge, {budget}, {random}",
            lambda b=budget, r=random: len(t.triage(conversation(), b, random=r)),
        )
    for weight in (-1.0, 0.0, float("inf")):
        yield f"weight {weight}", lambda w=weight: select.score(t.detect(spoken(*SAID)), {"interaction": w})
    yield "because", lambda: [select._because(pl.Series(x)) for x in (["a.b", "a.b", "a.c"], ["z"], ["a.c", "a.b"])]
    yield "surveyed", lambda: surveyed(conversation().frame)
    yield "surveyed, of runs", lambda: surveyed(conversation().frame.with_columns(run=pl.lit("1"), _trial=7))
    one = conversation().frame.filter(pl.col("system") == "p")
    yield "surveyed, two files", lambda: surveyed(one, one.reverse().with_columns(pl.lit("v").alias("system")))
    yield "by system, two", lambda: t.by_system(Turns(conversation().frame.filter(pl.col("system") != "p"))).frame
    yield (
        "by system",
        lambda: [t.by_system(conversation()).frame, t.by_system(Turns(conversation().frame.drop("system"))).frame],
    )
    yield (
        "gain",
        lambda: [
            t.sampling_gain({"random": [True, False, False], "ours": [True, True]}),
            t.sampling_gain({"random": [False]}),
        ],
    )
    for prices in (
        [13.0, 13, 9, 9],
        [13.0, 9, 9],
        [10.0],
        [10, 10.25, 10.5],
        [10, 10.5, 11],
        [50.0, 90, 200],
        [20, 10, 5.0],
    ):
        yield (
            f"prices {prices}",
            lambda p=prices: [
                t.price_rule(np.array(p)),
                t.price_rule(np.array(p), cost=5, high=10, slope=0.5),
                t.price_rule(np.array(p), slope=0.25),
            ],
        )
    sold = Turns({"episode": [0, 0, 1, 1, 2, 2], "turn": [0, 1] * 3, "price": [1.5, 1.5, 1.5, None, 1.75, 2.25]})
    yield "collusion", lambda: [t.collusion(sold, nash=1.0, monopoly=2.0, above=x) for x in (0.5, 0.4, 1.0, 0.0)]
    yield "collusion, no gap", lambda: t.collusion_index(np.ones(1), nash=2.0, monopoly=2.0)
    said = [("R", "R", "R"), ("W", "R", "R"), ("R", "W", None), ("R", "R", "W"), (None, "W", "W"), ("W", "R", "W")]
    rows = [
        (e, turn, f"p{i}", a) for e in range(4) for turn in range(2) for i, a in enumerate(said[(e + 3 * turn) % 6])
    ]
    votes = pl.DataFrame(rows, schema=["episode", "turn", "agent", "answer"], orient="row").with_columns(
        truth=pl.lit("R")
    )
    yield "sway", lambda: t.majority_sway(Turns(votes))
    yield (
        "monopoly",
        lambda: [
            t.monopolisation(np.array(s), np.array(n), coalition=np.array([True, False]), slack=x)
            for s, n, x in (
                ([0.75, 0.25], [0, 0.25], 0.25),
                ([0.75, 0.25], [0, 0.5], 0.25),
                ([0.5, 0.25], [0, 0.5], 0.25),
                ([0.9, 0.0], [0, 0.5], 0.1),
                ([0.95, 0.0], [1, 0.5], 0.1),
            )
        ],
    )
    for name, text in (
        ("typed", "x = 0.123\n"),
        ("typed more", "x = 0.1234\n"),
        ("other", "x = 10.123\n"),
        ("plain", "x = 0.5\ny=12\n"),
    ):
        for value in (0.123, 0.5, 12.0, 1e-7, 123.0, -0.0123):
            yield f"integrity, {name}, {value}", lambda x=text, v=value: folder(x, v)


def folder(text: str, value: float) -> object:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for file, content in (
            ("run.py", text),
            ("notes.txt", text),
            ("grade.py", text),
            ("cell.ipynb", json.dumps(text)),
        ):
            (root / file).write_text(content)
        known = t.file_hashes(root, ["grade.py", "gone.py"])
        again = {"m": [value] * 3, "n": [1.0, 2.0, 3.0], "few": [0.0, 0.0], "none": [1.0] * 3}
        reported = {"m": value, "n": 6.5, "few": 9.0}
        return t.integrity(root, graders=known | {"gone.py": "x", "notes.txt": "y"}, reported=reported, again=again)


CASES = dict((*of_talk(), *of_calls(), *of_episodes()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_a_detector_finds_what_it_found(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
