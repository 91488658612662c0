"""Results of each task in HAL uploads: `results` names the tasks solved, `raw_eval_results` the scores.

Layouts as `hal/benchmarks/*.py` of the released harness writes them (code read). Only fields that are known to be a
score are taken for one; a count, a list without names of tasks or an unknown number never is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.evaluation.logs.rows import mapping, text

SCORES = ("reward", "score", "accuracy", "resolved", "success", "overall_score")
SUCCEEDED = ("successful_tasks", "passed_tasks")
FAILED = ("failed_tasks",)
CORRECT = "correct"
"""ReplicatorBench's word for success, beside a score of another kind."""


@dataclass
class HalTrial:
    """Data of one trial of one task in a HAL upload: success, score, errors.

    said: the record of the upload, whose other fields are kept.
    """

    success: bool | None = None
    score: Any = None
    scores: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    variation: int | None = None
    said: Mapping[str, Any] = field(default_factory=dict)


Results = dict[str, list[HalTrial]]


def results_of(record: Mapping[str, Any]) -> tuple[Results, list[str]]:
    """Pair of a HAL upload, a JSON object: (dict task -> list of `HalTrial`, list of problems as texts).

    `results.successful_tasks` and `failed_tasks` (ReplicatorBench: `passed_tasks`) decide who succeeded, wherever they
    are given; under prompt variations each variation has its own score, for there they are about means.
    """
    told, raw = mapping(record.get("results")), record.get("raw_eval_results")
    won, lost = _listed(told, SUCCEEDED), _listed(told, FAILED)
    found: Results = {}
    why: list[str] = []
    layout = next((read for fits, read in LAYOUTS if fits(raw)), _unknown)
    try:
        found, why = layout(raw, {*won, *lost}, text(mapping(record.get("config")).get("benchmark_name", "")))
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        why = [f"raw_eval_results: {type(error).__name__}: {error}"]
    if won and not found and not any(isinstance(told.get(name), list) for name in FAILED):
        return found, [*why, f"results name {len(won)} tasks that succeeded, and nobody who failed: no rate is known"]
    for task in [*won, *lost]:
        trials = found.setdefault(task, [HalTrial()])
        if len(trials) == 1 and trials[0].variation is None:
            trials[0].success = task in won
    if both := won.keys() & lost.keys():
        why.append(f"{len(both)} tasks are in successful_tasks and in failed_tasks: {', '.join(sorted(both)[:3])}")
    return found, why + _against(told, found)


def _listed(told: Mapping[str, Any], names: Iterable[str]) -> dict[str, None]:
    for name in names:
        if isinstance(told.get(name), list):
            return dict.fromkeys(text(task) for task in told[name])
    return {}


def _against(told: Mapping[str, Any], found: Results) -> list[str]:
    """A difference from the accuracy that the upload itself reports is said."""
    stated = told.get("accuracy")
    known = [trial.success for trials in found.values() for trial in trials if trial.success is not None]
    if not isinstance(stated, int | float) or isinstance(stated, bool) or not known or len(known) < len(found):
        return []
    own = sum(known) / len(known)
    if abs(own - stated) < 0.5 / len(known) + 1e-9:
        return []
    return [f"results.accuracy is {stated:.3g}, but {sum(known)} of the {len(known)} tasks that it names succeeded"]


# -- layouts ----------------------------------------------------------------------------------------------------------


def _per_task(raw: Mapping[str, Any], known: set[str], _: str) -> tuple[Results, list[str]]:
    """TAU-bench, GAIA, ReplicatorBench and whoever writes an object by task; a text in its place is an error."""
    found: Results = {}
    strange = []
    by_task = any(isinstance(x, Mapping) for said in raw.values() for x in (said if isinstance(said, list) else [said]))
    numbers = all(isinstance(said, list) and all(isinstance(x, int | float) for x in said) for said in raw.values())
    truths = all(isinstance(said, bool) for said in raw.values())
    for task, said in raw.items():
        several = isinstance(said, list)
        named = text(task) in known
        trials = []
        for number, one in enumerate(said if several else [said]):
            variation = number if several else None
            if isinstance(one, Mapping) and (named or one.keys() & {*SCORES, "error", CORRECT}):
                right = one[CORRECT] if isinstance(one.get(CORRECT), bool) else None
                trials.append(HalTrial(right, _score(one), error=_error(one), variation=variation, said=one))
            elif isinstance(one, str) and (named or by_task):
                trials.append(HalTrial(success=False, error=f"run: {one}", variation=variation))
            elif several and isinstance(one, int | float) and (named or numbers):  # as the harness takes variations
                trials.append(HalTrial(score=one, variation=variation))
            elif truths:
                trials.append(HalTrial(success=one, variation=variation))
            elif named:
                trials.append(HalTrial(variation=variation))
            else:
                strange.append(f"task {text(task)[:60]!r}: {str(one)[:40]!r} is not known to be a score")
        if trials:
            found[text(task)] = trials
    return found, strange


def _score(said: Mapping[str, Any]) -> Any:
    return next((said[name] for name in SCORES if isinstance(said.get(name), int | float)), None)


def _error(said: Mapping[str, Any]) -> str | None:
    return f"run: {text(said['error'])}" if said.get("error") else None


