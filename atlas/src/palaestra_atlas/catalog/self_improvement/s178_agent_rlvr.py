"""[178] Agent-RLVR (arXiv 2506.11425): a group that failed tries again with hints from its failure, then learns alone.

Locks that chance does not open: groups without a success have no spread, and nothing to learn from. Hints name the
right numbers at some of the places that the failed attempt got wrong; a table of logits cannot read, so what a hint
says is done. The rows that are learned from hold no hint, and the log-probabilities are those of the bare lock. A
linear model of the training's transcripts picks the best of eight. Left out: repositories and unit tests.
"""

from __future__ import annotations

import functools

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.credit import agent_rlvr
from palaestra.envs.helped import Help, Helped, HelpedEpisode
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Lock
from palaestra.errors import InputError
from palaestra.judges import cases
from palaestra.learning.reward_models import Labels, LinearReward
from palaestra.learning.stages import Context
from palaestra.learning.stages.guidance import guidance
from palaestra.learning.stages.own_context import refuse_help
from palaestra.play.executors import Local, Plan
from palaestra.rewards import best_of_n
from palaestra.runs.inline import learn
from palaestra_atlas.reproductions import exact


def lock(locks: int = 1, steps: int = 4) -> Lock:
    """A lock of four numbers."""
    return Lock(locks=locks, steps=steps)


def guided(policy: object | None = None, *, seed: int = 0, **options: object) -> tuple[Turns, Turns, Context]:
    """First attempts at four locks, and the table after the stage."""
    made = TabularPolicy(4, name="opener") if policy is None else policy
    team = Team(opener=made)  # type: ignore[arg-type]
    env = functools.partial(lock, locks=4)
    told = Context(np.random.default_rng(seed), 1, env, team, Local())
    stage = guidance(**options)  # type: ignore[arg-type]
    plan = stage.plan(Plan(groups=4, group_size=8, seed=seed), told)
    first = Local().play(env, team, plan)
    return first, stage(first, told), told


@exact
def only_failed_groups_are_helped() -> None:
    """A group with a success goes on without hints; one without is helped in every further attempt."""
    _, whole, told = guided()
    frame = whole.frame
    lost = frame.filter(~pl.col("helped")).group_by("group").agg(pl.col("success").fill_null(False).any())
    helped = frame.filter("helped")["group"].unique().to_list()
    assert set(helped) <= set(lost.filter(~pl.col("success"))["group"])
    assert told.metrics["failed"] > 0
    some = ScriptedPolicy(sometimes, name="opener")
    first, mixed, told = guided(some, seed=1)
    assert told.metrics["failed"] == 0
    assert not mixed["helped"].any()
    assert 0 < int(first.frame.unique(["group", "episode"])["success"].sum()) < 16
    right = ScriptedPolicy(lambda request: opening(request.observation.text), name="opener")
    _, solved, told = guided(right)
    assert not solved["helped"].any()
    assert (told.metrics["failed"], told.metrics["helped"]) == (0, 0)
    assert len(solved.frame.unique(["group", "episode"])) == 32, "as many episodes as without"


def sometimes(request: Request) -> str:
    """The right number, but for every other first one."""
    text = request.observation.text
    return "turn to 0" if "step 0" in text and request.rng.random() < 0.3 else opening(text)


def opening(text: str) -> str:
    """The right number of lock k at step s."""
    number, step = (int(word.strip(",")) for word in text.split()[1:4:2])
    return f"turn to {lock(locks=4).right[number, step]}"


@exact
def hints_are_of_this_failure() -> None:
    """A hint names the right number, at a turn that the first failed attempt got wrong; no other turn has one."""
    first, whole, _ = guided(places=4)
    attempt = first.frame.filter(pl.col("episode") == 0)
    wrong = {(g, t) for g, t, said, right in attempt.select("group", "turn", "action", "reference").iter_rows()
             if said != right[t]}  # fmt: skip
    assert 0 < len(wrong) < 16
    hints = whole.frame.filter(pl.col("help").is_not_null())
    assert {(g, t) for g, t in hints.select("group", "turn").iter_rows()} == wrong
    for turn, action, text, right in hints.select("turn", "action", "help", "reference").iter_rows():
        assert text == f"hint: {right[turn]}"
        assert action == right[turn]


