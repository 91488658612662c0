"""The parts of a recipe: what is played, by whom, how one learns and how the result is proved, with their checks.

What a part alone can tell is said when it is read. Left out: what joins them (`recipe.Recipe`), and reading files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from palaestra.envs import find as find_env
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import read_call, split_calls
from palaestra.learning.optimizers import check_name
from palaestra.learning.protocol import LEARNERS
from palaestra.play.executors import EXECUTORS
from palaestra.runs import budget
from palaestra.runs.policies import POLICIES, check_options
from palaestra.runs.scripts import check, check_script, naming
from palaestra.runs.secrets import refuse_secrets
from palaestra.runs.trust import code_in
from palaestra.teams import WORKFLOWS, SharedMemoryEnv, pipeline


class Section(BaseModel):
    """Pydantic base class of a recipe's sections: immutable, unknown fields and secrets are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _holds_no_secret(cls, data: Any) -> Any:
        refuse_secrets(data)
        return data


Texts = Annotated[
    tuple[str, ...], WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
]
"""A list of texts, or one text that says them with commas."""

Seeds = Annotated[
    tuple[int, ...],
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}),
]
"""A list of seeds, or their number."""


class EnvPart(Section):
    """Recipe section `env`: name of a registered env or `module:function`, its options, roles, workflow and tools."""

    make: str = Field(
        description="a name of `palaestra names env`, library/name, or module:name of a class or function"
    )
    options: dict[str, Any] = Field({}, description="arguments of the env")
    roles: tuple[str, ...] | None = Field(None, description="turn a single-answer task into a pipeline of these roles")
    pipeline: dict[str, Any] = Field({}, description="options of the pipeline, see `palaestra.teams.pipeline`")
    workflow: str | dict[str, Any] | None = Field(
        None, description="a team over the env: debate(3), module:name(…); or a graph written out: {roles: …, edges: …}"
    )

    tools: dict[str, str | list[str]] = Field(
        {}, description="role, or a pattern such as worker-*: its tools, e.g. [python()]; see `palaestra names tool`"
    )
    tool_turns: int = Field(4, ge=1, description="most answers with calls in one turn of a role with tools")
    shared_memory: dict[str, Any] | None = Field(
        None, description="memory that roles share in an episode: {write: all, read: [judge], entries: 20, tokens: 400}"
    )

    @field_validator("workflow")
    @classmethod
    def _is_a_call(cls, value: str | dict[str, Any] | None, info: ValidationInfo) -> str | dict[str, Any] | None:
        if isinstance(value, str) and ":" not in (name := checked(read_call, value)[0]):
            looked_up(WORKFLOWS.find, name, info)
        return value

    @model_validator(mode="after")
    def _takes_its_options(self, info: ValidationInfo) -> EnvPart:
        if not is_only_read(info):
            checked(self._check, None)
        return self

    def _check(self, _: None) -> None:
        if ":" not in self.make:
            with naming(".make"):
                function, arguments = find_env(self.make)
            check(function, self.options, ".options", len(arguments))
        check(pipeline, self.pipeline, ".pipeline", 1, given=("roles",))
        check(SharedMemoryEnv, self.shared_memory or {}, ".shared_memory", 1, given=("tools", "turns"))
        if isinstance(self.workflow, dict):
            check(WORKFLOWS.find("graph"), self.workflow, ".workflow", 1)
        elif self.workflow is not None and not code_in(self.workflow):
            name, values, options = read_call(self.workflow)
            check(WORKFLOWS.find(name), options, f".workflow {name!r}", 1 + len(values))


class PolicyPart(Section):
    """Recipe section of one policy: its kind (`tiny`, `lm`, `chat`, `mlp`, `script`, …) and that kind's options."""

    kind: str = Field(description="tiny, lm, served, chat, tabular, mlp, random, script, or a registered one")
    options: dict[str, Any] = Field({}, description="arguments of the kind, see docs/recipes.md")

    @field_validator("kind")
    @classmethod
    def _is_known(cls, value: str, info: ValidationInfo) -> str:
        if value not in POLICIES and ":" not in value and not is_only_read(info):
            raise ValueError(f"no {value!r} here{nearest(value, POLICIES)}")
        return value

    @model_validator(mode="after")
    def _has_what_it_needs(self, info: ValidationInfo) -> PolicyPart:
        if not is_only_read(info):
            checked(lambda kind: check_options(kind, self.options), self.kind)
        return self


