"""Group-relative credit: one statistic, different keys.

What counts as one sample, the denominator and the fate of a lone sample are written out in each function. Defaults
follow the papers; `flavour=` reproduces what a trainer's code does.
"""

from __future__ import annotations

from typing import Any, Literal

from palaestra.algebra.keys import joined
from palaestra.algebra.returns import agent_return, as_reward, episode_score, return_to_go, whiten
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    Singleton,
    as_signal,
    centre,
    clip,
    fill_missing,
    leave_one_out,
    register,
    standardise,
    std,
    total,
    where,
)
from palaestra.errors import ExpressionError, nearest

Flavour = Literal["verl", "trl", "rllm", "art", "prime", "verl-agent"]

FLAVOURS: dict[str, dict[str, dict[str, Any]]] = {
    "grpo": {
        "verl": {"ddof": 1, "eps": 1e-6, "singleton": "raw"},
        "trl": {"ddof": 1, "eps": 1e-4, "singleton": "zero", "unscored": "zero"},
        "rllm": {"ddof": 0, "eps": 1e-6, "singleton": "raw"},
        "art": {"ddof": 0, "eps": 1e-6, "singleton": "zero", "zeros": "drop"},
        "prime": {"scale": False, "singleton": "zero"},
        "verl-agent": {"ddof": 1, "eps": 1e-6, "singleton": "raw", "unit": "row"},
    },
    "rloo": {
        "verl": {"singleton": "raw"},
        "rllm": {"singleton": "raw"},
        "trl": {"singleton": "zero", "unscored": "zero"},
        "verl-agent": {"singleton": "raw", "unit": "row"},
    },
    "gigpo": {"verl-agent": {"singleton": "raw", "unit": "row"}},
}
"""What each trainer's estimator of that name does: deviation, epsilon, a group of one, rows without a reward (they stay
missing; TRL trains them on 0), advantages of exactly 0 (ART drops those rows: missing) and what counts as one sample
(verl-agent by default every step, `compute_mean_std_cross_steps=True`, so that long episodes weigh more).

Read from verl 0.9.1 (`compute_grpo_outcome_advantage`, `compute_rloo_outcome_advantage`), TRL 1.16 (`GRPOTrainer`,
`RLOOTrainer`), rLLM (`trainer/algorithms/rl_algo.py`), ART 0.5.18 (`preprocessing/tokenize.py`) and prime-rl
(`orchestrator/algo/grpo.py`). verl's vectorised GRPO also keeps the deviation above 1e-3, its vectorised RLOO gives a
group of one 0, as the default here does; rLLM's key is (task, trajectory name): `over=("group", "agent")`. verl-agent:
`gigpo/core_gigpo.py` and `verl/trainer/ppo/core_algos.py`.

`singleton` is "zero" everywhere, because a lone sample says nothing of what is better; where a method's own code keeps
its raw score, and ours is checked against that code, the default is "raw" and the docstring says so.
"""


def _flavour(estimator: str, flavour: str | None, options: dict[str, Any]) -> dict[str, Any]:
    if flavour is None:
        return options
    known = FLAVOURS[estimator]
    if flavour not in known:
        raise ExpressionError(f"{estimator}: flavour {flavour!r} is unknown{nearest(str(flavour), known)}")
    return options | known[flavour]


def _settle(advantage: Signal, options: dict[str, Any]) -> Signal:
    """A trainer's convention for rows without reward or with an advantage of exactly 0."""
    if options.get("unscored") == "zero":
        return fill_missing(advantage, 0.0)
    return where(advantage != 0.0, advantage) if options.get("zeros") == "drop" else advantage


@register()
def reinforce(reward: SignalLike = "reward", *, gamma: float = 1.0, over: Keys = ()) -> Signal:
    """Signal: REINFORCE with a mean baseline: G_t - mean of G over the key (default: the batch). Williams 1992."""
    return centre(return_to_go(as_reward("reinforce", reward), gamma=gamma), over=over)


