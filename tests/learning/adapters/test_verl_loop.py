"""Our team procedures in verl's trainer: its loop worker, its queue, its credit step and its loss, on one process.

What stands in for the rest: the inference server is a tiny model in this process, and the actor's workers are one
`torch` optimiser on verl's own policy loss. The parts that need verl and its TransferQueue are skipped without them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from palaestra import envs
from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.tiny import build
from palaestra.algebra.signals import standardise
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas
from palaestra.envs.protocol import Observation, StepResult
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.learning.adapters.verl import TURNS, register_trainer
from palaestra.play.rollout import rollout

torch = pytest.importorskip("torch")

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %} = {% endif %}"
GROUP = 4


class Sums(TaskEnv):
    """a + b of one digit each."""

    def draw(self, seed: int) -> Task:
        a, b = np.random.default_rng(seed).integers(0, 5, 2).tolist()
        return Task(f"{a}+{b}", f"{a} + {b}", lambda text: min(len(text), 9) / 10, str(a + b))


class Server:
    """The tiny model where verl has a client of its servers."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.draws = torch.Generator().manual_seed(0)

    async def generate(self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        ids, logprobs = list(prompt_ids), []
        for _ in range(2):
            with torch.no_grad():
                scores = self.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            ids.append(int(torch.multinomial(scores.exp(), 1, generator=self.draws)))
            logprobs.append(float(scores[ids[-1]]))
        return TokenOutput(token_ids=ids[len(prompt_ids) :], log_probs=logprobs)


@pytest.fixture
def queue() -> Iterator[Any]:
    for name in ("verl", "hydra", "transfer_queue"):
        pytest.importorskip(name)
    import ray
    import transfer_queue

    asyncio.set_event_loop(asyncio.new_event_loop())  # verl asks for the current one, which `asyncio.run` takes away
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    transfer_queue.init()
    yield transfer_queue
    transfer_queue.close()
    ray.shutdown()
    asyncio.get_event_loop().close()
    asyncio.set_event_loop(None)


def config(folder: Path, loops: Path) -> Any:
    """verl's own configuration, with what a run must say."""
    import verl.trainer
    from omegaconf import OmegaConf

    made: Any = OmegaConf.load(Path(verl.trainer.__file__).parent / "config/_generated_ppo_trainer.yaml")
    OmegaConf.set_struct(made, False)
    made.actor_rollout_ref.model.path = str(folder)
    rollout = made.actor_rollout_ref.rollout
    rollout.name, rollout.n, rollout.prompt_length, rollout.response_length = "vllm", GROUP, 32, 4
    rollout.calculate_log_probs, rollout.agent.agent_loop_config_path = True, str(loops)
    made.algorithm.use_kl_in_reward, made.algorithm.rollout_correction = False, None
    return made


def test_a_workflow_trains_in_verl_with_credit_by_agent_and_state(tmp_path: Path, queue: Any) -> None:
    from tensordict import TensorDict
    from tensordict.tensorclass import NonTensorData, NonTensorStack
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1 import AgentLoopWorkerTQ

    from palaestra.learning.adapters.verl_loop import data_set, factory

    if "test/sums" not in envs.registry.ENVS:
        envs.register("test/sums", Sums)
    loops = tmp_path / "loops.yaml"
    loops.write_text(
        "- name: solver_checker\n  _target_: palaestra.learning.adapters.verl_loop.EnvLoop\n  env: test/sums\n"
        "  workflow: pipeline\n  workflow_options: {improvement: 0.5}\n"
    )
    made = factory("test/sums", workflow="pipeline", workflow_options={"improvement": 0.5})
    rows = pl.read_parquet(data_set(tmp_path / "train.parquet", "solver_checker", made, range(3)))
    assert rows["agent_name"].unique().to_list() == ["solver_checker"]

    model, tokenizer = build(["1 + 2 = 3 ok | 4"], hidden=32, layers=1, heads=2)
    tokenizer.chat_template = TEMPLATE
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    settings = config(tmp_path / "model", loops)
    worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(settings, Server(model, tokenizer))  # in this process

    async def play() -> None:
        records = rows.to_dicts()
        columns = {name: NonTensorStack(*(each[name] for each in records)) for name in ("agent_name", "extra_info")}
        prompts = TensorDict(
            {
                **columns,
                "raw_prompt": NonTensorStack(*(each["prompt"] for each in records)),
                "uid": NonTensorStack(*(f"task-{number}" for number in range(len(records)))),
                "index": torch.arange(len(records)),
                "global_steps": NonTensorData(1),
            },
            batch_size=[len(records)],
        )
        await worker.generate_sequences(prompts)
        await asyncio.gather(*worker.background_tasks)

    asyncio.get_event_loop().run_until_complete(play())
    keys = [key for key in queue.kv_list(partition_id="train")["train"] if key.count("_") == 2]
    assert len(keys) == 3 * GROUP * 2, "a sample for each turn of each agent"

    credit = dr_mas() + standardise("reward", over=("group", "state"))
    trainer_class = register_trainer("by_state", credit, columns=TURNS)
    assert register_trainer("by_state", credit, columns=TURNS) is trainer_class
    trainer: Any = object.__new__(trainer_class)  # its constructor wants workers and servers
    trainer.config = settings
    batch = queue.KVBatchMeta(keys=sorted(keys), tags=[{}] * len(keys), partition_id="train")
    trainer._compute_advantage(batch, {})
    fields = ["advantages", "extra_fields", "uid", "prompts", "responses", "rollout_log_probs"]
    got = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=fields)
    facts = [dict(each) for each in got["extra_fields"].tolist()]
    assert {(each["agent"], each["turn"]) for each in facts} == {("solver", 0), ("checker", 1)}
    table = Turns(
        {
            "group": [int(uid.removeprefix("task-")) for uid in got["uid"].tolist()],
            "episode": [int(each["episode"].rsplit("_", 1)[1]) for each in facts],
            "turn": [each["turn"] for each in facts],
            "agent": [each["agent"] for each in facts],
            "state": [int(each["state"]) for each in facts],
            "reward": [each["turn_reward"] for each in facts],
        }
    )
    expected = np.asarray(credit.evaluate(table))
    for row, value in zip(got["advantages"].unbind(), expected, strict=True):
        torch.testing.assert_close(row, torch.full_like(row, value), rtol=1e-5, atol=1e-6)

    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(2):
        losses.append(_loss(core_algos, model, got))
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    assert losses[1] < losses[0]


