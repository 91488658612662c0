"""Tasks as a table: filters, samplers, diversity, leakage, and what a run keeps."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.questions import solve
from palaestra.envs.task_keys import task_id, task_key
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import DamagedFileError, InputError
from palaestra.learning.alarms import alarms
from palaestra.learning.play import PlayOnly
from palaestra.learning.stages.stage import Context
from palaestra.learning.stages.task_table import task_table
from palaestra.learning.task_diversity import distinct_share, drift, effective_number, word_shares
from palaestra.learning.task_samplers import AdaptiveLevel, Learnable, Percentile, sampler
from palaestra.learning.task_table import TASKS, check_leaks, dedupe, feasible, learnable, mix, read_tasks
from palaestra.learning.trainer import Trainer
from palaestra.rewards import proposer_reward
from palaestra.teams import proposer
from palaestra.teams.proposer import scripted_proposals


def tasks(texts: list[str], **columns: list) -> pl.DataFrame:
    """A table with these texts."""
    names = [task_id("t", task_key(text)) for text in texts]
    given = {"id": names, "text": texts, "status": ["given"] * len(texts)} | columns
    return pl.DataFrame({name: given.get(name, [None] * len(texts)) for name in TASKS}, schema=TASKS)


# -- filters ----------------------------------------------------------------------------------------------------------


def test_the_band_includes_its_ends_and_leaves_out_what_nobody_tried():
    hard = pl.DataFrame({"difficulty": [0.0, 0.25, 0.5, 0.95, 0.96, 1.0, None]})
    assert hard.filter(learnable(0.05, 0.75))["difficulty"].to_list() == [0.25, 0.5, 0.95]
    with pytest.raises(InputError, match=r"low=0\.8"):
        learnable(0.8, 0.2)


def test_words_in_common_make_a_duplicate():
    found = tasks(["open the red box now", "Open the red box NOW.", "open the red box", "open a green door now", ""])
    assert len(dedupe(found)) == 4
    assert dedupe(found, jaccard=0.8)["text"].to_list() == ["open the red box now", "open a green door now", ""]
    assert len(dedupe(found, jaccard=0.81)) == 4


@given(st.lists(st.text("ab ", max_size=6), max_size=8), st.sampled_from([0.3, 0.5, 1.0]))
def test_those_that_stay_are_apart_and_each_that_goes_is_near_one(texts, jaccard):
    kept = dedupe(tasks(texts), jaccard=jaccard)["text"].to_list()
    words = [set(text.lower().split()) for text in kept]

    def near(one: set, other: set) -> bool:
        return bool(one & other) and len(one & other) / len(one | other) >= jaccard - 1e-9

    assert not any(near(a, b) for at, a in enumerate(words) for b in words[:at])
    for text in texts:
        own = set(text.lower().split())
        assert any(task_key(text) == task_key(other) or near(own, set(other.lower().split())) for other in kept)


def test_what_is_not_feasible_is_refused_with_the_reason():
    def check(text: str) -> bool:
        if text == "hard":
            raise ValueError("nobody can")
        return text != "no"

    found = feasible(tasks(["yes", "hard", "no"]), check)
    assert found["status"].to_list() == ["given", "refused", "refused"]
    assert found["why"].to_list() == [None, "nobody can", "is not feasible"]


def test_a_mixture_has_all_given_tasks_and_a_share_of_the_others():
    rng = np.random.default_rng(0)
    both = mix(tasks(list("abcd")), tasks([f"p{n}" for n in range(9)]), 0.5, rng)
    assert both["text"].to_list()[:4] == list("abcd")
    assert len(both) == 6
    assert len(mix(tasks(list("abcd")), tasks(["p"]), 2.0, rng)) == 5
    assert mix(tasks(["a"]), tasks(["b"]), 0, rng).equals(tasks(["a"]))
    with pytest.raises(InputError, match="ratio"):
        mix(tasks(["a"]), tasks(["b"]), -1e-9, rng)


# -- leakage ----------------------------------------------------------------------------------------------------------


def test_a_held_out_task_its_duplicate_or_its_child_in_training_is_an_error_that_names_it():
    found = tasks(["one", "two", "three"], parent=[None, task_id("t", task_key("one")), task_id("t", task_key("two"))])
    check_leaks(found, ["four"])
    for held, said in (
        (["ONE."], r"task t:\w+ \('one'\) is held out"),
        ([task_id("other", task_key("two"))], r"\('two'\) is held out"),
        (["three"], r"\('three'\) is held out"),
    ):
        with pytest.raises(InputError, match=said):
            check_leaks(found, held)
    for child in (found[1:], found[2:].with_columns(parent=pl.lit("one"))):
        with pytest.raises(InputError, match=r"was proposed from the held-out task"):
            check_leaks(child, ["one"])
    with pytest.raises(InputError, match=r"\('three'\) was proposed from the held-out task t:"):
        check_leaks(found.filter(pl.col("text") != "one")[1:].vstack(found[1:2]), ["one"])
    with pytest.raises(InputError, match=r"task env:7 \('one'\) is held out"):
        check_leaks(found.with_columns(id=pl.lit("env:7"), parent=pl.lit(None, pl.String)), ["One"])
    refused = found.with_columns(status=pl.lit("refused"))
    check_leaks(refused, ["one", "two", "three"])


@given(st.data())
def test_no_descendant_of_a_held_out_task_passes(data):
    many = data.draw(st.integers(1, 12))
    texts = [f"task {n}" for n in range(many)]
    parents = [data.draw(st.one_of(st.none(), st.integers(0, n - 1))) if n else None for n in range(many)]
    names = [task_id("t", task_key(text)) for text in texts]
    table = tasks(texts, parent=[None if each is None else names[each] for each in parents])
    held = data.draw(st.integers(0, many - 1))
    tainted = {held}
    for at, parent in enumerate(parents):
        if parent in tainted:
            tainted.add(at)
    rest = [at for at in range(many) if at not in tainted]
    check_leaks(table[rest], [texts[held]])
    child = data.draw(st.sampled_from(sorted(tainted)))
    line = [child]
    while (parent := parents[line[-1]]) is not None and line[-1] != held:
        line.append(parent)
    among = sorted({*rest, *line} - ({held} - {child}))  # the held-out task itself need not be there
    with pytest.raises(InputError, match=r"held.out") as caught:
        check_leaks(table[among], [texts[held]])
    assert any(names[at] in str(caught.value) for at in line)


# -- samplers ---------------------------------------------------------------------------------------------------------

HARD = pl.DataFrame({"difficulty": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, None]})


def test_samplers_choose_by_difficulty_and_none_twice():
    rng = np.random.default_rng(0)
    assert sorted(Learnable(0.1, 0.9).choose(HARD, 9, 0, rng)) == [1, 2, 3, 4]
    assert len(set(Learnable().choose(HARD, 3, 0, rng))) == 3
    assert sorted(Percentile(0.2, 1.0, steps=10).choose(HARD, 9, 0, rng)) == [0, 1]
    assert sorted(Percentile(0.2, 1.0, steps=10).choose(HARD, 9, 5, rng)) == [0, 1, 2, 3]
    assert sorted(Percentile(0.2, 1.0, steps=10).choose(HARD, 9, 99, rng)) == [0, 1, 2, 3, 4, 5]
    assert sorted(AdaptiveLevel(levels=3, level=2).choose(HARD, 9, 0, rng)) == [2, 3]
    empty = HARD.clear()
    assert all(len(each.choose(empty, 3, 0, rng)) == 0 for each in (Learnable(), Percentile(), AdaptiveLevel()))


def test_the_level_follows_the_score_of_two_windows():
    level = AdaptiveLevel(window=2, every=1)
    assert [level.report(score) for score in (0.2, 0.2, 0.2)] == [1, 1, 1]  # not two windows yet
    assert level.report(0.3) == 1  # .25 against .2: not more than delta
    assert level.report(0.5) == 2  # .4 against .2
    assert [level.report(0.5) for _ in range(4)] == [3, 4, 4, 4]
    assert [level.report(0.0) for _ in range(3)] == [3, 2, 1]


@pytest.mark.parametrize("text", ["learnabel()", "learnable(low=2)", "percentile(start=0)", "learnable(lo=0.1)"])
def test_a_sampler_that_cannot_be_is_said(text):
    with pytest.raises(InputError):
        sampler(text)


# -- diversity --------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=30))
def test_the_effective_number_lies_between_one_and_the_distinct(texts):
    distinct = len(set(texts))
    assert 1 - 1e-9 <= effective_number(texts) <= distinct + 1e-9
    assert distinct_share(texts) == pytest.approx(distinct / len(texts))


def test_drift_is_symmetric_and_grows():
    start, later, last = (word_shares([text]) for text in ("add two and two", "add two and nine", "open the door"))
    assert drift(start, start) == 0
    assert drift(start, later) == pytest.approx(drift(later, start))
    assert 0 < drift(start, later) < drift(start, last) == 1


def line(**said: float) -> dict:
    """A line of metrics with what the stage measured."""
    whole = {"refused": 0, "distinct": 1.0, "drift": 0.0} | said
    return {"policies": {}, "errors": {}, "incomplete_groups": 0, "groups": 1, "reward": 0.0,
            "stages": {"task_table": whole}}  # fmt: skip


def test_a_collapse_is_an_alarm():
    start = line(proposed=32, effective=20.0)
    assert alarms(start, []) == []
    assert alarms(line(proposed=32, effective=12.0), [start]) == []
    (said,) = alarms(line(proposed=32, effective=1.5), [start])
    assert said.startswith("task_table: 32 proposals are 1.5 tasks in effect, 20.0 of 32 at the start")
    assert alarms(line(proposed=8, effective=5.0), [start]) == []
    (said,) = alarms(line(proposed=1000, effective=1.0), [])
    assert "1000 proposals are 1.0 tasks" in said
    (said,) = alarms(line(proposed=40, effective=1.0, refused=40), [start])
    assert said == "task_table: all 40 proposals were refused; tasks/ says why each"
    assert alarms({**line(), "stages": {}}, [start]) == []


# -- in a run ---------------------------------------------------------------------------------------------------------


class Sums(TaskEnv):
    """n + 1 for n below 5."""

    def draw(self, seed: int) -> Task:
        number = seed % 5
        text = f"{number} + 1 ="
        return Task(task_id("sums", task_key(text)), text, lambda said: float(int(said) == number + 1), str(number + 1))


def trained(env, play, folder=None, *, iterations=3, stage="task_table()", groups=6, **options) -> Trainer:
    """A run of scripts."""
    policy = ScriptedPolicy(play)
    team = Team(dict.fromkeys(env().agents, policy))
    made = Trainer(
        env, team, credit=parse("reward"), learner=PlayOnly(team), stages=[stage], iterations=iterations,
        groups=groups, group_size=2, seed=1, directory=folder, checkpoint_every=1, **options,
    )  # fmt: skip
    made.run(resume=options.get("resume", False))
    return made


def test_a_run_keeps_its_tasks_and_their_difficulty(tmp_path):
    def play(request):
        return solve(request.observation.text) if request.observation.text != "3 + 1 =" else "0"

    trained(Sums, play, tmp_path)
    found = read_tasks(tmp_path)
    assert found.schema == TASKS
    assert found["n"].sum() == 3 * 6 * 2
    assert dict(zip(found["text"], found["difficulty"])) == {f"{n} + 1 =": float(n == 3) for n in range(5)}
    assert set(found["source"]) == {"env"}
    assert set(found["status"]) == {"given"}
    assert found.filter(text="2 + 1 =")["options"].to_list() == ['{"expected": "3"}']
    assert found["created_at"].min() == 1
    assert len(list((tmp_path / "tasks").iterdir())) == 3
    with pytest.raises(DamagedFileError, match="no tasks/"):
        read_tasks(tmp_path / "turns")


def test_proposals_are_rows_with_their_parent_and_refused_ones_with_the_reason(tmp_path):
    run = trained(proposer(Sums, 2), scripted_proposals(accuracy=0.5, noise=0.3), tmp_path,
                  reward=proposer_reward(repeated=0.0))  # fmt: skip
    found = read_tasks(tmp_path)
    proposed = found.filter(source="proposer")
    assert set(found.filter(source="env")["text"]) <= {f"{n} + 1 =" for n in range(5)}
    assert found.filter(source="env")["n"].sum() == 0
    refused = proposed.filter(status="refused")
    assert len(refused) > 0
    assert set(refused["n"]) == {0}
    assert refused["why"].null_count() == 0
    accepted = proposed.filter(status="accepted")
    assert accepted["n"].min() == 2
    assert accepted["difficulty"].is_between(0, 1).all()
    assert set(accepted["parent"]) <= set(found.filter(source="env")["id"])
    assert set(accepted["proposer"]) == {"scripted"}
    assert all(solve(text) is not None for text in accepted["text"])
    lines = run.journal.lines
    assert lines[0]["stages"]["task_table"]["proposed"] == 12
    assert lines[0]["stages"]["task_table"]["drift"] == 0.0
    assert sum(each["stages"]["task_table"]["refused"] for each in lines) >= len(refused)


def test_the_same_task_a_thousand_times_is_one_row_paid_once_and_an_alarm(tmp_path):
    def play(request):
        return "7 + 7 =" if request.agent == "proposer" else "15"

    run = trained(proposer(Sums, 2), play, tmp_path, groups=100, iterations=1, save_turns="all",
                  reward=proposer_reward(repeated=-2.0))  # fmt: skip
    proposed = read_tasks(tmp_path).filter(source="proposer")
    assert proposed.select("text", "n", "difficulty").rows() == [("7 + 7 =", 400, 1.0)]
    turns = pl.read_parquet(tmp_path / "turns" / "*.parquet").filter(agent="proposer")
    assert sorted(turns["repeats"]) == list(range(200))
    assert turns["reward"].value_counts(sort=True).rows() == [(-2.0, 199), (0.0, 1)]
    assert any("200 proposals are 1.0 tasks in effect" in said for said in run.journal.lines[0]["alarms"])


@pytest.mark.parametrize(("said", "why"), [("", "nothing was proposed"), ("blah", "is no question whose answer")])
def test_a_proposer_without_a_task_is_a_refusal_an_alarm_and_no_loss(tmp_path, said, why):
    run = trained(proposer(Sums, 2), lambda request: said, tmp_path, iterations=1, reward=proposer_reward(),
                  save_turns="all")  # fmt: skip
    (row,) = read_tasks(tmp_path).filter(source="proposer").iter_rows(named=True)
    assert (row["text"], row["status"], row["n"]) == (said, "refused", 0)
    assert row["why"].startswith(why)
    turns = pl.read_parquet(tmp_path / "turns" / "*.parquet")
    assert len(turns) == 12
    assert set(turns["reward"]) == {-1.0}
    (alarm,) = (text for text in run.journal.lines[0]["alarms"] if text.startswith("task_table"))
    assert alarm.startswith(f"task_table: all 12 proposals were refused; most often: {why}")


def test_a_held_out_task_that_is_played_or_proposed_from_stops_the_run():
    held = repr(("2 + 1 =",))
    for env in (Sums, proposer(Sums, 2)):
        with pytest.raises(InputError, match=r"task_table.*sums:\w+ .*is held out"):
            trained(env, scripted_proposals(), stage=f"task_table(held_out={held})")
    with pytest.raises(InputError, match="is held out"):
        trained(proposer(Sums, 2), lambda request: "7 + 7 =", stage="task_table(held_out=('7 + 7 =',))")


def test_known_tasks_of_the_band_are_played_again(tmp_path):
    def play(request):
        right = request.observation.text != "2 + 1 =" or request.rng.random() < 0.5
        return solve(request.observation.text) if right else "99"

    trained(Sums, play, tmp_path, iterations=4, groups=40, save_turns="all",
            stage="task_table(sample='learnable(0.1, 0.9)', share=0.5)")  # fmt: skip
    turns = pl.read_parquet(tmp_path / "turns" / "*.parquet")
    first = turns.filter(iteration=1)
    assert first.filter(observation="2 + 1 =")["success"].mean() not in (0.0, 1.0, None)
    later = turns.filter((pl.col("iteration") > 1) & (pl.col("group") == 0))
    assert set(later["observation"]) == {"2 + 1 ="}
    assert turns.filter(pl.col("group") == 30)["observation"].n_unique() > 1


def test_a_run_that_was_killed_goes_on_with_the_same_tasks(tmp_path):
    env, play, options = (
        proposer(Sums, 2),
        scripted_proposals(accuracy=0.5),
        {"stage": "task_table(sample='adaptive_level(2)')"},
    )
    trained(env, play, tmp_path / "whole", iterations=4, **options)
    policy = ScriptedPolicy(play)
    for iterations, resume in ((2, False), (4, True)):
        team = Team(dict.fromkeys(env().agents, policy))
        Trainer(
            env, team, credit=parse("reward"), learner=PlayOnly(team), stages=[options["stage"]],
            iterations=iterations, groups=6, group_size=2, seed=1, directory=tmp_path / "killed", checkpoint_every=1,
        ).run(resume=resume)  # fmt: skip
        if not resume:  # what was written after the last checkpoint
            (tmp_path / "killed" / "tasks" / "iteration-000009.parquet").write_bytes(b"half")
    assert read_tasks(tmp_path / "whole").equals(read_tasks(tmp_path / "killed"))


def test_a_level_follows_the_mean_score_of_episodes_however_long():
    stage = task_table(sample="adaptive_level(3)")
    rows = {"group": [0] * 5, "episode": [0] * 4 + [1], "turn": [0, 1, 2, 3, 0], "agent": ["a"] * 5, "task": ["x"] * 5}
    rows |= {"observation": ["o"] * 5, "success": [False] * 4 + [True], "seed": pl.Series([1] * 5, dtype=pl.UInt64)}
    stage(Turns(pl.DataFrame(rows)), Context(np.random.default_rng(0), 1, None, None, None))
    assert stage.sampler.scores == [0.5]


def test_the_state_is_found_again():
    stage = task_table(sample="adaptive_level(3)")
    stage.table = tasks(["a", "b"])
    stage._counts, stage._words, stage.sampler.level = {2**63 + 1: 4}, {"a": 1.0}, 2
    again = task_table(sample="adaptive_level(3)")
    again.load_state_dict(stage.state_dict())
    assert again.table.equals(stage.table)
    assert (again._counts, again._words, again.sampler.level) == (stage._counts, stage._words, 2)


def test_proposals_that_are_alike_count_as_repeated():
    said = iter(["12 + 3 =", "12 - 3 =", "4 + 4 =", "12 + 3 + 1 ="] * 9)
    env, seen = proposer(Sums, 1), []
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(lambda r: next(said) if r.agent == "proposer" else "1")))
    Trainer(
        env, team, credit=parse("reward"), learner=PlayOnly(team), stages=["task_table(alike=0.5)"], iterations=1,
        groups=2, group_size=2, reward=proposer_reward(repeated=0.0), on_turns=lambda at, turns: seen.append(turns),
    ).run()  # fmt: skip
    proposals = seen[0].frame.drop_nulls("proposal")
    marked = dict(zip(proposals["proposal"], proposals["repeats"]))
    assert marked == {"12 + 3 =": 0.0, "12 - 3 =": 1.0, "4 + 4 =": 0.0, "12 + 3 + 1 =": 1.0}
