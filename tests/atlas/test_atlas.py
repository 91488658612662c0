"""The atlas claims only what exists."""

from __future__ import annotations

import importlib
import json
import re

import numpy as np
import pytest
from pydantic import ValidationError
from tests.atlas.rotation import skip_unless_due

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra_atlas import FAMILIES, System, reproductions, system, systems
from palaestra_atlas.render import plain
from palaestra_atlas.reproductions import Exact
from palaestra_atlas.rows import Part, read_mechanism
from palaestra_atlas.verification import evidence
from palaestra_atlas.verification.edits import applied
from palaestra_atlas.verification.verify import run_check

CLAIMING = [entry for entry in systems() if entry.where]


def test_every_id_is_present_exactly_once() -> None:
    assert [entry.id for entry in systems()] == list(range(1, 220))


def test_names_and_titles_are_unique_and_families_are_all_used() -> None:
    names = [entry.name.casefold() for entry in systems()]
    assert len(set(names)) == len({entry.title for entry in systems()}) == 219
    assert {entry.family for entry in systems()} == set(FAMILIES)
    assert all(0 < len(entry.name) <= 30 for entry in systems())


def test_arxiv_ids_look_like_arxiv_ids_and_belong_to_one_system() -> None:
    ids = [entry.arxiv for entry in systems() if entry.arxiv]
    assert len(ids) > 150
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"\d{4}\.\d{5}", each) for each in ids)


@pytest.mark.parametrize("entry", CLAIMING, ids=lambda entry: entry.name)
def test_what_a_row_claims_can_be_imported_parsed_and_run(entry: System) -> None:
    for name in entry.where:
        module, _, attribute = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), attribute)), name
    if entry.id in reproductions.all_ids():
        assert {each.id for each in reproductions.find(entry.id)} == {entry.id}


@pytest.mark.parametrize("entry", [entry for entry in CLAIMING if entry.expression], ids=lambda entry: entry.name)
def test_an_expression_is_what_the_function_computes(entry: System) -> None:
    rng = np.random.default_rng(0)
    keys = {name: rng.integers(4, size=200) for name in ("group", "episode", "turn", "state")}
    turns = Turns(keys | {"agent": rng.choice(["a", "b"], 200), "reward": rng.random(200)})
    module, _, attribute = entry.where[0].rpartition(".")
    function = getattr(importlib.import_module(module), attribute)
    np.testing.assert_array_equal(parse(str(entry.expression)).evaluate(turns), function().evaluate(turns))


def test_every_experiment_belongs_to_a_system_that_is_here() -> None:
    assert set(reproductions.all_ids()) <= {entry.id for entry in CLAIMING}


@pytest.mark.parametrize("entry", systems(), ids=lambda entry: str(entry.id))
def test_the_parts_of_a_mechanism_name_checks_that_exist(entry: System) -> None:
    names = {check.name for check in reproductions.checks_of(entry.id)}
    for part in read_mechanism(entry.id).parts:
        assert set(part.checks) <= names, part.part
        with applied(part.out or ()):
            pass


BOUND = [
    pytest.param(entry.id, part, id=f"{entry.id} {part.part[:40]}")
    for entry in CLAIMING
    for part in read_mechanism(entry.id).parts
    if part.out
]


@pytest.mark.parametrize(("number", "part"), BOUND)
def test_a_worked_number_turns_red_without_the_part(number: int, part: Part) -> None:
    skip_unless_due(number)  # its evidence, if it is of this code, has seen it red
    checks = [check for check in reproductions.checks_of(number) if check.name in part.checks]
    quick = [check for check in checks if isinstance(check, Exact)]
    if not quick:
        pytest.skip("shown by an experiment; `palaestra verify` takes the part out of it")
    with applied(part.out or ()):
        found = [run_check(check) for check in quick]
    assert any(not each.holds for each in found)
    assert all(each.holds or str(each.error).startswith("AssertionError") for each in found), found


NUMBER = re.compile(r"\d\.\d|(?<![\w.])\.\d|\d ?%|±|\d+ of \d+|(?<!with )(?<!of )(?<=[a-z] )\d{2,}(?=[,;.])")
"""Patterns of measured numbers in a text: decimals, per cent, errors, counts, a whole number that ends its clause."""


@pytest.mark.parametrize(
    "text", ["success .84", "0.3 more", "84 % held", "4 of 5 seeds", "1 ± 2", "one agent 49, two 28"]
)
def test_a_number_that_was_typed_is_recognised(text: str) -> None:
    assert NUMBER.search(text)


@pytest.mark.parametrize("entry", [entry for entry in CLAIMING if entry.note], ids=lambda entry: str(entry.id))
def test_notes_contain_no_typed_numbers(entry: System) -> None:
    typed = re.sub(r"\{[^{}]*\}", "", str(entry.note))
    assert not NUMBER.search(typed), NUMBER.findall(typed)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"note": "works"}, "is planned: it has no expression, use, verified or note"),
        ({"where": ["palaestra.credit.x"]}, "so it says how it was verified"),
        ({"status": "works"}, "Extra inputs are not permitted"),
        ({"use": {"line": "run it"}}, "String should match pattern"),
    ],
)
def test_a_row_that_claims_too_much_or_too_little_is_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        System(id=1, name="A", title="B", family="credit", kind="train", **fields)  # type: ignore[arg-type]


def test_systems_are_found_by_id_and_by_name() -> None:
    assert system(18) is system("18") is system("dr. mas")
    assert system(148).name != system(69).name  # two methods are called SPO


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (0, "there is no system 0; ids run from 1 to 219"),
        (220, "there is no system 220; ids run from 1 to 219"),
        ("gipgo", "there is no system named 'gipgo'; did you mean 'GiGPO' or"),
        ("qqqqqqqq", "there is no system named 'qqqqqqqq'; `palaestra systems` lists all of them"),
    ],
)
def test_an_unknown_system_is_named_with_the_nearest(key: int | str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        system(key)
    assert str(caught.value).startswith(message)


def test_json_has_exactly_the_promised_fields() -> None:
    rows = json.loads(json.dumps([plain(entry) for entry in systems()]))
    assert {tuple(row) for row in rows} == {("id", "name", "family", "status", "where", "use", "reproduce")}
    assert (rows[17]["where"], rows[17]["reproduce"]) == (["palaestra.credit.dr_mas"], "palaestra reproduce 18")
    assert rows[17]["use"].startswith("palaestra train ")
    planned = plain(System(id=900, name="A", title="B", family="credit", kind="train"))
    assert (planned["status"], planned["where"], planned["use"], planned["reproduce"]) == ("planned", [], None, None)


def test_evidence_is_of_systems_that_are_here() -> None:
    found = {int(path.stem): evidence.read(int(path.stem)) for path in evidence.folder().glob("*.json")}
    assert found.keys() <= {entry.id for entry in CLAIMING}
    assert not any(each.fast for each in found.values() if each), "a quick look is not evidence"


def test_the_page_of_systems_is_that_of_the_evidence() -> None:
    from tools import systems as page

    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "run python tools/systems.py"
