"""Partners whom a trained team never met."""

import json
from dataclasses import replace

import pytest

from palaestra.agents import random_legal
from palaestra.envs.worlds.referential import Referential
from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.runs.inline import TrainingResult, learn
from palaestra.runs.partners import with_partners

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


def trained(**changes) -> TrainingResult:
    changes = {"train": {"iterations": 0, "groups": 4, "group_size": 1}, "opponents": None} | changes
    return learn(RECIPE | {"credit": "agent_return()", "learn": {"lr": 0.01}} | changes, trust=True)


@pytest.mark.parametrize("reward", ["0 * reward", {"one": "reward", "two": "-reward"}])
def test_an_adaptation_is_paid_as_the_recipe_says(reward) -> None:
    for paid, still in ((None, False), (reward, True)):
        table = with_partners(trained(reward=paid), {"any": random_legal()}, steps=2, episodes=16, rate=9.0, test=200)
        assert (table["gain"] == 0).all() == still  # nothing is earned, nothing learned


TINY = {"player": {"kind": "tiny", "options": {"hidden": 16, "layers": 1, "heads": 2}}}


def test_a_table_adapts_too() -> None:
    made = trained(policies={"player": {"kind": "tabular"}})
    table = with_partners(made, {"any": random_legal()}, steps=1, episodes=16, rate=9.0, test=200)
    assert (table["gain"] != 0).any()


class Mute(Referential):
    """Says nothing of success."""

    def step(self, actions):
        result = super().step(actions)
        result.info.pop("success", None)
        return result


def test_an_env_that_says_nothing_of_success_is_named() -> None:
    made = trained()
    with pytest.raises(InputError, match="partners: no episode says whether it succeeded"):
        with_partners(replace(made, setup=replace(made.setup, test=Mute)), {"any": random_legal()}, steps=1, test=10)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stages": ["prefix_critic()"], "credit": "sequential_advantage()"}, r"has the stage prefix_critic\(\), and"),
        ({"policies": TINY}, "policy 'player' is no small network, as kind mlp is"),
        ({"policies": {"player": {"kind": "random"}}, "learn": {"kind": "play"}}, "no policy of the team learns"),
    ],
)
def test_what_cannot_be_adapted_or_compared_is_said(changes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        with_partners(trained(**changes), {"any": random_legal()}, steps=1, episodes=4, test=10)


def test_a_recipe_with_stages_is_refused_before_it_is_trained(tmp_path) -> None:
    long = RECIPE | {"stages": ["prefix_critic()"], "train": {"iterations": 10**6}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(long))
    (tmp_path / "partners.json").write_text(json.dumps({"stranger": {"kind": "random"}}))
    with pytest.raises(InputError, match=r"partners: .*prefix_critic\(\)"):
        analyze("partners", tmp_path / "recipe.yaml", tmp_path / "partners.json")
