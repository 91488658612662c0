"""Workers whose policies are answered for by servers of the run: they ask with the same seeds, and nothing is lost."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.test_served import FakeServer, fake_server, move

from palaestra.agents import LMPolicy, ServedPolicy, TabularPolicy, Team
from palaestra.agents.backends.borrowing import Borrower, Lent, without_weights
from palaestra.agents.backends.server import GoneError
from palaestra.credit import agent_return, grpo
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import PolicyError
from palaestra.learning import PolicyGradient, Trainer
from palaestra.learning.league.population import seated_team
from palaestra.learning.pipelining import play
from palaestra.play.executors import Local
from palaestra.play.plan import Plan
from palaestra.play.processes import Processes

PLAN = Plan(groups=8, group_size=2, seed=4, iteration=3, run="r", version=7)


class Sums:
    """Two turns of one agent; what is paid depends on how long its answer is.

    trap: a file; the process that first finds it in a step ends itself.
    """

    agents = ("a",)
    task = "sums"

    def __init__(self, trap: str | None = None) -> None:
        self.trap = trap

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.seed, self.turn = seed, 0
        return {"a": Observation(f"{seed % 7} + {seed % 5} =")}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        if self.trap is not None:
            with contextlib.suppress(FileNotFoundError):
                Path(self.trap).unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        self.turn += 1
        reward = float(len(str(actions["a"])) > 3)
        if self.turn == 2:
            return StepResult({}, {"a": reward}, terminated=True)
        return StepResult({"a": Observation(f"{actions['a']!r} and {self.seed % 3}")}, {"a": reward})


def team_of(folder: str, urls: list[str], **options: Any) -> Team:
    given = {"url": urls, "patience": 5.0, "timeout": 20.0, "max_new_tokens": 4, "name": "lm"} | options
    return Team(a=ServedPolicy.from_pretrained(folder, **given))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return fake_server.tiny(tmp_path_factory.mktemp("model") / "tiny")  # type: ignore[no-any-return]


@pytest.fixture
def servers(model: Path) -> Iterator[list[Any]]:
    made = [FakeServer(model), FakeServer(model)]
    yield made
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    made = Processes(workers=2, shards=4, late=None)  # on a busy machine a shard would be asked for twice
    yield made
    made.close()


def made_of(servers: list[Any], **options: Any) -> tuple[Team, ServedPolicy]:
    team = Team.made(team_of, str(servers[0].folder), [each.url for each in servers], **options)
    policy = team["a"]
    assert isinstance(policy, ServedPolicy)
    return team, policy


def shown(frame: Any) -> Any:
    """Columns that are the same wherever a table was played; numbers up to the rounding of the servers' batches."""
    return frame.drop("duration", "logprobs", "entropies", strict=False)


def test_workers_ask_and_the_table_is_that_of_one_process(servers: list[Any], processes: Processes) -> None:
    team, policy = made_of(servers)
    try:
        for moved in range(2):
            expected, _ = play(Local(shards=4), Sums, team, PLAN)
            asked, loads = (
                [len(each.seen) for each in servers],
                [each.paths.count("/collective_rpc") for each in servers],
            )
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                turns, mismatch = play(processes, Sums, team, PLAN)
            assert turns["error"].null_count() == len(turns)
            assert shown(turns.frame).equals(shown(expected.frame))
            assert mismatch["lm"]["mismatch"] < 1e-5
            assert sum(len(each.seen) for each in servers) - sum(asked) == len(turns), "each request once"
            assert [each.paths.count("/collective_rpc") for each in servers] == loads, "no worker gave weights"
            assert policy.syncs == 2 * (moved + 1)
            move(policy)
    finally:
        policy.close()


