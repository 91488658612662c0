"""Faults on purpose: seeded, paired, in the documented mix; who tries again gets over them, who does not, does not."""

from __future__ import annotations

import functools
from collections import Counter

import polars as pl
import pytest

from palaestra.agents import Request, ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import EnvFactory, make, with_faults, with_parameters, with_prompts
from palaestra.envs.faults import typos
from palaestra.envs.worlds import Bertrand, Desktop, Queue
from palaestra.errors import InputError
from palaestra.evaluation import robustness, trials
from palaestra.play.rollout import rollout
from palaestra.testing import check_env

Desk = functools.partial(Desktop, instances=10)


def patient(request: Request) -> str:
    """Looks at the state: done when the value is there."""
    goal, _, now = request.observation.text.splitlines()[0].partition(" | now ")
    wanted = goal.rpartition(" ")[2]
    return "done" if now == wanted else f"set {wanted}"


class Hasty:
    """Sets once and declares, whatever came back; knows that it has set by the task's own line alone."""

    def __init__(self) -> None:
        self.set: set[str] = set()

    def __call__(self, request: Request) -> str:
        first = "now None" in request.observation.text and "error" not in request.observation.text
        return patient(request) if first else "done"


def play(env: EnvFactory, function: object, system: str, groups: int = 60) -> Turns:
    team = Team(user_agent=ScriptedPolicy(function))  # type: ignore[arg-type]
    return rollout(env, team, groups=groups, seed=1).with_column(system=pl.lit(system))


@pytest.mark.parametrize("world", [Desk, Queue, Bertrand])
@pytest.mark.parametrize("seed", [0, 7])
def test_faulty_envs_keep_the_protocol(world: EnvFactory, seed: int) -> None:
    check_env(with_faults(world, 0.3, seed=seed, patience=3.0), varied=False)
    check_env(with_prompts(world, seed=seed), varied=False)


def test_parameters_keep_the_protocol() -> None:
    check_env(with_parameters(Desk, 31))
    check_env(with_parameters(Desk))


def test_trying_again_gets_over_faults_and_haste_does_not() -> None:
    faulty = with_faults(Desk, 0.4, ("rate_limit", "error"))
    found = {}
    for name, function in (("patient", patient), ("hasty", Hasty())):
        both = Turns.concat([play(Desk, function, "base"), play(faulty, function, "faults")])
        found[name] = robustness(trials(both), "faults", "base")
    assert found["patient"].ratio.mean == 1.0
    assert 0.4 < found["hasty"].ratio.mean < 0.8  # the first call fails with probability .4
    assert found["hasty"].ratio.low < found["hasty"].ratio.mean < found["hasty"].ratio.high < 1.0


def test_mix_and_rate_are_as_documented_and_delays_are_not_slept() -> None:
    turns = play(with_faults(Desk, 0.25, patience=1e9), patient, "faults", groups=1200)
    seen = turns.frame.select("fault", "status", "delay", "retry_after").rows(named=True)
    kinds = Counter(turns["fault"].drop_nulls())
    hit = kinds.total() / len(turns)
    assert hit == pytest.approx(0.25, abs=0.03)
    for name, share in (("rate_limit", 0.35), ("error", 0.35), ("slow", 0.30)):
        assert kinds[name] / kinds.total() == pytest.approx(share, abs=0.05)
    assert all(2 <= each["delay"] <= 4 for each in seen if each["fault"] == "slow")
    assert {each["status"] for each in seen if each["fault"] in ("rate_limit", "error")} == {429, 500}
    assert {each["retry_after"] for each in seen if each["fault"] == "rate_limit"} == {2.0}


def test_a_call_that_failed_did_not_go_through() -> None:
    env = with_faults(Desk, 0.999, "error")()
    before = env.reset(3)["user_agent"]
    result = env.step({"user_agent": before.index("set 3")})
    after = result.observations["user_agent"]
    assert after.text == before.text + "\n[error 500: internal server error; the call did not go through]"
    assert after.choices == before.choices
    assert not result.rewards
    assert result.info["status"] == 500


def test_same_seed_same_faults_other_seed_other_faults() -> None:
    def trace(seed: int) -> list[str | None]:
        return play(with_faults(Desk, 0.4, seed=seed), patient, "x")["fault"].to_list()

    assert trace(0) == trace(0)
    assert trace(0) != trace(1)


def test_exempt_and_only_choose_what_can_fail() -> None:
    def faults(**options: object) -> int:
        turns = play(with_faults(Desk, 0.5, ("error",), **options), patient, "x")  # type: ignore[arg-type]
        return int(turns["fault"].count())

    assert faults(only=r"^set") < faults(exempt=None)
    assert faults(exempt=r"set|done") == 0
    assert faults(only=r"^audit") == 0


def test_a_slow_call_is_lost_for_the_impatient_only() -> None:
    for patience, goes_through in ((0.5, False), (5.0, True)):
        env = with_faults(Desk, 0.999, ("slow",), patience=patience)()
        seen = env.reset(3)["user_agent"]
        result = env.step({"user_agent": "set 3"})
        assert ("now 3" in result.observations["user_agent"].text) is goes_through
        assert result.info["delay"] == pytest.approx(0.5 if not goes_through else 3.0, abs=1.0)
        assert "now None" in seen.text


def test_prompts_change_words_alike_wherever_they_stand() -> None:
    env = with_prompts(Desk, lambda text, rng: text.replace("set", "please put"))()
    seen = env.reset(5)["user_agent"]
    assert seen.text.startswith("please put")
    assert env.task == _task(Desk, 5)
    worded = with_prompts(Desk, rate=1.0, seed=3)
    assert worded().reset(5)["user_agent"].text == worded().reset(5)["user_agent"].text != Desk().reset(5)


def _task(factory: EnvFactory, seed: int) -> str:
    env = factory()
    env.reset(seed)
    return env.task


def test_typos_leave_numbers_alone() -> None:
    import numpy as np

    text = "set volume to 1234 and brightness to 7"
    changed = typos(text, np.random.default_rng(0), 1.0)
    assert changed != text
    assert sorted(changed) == sorted(text)
    assert "1234" in changed
    assert typos(text, np.random.default_rng(0), 0.0) == text


def test_other_parameters_pair_by_template_and_number() -> None:
    base, other = with_parameters(Desk), with_parameters(Desk, 31)
    assert [_task(base, s) for s in range(9)] == [_task(other, s) for s in range(9)]
    assert [base().reset(s) for s in range(9)] != [other().reset(s) for s in range(9)]
    both = Turns.concat([play(base, patient, "base"), play(other, patient, "fresh")])
    assert robustness(trials(both), "fresh", "base").ratio.mean == 1.0
    with pytest.raises(InputError, match="templates"):
        with_parameters(Queue, 1)()


def test_recipes_can_name_it() -> None:
    env = make("faulty", env="native/desktop", rate=0.3, kinds=["error"], instances=4)()
    assert env.agents == ("user_agent",)
    check_env(make("faulty", env="native/desktop", rate=0.3), varied=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 1.0}, "rate=1.0"), ({"kinds": ["eror"]}, "did you mean"), ({"kinds": {"error": -1.0}}, "-1.0"),
        ({"kinds": {"error": 0.0}}, "weight"), ({"only": "("}, "pattern"), ({"patience": -1}, "patience"),
        ({"kinds": "eror"}, "'eror'; did you mean"), ({"patience": float("nan")}, "patience"), ({"seed": -1}, "seed"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        with_faults(Desk, **options)  # type: ignore[arg-type]