def _loss(core_algos: Any, model: Any, got: Any) -> Any:
    total = 0.0
    for prompt, answer, old, advantage in zip(
        got["prompts"].unbind(), got["responses"].unbind(), got["rollout_log_probs"].unbind(),
        got["advantages"].unbind(), strict=True,
    ):  # fmt: skip
        ids = torch.cat([prompt, answer])
        scores = model(ids[None]).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        new = scores.gather(1, answer[:, None])[:, 0]
        loss, *_ = core_algos.compute_policy_loss(
            old[None], new[None], advantage[None], torch.ones(1, len(answer)), cliprange=0.2
        )
        total = total + loss
    return total


def test_a_row_without_a_seed_and_an_unknown_base_are_named() -> None:
    from palaestra.learning.adapters.verl_loop import EnvPlay, data_set

    with pytest.raises(InputError, match=r"no extra_info.seed; write it with verl_loop.data_set"):
        asyncio.run(EnvPlay.run(cast(EnvPlay, None), {}, raw_prompt=[]))
    with pytest.raises(InputError, match="no seeds"):
        data_set("x.parquet", "loop", Sums, ())
    for name in ("verl", "transfer_queue"):
        pytest.importorskip(name)
    with pytest.raises(InputError, match="no trainer mode 'nope'"):
        register_trainer("other", dr_mas(), base="nope")


def test_a_workflow_is_written_as_in_a_recipe() -> None:
    from palaestra.learning.adapters.verl_loop import factory

    pytest.importorskip("reasoning_gym")
    name, roles = "reasoning_gym/chain_sum", ("author", "reader")
    written = factory(name, {}, "pipeline(('author', 'reader'), improvement=0.5)")
    apart = factory(name, {}, "pipeline", {"roles": roles, "improvement": 0.5})
    assert written().agents == apart().agents == roles
    assert cast(Any, written())._improvement == cast(Any, apart())._improvement == 0.5
    graph = factory(name, {}, {"roles": {"a": "You solve.", "b": "You check."}, "edges": "chain"})
    assert graph().agents == ("a", "b")
    with pytest.raises(InputError, match=r"workflow 'pipeline': .*nope"):
        factory(name, {}, "pipeline(nope=1)")


