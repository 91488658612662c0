"""Reward for a team's topology: sparse ones earn more, and none beyond the task's difficulty ([130])."""

from __future__ import annotations

from palaestra.algebra.signals import Signal, SignalLike, as_signal, clip, exp, fill_missing, ratio, register, where


@register()
def density(
    nodes: SignalLike = "plan_nodes",
    edges: SignalLike = "plan_edges",
    depth: SignalLike = "plan_depth",
    most: SignalLike = "plan_most",
) -> Signal:
    """Signal: AgentConductor's S_complex, from numbers of a team graph's nodes, edges and layers; higher for fewer.

    exp(e^(-V/N) + 2 e^(-E/E_max) + 1 - d/V) of V nodes, E edges and d layers, N the most that the task deserves and
    E_max = V(V-1)/2 (without a pair e^0 = 1); tanh((N-V)/N) if V > N. So from e^0 to e^4 for what fits: much more than
    passing or failing makes, 0.5, unless it is weighted (`conductor`). arXiv 2602.17100.

    >>> from palaestra.algebra.turns import Turns
    >>> four = {"plan_nodes": [4], "plan_edges": [3], "plan_depth": [4], "plan_most": [4]}
    >>> density().evaluate(Turns(four)).round(4)
    array([4.8595])
    """
    v, e, d, n = map(as_signal, (nodes, edges, depth, most))
    size, links, layers = (  # shares; what is no team at all is kept in the range of those that are
        clip(share, low=0.0, high=1.0) for share in (ratio(v, n), ratio(2 * e, v * (v - 1)), ratio(d, v))
    )
    fits = exp(exp(-size) + 2 * exp(-links) + 1 - layers)
    twice = exp(clip(2 * ratio(n - v, n), low=-60.0, high=0.0))
    return where(v <= n, fits, (twice - 1) / (twice + 1))


@register()
def conductor(weight: float = 0.02, *, passed: float = 1.5, wrong: float = 1.0, error: float = 0.7) -> Signal:
    """Signal: AgentConductor's reward [130] of the writer of team plans, by success plus `density`; missing on workers.

    arXiv 2602.17100.

    `passed` if the team's answer is right, `wrong` if it is not, `error` if it cannot be read, -2 if what the seat
    wrote is no team; and `weight` times `density()`. The paper adds the two as they are, weight 1, and then density is
    all that counts: a single worker for every task.
    """
    right = where(as_signal("success"), passed, where(fill_missing("plan_read", 1.0), wrong, error))
    return where(fill_missing("plan_most", 0.0) > 0, where(as_signal("valid"), right + weight * density(), -2.0))
