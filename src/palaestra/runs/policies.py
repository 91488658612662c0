"""Kinds of policies that recipes name: a function from a name and options to a policy, registered under the kind.

What needs torch is imported by the functions, so that recipes can be read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from palaestra.agents import ScriptedPolicy
from palaestra.agents.conversation import to_record
from palaestra.agents.policy import Decision, Policy, Request
from palaestra.envs.conversations import WORDS
from palaestra.envs.protocol import Action, EnvFactory, Observation
from palaestra.errors import InputError, RecipeError
from palaestra.foundation.registry import Registry, load_object
from palaestra.runs.scripts import call, check, check_script, naming
from palaestra.runs.scripts import make as make_script
from palaestra.runs.trust import refuse

if TYPE_CHECKING:
    from palaestra.agents.contextual import ContextualPolicy
    from palaestra.agents.discrete import DiscretePolicy
    from palaestra.agents.mlp import MLPPolicy
    from palaestra.agents.population import PopulationPolicy
    from palaestra.agents.relational import RelationalPolicy
    from palaestra.agents.split_mlp import SplitMLPPolicy
    from palaestra.runs.config import PolicyPart


@dataclass(frozen=True)
class Making:
    """Data from which a policy kind's function makes a policy: name, options, env factory, seed, corpus and seats.

    name: of the policy. options: of the recipe. field: where they stand in it, for messages. env: to look at.
    seed: of first parameters. corpus: texts of the env, from which a tokenizer may be made. agents: the seats that
    the policy has, whose observations and actions it must fit; none: of whoever acts first.
    """

    name: str
    options: dict[str, Any]
    field: str
    env: EnvFactory
    seed: int
    corpus: Iterable[str] = ()
    agents: Sequence[str] = ()

    def call(self, make: Callable[..., Any], *arguments: Any, accepts: Sequence[Any] = (), **given: Any) -> Any:
        """`make(*arguments, **given, **options)` with the policy's name; a wrong option is a RecipeError."""
        return call(make, self.options, self.field, *arguments, accepts=accepts, name=self.name, **given)

    def take(self, option: str) -> Any:
        """Remove and return a required option; raises RecipeError without it."""
        if option not in self.options:
            raise RecipeError(f"{self.field}: {option} is needed here")
        return self.options.pop(option)


POLICIES: Registry[Policy] = Registry(
    "policy",
    home=(
        "palaestra.runs.policies",
        "palaestra.runs.perturbed_policies",
        "palaestra.runs.forward_backward_policies",
    ),
    example="kind: tabular",
)


@POLICIES.register("tiny")
def tiny(made: Making) -> Policy:
    """Makes a policy from a `Making`: a new language model of at most 1M parameters, with a tokenizer for the env."""
    from palaestra.agents import LMPolicy
    from palaestra.agents.tiny import build as build_tiny

    accepts = (build_tiny, LMPolicy.__init__)
    found: Policy = made.call(LMPolicy.tiny, made.corpus, accepts=accepts, seed=made.seed)
    return found


@POLICIES.register("lm")
def lm(made: Making) -> Policy:
    """Makes a policy from a `Making`: a Hugging Face causal language model (options.model) from disk or a hub."""
    from palaestra.agents import LMPolicy

    found: Policy = made.call(LMPolicy.from_pretrained, made.take("model"), accepts=(LMPolicy.__init__,))
    return found


@POLICIES.register("served")
def served(made: Making) -> Policy:
    """Makes a policy from a `Making`: a Hugging Face model (options.model), trained here, sampled by vLLM or SGLang."""
    from palaestra.agents import LMPolicy, ServedPolicy

    accepts = (LMPolicy.from_pretrained, LMPolicy.__init__, ServedPolicy.__init__)
    found: Policy = made.call(ServedPolicy.from_pretrained, made.take("model"), accepts=accepts)
    return found


FROM_DISK = ("lm", "served")
"""Kinds that read a model from disk or a hub."""

LANGUAGE_MODELS = ("tiny", *FROM_DISK)
"""Kinds that need transformers."""


def check_from_disk(kind: str, made: Making) -> None:
    """Check the options of an `lm` or `served` policy without loading the model's weights; raises RecipeError."""
    from palaestra.agents import LMPolicy, ServedPolicy

    if kind == "served":
        accepts = (LMPolicy.from_pretrained, LMPolicy.__init__, ServedPolicy.__init__)
        made.call(ServedPolicy.check, made.take("model"), accepts=accepts)
    else:
        made.call(LMPolicy.check, made.take("model"), accepts=(LMPolicy.__init__,))