class WarmStartPart(Section):
    """Recipe section `warm_start`: supervised learning on scripted play before reinforcement learning."""

    script: str = Field("random", description="who is imitated: a registered script, or module:function, a factory")
    options: dict[str, Any] = Field({}, description="arguments of the factory")
    groups: int = Field(256, ge=1, description="episodes of scripted play")
    steps: int = Field(300, ge=0, description="updates; 0 only makes the tokenizer's corpus")
    batch: int = Field(64, ge=1, description="turns per update")
    lr: float | None = Field(
        None, gt=0, description="learning rate of the imitation; null: 1e-5 for kinds lm and served, 3e-3 for others"
    )

    @model_validator(mode="after")
    def _is_known(self, info: ValidationInfo) -> WarmStartPart:
        if not is_only_read(info):
            checked(lambda name: check_script(name, self.options, ".script"), self.script)
        return self


class LearnPart(Section):
    """Recipe section `learn`: settings of the learner, `PolicyGradient` by default; see docs/learning.md."""

    kind: str = Field("policy_gradient", description="a registered learner, or module:name")
    terms: Texts = Field(
        ("surrogate()",), description="the objective, a sum: surrogate(clip=(.2, .28)), kl(.05); a list or one text"
    )
    lr: float | dict[str, float] | None = Field(
        None,
        description="learning rate (AdamW), or one for each policy by name; null: 1e-5 for kinds lm and served, whose "
        "models are pretrained (adapters often take ten times as much), 1e-3 for others",
    )
    freeze: Texts = Field((), description="policies that do not learn, by name; their rows take no part")
    rows: Literal["turn", "conversation"] = Field(
        "turn",
        description="what a row of the objective is: a turn, or all that an agent said in an episode, read once and, "
        "for losses over sequences, one sequence (language models)",
    )
    betas: tuple[float, float] = Field((0.9, 0.999), description="decay of AdamW's two moments")
    weight_decay: float = Field(0.0, ge=0, description="decay of the weights by AdamW, times lr")
    optimizer: str = Field(
        "adamw",
        description="adamw; adamw_8bit, adamw_4bit, adamw_fp8: its moments quantised by torchao; or module:name",
    )
    warmup: int = Field(0, ge=0, description="iterations at the start in which the learning rate rises linearly")
    sequential: Literal["turn", "agent"] | None = Field(
        None, description="SeeUPO [96]: update one turn (or agent) after the other, with `credit: seeupo()`"
    )
    order: Literal["reverse", "forward", "random"] = Field("reverse", description="of sequential updates")
    epochs: int = Field(1, ge=1, description="times that each batch is learned from")
    minibatch: int | None = Field(
        None, ge=1, description="rows (turns or conversations) per step of the optimiser; null: the whole batch"
    )
    chunk_tokens: int = Field(
        8192,
        ge=1,
        description="padded tokens that go through a model at once; fewer take less memory, not other numbers",
    )
    max_grad_norm: float = Field(1.0, gt=0, description="longer gradients of a policy are shortened to this")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="of the learning rate over the iterations"
    )
    transaction: Literal["update", "step"] = Field(
        "update", description="what a failure undoes; step needs no copy of a model that takes several steps"
    )
    devices: Literal["one", "ddp", "fsdp"] = Field(
        "one", description="how ranks (--ranks N, torchrun) share updates: each has the models, or a part of them"
    )
    timeout: float = Field(600.0, gt=0, description="seconds that a rank waits for the others")
    options: dict[str, Any] = Field({}, description="of a learner of your own")

    @field_validator("terms", mode="before")
    @classmethod
    def _one_text_or_several(cls, value: Any) -> Any:
        return calls(value)

    @field_validator("freeze", mode="before")
    @classmethod
    def _one_name_or_several(cls, value: Any) -> Any:
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else () if value is None else value

    @field_validator("terms")
    @classmethod
    def _are_terms(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        try:
            from palaestra.learning.terms import objective
        except ImportError:  # nothing can be trained without torch, but a recipe can be read
            return value
        known = to_be_made(value, info)
        if known or not value:
            looked_up(objective, known, info)
        return value

    @field_validator("kind")
    @classmethod
    def _is_a_learner(cls, value: str, info: ValidationInfo) -> str:
        if ":" not in value:
            with contextlib.suppress(ImportError):  # as above
                looked_up(LEARNERS.find, value, info)
        return value

    @field_validator("optimizer")
    @classmethod
    def _is_an_optimiser(cls, value: str, info: ValidationInfo) -> str:
        looked_up(check_name, value, info)
        return value

    @field_validator("betas")
    @classmethod
    def _are_decays(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in value):
            raise ValueError(f"two numbers of at least 0 and below 1, found {list(value)}")
        return value

    @field_validator("lr")
    @classmethod
    def _is_a_rate(cls, value: float | dict[str, float] | None) -> float | dict[str, float] | None:
        if value is None:
            return None
        if min(value.values(), default=0.0) < 0 if isinstance(value, dict) else value < 0:
            raise ValueError(f"a learning rate is at least 0, found {value}")
        return value


class TrainPart(Section):
    """Recipe section `train`: numbers of iterations, tasks and episodes; how often to evaluate and save checkpoints."""

    iterations: int = Field(50, ge=0, description="times of play, credit, update")
    groups: int = Field(16, ge=1, description="tasks per iteration")
    group_size: int = Field(8, ge=1, description="episodes per task")
    evaluate_every: int = Field(10, ge=1, description="iterations between looks at held-out tasks")
    checkpoint_every: int = Field(10, ge=1, description="iterations between checkpoints, from which --resume goes on")
    save_turns: Literal["none", "last", "all"] = Field("last", description="iterations whose turns are kept as Parquet")
    incomplete: Literal["drop", "keep"] = Field("drop", description="groups that lack episodes after the retries")
    threads: int = Field(1, ge=1, description="torch threads of one seed; results can depend on it in the last bits")
    budget: dict[str, float] | None = Field(
        None,
        description="no further iteration that would spend more than this in play: {tokens: 2e5}, {turns: 5000}, or "
        "{price: 2.5, input: 1e-6, output: 4e-6}",
    )
    lag: int = Field(
        0, ge=0, description="play so many iterations ahead of learning: iteration i with the weights after i - 1 - lag"
    )
    inflight: bool = Field(
        False,
        description="with a lag: what is played goes on with the weights of every update, in the middle of answers; "
        "for policies of kind served only, and with a clock in the result",
    )
    keep_calls: int = Field(
        256,
        ge=0,
        description="MiB of answers of each judge model that are kept in judge-calls/, as they come, so that a run "
        "that was killed pays for none twice; 0: none are kept",
    )

    @model_validator(mode="after")
    def _is_under_way_when_weights_come(self) -> TrainPart:
        if self.inflight and not self.lag:
            raise ValueError("inflight: nothing is played while the learner learns: write lag: 1 or more")
        return self

    @model_validator(mode="after")
    def _has_a_budget_to_keep(self) -> TrainPart:
        if self.budget is not None:
            checked(budget.validated, self.budget)
            if self.lag:
                raise ValueError("budget and lag: what is played ahead is spent already; write lag: 0")
        return self


class PlayPart(Section):
    """Recipe section `play`: the executor of episodes and its concurrency, time limit and retries."""

    executor: str = Field("local()", description="a registered executor: processes(workers=2), ray, or module:name(…)")
    shards: int | None = Field(
        None,
        ge=1,
        description="parts of what is played; they fix its bits, the workers do not; null: 1, 16 with workers",
    )
    concurrency: int = Field(256, ge=1, description="episodes at once")
    timeout: float | None = Field(60.0, gt=0, description="seconds that one step of the env may take")
    retries: int = Field(1, ge=0, description="times a failed episode is played again")

    @field_validator("executor")
    @classmethod
    def _is_known(cls, value: str, info: ValidationInfo) -> str:
        name, values, options = checked(read_call, value)
        if ":" not in name and not is_only_read(info):
            checked(lambda name: check(EXECUTORS.find(name), options, repr(name), len(values)), name)
        return value


def _or_text(schema: dict[str, Any]) -> None:
    """A part that may also be said by a text alone."""
    whole = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "string"}, whole]


