"""[111] AgentDropoutV2 (arXiv 2602.23258): rectify or reject, before anybody hears it.

Five scripted agents answer at once; five indicators fire on .25 of wrong and .03 of right messages. Beside the whole
method: no audit; rejection without a second try; and an audit that fires on both alike. All is played through the
workflow `audited`.

The pool of indicators has a world of its own, `Exercises`: wrong messages make one of sixteen typical slips, two for
each kind of exercise, and say in words how they were worked out. Scripts write an indicator of a failed message, and
audit: each indicator is a test whether the answer is the one that its slip gives, which never reads the task's score.
Left out: the authors' released results, which are not here to be read, and embeddings.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.analyses import analyze
from palaestra.play.rollout import rollout
from palaestra.teams import audited
from palaestra.teams.audit import indicators
from palaestra.teams.auditors import read_verdict
from palaestra.teams.rules import Message
from palaestra_atlas.reproductions import Outcome, exact, reproduction

ACCURACIES, QUESTIONS, REPAIRED, DAMAGED = (0.3, 0.45, 0.6), 150, 0.35, 0.05
RIGHT, WRONG = "right", "wrong"
AUDITS: dict[str, dict[str, Any]] = {
    "none": {"audit": "indicators(right=0.0, wrong=0.0)"},
    "reject": {"audit": "indicators()", "attempts": 1},
    "rectify": {"audit": "indicators()"},
    "blind": {"audit": "indicators(right=0.14, wrong=0.14)", "attempts": 1},
}
NO_WRONG = '"palaestra_atlas.catalog.teams.s111_agent_dropout:no_wrong"'
DRAWN = 20_000


class Question(TaskEnv):
    """Right or wrong."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "which?", lambda text: float(text == RIGHT), RIGHT)


def speaker(accuracy: float) -> Callable[[Request], str]:
    """Right so often; what failed the audit and is told so is repaired, or damaged, now and then."""

    def say(request: Request) -> str:
        _, *before = request.observation.text.split(" | ")
        if before:  # an answer that failed, and the audit's note
            turned = request.rng.random() < (DAMAGED if before[0] == RIGHT else REPAIRED)
            return {RIGHT: WRONG, WRONG: RIGHT}[before[0]] if turned else before[0]
        return RIGHT if request.rng.random() < accuracy else WRONG

    return say


class Slip(NamedTuple):
    """A typical error: its name, what it is, how a message says it was worked out, and the answer that it gives."""

    name: str
    is_: str
    works: str
    gives: Callable[[int, int], int]


class Kind(NamedTuple):
    """A kind of exercise with two numbers: its question, the right answer, and its typical slips."""

    asks: str
    right: Callable[[int, int], int]
    slips: tuple[Slip, Slip]


