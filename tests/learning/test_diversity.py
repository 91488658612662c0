"""Search for many behaviours: parity with pyribs, its learner, what a resume restores, what is refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from tests.installed import needs

from palaestra import Turns
from palaestra.agents import PopulationPolicy, TabularPolicy, Team
from palaestra.errors import InputError, LearnerError, MissingExtraError
from palaestra.learning.diversity import archives
from palaestra.learning.diversity.archives import Evaluated, archive_of, novelty, table
from palaestra.learning.diversity.behaviour import behaviour
from palaestra.learning.diversity.descriptors import Autoencoder, Given, path_signature
from palaestra.learning.diversity.emitters import CmaEmitter, Emitter, mutated, pareto_front
from palaestra.learning.diversity.learner import Diversity, elites
from palaestra.learning.diversity.schedules import Chunk, schedule
from palaestra.learning.diversity.search import DiversitySearch

needs("ribs")
SEATS = [f"w{number}" for number in range(26)]


def evaluated(rows, seed=0):
    x = np.random.default_rng(seed).normal(size=(rows, 2))
    return Evaluated(x, x[:, 0], x, x)


def test_novelty_and_archive_are_those_of_pyribs():
    from ribs.archives import ProximityArchive

    kept, new = evaluated(30), evaluated(20, seed=1)
    theirs = ProximityArchive(solution_dim=2, measure_dim=2, k_neighbors=15, novelty_threshold=0.0)
    theirs.add(kept.genomes, kept.reward, kept.place)
    assert np.allclose(novelty(new, [kept]), theirs.compute_novelty(new.place))
    ours = archive_of(kept, 15).data()
    assert np.array_equal(ours["measures"], theirs.data()["measures"])
    assert table(kept, "rewarded")["reward"].to_list() == theirs.data()["objective"].tolist()


def test_mutation_is_that_of_pyribs():
    from ribs.emitters.operators import GaussianOperator

    parents = np.zeros((4, 3))
    assert np.array_equal(mutated(parents, 0.2, 7), GaussianOperator(0.2, seed=7).ask(parents))


def test_without_pyribs_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ribs", None)
    with pytest.raises(MissingExtraError, match=r"palaestra\[diversity\]"):
        archives.ribs_archives()


def test_equal_rows_are_both_on_the_front():
    assert pareto_front(np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 2.0], [0.5, 0.5]])).tolist() == [
        True,
        True,
        True,
        False,
    ]


def test_signature_products_of_increments():
    paths = np.random.default_rng(0).normal(size=(5, 7, 2))
    found = path_signature(paths)
    first, second = found[:, :3], found[:, 3:].reshape(-1, 3, 3)
    assert np.allclose(second + second.transpose(0, 2, 1), first[:, :, None] * first[:, None])


def test_cma_replays_its_ranks_after_a_resume_and_stops_where_all_is_paid_alike():
    seed = np.ones((1, 3))
    emitter = CmaEmitter(Evaluated(seed, np.zeros(1), seed, seed), 0.3, 0.0, 0.0)
    for generation in range(4):
        asked = emitter.ask(generation)
        emitter.tell(Evaluated(asked, asked[:, 0], asked, asked), np.zeros(12))
    pending = emitter.ask(9)
    again = Emitter.of(emitter.state_dict())
    assert isinstance(again, CmaEmitter)
    assert not again.stagnates(30)
    for each in (emitter, again):
        each.tell(Evaluated(pending, pending[:, 0], pending, pending), np.zeros(12))
    assert np.array_equal(emitter.ask(0), again.ask(1))
    again.tell(Evaluated(pending, np.ones(12), pending, pending), np.zeros(12))
    assert again.stagnates(30)


def played(rewards, places):
    rows = [
        (0, 0, turn, seat, "p", float(x), float(r))
        for seat, r, x in zip(SEATS, rewards, places, strict=True)
        for turn in (0, 1)
    ]
    names = ["group", "episode", "turn", "agent", "policy", "x", "advantage"]
    return Turns(pl.DataFrame(rows, schema=names, orient="row"))


def made(**options):
    policy = PopulationPolicy(2, 3, keys=SEATS, seed=1)
    team = Team(dict.fromkeys(SEATS, policy))
    search = {"chunk": 24, "sigma": 0.1, "neighbours": 3}
    return policy, Diversity(team, behaviour=["x"], elites=2, **{"search": search} | options)


def advance(policy, learner, generations):
    for _generation in range(generations):
        x = policy.genomes[:, 0]
        learner.update(played(np.maximum(1 - abs(x - 1), 0), x))


@pytest.mark.parametrize("emitter", ["elitist", "cma"])
def test_the_search_finds_more_and_a_resume_goes_on_as_it_was(emitter):
    search = {"chunk": 24, "sigma": 0.1, "neighbours": 3, "emitter": emitter}
    policy, learner = made(search=search)
    advance(policy, learner, 6)
    again, other = made(search=search)
    again.load_state_dict({name: value.clone() for name, value in policy.state_dict().items()})
    other.restore(learner.state())
    advance(policy, learner, 4)
    advance(again, other, 4)
    assert np.array_equal(policy.genomes, again.genomes)
    assert learner.archives.equals(other.archives)
    assert set(learner.archives["archive"]) >= {"rewarded", "novelty"}
    assert learner.updates == 10


def test_after_the_last_generation_elites_take_all_seats():
    policy, learner = made(generations=8)
    advance(policy, learner, 8)
    best = learner.archives.filter(pl.col("archive") == "rewarded").sort("reward")["genome"][-1].to_list()
    assert policy.genomes[0].tolist() == best
    seated = policy.genomes.copy()
    advance(policy, learner, 1)
    assert np.array_equal(policy.genomes, seated)


def test_elites_are_the_best_and_then_far_from_each_other():
    x = np.array([[0.0], [0.1], [5.0], [9.0]])
    found = elites(Evaluated(x, np.array([3.0, 2.0, 2.5, 0.0]), x, x), 3)
    assert found[:, 0].tolist() == [0.0, 5.0, 0.0]


def test_each_elite_is_far_from_all_before_wherever_they_lie():
    """From 10 the farthest of the better half is 20, and from both of them 14."""
    x = np.array([[10.0], [11.0], [14.0], [20.0], [90.0], [-90.0], [50.0]])
    assert elites(Evaluated(x, np.arange(7.0)[::-1], x, x), 3)[:, 0].tolist() == [10.0, 20.0, 14.0]


@pytest.mark.parametrize("space", ["signature", "autoencoder", "untrained"])
def test_all_spaces_go_through_an_update_and_a_state(space):
    policy, learner = made(space=space, autoencoder={"code": 2, "hidden": 4, "epochs": 2})
    advance(policy, learner, 4)
    _, other = made(space=space, autoencoder={"code": 2, "hidden": 4, "epochs": 2})
    other.restore(learner.state())
    assert other.archives.equals(learner.archives)
    assert (learner.search.fits > 0) == (space == "autoencoder")


def test_a_fit_lowers_the_error_and_encodes_all_anew():
    rng = np.random.default_rng(0)
    line = rng.normal(size=(60, 1)) * np.ones(6)
    coder = Autoencoder(6, code=1, hidden=8, epochs=200, batch=16)
    before = coder.surprise(line).mean()
    assert coder.fit(line, seed=0) < before / 4
    search = DiversitySearch(rng.normal(size=(24, 6)), descriptor=Autoencoder(6, code=2, epochs=3), chunk=24)
    for _generation in range(5):
        genomes = search.ask()
        search.tell(np.zeros(len(genomes)), genomes)
        for kept in (search.population, search.novel):
            assert np.allclose(kept.place, search.descriptor.encode(kept.seen))
    assert search.fits >= 1


def test_schedules():
    rng = np.random.default_rng(0)
    chunks = [Chunk("explore", 0.0), Chunk("exploit", 0.9)]
    assert schedule("alternate()")(chunks, 0, rng) == "explore"
    assert schedule("fixed(0)")(chunks, 0, rng) == "exploit"
    assert schedule("by_time(1, 0)")(chunks, 1.0, rng) == "exploit"
    assert schedule("bandit(width=0)")(chunks, 0, rng) == "exploit"
    assert schedule("bandit(0.9)")([], 0, rng) == "explore"
    often = [Chunk("explore", 0.9), *[Chunk("exploit", 0.8)] * 5]
    assert schedule("bandit(1, width=0)")(often, 0, rng) == "explore"  # the mean counts, not the sum
    often = [Chunk("explore", 0.7), *[Chunk("exploit", 0.8)] * 5]
    assert [schedule(f"bandit(1, width={w})")(often, 0, rng) for w in (0.1, 1)] == ["exploit", "explore"]
    for wrong in ("often()", "fixed(2)", "fixed(0.5, 1)"):
        with pytest.raises(InputError):
            schedule(wrong)


def test_behaviour_of_a_seat_is_its_last_row_and_lists_have_one_length():
    rows = pl.DataFrame({
        "group": [0] * 4, "episode": [0] * 4, "turn": [0, 1, 0, 1], "agent": ["a", "a", "b", "b"],
        "x": [1.0, 2.0, 3.0, 4.0], "view": [None, [1.0, 2.0], None, [3.0, 4.0]], "credit": [0.0, 1.0, 2.0, 2.0],
    })  # fmt: skip
    credit, seen = behaviour(rows, ["b", "a"], ["x", "view"], path=False)
    assert credit.tolist() == [2.0, 0.5]
    assert seen.tolist() == [[4.0, 3.0, 4.0], [2.0, 1.0, 2.0]]
    assert behaviour(rows, ["b", "a"], ["x"], path=True)[1].tolist() == [[[3.0], [4.0]], [[1.0], [2.0]]]
    with pytest.raises(LearnerError, match="view"):
        behaviour(rows.filter(pl.col("agent") == "a"), ["b", "a"], ["view"], path=False)


def test_what_does_not_fit_is_named():
    with pytest.raises(InputError, match="population"):
        Diversity(Team(a=TabularPolicy(2)), behaviour=["x"])
    with pytest.raises(InputError, match="space"):
        made(space="autoencode")
    with pytest.raises(InputError, match="elitist"):
        DiversitySearch(np.zeros((24, 2)), descriptor=Given(), emitter="elitists")
    with pytest.raises(InputError, match="at least 12"):
        DiversitySearch(np.zeros((4, 2)), descriptor=Given())
    _, learner = made()
    with pytest.raises(LearnerError, match="not finite"):
        learner.update(played([np.inf] * len(SEATS), [0.0] * len(SEATS)))


def test_a_population_is_saved_and_read_again(tmp_path):
    policy = PopulationPolicy(2, 8, keys=["a", "b"], compass=True, seed=3)
    policy.save(tmp_path)
    again = PopulationPolicy.load(tmp_path)
    assert np.array_equal(again.genomes, policy.genomes)
    assert torch.equal(again.module.get_buffer("genomes"), policy.module.get_buffer("genomes"))


def test_only_a_child_that_is_paid_becomes_a_candidate():
    start = np.random.default_rng(0).normal(size=(24, 2))
    search = DiversitySearch(start, descriptor=Given(), neighbours=3, chunk=24)
    asked = search.ask()
    paid = np.arange(len(asked)) % 3 - 1.0
    search.tell(paid, asked)
    assert len(search.emitters) == (paid > 0).sum()


def test_a_schedule_is_told_the_share_of_the_planned_evaluations():
    told = []
    search = DiversitySearch(
        np.random.default_rng(0).normal(size=(24, 2)), descriptor=Given(), neighbours=3, chunk=24, planned=96,
        schedule=lambda chunks, spent, rng: told.append(spent) or "explore",
    )  # fmt: skip
    for _ in range(3):
        search.tell(np.zeros(24), search.ask())
    assert told == pytest.approx([0.25, 0.5, 0.75])


def test_half_of_the_emitters_of_a_generation_are_candidates_if_trials_says_so():
    search = DiversitySearch(np.zeros((48, 2)), descriptor=Given(), trials=0.5)  # 48 are four emitters' children
    search.emitters = [Emitter(evaluated(1, seed), 0.1, 0.0, 0.0) for seed in range(8)]
    for each in search.emitters[4:]:
        each.active, each.means = True, [0.0] * 6
    assert [each.active for each in search._goes_on(np.random.default_rng(0))] == [False, False, True, True]