@POLICIES.register("chat")
def chat(made: Making) -> Policy:
    """Makes a policy from a `Making`: a model (options.model) behind an OpenAI-compatible endpoint; never trained."""
    from palaestra.agents import ChatPolicy

    found: Policy = made.call(ChatPolicy, made.take("model"))
    return found


@POLICIES.register("tabular")
def tabular(made: Making) -> Policy:
    """Makes a policy from a `Making`: softmax of a table of logits, a row per observation; for envs with choices."""
    from palaestra.agents import TabularPolicy

    return _table(made, TabularPolicy)


@POLICIES.register("q_table")
def q_table(made: Making) -> Policy:
    """Makes a policy from a `Making`: a table of action values per observation; wants `learn.kind: q_learning`."""
    from palaestra.agents import QTablePolicy

    return _table(made, QTablePolicy)


@POLICIES.register("bandit")
def bandit(made: Making) -> Policy:
    """Makes a policy from a `Making`: a table of bandit arms, one per choice; wants `learn.kind: bandit`."""
    from palaestra.agents import BanditPolicy

    return _table(made, BanditPolicy)


def _table(made: Making, kind: type[DiscretePolicy]) -> Policy:
    first = _first(made)
    if first.choices is None:
        raise RecipeError(f"policies.{made.name}: this env has free text for actions; kind {kind.KIND!r} needs choices")
    made.options.setdefault("actions", len(first.choices))
    found: Policy = made.call(kind)
    return found


@POLICIES.register("mlp")
def mlp(made: Making) -> Policy:
    """Makes a policy from a `Making`: a small neural network for envs whose observations are arrays, with choices."""
    from palaestra.agents import MLPPolicy

    return _on_arrays(made, MLPPolicy)


@POLICIES.register("contextual")
def contextual(made: Making) -> Policy:
    """Makes a policy from a `Making`: a small network on the newest array and a context of past ones (env `recent`)."""
    from palaestra.agents import ContextualPolicy

    return _on_arrays(made, ContextualPolicy)


@POLICIES.register("factored")
def factored(made: Making) -> Policy:
    """Makes a policy from a `Making`: a network on arrays that picks several numbers at once, its action their text."""
    from palaestra.agents import FactoredPolicy

    first = _first(made)
    if first.array is None or first.choices is not None:
        raise RecipeError(f"policies.{made.name}: kind 'factored' needs arrays, and free text for actions")
    policy: Policy = made.call(FactoredPolicy, len(first.array), seed=made.seed)
    return policy


@POLICIES.register("relational")
def relational(made: Making) -> Policy:
    """Makes a policy from a `Making`: attention over any number of others, under a latent drawn from the game.

    It needs the options `own` and `each`.
    """
    from palaestra.agents import RelationalPolicy

    return _on_arrays(made, RelationalPolicy)


@POLICIES.register("ordered")
def ordered(made: Making) -> Policy:
    """Makes a policy from a `Making`: a linear rule on arrays for ordered choices; wants `learn.kind: generations`."""
    from palaestra.agents import OrderedPolicy

    return _on_arrays(made, OrderedPolicy)


@POLICIES.register("pointer")
def pointer(made: Making) -> Policy:
    """Makes a policy from a `Making`: a pointer network with attention and messages; arrays have a block per member."""
    from palaestra.agents import PointerPolicy

    return _on_arrays(made, PointerPolicy)


@POLICIES.register("q_network")
def q_network(made: Making) -> Policy:
    """Makes a policy from a `Making`: a network of action values on arrays; wants `learn.kind: value_decomposition`."""
    from palaestra.agents import QNetworkPolicy

    return _on_arrays(made, QNetworkPolicy)


