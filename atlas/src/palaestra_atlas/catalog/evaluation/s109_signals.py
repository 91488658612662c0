"""[109] Signals (arXiv 2604.00356): rules of failures and loops choose episodes that are worth reading.

2 000 made-up trajectories of tool calls, 55 % of them informative; a fifth of the informative ones show nothing, the
rest fail calls or loop. The detectors read the calls. Left out: people's labels, and the paper's logs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage import detect, efficiency, episodes, sampling_gain, triage
from palaestra.evaluation.triage.execution import execution
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

EPISODES, INFORMATIVE, SILENT, BUDGET, TOOLS = 2000, 0.55, 0.2, 300, 8
FALSE_SIGNS = 0.1
WEIGHTS = {"execution.failure": 8.0, "execution.loop": 5.0}


def play(seed: int, false_signs: float = 0.0) -> tuple[Turns, np.ndarray]:
    """Calls, and which episodes are informative. false_signs: share of the others with one failed call."""
    rng = np.random.default_rng(seed)
    informative = rng.random(EPISODES) < INFORMATIVE
    loud = informative & (rng.random(EPISODES) >= SILENT)
    length = 6 + rng.poisson(6 + 0.3 * informative)
    start = np.cumsum(length) - length
    total = int(length.sum())
    tool = np.cumsum(rng.integers(1, TOOLS, total)) % TOOLS  # never the same twice in a row
    argument = np.arange(total)
    failed = np.zeros(total, bool)
    first = start[loud]
    fails = rng.random(len(first)) < 0.7
    failed[first[fails] + rng.integers(0, length[loud][fails])] = True
    failed[first[fails] + rng.integers(0, length[loud][fails])] = True
    retries = first[~fails | (rng.random(len(first)) < 0.3)] + 1
    for step in (1, 2, 3):
        tool[retries + step], argument[retries + step] = tool[retries], argument[retries]
    plain = np.flatnonzero(~informative)
    wrong = plain[rng.random(len(plain)) < false_signs]
    failed[start[wrong] + rng.integers(0, length[wrong])] = True
    error = pl.when(pl.Series(failed)).then(pl.lit("invalid argument: date"))
    frame = pl.DataFrame({
        "episode": np.repeat(np.arange(EPISODES), length), "turn": np.arange(total) - np.repeat(start, length),
        "agent": ["agent"] * total, "tool": [f"tool_{i}" for i in tool], "arguments": argument.astype(str),
    })  # fmt: skip
    return Turns(frame.with_columns(tool_error=error)), informative


def chosen(seed: int, false_signs: float = 0.0) -> dict[str, np.ndarray]:
    """Labels of the episodes that each way chooses."""
    turns, informative = play(seed, false_signs)
    found = detect(turns, {"execution": execution})
    best = triage(turns, BUDGET, detections=found, weights=WEIGHTS, seed=seed, outcomes=False)["episode"].to_numpy()
    length = np.bincount(turns["episode"].to_numpy())
    luck = np.random.default_rng(seed + 1000).permutation(EPISODES)
    longest = luck[np.argsort(-length[luck], kind="stable")][:BUDGET]
    return {"signals": informative[best], "longest": informative[longest], "random": informative[luck[:BUDGET]]}


BAD_DATE, LIMIT = "invalid argument: date", "rate limit exceeded"


def calls(*episodes: Sequence[tuple[str, str, str | None]]) -> Turns:
    """Tool calls of episodes, each (tool, arguments, what the log says went wrong)."""
    rows = [
        {"episode": number, "turn": turn, "agent": "agent", "tool": tool, "arguments": given, "tool_error": wrong}
        for number, made in enumerate(episodes) for turn, (tool, given, wrong) in enumerate(made)
    ]  # fmt: skip
    return Turns(pl.DataFrame(rows, schema_overrides={"tool_error": pl.String}))


def talks(*episodes: Sequence[str]) -> Turns:
    """What a person says in each episode, answered every time by a sentence of its own."""
    rows = [
        {"episode": number, "turn": 2 * turn + place, "role": role, "action": words}
        for number, said in enumerate(episodes) for turn, text in enumerate(said)
        for place, (role, words) in enumerate((("human", text), ("agent", f"Answer {number} {turn}.")))
    ]  # fmt: skip
    return Turns(pl.DataFrame(rows))


def counted(turns: Turns, group: str) -> list[int]:
    """Detections of a group, by episode."""
    return [int(n) for n in episodes(turns, detect(turns))[group]]


def quality(turns: Turns) -> list[float]:
    """Of each episode, from what all detectors say."""
    return [float(x) for x in episodes(turns, detect(turns))["quality"]]


@exact
def loops_of_calls() -> None:
    """Three equal calls, a tool that is called with other arguments and fails, and ABABAB; two calls are no loop."""
    a, b, other = ("a", "1", None), ("b", "1", None), ("a", "2", None)
    drift = [("find", str(n), BAD_DATE) for n in range(4)]
    turns = calls([a, a, a], drift, [a, b, a, b, a, b], [a, a, b], [a, other, b])
    loops = detect(turns).filter(pl.col("type").str.contains("loop"))
    assert loops["type"].str.split(".").list.last().to_list() == ["retry", "parameter_drift", "oscillation"]
    assert counted(turns, "loop") == [1, 1, 1, 0, 0]


@exact
def qualities() -> None:
    """The card's qualities: nothing 50, satisfaction 62, 66, 69, failures, loops and exhaustion apart, misalignment."""
    plain = ("look", "1", None)
    failed, retry, worn = ("a", "1", BAD_DATE), [("c", "1", None)] * 3, ("d", "1", LIMIT)
    turns = calls([plain], [failed, plain, ("b", "2", BAD_DATE)], [failed, *retry, worn])
    assert quality(turns) == [50, 34, 34], quality(turns)
    assert counted(turns, "failure") == [0, 2, 1]
    assert counted(turns, "exhaustion") == [0, 0, 1]
    content = ["Thank you.", "It works.", "Looks good."]
    assert quality(talks(*(content[: n + 1] for n in range(3)))) == [62, 66, 69]
    wrong = ["No, that's wrong.", "I already told you: Monday.", "The green one.", "On Tuesday."]
    many = [f"And what about {word}?" for word in ("red", "blue", "pink", "white", "black", "gold", "grey", "brown")]
    turns = talks(wrong, [*wrong[:2], *many])
    assert quality(turns) == [35, 50], quality(turns)
    assert counted(turns, "stagnation") == [0, 1], "ten turns of a person drag, nine do not"
    assert counted(talks([*wrong[:2], *many[:7]]), "stagnation") == [0]
    assert efficiency(9) == 0.5 > efficiency(10)


