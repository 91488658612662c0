"""From a recipe to objects, or to one line that says what cannot be made."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import QUICK, validate

from palaestra.agents import ChatPolicy, LMPolicy, MLPPolicy, Request, ScriptedPolicy, TabularPolicy
from palaestra.envs import make
from palaestra.envs.worlds import Landmarks, StageGames
from palaestra.errors import InputError, MissingExtraError, RecipeError
from palaestra.foundation.registry import read_call
from palaestra.play.executors import Local
from palaestra.play.processes import Processes
from palaestra.runs import build
from palaestra.runs.config import PlayPart, PolicyPart
from palaestra.runs.recipe import Recipe, alone, load, override
from palaestra.teams import coordinator, switching

KUHN = make("openspiel/kuhn_poker")


def recipe(**changes: Any) -> Recipe:
    return override(alone(validate(QUICK)), changes)


def test_an_env_of_your_own_is_made_with_its_options() -> None:
    world = build.env(recipe(env={"options": {"failing": 0.25}}).env, "train")()
    assert (type(world).__name__, world.failing) == ("Signalling", 0.25)  # type: ignore[attr-defined]


def test_reasoning_gym_gets_its_split_and_roles() -> None:
    part = {
        "make": "reasoning_gym",
        "options": {"datasets": {"chain_sum": {}}},
        "roles": ["solver", "checker"],
    }
    worlds = {split: build.env(recipe(env=part).env, split)() for split in ("train", "test")}
    assert worlds["train"].agents == ("solver", "checker")
    tasks = {split: [] for split in worlds}
    for split, world in worlds.items():
        for seed in range(30):
            world.reset(seed)
            tasks[split].append(world.task)
    assert not set(tasks["train"]) & set(tasks["test"])


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        ({"make": "openspel/kuhn_poker"}, "env.make: there is no env 'openspel/kuhn_poker'; did you mean 'openspiel'?"),
        ({"make": "openspiel/kuhn_pocker"}, "env: OpenSpiel has no game 'kuhn_pocker'; did you mean 'kuhn_poker'"),
        (
            {"make": "openspiel/kuhn_poker", "options": {"ilegal": 1}},
            "env.options: unknown option 'ilegal'; did you mean 'illegal'",
        ),
        (
            {"make": "signalling:Signaling"},
            "env.make: module:name 'signalling:Signaling': signalling has no ",
        ),
        (
            {"make": "no_such_module:f"},
            "env.make: module:name 'no_such_module:f': cannot import ",
        ),
        ({"make": "openspiel/kuhn_poker", "roles": ["a", "b"]}, "env.pipeline: pipeline: OpenSpielEnv is no task"),
        (
            {"make": "reasoning_gym", "options": {"datasets": {"gcd": {}}}, "roles": ["a", "b"], "pipeline": {"x": 1}},
            "env.pipeline: unknown option 'x'",
        ),
    ],
)
def test_envs_that_are_not_there(part: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        build.env(recipe(env=part).env, "train")
    assert str(caught.value).removeprefix("quick: ").startswith(complaint)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (
            {"make": "signalling:Signalling", "options": {"failng": 1}},
            "env: 'signalling:Signalling' cannot be played",
        ),
        ({"make": "signalling:Signalling", "options": {"failing": "x"}}, "no complaint: nothing has looked at it yet"),
        (
            {"make": "collections:Counter"},
            "env.make: 'collections:Counter' made Counter, which is no env: it lacks",
        ),
        ({"make": "json:loads"}, "env: 'json:loads' cannot be played (TypeError"),
    ],
)
def test_envs_that_do_not_work(spec: dict[str, Any], complaint: str) -> None:
    factory = build.env(recipe(env=spec).env, "train")
    if complaint.startswith("no complaint"):
        build.try_env(factory, spec["make"])
    else:
        with pytest.raises(RecipeError) as caught:
            build.try_env(factory, spec["make"])
        assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("module", "part", "extra"),
    [
        ("pyspiel", {"make": "openspiel/kuhn_poker"}, "openspiel"),
        ("textarena", {"make": "textarena/Nim-v0"}, "textarena"),
        ("gymnasium", {"make": "gymnasium/CartPole-v1"}, "gymnasium"),
        ("reasoning_gym", {"make": "reasoning_gym", "options": {"datasets": {"gcd": {"seed": 3}}}}, "reasoning-gym"),
    ],
)
def test_libraries_that_are_not_installed(
    module: str, part: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"is not installed: pip install 'palaestra\[{extra}\]'$"):
        build.try_env(build.env(recipe(env=part).env, "train"), part["make"])


def made(kind: str, options: dict[str, Any], *, world: Any = KUHN, seed: int = 0) -> Any:
    part = PolicyPart.model_construct(kind=kind, options=options)
    return build.policy("player", part, factory=world, seed=seed, corpus=["p0 Pass Bet"])


def test_every_kind_of_policy() -> None:
    assert isinstance(made("tiny", {"hidden": 16, "layers": 1, "heads": 2}), LMPolicy)
    assert isinstance(made("chat", {"model": "m", "api_key_env": None}), ChatPolicy)
    assert isinstance(made("mlp", {"hidden": [8]}), MLPPolicy)
    assert isinstance(made("random", {}), ScriptedPolicy)
    assert isinstance(made("script", {"script": "nim", "skill": 0.5}), ScriptedPolicy)
    table = made("tabular", {"capacity": 16})
    assert isinstance(table, TabularPolicy)
    assert (table.actions, table.name) == (2, "player"), "the number of actions is the env's"


@pytest.mark.parametrize(
    ("kind", "options", "complaint"),
    [
        ("tiny", {"hiden": 64}, "policies.player.options: unknown option 'hiden'; did you mean 'hidden'?"),
        ("tiny", {"max_tokens": 64}, "policies.player.options: unknown option 'max_tokens'; did you mean 'max_new_tok"),
        ("tiny", {"hidden": 3}, "policies.player.options: tiny: hidden=3 must be a multiple of"),
        ("tiny", {"temperature": 0}, "policies.player.options: LMPolicy: temperature is 0"),
        ("lm", {"model": "x", "loar": {}}, "policies.player.options: unknown option 'loar'; did you mean 'lora'?"),
        (
            "chat",
            {"model": "m", "api_key": "k"},
            "policies.player.options: unknown option 'api_key'; did you mean",
        ),
        ("chat", {"model": "m", "api_key_env": "NOT_SET"}, "policies.player.options: ChatPolicy: environment variable"),
        ("tabular", {"capasity": 1}, "policies.player.options: unknown option 'capasity'; did you mean 'capacity'?"),
        ("tabular", {"name": "x"}, "policies.player.options: unknown option 'name'"),
        ("script", {"script": "nimm"}, "policies.player.options: unknown script 'nimm'; did you mean 'nim'"),
        ("random", {"skill": 1}, "policies.player.options 'random': unknown option 'skill'; it takes none"),
    ],
)
def test_policies_that_cannot_be_made(
    kind: str, options: dict[str, Any], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(RecipeError) as caught:
        made(kind, options)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)
    if "unknown" in complaint and "api_key" not in options:  # that is known without making it
        with pytest.raises(RecipeError) as earlier:
            validate(QUICK | {"policies": {"player": {"kind": kind, "options": options}}})
        assert complaint.partition(": ")[2] in str(earlier.value)


def test_policies_that_do_not_fit_the_env() -> None:
    words = make("reasoning_gym", datasets={"gcd": {}})
    with pytest.raises(RecipeError, match="kind 'tabular' needs choices"):
        made("tabular", {}, world=words)
    with pytest.raises(RecipeError, match="kind 'mlp' needs arrays and choices"):
        made("mlp", {}, world=words)


def test_policies_of_one_team_start_differently_and_seeds_too() -> None:
    tiny = {"kind": "tiny", "options": {"hidden": 16, "layers": 1, "heads": 2}}
    spec = recipe(policies={"guide": tiny, "seeker": tiny})

    def weights(seed: int) -> list[float]:
        team = build.resolve(spec).team(seed, ["see red"])
        return [float(team[seat].parameters()[0].detach().sum()) for seat in ("guide", "seeker")]  # type: ignore[attr-defined]

    assert weights(0) == weights(0)
    assert len({*weights(0), *weights(1)}) == 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"lora": {"rank": 8}}, "policies.guide.options: LMPolicy: lora: no field 'rank'"),
        ({"max_new_tokens": 5000}, "max_new_tokens is 5000, but the model has 2048 positions"),
        ({"max_new_token": 5}, "policies.guide.options: unknown option 'max_new_token'; did you mean 'max_new_tokens'"),
        ({"dtype": "bf61"}, "dtype is 'bf61'; did you mean 'bf16'"),
        ({"device": "cuda:97"}, "CUDA devices here"),
        ({"model": "nowhere/at/all"}, "cannot load a model and tokenizer from 'nowhere/at/all'"),
    ],
)
def test_models_from_disk_are_looked_at_before_anything_is_played(
    options: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    LMPolicy.tiny(hidden=16, layers=1, heads=2).save(tmp_path)
    (tmp_path / "model.safetensors").unlink()  # nobody reads it
    good = {"kind": "lm", "options": {"model": str(tmp_path), "max_new_tokens": 4}}
    build.check(build.resolve(recipe(policies={"guide": good})), from_disk=True)
    bad = {"kind": "lm", "options": good["options"] | options}  # type: ignore[operator]
    with pytest.raises(RecipeError) as caught:
        build.check(build.resolve(recipe(policies={"guide": bad})), from_disk=True)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    other = {"kind": "chat", "options": {"model": "m", "api_key_env": None, "retries": -1}}
    with pytest.raises(RecipeError, match=r"policies\.seeker\.options: ChatPolicy: retries is -1"):
        build.check(build.resolve(recipe(policies={"guide": good, "seeker": other})), from_disk=True)


def test_seats() -> None:
    a, b = TabularPolicy(2, name="a"), TabularPolicy(2, name="b")
    assert build.seats({"x": "a", "*": "b"}, {"a": a, "b": b}, ["x", "y", "z"]) == {"x": a, "y": b, "z": b}
    with pytest.raises(RecipeError, match=r"^team\.xx: the env has no such agent; did you mean 'x'\?"):
        build.seats({"xx": "a", "*": "b"}, {"a": a, "b": b}, ["x"])
    with pytest.raises(RecipeError, match=r"^team: nobody plays y, z; name a policy for each agent, or one for '\*'"):
        build.seats({"x": "a"}, {"a": a}, ["x", "y", "z"])


def test_scripted_play_says_the_ids_of_its_actions() -> None:
    """Also in seats whose actions have other names than those of the first seat."""
    team = build.scripted_team("random", {}, KUHN, "field")
    assert list(team) == ["player_0", "player_1"]
    world = make("openspiel/tiny_hanabi")()
    shown = next(iter(world.reset(0).values()))
    assert shown.choices is not None
    shown = world.step({"player_0": 0}).observations["player_1"]
    assert shown.choices is not None
    assert shown.choices[0] == "p1a0"
    script = build.scripted_team("random", {}, make("openspiel/tiny_hanabi"), "field")["player_1"]
    rng = np.random.default_rng(0)
    decisions = script.act([Request(shown, "player_1", rng) for _ in range(20)])
    assert {shown.choices[int(d.action_ids[0])] for d in decisions if d.action_ids is not None} == set(shown.choices)
    assert all(shown.choices[int(d.action_ids[0])] == d.action for d in decisions if d.action_ids is not None)


def test_what_a_script_says_wrongly_has_no_id() -> None:
    script = build.Demonstrator(lambda request: "nonsense", name="script")
    (shown,) = KUHN().reset(0).values()
    (decision,) = script.act([Request(shown, "player_0", np.random.default_rng(0))])
    assert (decision.action, decision.action_ids) == ("nonsense", None)


def test_versions_name_what_a_result_depends_on() -> None:
    found = build.versions()
    assert {"python", "platform", "palaestra", "torch", "numpy", "polars"} <= found.keys()
    assert not issubclass(MissingExtraError, RecipeError)
    assert issubclass(MissingExtraError, InputError)


def test_executors_get_what_they_take() -> None:
    """Shards are the recipe's, and what registers names is imported by workers, too."""
    part = PlayPart(executor="processes(workers=3)", shards=5, concurrency=7, retries=2)
    made = build.executor(part, ["json"])
    assert isinstance(made, Processes)
    assert (made.workers, made.here.shards, made.here.concurrency, made.here.retries) == (3, 5, 7, 2)
    assert made.imports == ("json",)
    here = build.executor(PlayPart(shards=5))
    assert isinstance(here, Local)
    assert here.shards == 5
    assert build.executor(PlayPart()).shards is None  # type: ignore[attr-defined]