def digits(a: int, b: int, sign: int) -> int:
    """Sum or difference digit by digit, without carry or borrow."""
    return sum(abs(a // t % 10 + sign * (b // t % 10)) % 10 * t for t in (1, 10))


KINDS = (
    Kind("Ann has {a} coins and gets {b} more. How many coins has she?", lambda a, b: a + b, (
        Slip("lost_carry", "the carry of a sum is forgotten", "digits are added column by column",
             lambda a, b: digits(a, b, 1)),
        Slip("difference_for_sum", "a difference is taken where amounts come together",
             "the smaller amount goes off the larger amount", lambda a, b: abs(a - b)))),
    Kind("A shelf holds {a} books and {b} are lent. How many books are left?", lambda a, b: a - b, (
        Slip("lost_borrow", "the borrow of a difference is forgotten", "digits are subtracted place for place",
             lambda a, b: digits(a, b, -1)),
        Slip("sum_for_difference", "a sum is taken where something goes away", "both amounts are put together",
             lambda a, b: a + b))),
    Kind("Each of {a} boxes holds {b} pens. How many pens are there?", lambda a, b: a * b, (
        Slip("groups_added", "groups are added to their members", "boxes and pens are counted together",
             lambda a, b: a + b),
        Slip("group_short", "one group is left out", "a first group is set aside and the others multiplied",
             lambda a, b: (a - 1) * b))),
    Kind("What is {a} percent of {b}00?", lambda a, b: a * b, (
        Slip("percent_as_factor", "a percentage is used as a factor", "the number is multiplied by the percentage",
             lambda a, b: a * b * 100),
        Slip("rest_for_share", "what is left is given instead of the share", "the share is taken off the number",
             lambda a, b: (100 - a) * b))),
    Kind("A fence has {a} gaps of {b} metres and a post at both ends. How many posts has it?", lambda a, b: a + 1, (
        Slip("post_lost", "the post at the other end is forgotten", "each gap gets its post", lambda a, b: a),
        Slip("post_twice", "a post is counted at each end of each gap", "each gap gets its two posts",
             lambda a, b: 2 * a))),
    Kind("Two jumps measure {a} and {b} feet. What is twice their mean?", lambda a, b: a + b, (
        Slip("not_doubled", "the mean itself is given", "measurements are added and halved", lambda a, b: (a + b) // 2),
        Slip("one_doubled", "only one measurement is doubled", "a measurement is doubled and the other added",
             lambda a, b: 2 * a + b))),
    Kind("A field is {a} metres long and {b} metres wide. How long is its border?", lambda a, b: 2 * (a + b), (
        Slip("area_for_border", "the area is given for the border", "length and width are multiplied",
             lambda a, b: a * b),
        Slip("two_sides", "two of four sides are forgotten", "length and width are added once", lambda a, b: a + b))),
    Kind("Compute {a} + {b} * 3.", lambda a, b: a + 3 * b, (
        Slip("left_to_right", "a sum is worked out before a product", "the expression is read from left to right",
             lambda a, b: 3 * (a + b)),
        Slip("product_lost", "the product is dropped from the expression", "the first two numbers are enough",
             lambda a, b: a + b))),
)  # fmt: skip
SLIPS = {slip.name: slip for kind in KINDS for slip in kind.slips}
ODD, NITPICKS, IMPOSSIBLE = 0.1, 0.2, 10_000
"""Share of wrong answers that no slip gives; of verdicts that find what is insignificant; larger than right answers."""
GENERAL, POOL = "wrong_answer", "indicators.jsonl"


class Exercises(TaskEnv):
    """Arithmetic of several kinds; numbers for which a slip gives the right answer, or two the same, are not drawn."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        rng = np.random.default_rng([seed, 111])
        kind = KINDS[int(rng.integers(len(KINDS)))]
        while True:
            b, a = sorted(map(int, rng.integers(12, 99, 2)))
            if len({kind.right(a, b), *(slip.gives(a, b) for slip in kind.slips)}) == 3:
                break
        right = str(kind.right(a, b))
        return Task(f"{seed}", kind.asks.format(a=a, b=b), lambda text: float(int(text) == int(right)), right)


def read_exercise(question: str) -> tuple[Kind, int, int]:
    """Kind and numbers of a question."""
    for kind in KINDS:
        pattern = re.escape(kind.asks).replace(r"\{a\}", r"(\d+)").replace(r"\{b\}", r"(\d+)")
        if found := re.search(pattern, question):
            return kind, int(found[1]), int(found[2])
    raise ValueError(question)


def worker(accuracy: float) -> Callable[[Request], str]:
    """Right so often, else a slip of the kind, or an odd number; told what is wrong, right or the other slip."""

    def say(request: Request) -> str:
        question, *before = request.observation.text.split(" | ")
        kind, a, b = read_exercise(question)
        right, luck = kind.right(a, b), request.rng.random(3)
        if luck[0] < (REPAIRED if before else accuracy):
            return f"It is worked out step for step.\nAnswer: {right}"
        if luck[1] < ODD:
            return f"It is guessed.\nAnswer: {right + IMPOSSIBLE}"
        slips = [(slip, slip.gives(a, b)) for slip in kind.slips]
        slip, wrong = [each for each in slips if str(each[1]) not in before[:1]][int(luck[2] * (1 if before else 2))]
        return f"Here {slip.works}.\nAnswer: {wrong}"

    return say


def auditor() -> Callable[[Request], str]:
    """Tests of each indicator: whether the answer is the one of its slip; the general one finds what is too large."""

    def say(request: Request) -> str:
        question, message, about = request.observation.text.split(" | ")
        kind, a, b = read_exercise(question)
        name, answer = about.partition(":")[0], int(message.rpartition(" ")[2])
        found = [slip.gives(a, b) == answer for slip in kind.slips if slip.name == name]
        if any(found) or (name == GENERAL and answer > IMPOSSIBLE):
            return f"Suggestion: mind that {about.partition(': ')[2]}\nSignificant: yes\nFlawed: yes"
        if request.rng.random() < NITPICKS:
            return "Suggestion: write more neatly\nSignificant: no\nFlawed: yes"
        return "Suggestion: none\nSignificant: no\nFlawed: no"

    return say


def writer() -> Callable[[Request], str]:
    """Writes an indicator of the slip that a failed message shows, in one of two wordings; knows which are the same."""

    def say(request: Request) -> str:
        text = re.sub(r"(?m)^={5} \d+ ={5}\n?", "", request.observation.text)
        if names := re.findall(r"(?m)^(?:First|Second): (\w+)", text):
            return json.dumps({"same": "yes" if names[0] == names[1] else "no"})
        kind, a, b = read_exercise(text)
        answer = re.findall(r"Answer: (\d+)", text)[0]
        slip = next((each for each in kind.slips if str(each.gives(a, b)) == answer), None)
        if slip is None:
            return "I see no typical error."
        definition = f"It happens that {slip.is_}." if a % 2 else f"{slip.is_}.".capitalize()
        return json.dumps({"name": slip.name, "definition": definition, "trigger": f"steps in which {slip.works}"})

    return say


def pool_of_failures(seed: int, folder: Path, groups: int = 60) -> pl.DataFrame:
    """Writes `indicators.jsonl` from the failed messages of a team without audits; what became of each message."""
    env = audited(Exercises, 5, talk=False, audit="indicators(right=0, wrong=0)")
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(worker(ACCURACIES[0]), name="worker")))
    turns = rollout(env, team, groups=groups, seed=seed, timeout=None).frame
    turns.select("observation", "action", "score").write_ndjson(folder / "turns.jsonl")
    return analyze(f"extract_indicators({str(folder / POOL)!r}, '{__name__}:writer()')", folder / "turns.jsonl")


def recipe(seed: int, folder: Path) -> None:
    """Writes `speakers.yaml`, five weak speakers with auditors, and `indicators.jsonl`, from other runs of theirs."""
    pool_of_failures(seed + 10**6, folder)
    scripts = {
        "speaker": {"script": f"{__name__}:worker", "accuracy": 0.3},
        "auditor": {"script": f"{__name__}:auditor"},
    }
    made = {
        "name": "speakers",
        "env": {"make": f"{__name__}:Exercises", "workflow": f"audited(5, talk=False, audit=\"pool('{POOL}', k=3)\")"},
        "policies": {name: {"kind": "script", "options": options} for name, options in scripts.items()},
        "team": {"*": "speaker"} | {f"auditor-{at}": "auditor" for at in (1, 2, 3)},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 200, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "speakers.yaml").write_text(json.dumps(made))


def audits(seed: int, groups: int = 60) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two tables: of the messages from which a pool was made, and of all messages that it audited in later runs.

    Of these: attempt; slip, null if it makes none; right; asked, whether its slip's indicator was; and passed.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = pool_of_failures(seed, Path(folder))
        env = audited(Exercises, 5, talk=False, audit=f"pool({str(Path(folder) / POOL)!r}, k=3)")
        agent, audit = ScriptedPolicy(worker(ACCURACIES[0]), name="agent"), ScriptedPolicy(auditor(), name="auditor")
        team = Team({seat: audit if seat.startswith("auditor") else agent for seat in env().agents})
        turns = rollout(env, team, groups=groups, seed=seed + 1, timeout=None).frame
    works = {f"Here {slip.works}.": slip.name for slip in SLIPS.values()}
    slip = pl.col("action").str.split("\n").list.first().replace_strict(works, default=None)
    seats = turns.drop_nulls("audited").group_by("group", "audited", "attempt")
    asked = seats.agg(indicators="indicator", passed=pl.col("audit_passed").first()).rename({"audited": "agent"})
    found = turns.filter(pl.col("audited").is_null() & pl.col("audit_passed").is_null()).select(
        "group", pl.col("agent").cast(pl.String), "attempt", slip=slip, right=pl.col("score") == 1
    ).join(asked, on=["group", "agent", "attempt"])  # fmt: skip
    return told, found.with_columns(asked=pl.col("indicators").list.contains(pl.col("slip")))


def played(accuracy: float, audit: str, seed: int) -> tuple[float, float, float]:
    """Success, turns per question, and by how much the share of right first answers is larger among those that pass."""
    env = audited(Question, 5, talk=False, **AUDITS[audit])
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(speaker(accuracy), name="talker")))
    turns = rollout(env, team, groups=QUESTIONS, seed=seed, timeout=None).frame
    first = turns.filter((pl.col("attempt") == 0) & pl.col("audit_failed").is_not_null())
    kept = float(first.filter("audit_passed")["score"].mean() - first["score"].mean())  # type: ignore[operator, arg-type]
    return float(turns.unique(["group"])["success"].mean()), len(turns) / QUESTIONS, kept  # type: ignore[arg-type]


def no_wrong(text: str) -> list[str]:
    """An audit without chance: `wrong` should change."""
    return ["say right"] if text == WRONG else []


def scripted(said: dict[str, list[str]], **options: Any) -> pl.DataFrame:
    """One question, played by agents who say these texts one after the other; the last one for ever."""
    told: dict[str, list[str]] = {}

    def say(request: Request) -> str:
        told.setdefault(request.agent, []).append(request.observation.text)
        own = said[request.agent]
        return own[min(len(told[request.agent]), len(own)) - 1]

    env = audited(Question, len(said), audit=f"checks({NO_WRONG})", **options)
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="talker")))
    frame = rollout(env, team, groups=1, seed=0, timeout=None).frame.sort("turn", "agent")
    read = {agent: iter(texts) for agent, texts in told.items()}
    return frame.with_columns(read=pl.Series([next(read[agent]) for agent in frame["agent"].cast(str)]))


@exact
def passing_shares() -> None:
    """Five indicators let (1 - .25)^5 of wrong and (1 - .03)^5 of right messages pass."""
    rng, audit = np.random.default_rng(0), indicators()
    for score, share in ((0.0, 0.75**5), (1.0, 0.97**5)):
        said = Message("agent-1", "answer", score, 0, 0)
        passed = [not any(audit(said, lambda: rng)) for _ in range(DRAWN)]
        np.testing.assert_allclose(np.mean(passed), share, atol=0.015)


@exact
def four_attempts() -> None:
    """Who fails is asked again with the suggestion, four times in all; the fourth, right at last, is what counts."""
    turns = scripted({"agent-1": [WRONG, WRONG, WRONG, RIGHT], "agent-2": [RIGHT]}, talk=False)
    own = turns.filter(pl.col("agent").cast(str) == "agent-1")
    assert own["attempt"].to_list() == [0, 1, 2, 3]
    assert own["audit_passed"].to_list() == [False, False, False, True]
    assert own["read"][1] == f"which? | {WRONG} | audit: say right"
    assert turns["success"].all()


@exact
def dropped_unheard() -> None:
    """What fails to the end reaches nobody, and the vote goes on without it."""
    turns = scripted({"agent-1": [WRONG], "agent-2": [WRONG], "agent-3": [RIGHT], "agent-4": [RIGHT]}, attempts=2)
    last = turns.filter(pl.col("agent").cast(str) == "agent-4").row(0, named=True)
    assert last["heard"] == ["agent-1", "agent-2", "agent-3"]
    assert last["heard_kept"] == [False, False, True]
    assert last["read"] == f"which? | {RIGHT}"
    assert turns["success"].all()


@exact
def once_without_audit() -> None:
    """With one survivor the whole team plays once more, and nothing is audited."""
    turns = scripted({"agent-1": [WRONG], "agent-2": [WRONG, WRONG, RIGHT], "agent-3": [RIGHT]}, talk=False, attempts=2)
    again = turns.filter(pl.col("audit_failed").is_null())
    assert again["agent"].cast(str).to_list() == ["agent-1", "agent-2", "agent-3"]
    assert again["audit_passed"].all()
    assert turns["success"].all()


@exact
def wrong_messages_fail() -> None:
    """Audited by the pool, at most .2 of wrong messages pass, and all right ones."""
    _, found = audits(0)
    assert found.filter(~pl.col("right"))["passed"].to_numpy().mean() <= 0.2
    assert found.filter("right")["passed"].all()


@exact
def each_error_once() -> None:
    """A pool from a hundred failures has each slip once, also where another definition is as similar as its own."""
    told, _ = audits(0)
    assert len(told) > 100
    assert sorted(told.filter("kept")["name"]) == sorted(SLIPS)
    assert len(told.filter("kept", pl.col("similarity") >= 0.65)) >= 1
    assert told.filter(~pl.col("kept"), pl.col("name").is_not_null())["similarity"].to_numpy().min() >= 0.65


@exact
def planted_indicator_is_asked() -> None:
    """The indicator of the slip that a message makes is asked about, on the first attempt and on later ones."""
    _, found = audits(0)
    for attempt in (0, 1):
        assert found.drop_nulls("slip").filter(pl.col("attempt") == attempt)["asked"].to_numpy().mean() >= 0.95


@exact
def flaws_are_significant() -> None:
    """A flaw counts if it is significant and a change is suggested; no right message fails for a nitpick."""
    assert read_verdict("Suggestion: be neat\nSignificant: no\nFlawed: yes") == (False, None)
    assert read_verdict("Suggestion: none\nSignificant: yes\nFlawed: yes") == (False, None)
    assert read_verdict("Suggestion: carry\nSignificant: yes\nFlawed: yes") == (True, "carry")


@reproduction(
    111,
    claim="To repair what an audit finds beats rejecting it, and rejecting beats no audit; the better the team, the "
    "fewer further calls; an audit that fires on right and wrong alike gains nothing. A pool of indicators made from "
    "failures lets few wrong messages pass.",
    baseline="the same team without audits; rejection alone; an uninformative audit",
    criterion="in the mean over seeds: reject 0.1 ahead of none at every accuracy, rectify 0.05 ahead of reject at .3 "
    "and .45 and at most 0.03 behind at .6; turns fall from .3 to .6; among what the blind audit passes right answers "
    "are as frequent as before to 0.05, and its teams are in the mean not 0.05 ahead of those without; of the pool's "
    "audits wrong messages pass at most 0.2, right ones at least 0.95",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Four simulated audits of three teams, and the audits by a pool."""
    found = {
        (audit, accuracy): np.mean([played(accuracy, audit, seed) for seed in seeds], axis=0)
        for audit in AUDITS for accuracy in ACCURACIES
    }  # fmt: skip
    measured = {f"{audit}_{accuracy}": float(each[0]) for (audit, accuracy), each in found.items()}
    measured |= {f"turns_{accuracy}": float(found["rectify", accuracy][1]) for accuracy in ACCURACIES}
    passed = [audits(seed)[1].group_by("right").agg(pl.col("passed").mean()).sort("right")["passed"] for seed in seeds]
    measured["wrong_pass"], measured["right_pass"] = (float(np.mean([each[at] for each in passed])) for at in (0, 1))
    none, reject, rectify, blind = (np.array([found[audit, p][0] for p in ACCURACIES]) for audit in AUDITS)
    enriched = max(abs(found["blind", p][2]) for p in ACCURACIES)
    holds = (
        (reject >= none + 0.1).all() and (rectify >= reject + np.array([0.05, 0.05, -0.03])).all()
        and measured["turns_0.3"] > measured["turns_0.6"] and enriched <= 0.05 and blind.mean() < none.mean() + 0.05
        and measured["wrong_pass"] <= 0.2 and measured["right_pass"] >= 0.95
    )  # fmt: skip
    return Outcome(measured | {"blind_enriches": float(enriched)}, bool(holds))