def test_a_worker_has_no_weights_and_no_server_of_its_own(servers: list[Any], tmp_path: Path) -> None:
    _, policy = made_of(servers, server=None)
    adapted, _ = made_of(servers, lora={"r": 2})
    with without_weights(["lm"]):
        hollow, _ = made_of(servers, device="cuda:9", transfer="folder")
        other = LMPolicy.from_pretrained(servers[0].folder, name="lm")
        with_adapter, _ = made_of(servers, lora={"r": 2})
    assert {each.device.type for each in hollow["a"].model.parameters()} == {"meta"}  # type: ignore[attr-defined]
    assert {each.device.type for each in other.model.parameters()} == {"cpu"}
    for one, two in ((policy, hollow["a"]), (adapted["a"], with_adapter["a"])):
        assert one._ends.tolist() == two._ends.tolist()  # type: ignore[attr-defined]
        assert one.adapting == two.adapting  # type: ignore[attr-defined]
    assert with_adapter["a"].adapting  # type: ignore[attr-defined]
    assert not hollow["a"]._folder.exists()  # type: ignore[attr-defined]
    borrower = hollow["a"].borrower()  # type: ignore[attr-defined]
    assert isinstance(borrower, Borrower)
    assert not hasattr(borrower, "parameters")
    policy.close()


def test_end_tokens_of_the_generation_config_are_known_without_weights(model: Path, tmp_path: Path) -> None:
    lm = LMPolicy.from_pretrained(model)
    lm.model.generation_config.eos_token_id = [lm.tokenizer.eos_token_id, 7]
    lm.save(tmp_path / "more")
    one, two = (LMPolicy.from_pretrained(tmp_path / "more", device=device) for device in ("cpu", "meta"))
    assert 7 in one._ends
    assert one._ends.tolist() == two._ends.tolist()


def test_a_killed_worker_costs_nothing(servers: list[Any], processes: Processes, tmp_path: Path) -> None:
    team, policy = made_of(servers)
    lost, trap = processes.pool.lost, tmp_path / "trap"
    expected, _ = play(Local(shards=4), Sums, team, PLAN)
    trap.touch()
    turns, _ = play(processes, functools.partial(Sums, trap=str(trap)), team, PLAN)
    assert processes.pool.lost == lost + 1
    assert shown(turns.frame).equals(shown(expected.frame))
    policy.close()


def test_the_others_answer_when_a_server_is_lost(servers: list[Any], processes: Processes) -> None:
    team, policy = made_of(servers)
    expected, _ = play(Local(shards=4), Sums, team, PLAN)
    servers[0].breaks = [("die", 0)]
    with pytest.warns(UserWarning, match="waiting for it"):
        turns, _ = play(processes, Sums, team, PLAN)
    assert turns["error"].null_count() == len(turns)
    assert shown(turns.frame).equals(shown(expected.frame))
    policy.close()


def test_shards_that_no_server_answered_are_played_again_once_it_is_back(
    servers: list[Any], processes: Processes
) -> None:
    """With the weights of its start: it is given those of now before anybody asks it."""
    team, policy = made_of(servers[:1], patience=60.0)
    move(policy)
    expected, _ = play(Local(shards=4), Sums, team, PLAN)
    server = servers[0]

    def back() -> None:
        while not server.down:
            time.sleep(0.01)
        time.sleep(1.0)  # the run waits for it meanwhile
        server.start()
        server.down = False

    server.breaks = [("die", 0)]
    threading.Thread(target=back, daemon=True).start()
    with pytest.warns(UserWarning, match="waiting for it"):
        turns, _ = play(processes, Sums, team, PLAN)
    assert shown(turns.frame).equals(shown(expected.frame))
    assert policy.syncs == 2
    policy.close()


def test_without_any_server_the_run_ends_with_its_line(servers: list[Any], processes: Processes) -> None:
    team, policy = made_of(servers[:1], patience=0.3)
    play(Local(shards=4), Sums, team, PLAN)
    servers[0].down = True
    with pytest.raises(PolicyError, match="no server at"), warnings.catch_warnings(action="ignore"):
        processes.play(Sums, team, PLAN)
    policy.close()