class Turnwise:
    """Two agents speak in turns; each word pays its length to who said it, and ½ to the other."""

    agents: tuple[str, ...] = ("a", "b")
    task = "turnwise"

    def reset(self, seed: int) -> Any:
        self.at = 0
        return {"a": Observation(f"start {seed}")}

    def step(self, actions: Any) -> StepResult:
        ((agent, said),) = actions.items()
        self.at += 1
        other = self.agents[self.at % 2]
        return StepResult({other: Observation(f"{agent} said {said}")}, {agent: float(len(said)), other: 0.5})


def test_every_turn_is_a_sample_with_what_it_was_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no verl: its two classes only hold what they are given."""
    from palaestra.learning.adapters.verl_loop import EnvPlay

    place = "verl.experimental.agent_loop.agent_loop"
    theirs = SimpleNamespace(AgentLoopMetrics=SimpleNamespace, AgentLoopOutput=SimpleNamespace)
    for name, module in {
        "verl": None,
        "verl.experimental": None,
        place.rpartition(".")[0]: None,
        place: theirs,
    }.items():
        monkeypatch.setitem(sys.modules, name, module or SimpleNamespace())
    words = iter(["x", "yy", "zzz!", "none"])

    async def ids_of(messages: list[dict[str, str]]) -> list[int]:
        return list(map(ord, messages[0]["content"]))

    async def generate(**_: Any) -> Any:
        return SimpleNamespace(token_ids=list(map(ord, next(words))), log_probs=[-1.0] * 9, extra_fields={})

    play = EnvPlay(env="native/corridor", longest=3)
    play.made = Turnwise
    play.verl = SimpleNamespace(
        ct_build_initial_tokens=ids_of,
        server_manager=SimpleNamespace(generate=generate),
        rollout_config=SimpleNamespace(response_length=3),
        tokenizer=SimpleNamespace(decode=lambda ids, **_: "".join(map(chr, ids))),
    )
    samples = asyncio.run(play.run({}, extra_info={"seed": 7}, uid="u", session_id=2))
    assert ["".join(map(chr, each.prompt_ids)) for each in samples] == ["start 7", "a said x", "b said yy"]
    assert [each.response_mask for each in samples] == [[1], [1, 1], [1, 1, 1]]
    assert [len(each.response_logprobs) for each in samples] == [1, 2, 3]
    told = [[each.extra_fields[name] for name in ("agent", "turn", "turn_reward")] for each in samples]
    assert told == [["a", 0, 1.5], ["b", 1, 3.0], ["a", 2, 3.0]]  # ½ for what the other said before and next
    assert {each.extra_fields["episode"] for each in samples} == {"u_2"}
    assert samples[-1].reward_score == 3.75  # 4.5 for a, 3 for b


class Late(Turnwise):
    """`b` pays before its first turn; then it is `a` that nobody scores, and at last `b`."""

    paid = ({"a": 1.0, "b": -1.0}, {"a": None, "b": 0.5}, {"a": 0.0, "b": None}, {})

    def step(self, actions: Any) -> StepResult:
        result = super().step(actions)
        return StepResult(result.observations, self.paid[self.at - 1], terminated=self.at == 4)


def test_a_turn_is_paid_what_a_rollout_pays_it() -> None:
    """Rewards before an agent's first turn go to that turn, and a later None takes nothing away."""
    from palaestra.learning.adapters.verl_loop import EnvPlay

    class Play(EnvPlay):
        async def _ask(self, observation: Observation, sampling_params: dict[str, Any]) -> tuple[Any, str]:
            return SimpleNamespace(extra_fields={}), "x"

    play = Play(env="native/corridor")
    play.made = Late
    samples = asyncio.run(play.run({}, extra_info={"seed": 7}))
    team = Team(dict.fromkeys(Late.agents, ScriptedPolicy(lambda _: "x", name="same")))
    played = rollout(Late, team, groups=1).frame["reward"].to_list()
    assert [each.extra_fields["turn_reward"] for each in samples] == played == [1.0, -0.5, 0.0, 0.0]
    assert samples[-1].reward_score == 0.25
