"""Alarms: signs that a policy collapses, read off the metrics that are there anyway. Each is one sentence.

Thresholds are shares of a policy's own start, because what is normal differs by game. A false alarm costs a glance, a
missed one a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Line = dict[str, Any]
"""One iteration's object in metrics.jsonl."""

ENTROPY_SHARE = 0.1
DISTINCT_SHARE = 0.2
ZERO_CREDIT = 0.95
ILLEGAL, MOSTLY_ILLEGAL = 0.2, 0.5
KL = 3.0
MISMATCH = 0.1
EFFECTIVE = 0.5
INCOMPLETE = 0.2
FAILED = 0.2
CONTRADICTED = 0.5
VERSIONS = 4
BROKEN_PREFIXES = 0.1
TASKS_SHARE, MANY_TASKS = 0.25, 8


def alarms(line: Line, history: Sequence[Line]) -> list[str]:
    """List of warning texts on one line (dict) of training metrics, by fixed limits and changes since `history`."""
    found = [*_of_the_rollout(line), *_of_the_rewards(line), *_of_the_judges(line), *_of_the_tasks(line, history)]
    for name, now in line["policies"].items():
        earlier = [before["policies"][name] for before in history if name in before["policies"]]
        start = earlier[0] if earlier else now
        found += [f"policy {name!r}: {sentence}" for sentence in _of_a_policy(now, start, _as_many(now, earlier))]
        found += [f"policy {name!r}: {sentence}" for sentence in _of_credit(now, line, bool(earlier))]
    return found


def _of_the_rollout(line: Line) -> Iterator[str]:
    errors = ", ".join(f"{count} x {boundary}" for boundary, count in line["errors"].items())
    if not line["policies"] and (errors or line["incomplete_groups"]):
        yield f"nothing was learned: {line['incomplete_groups']} of {line['groups']} groups lack episodes ({errors})"
    elif line["incomplete_groups"] > INCOMPLETE * line["groups"]:
        yield f"{line['incomplete_groups']} of {line['groups']} groups lack episodes ({errors})"
    if (line.get("version_lag") or 0) > VERSIONS:
        yield (
            f"what was played is {line['version_lag']} updates older than what learns from it; beyond {VERSIONS} runs "
            "have been seen to lose a third of their success: lower train.lag"
        )


def _of_the_rewards(line: Line) -> Iterator[str]:
    if line["reward"] is None and line["policies"]:
        yield "no turn of those who learn was scored: every reward is null; nothing can be learned from it"


def _of_the_judges(line: Line) -> Iterator[str]:
    """Of stages that ask a model."""
    for name, now in line.get("stages", {}).items():
        if now.get("failed", 0) > FAILED * now.get("calls", 0):
            yield (
                f"{name}: {now['failed']:,} of {now['calls']:,} questions got no answer, and what they ask about has "
                f"no value; the last one: {now.get('why')}"
            )
        if now.get("contradicted", 0) > CONTRADICTED:
            yield (
                f"{name}: on tasks that the team did not solve, {now['contradicted']:.0%} of the verdicts say that a "
                "member helped: check whether the judge's verdicts are inverted"
            )


def _of_the_tasks(line: Line, history: Sequence[Line]) -> Iterator[str]:
    """Of stages that keep a table of proposed tasks."""
    for name, now in line.get("stages", {}).items():
        if not (said := now.get("proposed")):
            continue
        if now["refused"] == said:
            why = f"most often: {now['refused_why']}; " if now.get("refused_why") else ""
            yield f"{name}: all {said} proposals were refused; {why}tasks/ says why each"
            continue
        before = (each["stages"].get(name, {}) for each in history if each.get("stages"))
        start = next((each for each in before if each.get("effective")), now)
        share = now["effective"] / start["effective"] * start["proposed"] / said
        if share < TASKS_SHARE or (said >= MANY_TASKS and now["effective"] < TASKS_SHARE * MANY_TASKS):
            yield (
                f"{name}: {said} proposals are {now['effective']:.1f} tasks in effect, {start['effective']:.1f} of "
                f"{start['proposed']} at the start: who proposes repeats itself; pay repeated ones less "
                "(proposer_reward(repeated=0)), or give entropy a weight"
            )


def _as_many(now: Line, earlier: Sequence[Line]) -> Line:
    """The first of earlier lines with about as many rows: more rows have a lower share of distinct actions."""
    rows = now.get("rows") or 0
    return next((each for each in earlier if rows / 2 <= (each.get("rows") or 0) <= rows * 2), now)


def _of_a_policy(now: Line, start: Line, alike: Line) -> Iterator[str]:
    illegal, at_start = now["illegal"] or 0.0, start["illegal"] or 0.0
    if illegal >= MOSTLY_ILLEGAL:
        yield (
            f"{illegal:.0%} of its actions are illegal, at the start {at_start:.0%}: the env cannot read them, so all "
            "groups agree on failure; teach the format first (warm_start, an instruction, an example) or limit "
            "the answers to the legal ones"
        )
    elif illegal > max(ILLEGAL, at_start):
        yield f"{illegal:.0%} of its actions are illegal, at the start {at_start:.0%}"
    if _share(now, start, "entropy") < ENTROPY_SHARE:
        yield (
            f"entropy is {now['entropy']:.2g} nats, {_share(now, start, 'entropy'):.0%} of its start: "
            "it hardly explores any more; give kl or entropy a weight, or lower lr"
        )
    if _share(now, alike, "distinct_actions") < DISTINCT_SHARE:
        yield (
            f"the share of distinct actions is {now['distinct_actions']:.2%}, it was {alike['distinct_actions']:.2%}: "
            "it repeats itself"
        )
    if now.get("broken_prefixes", 0) > BROKEN_PREFIXES:
        yield (
            f"{now['broken_prefixes']:.0%} of its later prompts are not what the chat template writes of the same "
            "conversation (column prefix): whoever serves it by messages shows it other tokens than it learned from"
        )
    if (now.get("mismatch") or 0) > MISMATCH or now.get("mismatch_ess", 1) < EFFECTIVE:
        yield (
            f"who sampled for it has other log-probabilities, by {now['mismatch']:.2g} nats per token on average, "
            f"{now['mismatch_max']:.2g} at most, and {now['mismatch_ess']:.0%} of its tokens count: give the server a "
            "finer dtype, or weigh with corrected()"
        )
    if (now["kl"] or 0) > KL:
        yield f"it has moved {now['kl']:.2g} nats per token from its start: look at what it says"


def _of_credit(now: Line, line: Line, learned: bool) -> Iterator[str]:
    """Of a policy that is given none; one that can read no action is told so, and a new critic knows nothing yet."""
    critics = [name for name in line.get("stages", {}) if "critic" in name]
    illegal = (now["illegal"] or 0.0) >= MOSTLY_ILLEGAL
    if (now["zero_credit"] or 0) <= ZERO_CREDIT or illegal or (critics and not learned):
        return
    unlearned = f", or {critics[0]} has learned nothing" if critics else ""
    yield (
        f"{now['zero_credit']:.0%} of its rows have no credit: the groups agree on their reward{unlearned}; "
        "take harder or easier tasks, larger groups or a graded reward"
    )


def _share(now: Line, start: Line, field: str) -> float:
    """Now as a share of the start; 1 if either is unknown or there was nothing at the start."""
    if now[field] is None or not start[field]:
        return 1.0
    return float(now[field] / start[field])