def test_teams_of_recipes_can_be_made_by_workers() -> None:
    setup = build.resolve(load("kuhn-selfplay"))
    for team in (setup.team(3, []), build.scripted_team("random", {}, setup.train, "field")):
        again = pickle.loads(pickle.dumps(team.maker))()
        assert repr(again) == repr(team)
        assert team.frozen_copy().maker is team.maker
        assert again.state_dict().keys() == team.state_dict().keys()


def test_one_cluster_serves_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextlib.contextmanager
    def shared(options: dict[str, Any], seeds: int) -> Iterator[dict[str, Any]]:
        asked.append((options, seeds))
        yield {**options, "address": "there", "workers": 2}
        asked.append("closed")

    monkeypatch.setattr("palaestra.play.cluster.Ray.shared", staticmethod(shared))
    with contextlib.ExitStack() as stack:
        assert build.shared_executor("local()", 3, stack) == "local()"
        text = build.shared_executor("ray(late=None)", 3, stack)
    assert read_call(text) == ("ray", [], {"late": None, "address": "there", "workers": 2})
    assert asked == [({"late": None}, 3), "closed"]


def test_the_tokens_of_a_forward_pass_are_bounded_by_the_recipe() -> None:
    setup = build.resolve(load("answers", ["learn.chunk_tokens=100"]))
    assert setup.learner(setup.team(0, ["a b"])).chunk_tokens == 100  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match="chunk_tokens"):
        load("answers", ["learn.chunk_tokens=0"])