@register()
def grpo(
    score: SignalLike | None = None,
    *,
    over: Keys = "group",
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "zero",
    flavour: Flavour | None = None,
) -> Signal:
    """Signal: GRPO (arXiv 2402.03300), (R - mean) / (std + eps) over the group, every episode one sample.

    score: R per row, reduced to its mean over the episode; default is the agent's return. flavour: reproduce that
    trainer's accidents instead (`FLAVOURS`): verl and rLLM let a lone sample keep its raw score, rLLM and ART divide by
    the population deviation, TRL adds 1e-4, prime-rl does not divide at all, verl-agent counts every step as a sample.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "episode": [0, 1, 2, 3], "agent": ["a"] * 4, "reward": [1.0, 0, 0, 1]})
    >>> grpo(flavour="rllm").evaluate(turns).round(3)
    array([ 1., -1., -1.,  1.])
    """
    options = _flavour("grpo", flavour, {"ddof": ddof, "eps": eps, "singleton": singleton})
    if not options.get("scale", True):
        return centre(episode_score(score), over=over, unit="episode", singleton=options["singleton"])
    how = {name: options[name] for name in ("ddof", "eps", "singleton")}
    return _settle(standardise(episode_score(score), over=over, unit=options.get("unit", "episode"), **how), options)


@register()
def dr_grpo(score: SignalLike | None = None, *, over: Keys = "group", singleton: Singleton = "zero") -> Signal:
    """Signal: Dr. GRPO (arXiv 2503.20783), R - mean over the group, no division. Its loss sums tokens over a constant.

    singleton: verl, which has it as GRPO without division, keeps the raw score of a lone episode ("raw").
    """
    return centre(episode_score(score), over=over, unit="episode", singleton=singleton)


@register()
def rloo(
    score: SignalLike | None = None,
    *,
    over: Keys = "group",
    singleton: Singleton = "zero",
    flavour: Literal["verl", "rllm", "trl", "verl-agent"] | None = None,
) -> Signal:
    """Signal: RLOO (arXiv 2402.14740), R - mean of the other episodes of the group. flavour: as in `grpo`.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "episode": [0, 1, 2, 3], "agent": ["a"] * 4, "reward": [1.0, 0, 0, 0]})
    >>> rloo().evaluate(turns).round(4)
    array([ 1.    , -0.3333, -0.3333, -0.3333])
    """
    options = _flavour("rloo", flavour, {"singleton": singleton})
    how = {"unit": options.get("unit", "episode"), "singleton": options["singleton"]}
    return _settle(leave_one_out(episode_score(score), over=over, **how), options)


@register()
def reinforce_plus_plus(
    reward: SignalLike = "reward",
    *,
    gamma: float = 1.0,
    baseline: Keys | None = None,
    singleton: Singleton = "zero",
) -> Signal:
    """Signal: REINFORCE++ (arXiv 2501.03262), return-to-go, whitened over the whole batch.

    baseline: a key ("group") whose mean is subtracted first: the paper's variant with a group baseline. singleton: what
    a key with one sample has left before whitening; verl's keeps the raw score ("raw").
    """
    returns = return_to_go(as_reward("reinforce_plus_plus", reward), gamma=gamma)
    return whiten(returns if baseline is None else centre(returns, over=baseline, singleton=singleton))


@register("dr_mas", "agentwise")
def dr_mas(
    score: SignalLike | None = None,
    *,
    over: Keys = ("group", "agent"),
    penalty: float = 0.0,
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "raw",
) -> Signal:
    """Signal: GRPO with statistics per agent; every invocation of an agent is one sample and keeps its own score.

    Computes ``(s - mean_k) / (std_k + eps)`` over the rows of agent k in a group, where s is the score of the row, less
    `penalty` if the action was invalid. An agent that is called twice in an episode counts twice.

    Args:
        score: score per row. Default: the agent's return.
        over: key of the statistics.
        penalty: subtracted from the score of a row whose column `valid` is false; the paper has 0.1 for mathematics and
            0.01 for search. With 0, `valid` is not needed.
        ddof: 1 for the sample deviation, 0 for that of the population.
        eps: added to the deviation.
        singleton: what a key with one sample yields. "raw", its score, follows the released code, against which this is
            checked; "zero" is safer when groups can be incomplete.

    Returns:
        Credit per row.

    Source: [18] Dr. MAS, arXiv 2602.08847.
    """
    scored = as_signal(agent_return() if score is None else score)
    if penalty:
        scored = scored - where("valid", 0.0, penalty)
    return standardise(scored, over=over, ddof=ddof, eps=eps, singleton=singleton)