class ControlPart(Section):
    """Recipe section of one control: a system that the trained team is compared with on the held-out tasks.

    Other policies in the same seats, a training of its own, or the trained team itself, searching when it acts.
    """

    policies: dict[str, PolicyPart] | None = Field(None, description="other policies under names of `policies`")
    script: str | None = Field(None, description="scripted play in every seat, as in warm_start")
    options: dict[str, Any] = Field({}, description="arguments of that script")
    train: dict[str, Any] | None = Field(None, description="overrides of this recipe, trained under the same seed")
    search: str | dict[str, str] | None = Field(
        None,
        description="the trained team, choosing by a scorer: best_of(\"reward_model('rm')\", n=4), beam(…) or tree(…) "
        "for all that learn, or one for each policy by name",
    )
    tune: dict[str, str] = Field(
        {}, description="of `train`: what is searched for beside `tune.space` of the recipe; a field -> its space"
    )
    note: str = Field("", description="what the report says of it")

    @field_validator("tune")
    @classmethod
    def _are_spaces(cls, value: dict[str, str]) -> dict[str, str]:
        for text in value.values():
            checked(search_space, text)
        return value

    @field_validator("search")
    @classmethod
    def _are_searches(cls, value: Any, info: ValidationInfo) -> Any:
        from palaestra.runs.searching import read, texts

        for text in to_be_made([] if value is None else texts(value), info):
            looked_up(read, text, info)
        return value

    @model_validator(mode="after")
    def _is_one_thing(self, info: ValidationInfo) -> ControlPart:
        if sum(part is not None for part in (self.policies, self.script, self.train, self.search)) != 1:
            raise ValueError("give one of policies, script, train and search")
        if self.tune and self.train is None:
            raise ValueError("tune: only what is trained can be tuned; give train, or leave tune out")
        if self.script is not None and not is_only_read(info):
            checked(lambda name: check_script(name, self.options, ".script"), self.script)
        return self