def _swe_bench(raw: Mapping[str, Any], known: set[str], benchmark: str) -> tuple[Results, list[str]]:
    """The report of SWE-bench's harness: lists of ids. What was never submitted counts only in the whole benchmark."""
    resolved = {text(each) for each in raw["resolved_ids"]}
    lists = ["unresolved_ids", "error_ids", "empty_patch_ids", *([] if "mini" in benchmark else ["incomplete_ids"])]
    tasks = [*sorted(resolved), *(text(each) for name in lists for each in raw.get(name) or ())]
    errors = {text(each) for each in raw.get("error_ids") or ()}
    return {
        task: [
            HalTrial(success=task in resolved, error="run: the patch could not be tested" if task in errors else None)
        ]
        for task in dict.fromkeys(tasks)
    }, []


def _assistant_bench(raw: Mapping[str, Any], known: set[str], _: str) -> tuple[Results, list[str]]:
    tasks = [text(task) for name in ("successful_tasks", "failed_tasks") for task in raw.get(name) or ()]
    won = {text(task) for task in raw.get("successful_tasks") or ()}
    why = "raw_eval_results.scores does not say whose they are: exact matches are read, the partial scores are not"
    return {task: [HalTrial(success=task in won)] for task in tasks}, [why]


def _core_bench(raw: Mapping[str, Any], known: set[str], _: str) -> tuple[Results, list[str]]:
    found: Results = {}
    for task, said in raw.items():
        shares = {}
        for kind in ("written", "vision"):
            total = said.get(f"total_{kind}_questions") or 0
            if total:
                shares[kind] = (said.get(f"correct_{kind}_answers") or 0) / total
        success = bool(shares) and all(share == 1 for share in shares.values())
        found[text(task)] = [HalTrial(success, float(success), shares, said=said)]
    return found, []


def _app_world(raw: Mapping[str, Any], known: set[str], _: str) -> tuple[Results, list[str]]:
    found: Results = {}
    for task, said in raw["individual"].items():
        total, passed = said.get("num_tests"), said.get("passes")
        tests = {"tests": len(passed) / total} if isinstance(passed, list) and total else {}
        success = bool(said.get("success", False))
        found[text(task)] = [HalTrial(success, float(success), tests, said={"difficulty": said.get("difficulty")})]
    return found, []


def _usaco(raw: Mapping[str, Any], known: set[str], _: str) -> tuple[Results, list[str]]:
    found: Results = {}
    for task, attempts in raw["sdict"].items():
        passed = float(attempts[0]["result"]["fraction_passed"])
        found[text(task)] = [HalTrial(passed == 1, passed)]
    return found, []


def _sci_code(raw: Mapping[str, Any], known: set[str], _: str) -> tuple[Results, list[str]]:
    """The steps that ran; how many a problem has is not in the upload, so only `results` can say who succeeded."""
    details = {text(task): steps for task, steps in raw["details"].items()}
    missing = [] if known else ["neither successful_tasks nor failed_tasks, and raw_eval_results holds no totals"]
    return {task: [HalTrial(said={"passed_steps": steps})] for task, steps in details.items() if task in known}, missing


def _science_agent_bench(raw: Mapping[str, Any], known: set[str], _: str) -> tuple[Results, list[str]]:
    found: Results = {}
    for task, said in raw["eval_result"].items():
        rate = float(said["success_rate"])
        scores = {name: said[name] for name in ("valid_program", "codebert_score") if name in said}
        found[text(task)] = [HalTrial(rate == 1, rate, scores, said={"log_info": said.get("log_info")})]
    return found, []


def _col_bench(raw: list[Any], known: set[str], benchmark: str) -> tuple[Results, list[str]]:
    """Correctness, or likeness of pictures, in the order of the tasks; only the former has successes."""
    whole = "backend" in benchmark
    numbers = [each for each in raw if isinstance(each, int | float)]
    if "colbench" not in benchmark or len(numbers) < len(raw):
        return _unknown(raw, known, benchmark)
    return {f"{n:04d}": [HalTrial(each == 1 if whole else None, each)] for n, each in enumerate(raw)}, []


def _unknown(raw: Any, known: set[str], _: str) -> tuple[Results, list[str]]:
    if known:
        return {}, []
    return {}, [f"raw_eval_results ({type(raw).__name__}) is of no known benchmark, and results name no tasks"]


Layout = Callable[[Any, set[str], str], tuple[Results, list[str]]]
LAYOUTS: tuple[tuple[Callable[[Any], bool], Layout], ...] = (
    (lambda raw: isinstance(raw, Mapping) and "resolved_ids" in raw, _swe_bench),
    (lambda raw: isinstance(raw, Mapping) and raw.keys() >= {"scores", "answers"}, _assistant_bench),
    (lambda raw: isinstance(raw, Mapping) and isinstance(raw.get("individual"), Mapping), _app_world),
    (lambda raw: isinstance(raw, Mapping) and isinstance(raw.get("sdict"), Mapping), _usaco),
    (lambda raw: isinstance(raw, Mapping) and isinstance(raw.get("details"), Mapping) and len(raw) == 1, _sci_code),
    (lambda raw: isinstance(raw, Mapping) and isinstance(raw.get("eval_result"), Mapping), _science_agent_bench),
    (lambda raw: _all_have(raw, "correct_written_answers"), _core_bench),
    (lambda raw: isinstance(raw, list), _col_bench),
    (lambda raw: isinstance(raw, Mapping) and bool(raw), _per_task),
)
"""What to recognise a layout by, and who reads it; the first that fits."""


def _all_have(raw: Any, name: str) -> bool:
    return isinstance(raw, Mapping) and bool(raw) and all(isinstance(x, Mapping) and name in x for x in raw.values())
