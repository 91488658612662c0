"""One row per system of what stands beside its success."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from palaestra.errors import MissingColumnError
from palaestra.evaluation.reliability import evidence, gated, reliability

CALL = {"task": "t", "turn": 0, "agent": "a", "success": False, "tool": "send", "status": 200}


def test_what_is_not_in_the_table_is_null() -> None:
    turns = pl.DataFrame([{"system": "s", "task": "t", "episode": n, "success": n > 0} for n in range(4)])
    row = reliability(turns).row(0, named=True)
    assert (row["success"], row["outcome"], row["k"], row["pass_hat_k"]) == (0.75, 0.25, 4, 0)
    assert all(row[name] is None for name in ("actions", "resources", "calibrated", "robustness", "safety", "cost"))


def test_calls_and_errors_are_resources() -> None:
    rows = [CALL | {"system": "s", "episode": n, "success": True, "turn": at} for n in range(2) for at in range(n + 1)]
    found = reliability(pl.DataFrame(rows)).row(0, named=True)
    assert 0 < found["resources"] < 1
    assert found["actions"] == 1
    assert found["sequence"] == 0.5


def test_grades_of_a_log_or_evidence_of_its_channels() -> None:
    graded = pl.DataFrame([CALL | {"system": "s", "episode": 0, "score.completion": 0.9, "score.safety": 1.0}])
    assert gated(graded, k=1)["score"].item() == 0.92
    shown = {"required": ["send"], "forbidden": ["delete"], "audit": ["send"], "snapshot": ["send"]}
    assert gated(pl.DataFrame([CALL | {"system": "s", "episode": 0} | shown]), k=1)["all_k"].item() == 1
    assert evidence(["send"], ["delete"], (["send"], ["send", "delete"], ["send"])) == (1, 0)
    with pytest.raises(MissingColumnError, match="required"):
        gated(pl.DataFrame([CALL | {"system": "s", "episode": 0}]))


def test_a_status_of_400_is_an_error_and_one_of_399_is_not() -> None:
    def resources(status: int) -> float:
        rows = [CALL | {"system": "s", "episode": 0}, CALL | {"system": "s", "episode": 1, "status": status}]
        return float(reliability(pl.DataFrame(rows)).row(0, named=True)["resources"])

    assert resources(500) == resources(400) < resources(399) == resources(200)


@pytest.mark.parametrize("none", [None, False, "", "none"])
def test_an_empty_tool_error_is_no_failed_call(none: object) -> None:
    rows = [CALL | {"system": "s", "episode": n, "tool_error": none if n else None, "status": "ok"} for n in range(2)]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    assert reliability(frame).row(0, named=True)["resources"] == 1


PLAYED = [
    CALL | {"system": s, "episode": n, "turn": at, "tool": tool, "status": status, "confidence": at / 4,
            "success": n > 0, "score.completion": at / 3, "score.safety": 1.0}
    for s in "ab" for n in range(3) for at, (tool, status) in enumerate(zip("xxyz", (500, 200, 500, 200), strict=True))
]  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(st.permutations(PLAYED))
def test_rows_in_any_order_are_read_by_their_turns(rows: list[dict[str, object]]) -> None:
    for question in (reliability, gated):
        known = question(pl.DataFrame(PLAYED)).sort("system")
        assert_frame_equal(question(pl.DataFrame(rows)).sort("system"), known)


def test_episodes_numbered_within_each_task_are_told_apart() -> None:
    rows = [CALL | {"system": "s", "task": task, "episode": n, "success": True, "tool": task, "confidence": sure,
                    "score.completion": sure, "score.safety": 1.0}
            for task, sure in (("a", 0.9), ("b", 0.1)) for n in range(2)]  # fmt: skip
    own = [row | {"episode": n} for n, row in enumerate(rows)]
    assert_frame_equal(reliability(pl.DataFrame(rows)), reliability(pl.DataFrame(own)))
    assert_frame_equal(gated(pl.DataFrame(rows), k=2), gated(pl.DataFrame(own), k=2))


def test_one_trial_of_a_task_has_no_consistency() -> None:
    found = reliability(pl.DataFrame([CALL | {"system": "s", "episode": 0, "success": True}])).row(0, named=True)
    assert (found["success"], found["outcome"], found["overall"]) == (1, None, None)


def test_confidence_in_the_right_order_keeps_nearly_all_and_is_as_sharp_as_its_squares() -> None:
    rows = {"system": "s", "task": "t", "episode": range(20), "success": [True] * 10 + [False] * 10}
    found = reliability(pl.DataFrame({**rows, "confidence": [0.9] * 10 + [0.1] * 10})).row(0, named=True)
    assert (found["calibrated"], found["sharp"]) == (pytest.approx(0.9), pytest.approx(0.99))
    assert found["kept"] > 0.85, "of the excess over the best order; the plain area would leave .75"