def test_policies_fit_the_seats_that_they_have() -> None:
    told = coordinator(lambda: Landmarks(walkers=2))
    part = PolicyPart(kind="mlp")
    for agents, inputs in ((["walker_1"], 4 + 4), (["coordinator-walker_0"], 2 * 4 + 2), ([], 2 * 4 + 2)):
        made = build.policy("some", part, factory=told, seed=0, agents=agents)
        assert isinstance(made, MLPPolicy)
        assert (made.inputs, made.actions) == (inputs, 4)
    table = build.policy("some", PolicyPart(kind="q_table"), factory=switching(StageGames), seed=0, agents=["central"])
    assert isinstance(table, TabularPolicy)
    assert table.actions == 9, "the seat acts where the gate lets it"


def test_weights_change_under_answers_of_servers_only(tmp_path: Path) -> None:
    """`train.inflight` is refused before anything is played for policies that learn and answer here."""
    with pytest.raises(RecipeError, match="inflight: nothing is played while the learner learns: write lag: 1 or more"):
        recipe(train={"inflight": True})
    told: dict[str, Any] = {"train": {"inflight": True, "lag": 1}}
    with pytest.raises(InputError, match=r"inflight: policy 'guide' answers here, .*only a served policy"):
        build.check(build.resolve(recipe(**told)))
    LMPolicy.tiny(hidden=16, layers=1, heads=2).save(tmp_path / "model")
    here = {"kind": "lm", "options": {"model": str(tmp_path / "model")}}
    there = {"kind": "served", "options": here["options"] | {"url": "http://127.0.0.1:1/v1"}}  # type: ignore[operator]
    for kind, seeker, fits in (("served", there, True), ("lm", here, False), ("random", {"kind": "random"}, True)):
        fails = pytest.raises(InputError, match="inflight: policy 'seeker' answers here")
        with contextlib.nullcontext() if fits else fails:
            changed = recipe(**told, policies={"guide": there, "seeker": seeker})
            assert changed.policies["seeker"].kind == kind
            build.check(build.resolve(changed), from_disk=True)
