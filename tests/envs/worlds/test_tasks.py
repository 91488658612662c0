"""Investigation, templates, levels of automation, experiments, grid worlds."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents.policy import Request
from palaestra.envs.worlds import AutomationGrid, Desktop, Experiment, ExploredGrid, Investigation, suite
from palaestra.envs.worlds.automation_grid import LEVELS, follow, plan_once, replan
from palaestra.envs.worlds.exact.investigation import incident, questions, right_answer, shares
from palaestra.envs.worlds.exact.templates import macro_mean, seed_of, seed_variance
from palaestra.envs.worlds.templates import SETTINGS
from palaestra.errors import InputError


def ask(env, *actions, seed=0):
    env.reset(seed)
    total = 0.0
    for action in actions:
        result = env.step({"analyst": action})
        total += result.rewards["analyst"]
    return total, result


def truth(env, seed=0):
    env.reset(seed)
    return env.state.question


def test_the_right_answer_is_worth_one_and_the_way_a_part_of_it():
    everything = "SELECT entity FROM evidence LIMIT 15"
    seed = next(s for s in range(50) if len(truth(Investigation(), s).solution) == 2)
    question = truth(Investigation(), seed)
    total, result = ask(Investigation(), f"answer: {question.answer}", seed=seed)
    assert (total, result.info["success"]) == (1.0, True)
    alert = question.path[question.path.index(question.solution[0]) - 1]
    step = f"SELECT entity FROM evidence WHERE alert = '{alert}'"
    for dense in (False, True):
        total, result = ask(Investigation(dense=dense), step, "answer: nothing", seed=seed)
        assert total == pytest.approx(0.4)
        assert (result.info["success"], result.info["steps_found"]) == (False, 1)
    assert ask(Investigation(), step, "SELECT 1", "answer: nothing", seed=seed)[0] == pytest.approx(0.4), "it stays"
    env = Investigation(dense=True)
    env.reset(seed)
    paid = [env.step({"analyst": said}).rewards["analyst"] for said in (step, "SELECT 1", f"answer: {question.answer}")]
    assert paid == pytest.approx([0.4, 0.0, 0.6]), "in the turn that shows it"
    assert ask(Investigation(gamma=0), everything, "answer: nothing", seed=seed)[0] == 0.0
    whole = f"SELECT entity FROM evidence WHERE alert = '{question.end_alert}'"
    assert ask(Investigation(), step, whole, "answer: nothing", seed=seed)[1].info["steps_found"] == 1, "not the answer"
    _, result = ask(Investigation(), "SELECT entity FROM evidence", seed=seed)
    assert len(result.observations["analyst"].text.splitlines()) == 2 + 15, "so many rows are shown"
    assert ask(Investigation(dense=True), step, f"answer: {question.answer}", seed=seed)[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE alerts", "INSERT INTO alerts VALUES ('x', 1)", "ATTACH '/tmp/stolen.db' AS other",
        "PRAGMA database_list",
        "SELECT randomblob(1000000000)", "SELECT load_extension('x')", "SELEC 1", "", "SELECT 1; SELECT 2",
        "SELECT count(*) FROM evidence a, evidence b, evidence c, evidence d, evidence e, evidence f, evidence g",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    ],
)  # fmt: skip
def test_sql_reads_and_does_nothing_else(query):
    total, result = ask(Investigation(), query)
    assert total == 0.0
    assert result.info["valid"] == {"analyst": False}
    assert "error: " in result.observations["analyst"].text


def test_who_names_every_entity_has_found_none():
    kinds = ("account", "ip", "url", "file", "host", "process")
    guesses = ", ".join(f"'{kind}:{n}'" for n in range(14) for kind in kinds)
    for seed in range(8):
        total, result = ask(Investigation(), f"SELECT {guesses}", "answer: nothing", seed=seed)
        assert (total, result.info["steps_found"]) == (0.0, 0)


def test_every_incident_has_a_store_of_its_own():
    env, query = Investigation(), "SELECT entity FROM evidence ORDER BY entity"
    said = [ask(env, query, seed=seed)[1].observations["analyst"].text.partition("> ")[2] for seed in (0, 1, 0)]
    assert said[0] == said[2] != said[1]
    assert said[1] == ask(Investigation(), query, seed=1)[1].observations["analyst"].text.partition("> ")[2]


def test_a_query_cannot_grow_a_value():
    """Concatenation doubles faster than the limit on work counts."""
    query = "SELECT 'abcdefghij' AS x"
    for _ in range(4):
        query = f"SELECT {'||'.join(['x'] * 60)} AS x FROM ({query} LIMIT 1)"
    for text in (f"SELECT length(x) FROM ({query})", f"SELECT '{'x' * 20_000}'"):
        _, result = ask(Investigation(), text)
        assert result.info["valid"] == {"analyst": False}
        assert " too " in result.observations["analyst"].text


def test_a_small_incident_without_questions_is_passed_over():
    env = Investigation(alerts=2, entities=4)
    assert all("Which" in env.reset(seed)["analyst"].text for seed in range(40))


def test_an_analyst_has_so_many_steps():
    _, result = ask(Investigation(steps=2), "SELECT 1", "SELECT 2")
    assert result.terminated
    assert result.info["success"] is False


def test_questions_follow_shortest_paths_and_tell_nothing_that_they_ask():
    rng = np.random.default_rng(0)
    for _ in range(20):
        graph = incident(8, 14, rng)
        asked = questions(graph, 12, rng)
        assert len(asked) <= 12
        for question in asked:
            for alert, entity in zip(question.path[::2], question.path[1::2], strict=True):
                assert entity in graph[alert]
            assert question.path[-1] == question.answer == question.solution[-1]
            assert question.answer in graph[question.end_alert]
            assert not set(question.solution) & set(question.start)
            assert set(question.start) <= set(graph[question.start_alert])


def test_what_is_told_and_asked_by_hand():
    """Ten at most of the farthest are told, both ways round; a host is asked for only where there is nothing else."""
    graph = {"a": ("url:x", *(f"ip:{n}" for n in range(12))), "b": ("url:x", "host:1", "file:2")}
    there, back = sorted(questions(graph, 9, np.random.default_rng(0)), key=lambda each: each.start_alert)
    assert (there.start_alert, back.start_alert) == ("a", "b")
    assert there.start == tuple(f"ip:{n}" for n in range(10))
    assert (there.answer, there.solution) == ("file:2", ("url:x", "file:2"))
    assert back.start == ("host:1", "file:2")
    only = questions(graph | {"b": ("url:x", "host:1")}, 9, np.random.default_rng(0))
    assert "host:1" in {each.answer for each in only}
    two = {"a": ("ip:1", "ip:2", "url:3"), "b": ("ip:1", "ip:2", "url:4")}
    ways = {each.path[1] for seed in range(20) for each in questions(two, 9, np.random.default_rng(seed))}
    assert ways == {"ip:1", "ip:2"}, "one of the shortest paths is drawn"
    with pytest.raises(InputError, match="no two alerts"):
        questions({"a": ("ip:1",), "b": ("ip:2",)}, 9, np.random.default_rng(0))


def test_long_paths_get_more_than_their_share():
    assert shares({3: 100, 5: 25, 7: 4}, 17) == {3: 10, 5: 5, 7: 2}
    assert shares({3: 100, 5: 1}, 20) == {3: 19, 5: 1}
    assert shares({3: 4, 5: 1}, 9) == {3: 4, 5: 1}, "no more than there are"
    assert sum(shares({3: 50, 5: 30, 7: 20}, 33).values()) == 33


def test_a_list_of_guesses_is_no_answer():
    assert right_answer("IP:4", "ip:4")
    assert right_answer(", ".join(f"ip:{n}" for n in range(9)), "ip:4")
    assert not right_answer(", ".join(f"ip:{n}" for n in range(10)), "ip:4")
    assert not right_answer("ip:44", "ip:4")


def test_success_counts_only_if_it_was_declared():
    env = Desktop()
    seen = env.reset(0)["user_agent"]
    value = seen.text.split(" to ")[1].split(" |")[0]
    env.step({"user_agent": f"set {value}"})
    assert env.step({"user_agent": "done"}).rewards == {"user_agent": 1.0}
    env.reset(0)
    env.step({"user_agent": f"set {value}"})
    assert env.step({"user_agent": "infeasible"}).rewards == {"user_agent": 0.0}
    env.reset(0)
    results = [env.step({"user_agent": f"set {value}"}) for _ in range(3)]
    assert [r.terminated for r in results] == [False, False, True], "int(10 x complexity) steps"
    assert results[-1].info["success"] is False
    assert results[-1].info["template"] in {s.name for s in SETTINGS}


def test_a_learner_by_heart_may_be_shown_the_template_only():
    assert not any(c.isdigit() for c in Desktop(show_goal=False).reset(0)["user_agent"].text)


def test_instances_do_not_depend_on_what_else_is_in_the_suite():
    assert seed_of(30, "ContactsAdd", 0) == 1661844299
    assert suite(SETTINGS, 3)[3:6] == suite(SETTINGS[1:2], 3)
    assert len({task.seed for task in suite(SETTINGS, 10)}) == 80


def test_means_by_template_and_what_parameters_do():
    rng = np.random.default_rng(0)
    rates = rng.random(400)
    tasks = np.repeat(np.arange(400), 8)
    trials = pl.DataFrame({"task": tasks, "template": tasks % 4, "success": rng.random(3200) < rates[tasks]})
    between, within = seed_variance(trials)
    assert between == pytest.approx(1 / 12, abs=0.015)
    assert within == pytest.approx(1 / 6, abs=0.015)
    assert macro_mean(trials) == pytest.approx(0.5, abs=0.05)
    once = seed_variance(pl.DataFrame({"task": ["a", "b"], "success": [1.0, 0.0]}))
    assert np.isnan(once).all(), "nothing was repeated"
    between, within = seed_variance(pl.DataFrame({"task": ["a", "a"], "success": [1.0, 0.0]}))
    assert np.isnan(between)
    assert within == 0.5


def test_who_replans_reaches_every_level():
    def rate(make, level):
        env, play, reached = AutomationGrid([level]), make(), []
        for seed in range(40):
            seen = env.reset(seed)
            while seen:
                result = env.step({"operator": play(Request(seen["operator"], "operator", np.random.default_rng(0)))})
                seen = result.observations
            reached.append(result.info["success"])
            assert result.info["level"] == level
        return float(np.mean(reached))

    found = {make.__name__: [rate(make, level) for level in LEVELS] for make in (follow, plan_once, replan)}
    assert found["replan"] == [1, 1, 1, 1]
    assert found["plan_once"][:2] == [1, 1]
    assert found["plan_once"][3] < 0.4
    assert 0.5 < found["plan_once"][2] < 0.95
    assert found["follow"][0] == 1
    assert found["follow"][1] < 0.8


def test_an_experiment_pays_what_it_teaches():
    """The mean reward of a design is its expected information gain."""
    from palaestra.envs.worlds.exact.design import exact_eig

    env = Experiment("discounting", experiments=1, particles=300)
    rewards = []
    for seed in range(1500):
        env.reset(seed)
        rewards.append(env.step({"scientist": 12}).rewards["scientist"])
    expected = exact_eig(env.model, env.model.designs[12], env.prior)
    assert np.mean(rewards) == pytest.approx(expected, abs=4 * np.std(rewards) / np.sqrt(1500))


def test_predictions_are_scored_in_units_of_the_prior():
    env = Experiment("dugongs", experiments=0, questions=2)
    env.reset(0)
    design = env.model.designs[env.state.asked[0]]
    right = float(env.model.mean(env.state.truth, design))
    assert env.step({"scientist": f"{right}"}).rewards["scientist"] == pytest.approx(0, abs=1e-9)
    last = env.step({"scientist": "no idea"})
    assert last.info["valid"] == {"scientist": False}
    assert last.info["errors"][0] == pytest.approx(0, abs=1e-9)
    assert last.rewards["scientist"] < 0


def test_regret_is_zero_for_the_best_design_only():
    from palaestra.envs.worlds.exact.design import gains

    env = Experiment("discounting", experiments=1, particles=100, regret=True)
    every = gains(env.model, env.prior)
    for design in (every.argmax(), every.argmin()):
        env.reset(0)
        regret = env.step({"scientist": int(design)}).info["regret"][0]
        assert regret == pytest.approx(every.max() - every[design])
    env.reset(0)
    assert env.step({"scientist": "pray"}).info["regret"] == [pytest.approx(every.max())]


def test_what_is_no_experiment_leaves_no_outcome():
    env = Experiment(experiments=2, particles=50)
    env.reset(0)
    assert env.step({"scientist": "pray"}).observations["scientist"].text == "death_process 1 left | nothing"


def test_a_goal_reached_and_a_change_noticed_are_paid():
    env = ExploredGrid("plan", explore=0, history=False)
    env.reset(0)
    state = env._test.state
    state.goal = state.rules.move(state.place, 2, state.time)
    result = env.step({"explorer": "c"})
    assert result.rewards == {"explorer": 1.0}
    for wait, paid in ((0, 1.0), (-5, -1.0)):
        env = ExploredGrid("change", explore=0, history=False)
        env.reset(0)
        before, when = env._test.state.rules, env._test.state.right
        for _ in range(when + wait):
            env.step({"explorer": "a"})
        assert (env._test.state.rules == before) == (wait < 0)
        assert env.step({"explorer": "changed"}).rewards == {"explorer": paid}


def test_so_many_steps_are_explored_and_no_more() -> None:
    env = ExploredGrid("mask", explore=3, history=False)
    (seen,) = env.reset(0).values()
    steps = 0
    while seen.text.startswith("explore"):
        (seen,) = env.step({"explorer": "a"}).observations.values()
        steps += 1
    assert steps == 3