@POLICIES.register("split_mlp")
def split_mlp(made: Making) -> Policy:
    """Makes a policy from a `Making`: a network whose seats share some parameters; options.trunk: run to copy from."""
    from palaestra.agents import SplitMLPPolicy
    from palaestra.runs.saved_policies import adopted

    taken = ("trunk", "trunk_policy", "freeze")
    given: dict[str, Any] = {name: made.options.pop(name) for name in taken if name in made.options}
    policy: Policy = call(adopted, given, made.field, _with_keys(made, SplitMLPPolicy), seed=made.seed // 1000)
    return policy


@POLICIES.register("saved")
def saved(made: Making) -> Policy:
    """Makes a policy from a `Making`: a frozen trained one of another run (options.run: its folder).

    options.policy: its name there.
    """
    from palaestra.runs.saved_policies import saved_policy

    # a recipe makes its policies with seed * 1000 + their number
    found: Policy = made.call(saved_policy, made.take("run"), seed=made.seed // 1000)
    return found


@POLICIES.register("population")
def population(made: Making) -> Policy:
    """Makes a policy from a `Making`: greedy network with own parameters per seat; wants `learn.kind: diversity`."""
    from palaestra.agents import PopulationPolicy

    return _with_keys(made, PopulationPolicy)


def _with_keys(made: Making, kind: type[SplitMLPPolicy | PopulationPolicy]) -> Policy:
    env = made.env()
    first = next(iter(env.reset(0).values()))
    if first.choices is None or first.array is None:
        raise RecipeError(f"policies.{made.name}: kind {kind.KIND!r} needs arrays and choices")
    made.options.setdefault("keys", list(env.agents))
    policy: Policy = made.call(kind, len(first.array), len(first.choices), seed=made.seed)
    return policy


def _on_arrays(made: Making, kind: type[MLPPolicy | ContextualPolicy | RelationalPolicy]) -> Policy:
    first = _first(made)
    if first.array is None or first.choices is None:
        found = f"this env shows text only; kind {kind.KIND!r} needs arrays and choices"
        raise RecipeError(f"policies.{made.name}: {found}")
    policy: Policy = made.call(kind, len(first.array), len(first.choices), seed=made.seed)
    return policy


@POLICIES.register("random")
def random(made: Making) -> Policy:
    """Makes a policy from a `Making`: uniform over the legal actions."""
    return ScriptedPolicy(make_script("random", made.options, made.field, seed=made.seed), name=made.name)


@POLICIES.register("script")
def script(made: Making) -> Policy:
    """Makes a policy from a `Making`: scripted play; options.script names a registered script, or module:function."""
    play = make_script(made.take("script"), made.options, made.field, seed=made.seed)
    return ScriptedPolicy(play, name=made.name)


@POLICIES.register("human")
def human(made: Making) -> Policy:
    """Makes a policy from a `Making`: a person asked on the terminal, or answers read from a file (options.answers)."""
    from palaestra.agents.human import HumanPolicy

    found: Policy = made.call(HumanPolicy.seated)
    return found


class Takes(NamedTuple):
    """Data on where a policy kind passes its options: a function, its fixed arguments, and further functions.

    A function, how many arguments and which options it gets otherwise, and to what it passes its options on.
    `module:name` each, because some need torch.
    """

    function: str
    fixed: int = 0
    given: tuple[str, ...] = ("name",)
    accepts: tuple[str, ...] = ()


_LM = "palaestra.agents:LMPolicy"
TAKES = {
    "tiny": Takes(f"{_LM}.tiny", 1, ("name", "seed"), ("palaestra.agents.tiny:build", f"{_LM}.__init__")),
    "lm": Takes(f"{_LM}.from_pretrained", 1, accepts=(f"{_LM}.__init__",)),
    "served": Takes(
        "palaestra.agents:ServedPolicy.from_pretrained",
        1,
        accepts=(f"{_LM}.from_pretrained", f"{_LM}.__init__", "palaestra.agents:ServedPolicy.__init__"),
    ),
    "chat": Takes("palaestra.agents:ChatPolicy", 1),
    "human": Takes("palaestra.agents.human:HumanPolicy.seated"),
    "tabular": Takes("palaestra.agents:TabularPolicy"),
    "mlp": Takes("palaestra.agents:MLPPolicy", 2, ("name", "seed")),
    "q_network": Takes("palaestra.agents:QNetworkPolicy", 2, ("name", "seed")),
    "contextual": Takes("palaestra.agents:ContextualPolicy", 2, ("name", "seed")),
    "factored": Takes("palaestra.agents:FactoredPolicy", 1, ("name", "seed")),
    "pointer": Takes("palaestra.agents:PointerPolicy", 2, ("name", "seed")),
    "ordered": Takes("palaestra.agents:OrderedPolicy", 2, ("name", "seed")),
    "relational": Takes("palaestra.agents:RelationalPolicy", 2, ("name", "seed")),
    "split_mlp": Takes(
        "palaestra.agents:SplitMLPPolicy", 2, ("name", "seed"), ("palaestra.runs.saved_policies:adopted",)
    ),
    "population": Takes("palaestra.agents:PopulationPolicy", 2, ("name", "seed")),
    "saved": Takes("palaestra.runs.saved_policies:saved_policy", 1, ("name", "seed")),
    "perturbed": Takes("palaestra.runs.perturbed_policies:perturbed_policy", 1, ("name", "seed")),
    "forward_backward": Takes("palaestra.runs.forward_backward_policies:imitating", 1),
}
NEEDED = {
    "lm": "model",
    "served": "model",
    "chat": "model",
    "script": "script",
    "saved": "run",
    "perturbed": "run",
    "forward_backward": "turns",
}
"""The option that a kind cannot do without."""


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raise RecipeError if a policy kind does not take these options or lacks one; no policy is made.

    Raises:
        RecipeError: one that is needed is missing, is unknown, or is of another type.
    """
    needed = NEEDED.get(kind)
    if needed and needed not in options:
        raise RecipeError(f"kind {kind!r} needs options.{needed}")
    rest = {name: value for name, value in options.items() if name != needed}
    if kind in ("script", "random"):
        check_script(str(options.get("script", "random")), rest, ".options")
    elif kind in TAKES:
        function, fixed, given, accepts = TAKES[kind]
        try:
            found = [load_object(each, kind) for each in (function, *accepts)]
        except InputError:  # a recipe can be read where torch is not
            return
        check(found[0], rest, ".options", fixed, accepts=found[1:], given=given)


def remake_policy(name: str, part: Mapping[str, Any], *, trust: bool = False) -> Policy:
    """Make a policy that has no parameters anew from its entry in a stored team: `{"kind", "options", "seed"}`.

    Raises:
        RecipeError: it cannot be made; or it names code, and is not trusted.
    """
    if not trust:
        refuse({"policies": {name: part}}, f"stored policy {name!r}")
    kind, options = str(part.get("kind")), dict(part.get("options") or {})
    with naming(f"policies.{name}"):
        make = POLICIES.find(kind)
    return make(Making(name, options, f"policies.{name}.options", _no_env, int(part.get("seed") or 0)))


def _no_env() -> Any:
    raise RecipeError("this kind of policy looks at the env; it is stored with its parameters, or not at all")


LOOKS = 100
"""Steps in which one of a policy's seats should have acted, when its first observation is looked for."""


def _first(made: Making) -> Observation:
    """What one of the policy's seats sees first, in episodes of random legal actions; else what anybody does."""
    env, rng = made.env(), np.random.default_rng(0)
    seen = env.reset(0)
    first = next(iter(seen.values()))
    for look in range(LOOKS):
        own = next((each for agent, each in seen.items() if agent in made.agents), None)
        if own is not None or not made.agents or any(each.choices is None for each in seen.values()):
            return own or first
        try:
            seen = env.step({agent: str(rng.choice(each.legal)) for agent, each in seen.items()}).observations
        except Exception:  # an env that breaks is an error of play, which says more of it
            return first
        if not seen:
            seen = env.reset(look)
    return first


class Demonstrator(ScriptedPolicy):
    """Scripted policy by a function (request -> action) for imitation: decisions carry action ids, perhaps messages.

    Args:
        conversations: Whether those who learn from it read conversations.
    """

    def __init__(self, function: Callable[[Request], Action], *, name: str, conversations: bool = False) -> None:
        super().__init__(function, name=name)
        self.conversations = conversations

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """A decision for each request, with action id and, if wanted, the conversation."""
        decisions = super().act(requests)
        for request, decision in zip(requests, decisions, strict=True):
            chosen = request.observation.index(decision.action)
            if chosen is not None:
                decision.action_ids = np.array([chosen], np.int32)
            if self.conversations:
                decision.messages = to_record(request.observation, WORDS)
        return decisions


def reads_conversations(parts: Iterable[PolicyPart]) -> bool:
    """Whether one of these `PolicyPart` sections may make a chat model, so that chat prompts matter for the run."""
    return any(part.kind in ("lm", "served", "chat") or part.options.get("chat") for part in parts)