def search_space(text: str) -> tuple[str, list[Any]]:
    """Parse a search space's text, `log(1e-4, 3e-3)`, `uniform(0, 1)`, `int(1, 8)`, `choice('a', 'b')`: (kind, values).

    Raises:
        InputError: the text is none of these.
    """
    kind, given, options = read_call(text, "log(1e-4, 3e-3), uniform(0, 1), int(1, 8), choice('a', 'b')")
    values = list(given)
    numbers = len(values) == 2 and all(isinstance(value, int | float) for value in values) and values[0] < values[1]
    whole = all(isinstance(value, int) for value in values)
    fits = {
        "log": numbers and values[0] > 0,
        "uniform": numbers,
        "int": numbers and whole,
        "choice": len(values) > 0,
    }
    if options or not fits.get(kind):
        raise InputError(
            f"{text!r} is no search space: write log(low, high) with 0 < low, uniform(low, high), int(low, high) or "
            "choice(a, b, …)"
        )
    return kind, values


class TunePart(Section):
    """Recipe section `tune`: hyperparameter search before training, for the team and alike for each trained control."""

    space: dict[str, str] = Field(
        description="field of the recipe -> log(1e-4, 3e-3), uniform(0, 1), int(1, 8) or choice('grpo()', 'rloo()')"
    )
    trials: int = Field(16, ge=1, description="settings that are tried for each side; the first are those written here")
    seeds: int = Field(1, ge=1, description="trainings per trial, on seeds and held-out tasks of the search alone")
    iterations: int | None = Field(None, ge=1, description="of each trial; null: those of the recipe")
    prune: bool = Field(True, description="end a trial with a look worse than the median of what others had reached")

    @field_validator("space")
    @classmethod
    def _are_spaces(cls, value: dict[str, str]) -> dict[str, str]:
        if not value:
            raise ValueError("no fields to search; name one, learn.lr: log(1e-4, 3e-3)")
        for text in value.values():
            checked(search_space, text)
        return value