@pytest.mark.parametrize("lag", [0, 1])
def test_training_with_workers_learns_what_it_learns_without(
    servers: list[Any], processes: Processes, lag: int
) -> None:
    """An evaluation in between waits for its turn at the servers, and takes no worker from who holds them."""

    def train(executor: Any) -> tuple[list[Any], list[Any]]:
        team, policy = made_of(servers)
        kept: list[Any] = []

        def look(team: Team, iteration: int) -> None:
            executor.play(Sums, team, Plan(2, seed=9, iteration=iteration, stream="eval"))

        made = Trainer(
            Sums, team, credit=grpo(agent_return()), learner=PolicyGradient(team, "surrogate()", lr=0.01),
            executor=executor, iterations=4, groups=4, group_size=3, lag=lag, evaluate=look, evaluate_every=1,
            on_turns=lambda iteration, turns: kept.append(turns.frame),
        )  # fmt: skip
        lines = made.run()
        policy.close()
        return kept, lines

    kept, lines = train(processes)
    expected, _ = train(Local(shards=4))
    assert [each["version_lag"] for each in lines] == ([0, 0, 0, 0] if lag == 0 else [0, 1, 1, 1])
    assert all(each["policies"]["lm"]["mismatch"] < 1e-4 for each in lines)
    for one, two in zip(kept, expected, strict=True):
        assert one["action"].equals(two["action"])
        assert one["policy_version"].equals(two["policy_version"])


def test_policies_that_compute_play_beside_those_that_ask(servers: list[Any], processes: Processes) -> None:
    url = [each.url for each in servers]
    team = Team.made(mixed, str(servers[0].folder), url)
    expected, _ = play(Local(shards=4), Pair, team, PLAN)
    turns, _ = play(processes, Pair, team, PLAN)
    assert shown(turns.frame).equals(shown(expected.frame))
    assert set(turns["policy"].cast(str)) == {"lm", "table"}
    team["a"].close()  # type: ignore[attr-defined]


class Pair(Sums):
    agents = ("a", "b")

    def reset(self, seed: int) -> Mapping[str, Observation]:
        return {**super().reset(seed), "b": Observation(f"{seed % 3}", choices=("x", "y"))}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        found = super().step({"a": actions["a"]})
        if found.terminated:
            return found
        return StepResult({**found.observations, "b": Observation("again", choices=("x", "y"))}, {"b": 1.0})


def mixed(folder: str, urls: list[str]) -> Team:
    return Team(a=team_of(folder, urls)["a"], b=TabularPolicy(2, name="table"))


def test_what_workers_cannot_ask_is_played_here(servers: list[Any], processes: Processes) -> None:
    team, policy = made_of(servers)
    policy.inflight = True
    with pytest.warns(UserWarning, match=r"given other weights while they answer \(inflight\) is played here"):
        play(processes, Sums, team, PLAN)
    policy.inflight = False
    elsewhere = Processes(workers=1, shards=2)
    elsewhere.pool.backend.one_machine = False  # type: ignore[misc]
    with pytest.warns(UserWarning, match=r"servers are on 127\.0\.0\.1.*is played here"):
        play(elsewhere, Sums, team, PLAN)
    elsewhere.close()
    policy.close()


def test_addresses_that_are_of_one_machine() -> None:
    for url, here in (("http://127.0.0.1:80", True), ("http://localhost:80", True), ("http://10.0.0.2:80", False)):
        assert Lent("d", ((url, "policy"),), True, 1).one_machine is here


def test_past_selves_of_a_served_learner_have_weights_in_a_worker(model: Path) -> None:
    make = functools.partial(team_of, str(model), ["http://127.0.0.1:9"])
    with without_weights({"lm"}):
        team = seated_team(make, None, {"a": ("lm", ""), "b": ("lm", "m0")})
    past: Any = team.policies["lm@m0"]
    assert {each.device.type for each in team.policies["lm"].model.parameters()} == {"meta"}  # type: ignore[attr-defined]
    assert {each.device.type for each in past.model.parameters()} == {"cpu"}


def test_a_server_that_was_absent_is_asked_again_when_it_is_lent_again(servers: list[Any], model: Path) -> None:
    with without_weights({"lm"}):
        borrower: Any = team_of(str(model), [servers[0].url])["a"].borrower()  # type: ignore[attr-defined]
    lent = Lent("d", ((servers[0].url, "m"),), True, 1)
    borrower.use(lent)
    borrower.servers[0].absent(GoneError("reset"))
    assert borrower.servers[0].resting
    borrower.use(lent)
    assert not borrower.servers[0].resting
