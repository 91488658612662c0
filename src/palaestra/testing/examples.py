"""One call of every registered signal, for the common tests; names without one are called without arguments.

A name of this package that cannot be called so and is not here fails `tests/credit/test_invariants.py`.
"""

from __future__ import annotations

import inspect

from palaestra.algebra.signals import REGISTRY

CYCLE = "((0.5, 0.9, 0.2), (0.1, 0.5, 0.8), (0.8, 0.2, 0.5))"

EXAMPLES: dict[str, str] = {
    "absolute": "absolute(reward)",
    "alignment_weight": "alignment_weight(reward)",
    "attribute": "attribute(reward, 'weight')",
    "ballots": "ballots('answer', over=group)",
    "best_of": "best_of(reward)",
    "best_of_n": "best_of_n(reward)",
    "by_role": "by_role(('a', reward), ('b', cost), otherwise=0)",
    "call_match": "call_match('calls', 'gold_calls')",
    "call_price": "call_price(reward, 'cost')",
    "calls": "calls(pattern='did 1')",
    "cap": "cap(reward, limit=1)",
    "cascade": "cascade((valid, 1.0), (success, 0.5), otherwise=reward)",
    "centre": "centre(reward, over=group)",
    "clip": "clip(reward, low=-1, high=1)",
    "clip_above": "clip_above(reward, eta=0.5)",
    "closeness": "closeness(cost, scale=2)",
    "cm2": "cm2(reward, least=1)",
    "co_reward": "co_reward('answer')",
    "col": "col('reward')",
    "complement": "complement(reward)",
    "content_reward": "content_reward('answer', 'truth')",
    "cosine": "cosine(2, 1, steps=10)",
    "count": "count(reward, over=group)",
    "count_bonus": "count_bonus(state, form='inv_sqrt')",
    "cross_label": "cross_label('answer')",
    "cum_count": "cum_count(state)",
    "cum_max_gain": "cum_max_gain(cost)",
    "cumulative": "cumulative(reward, gamma=0.9)",
    "deep_travel_reward": "deep_travel_reward('gate', valid)",
    "delta": "delta(reward)",
    "discount": "discount(cost, where=is_first(over=episode))",
    "distance": "distance('point', 'gold_point')",
    "dominance": "dominance(reward, cost)",
    "e_grpo": "e_grpo(action, 'entities')",
    "e_grpo_reward": "e_grpo_reward(action, 'entities')",
    "earl_reward": "earl_reward('selected', 'gold')",
    "elliptical": "elliptical(features)",
    "entity_recall": "entity_recall(action, 'entities')",
    "episodic_global_bonus": "episodic_global_bonus(state)",
    "escalate": "escalate(reward, cost)",
    "exp": "exp(cost)",
    "exp_weight": "exp_weight(reward, temperature=0.5, most=4)",
    "fill_missing": "fill_missing(reward, 0)",
    "first_satisfied": "first_satisfied(valid, reward > 0)",
    "fuse": "fuse('progress', cost, duration, how='consistency')",
    "gate": "gate(valid, reward)",
    "goal_projection": "goal_projection('embedding', 'goal_embedding', 'origin_embedding')",
    "goal_score": "goal_score('scene', 'goal')",
    "hard_negatives": "hard_negatives('value', reward)",
    "hierarchy": "hierarchy(reward, cost, signs=(1, -1), margin=0.5, over=group, where=is_first(over=episode))",
    "highest": "highest(reward, over=group)",
    "hop": "hop(cost, 'progress')",
    "hybrid_reward": "hybrid_reward(reward, 'judge', valid)",
    "improvement": "improvement(cost)",
    "is_in": "is_in('agent', 'a')",
    "is_missing": "is_missing(reward)",
    "is_scored": "is_scored(logprobs)",
    "jaccard": "jaccard('selected', 'gold')",
    "judge_votes": "judge_votes('success_votes')",
    "keep": "keep(reward, by='group', top=2, between=(0, None), quantile=0.25)",
    "krc": "krc('r_one', 'r_two')",
    "lagrangian": "lagrangian(reward, (cost, 0.5))",
    "leave_one_out": "leave_one_out(reward, over=group)",
    "length_aware": "length_aware(reward, length='cost', best=0.5)",
    "length_reward": "length_reward(action)",
    "lexicographic": "lexicographic(success, cost, signs=(1, -1))",
    "linear": "linear(2, 1, steps=10)",
    "log": "log(1 + cost)",
    "lowest": "lowest(reward, over=group)",
    "masked": "masked(reward, in_baseline=valid)",
    "match_reward": "match_reward('calls', 'gold_calls', 'answer', 'truth', unmatched=-0.5)",
    "max": "max(reward, over=group)",
    "mean": "mean(reward, over=group)",
    "milestones": "milestones(patterns=('data loaded', 'model trained'))",
    "min": "min(reward, over=group)",
    "minmax": "minmax(cost)",
    "mix": "mix('weight', reward, cost)",
    "ml_engineering_reward": "ml_engineering_reward(patterns=('data loaded',))",
    "mmoa_rag_reward": "mmoa_rag_reward(found='selected')",
    "modulate": "modulate(reward, cost, renorm=True)",
    "multiset_jaccard": "multiset_jaccard('selected', 'gold')",
    "ndcg": "ndcg(cost, valid)",
    "no_calls": "no_calls('calls')",
    "novelty_difference": "novelty_difference('error_of_prediction')",
    "on_last": "on_last(success)",
    "on_last_token": "on_last_token(reward)",
    "once": "once(reward, key=state)",
    "oni_reward": "oni_reward('label', 'message')",
    "opponent": "opponent(reward)",
    "overlap": "overlap('selected', 'gold', measure='jaccard', empty=0)",
    "per_token": "per_token(reward)",
    "per_turn": "per_turn(logprobs)",
    "phase": "phase(reward, cost, at=1)",
    "point_in_box": "point_in_box('point', 'box', 60)",
    "potential_difference": "potential_difference('value')",
    "preferred": f"preferred('item', over=group, where=is_first(over=episode), preference={CYCLE})",
    "product": "product(reward, cost)",
    "quantile": "quantile(reward, q=0.3, over=group)",
    "rank": "rank(reward, over=group)",
    "rank_among": "rank_among(cost)",
    "rank_reward": "rank_reward(cost)",
    "ratio": "ratio(reward, cost - 0.5)",
    "recurrence": "recurrence(cost, reward)",
    "redistribute": "redistribute('value', cost)",
    "redistributed": "redistributed(episode_return(), 'value', cost)",
    "reseek_reward": "reseek_reward('judge' > 0.5, 'relevance', answer=success)",
    "role_periods": "role_periods(reward, ('a', 2))",
    "running_max": "running_max(reward)",
    "same_text": "same_text(action, 'answer')",
    "scaled": "scaled(cost)",
    "scroll_reward": "scroll_reward(valid, success, reward > 0)",
    "selection_penalty": "selection_penalty(found='selected')",
    "shape": "shape('progress', gamma=0.9)",
    "shift": "shift(reward, n=-1, fill=0)",
    "sign": "sign(reward)",
    "sign_scale": "sign_scale(reward, size=0.1)",
    "signed": "signed(success)",
    "smaller_in_both": "smaller_in_both('value', cost, over=group, where=is_first(over=episode))",
    "smart_snap_reward": "smart_snap_reward('evidence')",
    "sotopia_reward": "sotopia_reward(('goal_score', 'weight'), (reward, 'other_weight'))",
    "spread": "spread(logprobs, segments())",
    "standardise": "standardise(reward, over=group)",
    "std": "std(reward, over=group)",
    "stepwise_point": "stepwise_point('point', 'gold_point', near=0.2, far=0.5)",
    "supervoxel_reward": "supervoxel_reward(cost, duration, cost)",
    "sweet_spot": "sweet_spot(cost)",
    "tag_format": "tag_format(action, ('think', 'answer'))",
    "team_mix": "team_mix(teams=team())",
    "tier": "tier(cost, edges=(0.1, 0.8), levels=(1.0, 0.3))",
    "token_f1": "token_f1('answer', 'truth')",
    "tool_rl_reward": "tool_rl_reward('calls', 'gold_calls')",
    "total": "total(reward, over=group)",
    "two_phase": "two_phase(reward, cost, share=0.3, steps=10)",
    "ui_r1_reward": "ui_r1_reward(action, 'answer', 'point', 'box')",
    "ui_venus_grounding": "ui_venus_grounding('box', 'target_box')",
    "ui_venus_navigation": "ui_venus_navigation(action, 'answer', content=content_reward('answer', 'truth'))",
    "upper_half": "upper_half(cost)",
    "visits": "visits(cost, over=(episode, state))",
    "voc": "voc(cost)",
    "vote": "vote('answer')",
    "weighted": "weighted(one=1, two=0.1)",
    "where": "where(valid, reward, cost)",
    "whiten": "whiten(reward)",
    "win_rate": f"win_rate('item', preference={CYCLE})",
    "within": "within(cost)",
}

ELSEWHERE = {
    "agent_evolver": "the flags of rows without a reward count as well; tests/credit/test_attribution.py",
    "program": "it needs a file: tests/judges/test_programs.py",
    "program_values": "it needs a program that was loaded: tests/judges/test_programs.py",
}
"""Names that cannot be called here, and why."""

MISSING = {
    "attribute", "cross_label", "discount", "hierarchy", "hint_ratio", "improvement", "opponent",
    "preferred", "shift", "retroformer", "signed", "smaller_in_both", "waltz_reward", "waltzrl",
}  # fmt: skip
"""These are missing where the table is not: they say so in their docstrings."""

NUMBERED = {
    "best_of": "of equal episodes the first",
    "best_of_n": "the same",
    "co_reward": "of equally common answers the first, as in the released code",
    "cross_label": "the same",
    "vote": "the same",
    "ballots": "the same",
}
"""Here the numbers of episodes decide between equals, as their docstrings say."""


def needs_arguments(name: str) -> bool:
    """Whether it cannot be called as `name()`."""
    parameters = inspect.signature(REGISTRY[name]).parameters.values()
    return any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def example(name: str) -> str:
    """A call of it, as recipe text."""
    return EXAMPLES.get(name, f"{name}()")