@exact
def second_attempts_differ_by_the_help() -> None:
    """With hints at all wrong turns but none wrong elsewhere, second attempts succeed where first ones failed."""
    first, whole, told = guided(places=4)
    assert not first["success"].fill_null(False).any()
    assert told.metrics["solved"] >= 1, told.metrics
    assert (whole["source"] == "guided").sum() > 0


@exact
def learned_without_the_hint() -> None:
    """Rows that were helped read as the bare lock and say what the policy thinks of the action there."""
    policy = TabularPolicy(4, name="opener")
    try:
        _, whole, _ = guided(policy)
    except InputError as refused:  # by its own check, if the help was left in
        raise AssertionError(refused) from refused
    rows = whole.frame.filter(pl.col("source") == "guided")
    assert len(rows)
    assert not rows["observation"].str.contains("hint").any()
    assert rows["state"].to_list() == [Observation(text).key() for text in rows["observation"]]
    np.testing.assert_allclose(rows["logprobs"].list.first().to_numpy(), np.log(1 / 4), atol=1e-6)
    shown = rows.with_columns(observation=pl.col("help") + "\n\n" + pl.col("observation"))
    for forgotten in (shown, rows.with_columns(rescored=pl.lit(False))):
        try:
            refuse_help(Turns(forgotten))
        except InputError:
            continue
        raise AssertionError("a table with help in it was taken")
    _, seen, _ = guided(policy, strip=False)
    assert seen.frame.filter(pl.col("source") == "guided")["observation"].str.starts_with("hint: ").all()


@exact
def the_verifier_decides() -> None:
    """A guided attempt that fails is worth less than nothing, one that succeeds more; the group has a spread again."""
    rows = {"group": [0] * 4, "episode": [0, 1, 2, 3], "helped": [False, False, True, True], "agent": ["opener"] * 4}
    turns = Turns(rows | {"turn": [0] * 4, "reward": [0.0, 0.0, 1.0, 0.0]})
    found = np.asarray(agent_rlvr().evaluate(turns))
    assert found[2] > 1
    np.testing.assert_allclose(found[[0, 1, 3]], -found[2] / 3)


@exact
def an_action_is_put_in_and_a_text_shown() -> None:
    """Episode k of the list begins as its seed does; at a turn with help the text stands first, the action is done."""
    env = Helped(lock, [HelpedEpisode(5, {}), HelpedEpisode(5, {1: Help("hint: turn to 2", "turn to 2")})])
    assert env.reset(0) == env.reset(1)
    seen = env.step({"opener": 0}).observations["opener"].text
    assert seen.startswith("hint: turn to 2\n\nlock 0, step 1")
    told = env.step({"opener": 0}).info
    assert (told["done_action"], told["done_id"], told["help"]) == ("turn to 2", {"opener": 2}, "hint: turn to 2")


@functools.cache
def trained() -> tuple[Turns, Team]:
    """All turns of ten iterations with guidance on locks that chance does not open, and the team half way."""
    made = {
        "name": "locks", "env": {"make": "native/lock", "options": {"locks": 4, "steps": 6}},
        "policies": {"table": {"kind": "tabular", "options": {"actions": 4}}}, "team": {"*": "table"},
        "stages": ["guidance()"], "credit": "agent_rlvr()", "learn": {"lr": 0.2},
        "train": {"iterations": 10, "groups": 8, "group_size": 16, "evaluate_every": 10},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1, "controls": {}},
    }  # fmt: skip
    played: list[pl.DataFrame] = []
    done = learn(made, seed=0, on_turns=lambda _, turns: played.append(turns.frame))
    return Turns(pl.concat(played, how="diagonal_relaxed")), done.team


@exact
def an_outcome_model_picks_the_best_of_eight() -> None:
    """A model of outcomes fitted to guided attempts picks from eight without help; a random pick is as good as one."""
    turns, team = trained()
    past = cases(turns).filter("helped")
    model = LinearReward("palaestra.judges.answer_features:line_pairs", ridge=0.01)
    model.fit(Labels(past, past["success"].cast(pl.Float64).to_numpy()), loss="binary")
    new = cases(Local().play(functools.partial(lock, locks=4, steps=6), team, Plan(groups=100, group_size=8, seed=1)))
    scored = Turns(new.with_columns(score=model.score(new)))
    picked = np.asarray(best_of_n("score").evaluate(scored)) == 1
    opened = new["success"].to_numpy().astype(float)
    assert opened[picked].mean() > opened.mean() + 0.3, (opened[picked].mean(), opened.mean())