class ScorerPart(Section):
    """Recipe section of one scorer of held-out play, beside success; a text names the scorer alone. It is no reward."""

    model_config = ConfigDict(json_schema_extra=_or_text)

    scorer: str = Field(description="verifier(…), judged(…), reward_model(…): see `palaestra names scorer`")
    budget: int | dict[str, float] | None = Field(
        None,
        description="most calls of a policy in a seed's held-out play, an equal part for each system, or {tokens: …}, "
        "{price: …}; what is asked beyond it has no value",
    )
    cache: str | None = Field(None, description="a file of answers, found again by another run")

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_text(cls, data: Any) -> Any:
        return {"scorer": data} if isinstance(data, str) else data

    @field_validator("scorer")
    @classmethod
    def _is_a_scorer(cls, value: str, info: ValidationInfo) -> str:
        from palaestra.judges.scorers import build

        for text in to_be_made([value], info):
            looked_up(build, text, info)
        return value

    @field_validator("budget")
    @classmethod
    def _can_be_kept(cls, value: Any) -> Any:
        from palaestra.judges.metering import Meter

        checked(Meter, value)
        return value


class AttackPart(Section):
    """Recipe section of one attack on the trained team, with the options of `palaestra attack`; see docs/attacks.md."""

    seat: str | None = Field(None, description="the agent that the attacker plays; default: the name of the attack")
    target: str | None = Field(None, description="above 0 in a turn where the targeted behaviour happened")
    influence: float | None = Field(
        None, ge=0, description="weight of the bonus for turning the others to target actions; null: no bonus"
    )
    kind: str | None = Field(None, description="of the attacker's policy; default: as the seat's")
    iterations: int | None = Field(None, ge=1, description="of its training; default: as the run's")
    overrides: tuple[str, ...] = Field((), description='fields of its recipe, such as "learn.lr=0.1"')


class EvaluationPart(Section):
    """Recipe section `evaluation`: held-out tasks and trials of every system, measure, controls, attacks, scorers."""

    tasks: int = Field(200, ge=2, description="held-out tasks of the final comparison, the same for every system")
    trials: int = Field(4, ge=1, description="episodes per task")
    look_tasks: int = Field(100, ge=2, description="tasks of each look during training")
    look_trials: int = Field(2, ge=1, description="episodes per task of each look")
    agents: tuple[str, ...] | None = Field(None, description="whose success counts; default: everybody's mean")
    coalitions: int = Field(
        0,
        ge=0,
        description="held-out tasks that every coalition of trained and untrained members plays, for exact "
        "Shapley values of at most 12 members; 0: none",
    )
    measure: str = Field("success", description="what is to improve: success, score, or one of the metrics")
    metrics: tuple[str, ...] = Field((), description="exact measures of small games, e.g. exploitability")
    controls: dict[str, ControlPart] = Field({}, description="further systems by name, compared with the trained team")
    attacks: dict[str, AttackPart] = Field(
        {}, description="attacks on the trained team by name, each with the interval of what the team loses to it"
    )
    scorers: dict[str, ScorerPart] = Field(
        {}, description="what else all held-out play is scored by, a scorer by name; its column is score.NAME"
    )

    @field_validator("metrics")
    @classmethod
    def _are_measures(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        from palaestra.runs.measures import bare_name  # brings SciPy

        for name in value:
            if ":" not in name:
                looked_up(bare_name, name, info)
        return value


def calls(value: Any) -> Any:
    """Tuple of call texts from one comma-separated text, a list, or a list that YAML split inside brackets.

    >>> calls("replay(k=1, last=4), critic()")
    ('replay(k=1, last=4)', 'critic()')
    >>> calls(["replay(k=1", "last=4)", "critic()"])
    ('replay(k=1, last=4)', 'critic()')
    """
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    return tuple(split_calls(value)) if isinstance(value, str) else () if value is None else value


def checked(function: Callable[[Any], Any], value: Any) -> Any:
    """`function(value)`, with InputError turned into the ValueError that pydantic reports for a field."""
    try:
        return function(value)
    except InputError as error:
        raise ValueError(str(error)) from error


def is_only_read(info: ValidationInfo) -> bool:
    """Whether a pydantic validation is for reading a recipe only, without importing modules that may register names."""
    return bool(info.context and info.context["only_read"])


def looked_up(function: Callable[[Any], Any], value: Any, info: ValidationInfo) -> None:
    """Check a value by calling `function(value)`, unless the recipe is only read; ValueError if it fails, no result."""
    if not is_only_read(info):
        checked(function, value)


def to_be_made(calls: Sequence[str], info: ValidationInfo) -> list[str]:
    """List of the call texts that may be made; without a validation context, calls that name outside code are dropped.

    That is, data that `validate` has not yet judged.
    """
    return [call for call in calls if info.context or not code_in(call)]