@exact
def phrases_nearly_said() -> None:
    """Misspelt and reordered complaints are seen; sentences that have nothing to do with them are not."""
    near = ["thats not what i askd", "asked what i that's not", "you missunderstood"]
    far = [
        "Which of these trains is the earliest?",
        "Put two plates on the table.",
        "What is the price of the red one?",
    ]
    assert counted(talks(*([text] for text in near)), "misalignment") == [1, 1, 1]
    assert counted(talks(*([text] for text in far)), "misalignment") == [0, 0, 0]


def made(seed: int, folder: Path) -> None:
    """400 talks with tools, 55 % worth reading; a fifth of these shows nothing, a tenth of the others looks as if."""
    rng = np.random.default_rng(seed)
    labels, lines = {}, []
    for number in range(400):
        informative = bool(rng.random() < INFORMATIVE)
        silent, alike = rng.random() < SILENT, rng.random() < FALSE_SIGNS
        kind = str(rng.choice(["failure", "loop", "person"])) if informative and not silent else "plain"
        kind = "alike" if not informative and alike else kind
        labels[f"talk {number}"] = informative
        lines.append(json.dumps({"model": "m", "task": f"talk {number}", "messages": talk(kind, rng)}))
    (folder / "talks.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "labels.json").write_text(json.dumps(labels))


def talk(kind: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Messages of one talk: three to six calls that go well, and what makes it of its kind somewhere among them."""
    count = int(rng.integers(3, 7))
    steps = [(f"tool_{rng.integers(TOOLS)}_{n}", str(rng.integers(10**6)), f"found {rng.integers(10**6)}")
             for n in range(count)]  # fmt: skip
    at = int(rng.integers(count))
    if kind in ("failure", "alike"):  # one failed call that went well the second time is nothing to read about
        steps[at : at + 1] = [(steps[at][0], "0", f"Error: {BAD_DATE}"), *([steps[at]] if kind == "alike" else [])]
    if kind == "failure":
        steps.append(("pay", "1", "Error: permission denied"))
    if kind == "loop":
        steps[at:at] = [("search", "1", "nothing")] * 3
    asks = [{"role": "user", "content": f"Please book number {rng.integers(10**6)}."}]
    after = ["No, that's wrong.", "I already told you which one."] if kind == "person" else ["And the next one?"]
    said: list[dict[str, Any]] = list(asks)
    for number, (tool, given, answer) in enumerate(steps):
        call = {
            "id": str(number),
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps({"x": given})},
        }
        said.append({"role": "assistant", "content": f"Step {rng.integers(10**6)}.", "tool_calls": [call]})
        said.append({"role": "tool", "content": answer, "tool_call_id": str(number)})
    for text in after:
        said += [{"role": "assistant", "content": f"Done, {rng.integers(10**6)}."}, {"role": "user", "content": text}]
    return said


@exact
def chosen_by_signs() -> None:
    """With a budget for a third, what only loops, only fails or only displeases is chosen before what is plain."""
    plain = [[("a", str(n), None), ("b", str(n), None)] for n in range(8)]
    a, b = ("a", "1", None), ("b", "1", None)
    turns = calls(*plain[:4], [a, a, a], *plain[4:], [a, b, a, b, a, b], [("a", "1", BAD_DATE), b])
    informative = np.isin(np.arange(11), [4, 9, 10])
    best = triage(turns, 3)["episode"].to_numpy()
    gain = sampling_gain({"signals": informative[best], "random": informative})  # type: ignore[dict-item]
    assert gain["informative"][0] == 1.0, best


def informative_share() -> Measure:
    """Share of the chosen talks that the planted labels call informative."""

    def measured(left: Left) -> list[float]:
        labels = json.loads((left.directory / "labels.json").read_text())
        return [float(np.mean([labels[row["task"]] for row in json.loads(left.stdout)]))]

    return measured


@reproduction(
    109,
    claim="Rules of failed calls and loops find informative episodes that length and chance do not.",
    baseline="300 of 2 000 episodes at random, and the 300 longest.",
    criterion="Share informative: signals 1.00, above the longest and the random ones in every seed; pooled intervals "
    "of signals and of each other way do not overlap; with a failed call in 10 % of the plain ones still above .85.",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """All ways, pooled over seeds."""
    runs = [chosen(seed) for seed in seeds]
    pooled = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    pooled["signals_false_signs"] = np.concatenate([chosen(seed, FALSE_SIGNS)["signals"] for seed in seeds])
    table = {row["way"]: row for row in sampling_gain({k: v.tolist() for k, v in pooled.items()}).to_dicts()}
    measured = {f"{way}_{part}": table[way][part] for way in table for part in ("informative", "low", "high")}
    measured["gain_over_random"] = table["signals"]["gain"]
    every = all(run["signals"].mean() > max(run["longest"].mean(), run["random"].mean()) for run in runs)
    holds = (
        every
        and measured["signals_informative"] == 1.0
        and measured["signals_low"] > max(measured["longest_high"], measured["random_high"])
        and measured["signals_false_signs_informative"] > 0.85
    )
    return Outcome(measured, bool(holds))
