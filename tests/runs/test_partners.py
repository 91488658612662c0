"""Partners whom a trained team never met."""

import json

import pytest

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze

RECIPE = {
    "name": "talk",
    "env": {"make": "native/referential", "options": {"values": [3]}},
    "policies": {"player": {"kind": "mlp", "options": {"hidden": [16]}}},
    "team": {"*": "player"},
    "opponents": {"method": "partners(oldest=0.5)", "every": 1, "matches": 0, "per_iteration": 2},
    "credit": "standardise('reward', over=('opponent', 'agent'))",
    "learn": {"kind": "meta_gradient", "lr": 0.01},
    "train": {"iterations": 2, "groups": 16, "group_size": 1},
}


def test_a_team_adapts_to_each_partner_in_each_seat(tmp_path) -> None:
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE))
    coder = {"kind": "script", "options": {"script": "code", "number": 2}}
    (tmp_path / "partners.json").write_text(json.dumps({"stranger": coder}))
    question = "partners(steps=8, rate=6.0, test=100)"
    table = analyze(question, tmp_path / "recipe.yaml", tmp_path / "partners.json")
    assert table["partner"].to_list() == ["all", "stranger", "stranger"]
    assert table["seat"].to_list() == ["all", "speaker", "listener"]
    assert table["after"][0] == pytest.approx(table["after"][1:].mean())
    assert table["gain"][0] > 0.2


def test_partners_that_cannot_be_read_are_named(tmp_path) -> None:
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE))
    (tmp_path / "partners.json").write_text(json.dumps({"stranger": "code"}))
    with pytest.raises(InputError, match="policies by name"):
        analyze("partners", tmp_path / "recipe.yaml", tmp_path / "partners.json")
