"""Ten systems, each broken in a way that is none of its ablations: their worked numbers must notice."""

from __future__ import annotations

import pytest

from palaestra_atlas.reproductions import Exact, checks_of
from palaestra_atlas.rows import read_mechanism
from palaestra_atlas.verification.edits import Edit, applied
from palaestra_atlas.verification.verify import run_check

FAULTS = {
    18: Edit(at="palaestra.credit.grouped:dr_mas", default={"ddof": 0}),
    62: Edit(at="palaestra.credit.grouped:gigpo", replace="+ weight * standardise(", by="- weight * standardise("),
    57: Edit(at="palaestra.credit.strata:canon", replace="mean_low + beta", by="mean_low - beta"),
    97: Edit(at="palaestra.credit.matching:matchtir", replace="mix(weight, episode", by="mix(1 - weight, episode"),
    204: Edit(at="palaestra.rewards.match.gui:hybrid_reward", replace="weights[1] * as", by="weights[0] * as"),
    41: Edit(at="palaestra.rewards.combine.mix:lagrangian", replace="shaped - as_signal", by="shaped + as_signal"),
    21: Edit(at="palaestra.rewards.combine.mix:krc", replace="(1.0 / len(parts))", by="(1.0 / (1 + len(parts)))"),
    9: Edit(at="palaestra.rewards.novelty:oni_reward", replace="c_llm * bonus", by="c_ext * bonus"),
    136: Edit(
        at="palaestra.evaluation.robustness:gated_score",
        replace="weights[0] * parts[0] + weights[1] * parts[1]",
        by="weights[1] * parts[0] + weights[0] * parts[1]",
    ),
    31: Edit(
        at="palaestra.learning.terms.guarded:stable",
        replace="clamp(math.log(low), math.log(high))",
        by="clamp(low, high)",
    ),
}


@pytest.mark.parametrize("number", FAULTS)
def test_a_fault_is_none_of_the_ablations(number: int) -> None:
    assert all(FAULTS[number] not in (part.out or ()) for part in read_mechanism(number).parts)


def test_at_least_eight_of_ten_are_noticed() -> None:
    noticed = []
    for number, edit in FAULTS.items():
        checks = [check for check in checks_of(number) if isinstance(check, Exact)]
        with applied([edit]):
            found = [run_check(check) for check in checks]
        if any(not each.holds for each in found):
            noticed.append(number)
    assert len(noticed) >= 8, f"not noticed: {sorted(FAULTS.keys() - set(noticed))}"
