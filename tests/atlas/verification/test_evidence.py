"""What notes quote from evidence."""

from __future__ import annotations

import pytest

from palaestra_atlas.verification.evidence import CheckResult, Evidence, origin


@pytest.mark.parametrize("documented", [0, 2000, 3000])
def test_the_first_block_is_the_documented_one_whatever_its_seeds(documented: int) -> None:
    checks = [
        CheckResult(name="experiment", seeds=(first, first + 1), holds=True, measured={"gain": gain}, seconds=1.0)
        for first, gain in ((documented, 0.25), (1000, 0.5))
    ]
    found = Evidence(
        id=1, status="works", digest="", fast=False, fresh=1000, checks=tuple(checks), **origin()
    ).numbers()
    assert (found["experiment"]["gain"], found["fresh"]["experiment"]["gain"]) == (0.25, 0.5)