@register()
def mars(
    reward: SignalLike = "reward",
    *,
    seat: Keys = "agent",
    penalty: float = 0.0,
    rewards: Literal["mean", "mean_std", "asym_clip"] = "mean",
    whiten_rewards: bool = False,
    limit: float | None = None,
) -> Signal:
    """Signal: [28] MARS (arXiv 2510.15414), return-to-go of normalised rewards, less its mean per seat, then whitened.

    The steps are in the order of its released code.

    1. rewards, less `penalty` where the action was not `valid`, minus their mean per seat (`mean_std`: also divided by
    std + 1e-6, 0 where std <= 1e-6; `asym_clip`: that too, then cut to [-1, 3]);
    2. optionally whitened over the batch; 3. return-to-go with γ = 1 per seat; 4. minus, per seat, the mean of the
    *distinct* values; 5. whitened over the batch; 6. optionally cut to ±limit.

    seat: the key of a seat; with several games in one batch give (game column, "agent").
    """
    if rewards not in ("mean", "mean_std", "asym_clip"):
        raise ExpressionError(f"mars: rewards={rewards!r}{nearest(str(rewards), ['mean', 'mean_std', 'asym_clip'])}")
    earned = as_signal(reward) - where("valid", 0.0, penalty) if penalty else as_signal(reward)
    normalised = centre(earned, over=seat)
    if rewards != "mean":
        normalised = (std(earned, over=seat) > 1e-6) * standardise(earned, over=seat)
    if rewards == "asym_clip":
        normalised = clip(normalised, low=-1.0, high=3.0)
    if whiten_rewards:
        normalised = whiten(normalised)
    advantage = whiten(centre(return_to_go(normalised), over=seat, unit="unique"))
    return advantage if limit is None else clip(advantage, low=-limit, high=limit)


@register()
def gigpo(
    reward: SignalLike = "reward",
    *,
    gamma: float = 0.95,
    weight: float = 1.0,
    scale: bool = True,
    state: Keys = "state",
    singleton: Singleton = "raw",
    flavour: Literal["verl-agent"] | None = None,
) -> Signal:
    """Signal: [62] GiGPO (arXiv 2505.10978), z of R in the group + weight · z of G_t among its rows of the same state.

    The step is compared with the steps that were taken from the same state (anchor) in the group.

    The episode's score is its total reward; a step's is its discounted return-to-go, every visit a sample; a state that
    was seen once has step credit 0. Anchors are equal states; for texts that are nearly equal, as in the released code,
    fill `state` with `similar`. scale=False is the paper's mean-only normalisation, better on hard tasks.

    What a sample of the episode's credit is: in the paper, and by default here, an episode. The released code does that
    with compute_mean_std_cross_steps=False; as it comes, every *step* is one, so that long episodes weigh more:
    flavour="verl-agent". Both are checked against that code. singleton: there a group of one episode passes its raw
    score, here too, unlike elsewhere.

    >>> from palaestra.algebra.turns import Turns
    >>> keys = {"group": [0] * 4, "episode": [0, 1, 1, 1], "agent": ["a"] * 4, "state": range(4)}
    >>> turns = Turns(keys | {"reward": [10.0, 0.0, 0.0, 0.0]})
    >>> gigpo(scale=False).evaluate(turns), gigpo(scale=False, flavour="verl-agent").evaluate(turns)
    (array([ 5., -5., -5., -5.]), array([ 7.5, -2.5, -2.5, -2.5]))
    """
    options = _flavour("gigpo", flavour, {"singleton": singleton, "unit": "episode"})
    episodes, steps = total(reward, over="episode"), return_to_go(as_reward("gigpo", reward), gamma=gamma)
    if scale:
        return standardise(episodes, over="group", **options) + weight * standardise(steps, over=joined("group", state))
    return centre(episodes, over="group", **options) + weight * centre(steps, over=joined("group", state))
