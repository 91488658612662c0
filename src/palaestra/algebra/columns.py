"""Columns beyond the schema: what gives them, for the message of whoever misses one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from palaestra.errors import nearest

PROVIDERS: list[Callable[[str], str | None]] = []
"""Asked in this order how a table gets a column that is missing; what is above (stages, envs) knows. None: not mine."""

MADE_BY: dict[str, str] = {
    "action_reward": "a reward of the single decision: your env's fact, or with_column()",
    "action_values": "a critic's values of all actions of the agent (a list), e.g. counterfactual play",
    "answer_f1": "your env's fact: token F1 of the episode's answer and the right one (`native/rag` tells it)",
    "arena": "by_group(turns, lambda items: tournament(items, judge).score, name='arena')",
    "box": "a fact of a GUI env: the box that was given, (left, top, right, bottom)",
    "calls": "a fact of an env with tools: number of calls that the turn made",
    "ce": "a fact of native/voxels: cross-entropy of the cell before its turn",
    "ce_after": "a fact of native/voxels: cross-entropy of the cell after the episode's last turn",
    "coalition_values": "coalition_values() of each episode (a list of 2^n numbers); add_shapley() needs none",
    "confidence": "palaestra.judges.language_server: how unambiguous the turn's target was",
    "consistent": "a judge's fact: the choice follows from the reasons, e.g. judge('consistent', …)",
    "context": "`omission` (env.workflow) tells it: length of what was read, in characters",
    "control_score": "`proposer(controls=1)` (env.workflow) tells it: a control's score of the proposed task",
    "debate_won": "debate() of a turn's decision: 1 if it wins the debate about it, else 0",
    "delta": "the fact of a simulated user (roles/user): what the reply changed of its emotion",
    "diagnostics": "palaestra.judges.language_server counts them",
    "diagnostics_before": "palaestra.judges.language_server: diagnostics before the turn",
    "difficulty": "a weight of the sample, e.g. 1 / relative size of the target box",
    "edge": "a fact of native/voxels: how far the cell is from the true boundary",
    "flag": "a judge's column: the step helped, judge('flag', …)",
    "formatted": "a fact of a judge's seat (native/judging): reasons, then one choice",
    "found": "your env's fact: numbers of the documents that were found (`native/rag` tells it)",
    "gained": "a fact of native/quest: reward of its goals that the turn reached",
    "gold_logprob": "mean token log-probability of the true answer before each turn, from a probe of the policy",
    "hint": "marks what was forced, per token or turn; the hints of palaestra.learning.stages add it",
    "hinted": "marks episodes that were shown a hint; the hints of palaestra.learning.stages add it",
    "hop": "a model of progress that compares two observations",
    "image_size": "a fact of a GUI env: (width, height) of the image",
    "inside": "your env's fact: the agent is in the zone",
    "leaf": "`turn_tree` (env.workflow) tells it: the turn ends a conversation",
    "label": "a fact of a judge's seat (native/judging): the side that is better, A or B",
    "log_ratio": "sequential_update() fills it: log π_new - log π_old of the turn",
    "look": "your env's fact: which attempt it is, 0 for the first (native/second_look)",
    "milestone": "your env's fact: number of the sub-goal that the turn completed",
    "most": "a fact of native/quest: the largest reward that its task can pay",
    "node": "name of the node of a tree of attempts that the row is; unique in its group",
    "outcome": "a fact of native/procedure: what the judge and the answerer got right",
    "pair": "a fact of native/discussion: number of the critique that is written or scored",
    "parent": "key of the node from which the row's segment was played on",
    "parsed": "your env's fact: the answer could be read (`native/discussion`, `native/lexicon` tell it)",
    "part": "a fact of `native/mixture`: which of its worlds the episode is in",
    "plan_depth": "`conducted` (env.workflow) tells it: layers of the team that a seat wrote",
    "plan_edges": "`conducted` (env.workflow) tells it: who hears whom in the team that a seat wrote",
    "plan_most": "`conducted` (env.workflow) tells it: most members that the task deserves",
    "plan_nodes": "`conducted` (env.workflow) tells it: members of the team that a seat wrote",
    "plan_read": "`conducted` (env.workflow) tells it: the team's answer could be read",
    "player": "number of the row's agent among those of coalition_values, from 0",
    "prefix_value": "PrefixCritic.value of the joint action so far",
    "pressure": "your env's fact: share of allies minus opponents in the zone",
    "prm_logprobs": "log-probabilities of the same tokens under a process reward model (a list)",
    "probabilities": "the policy's probabilities of all actions of the agent (a list)",
    "probe_accuracy": "probe_scores() of an answer that the policy was made to give after the turn",
    "probe_confidence": "probe_scores() of an answer that the policy was made to give after the turn",
    "process": "a fact of native/procedure: a process scorer's mark of a plan or of its execution",
    "progress": "a model of progress: decompose() of features, hop_progress() of hops, or your own column",
    "q": "TurnCritic.q of the turn's state and action",
    "r_dense": "palaestra.judges.programs.annotate() of a reward program",
    "r_sparse": "palaestra.judges.programs.annotate() of a reward program",
    "release": "your env's fact: what was held is let go",
    "replayed": "inject() adds it; r3() is for tables with replayed episodes",
    "result": "a fact of a judge's seat (native/judging): the choice is right",
    "right": "your env's fact: the speaker's answer is right, 1 or 0, on its own turns",
    "role": "a fact of native/discussion: solve, evaluate or score",
    "round": "a fact of native/discussion: round of the turn, from 0",
    "saved_observation": "`omission` (env.workflow) tells it: length of the responses that the action left out",
    "saved_thought": "`omission` (env.workflow) tells it: mean length of a message, where the thought is empty",
    "safe": "palaestra.judges.language_server: was the edit applied safely",
    "sampled": "omission_turns() adds it: the row is learned from",
    "score": "a process reward model's or judge's score of the turn",
    "segment": "a fact of the workflow `subgoals`: number of the subgoal that the turn went for",
    "subgoal_done": "a fact of the workflow `subgoals`: whether the subgoal's check passed after the turn",
    "target_box": "a fact of a GUI env: the right box, (left, top, right, bottom)",
    "task_progress": "your env's fact: share of the task that is done",
    "tau": "a fact of native/discussion: the score that was written, as a share of the best",
    "team": "the key of the agent's team; or give teams=team(), which goes by names",
    "text_loss": "text_loss() of the turn's text: nats per token of a language model",
    "v": "TurnCritic.value of the turn's state",
    "value": "a critic's value of the turn: TurnCritic.value, palaestra.learning.critics, play.restart.mc_value",
    "values": "values where each token's segment starts (a list), from play.restart.mc_value",
    "without": "the team's score had this row's agent taken its default action, played anew from a snapshot",
    "words": "a fact of native/exchange: words of the conversation so far",
    "yes": "your env's fact: an outcome model's P(yes) at the end of an episode (`native/phrases` tells it)",
}
"""How columns outside the schema that named methods read come about, where no provider knows better."""


def origin(name: str, columns: Iterable[str] = (), known: str | None = None) -> str:
    """Text that ends a message about a missing column: what the column is and what makes it.

    Another column is never offered just because it looks alike.

    known: what is said of a column of the schema where no provider knows better. Only where nothing is known of the
    name, a column of the table whose name differs by one slip is offered.
    """
    for provider in PROVIDERS:
        if (given := provider(name)) is not None:
            return f"; {given}"
    if known is not None:
        return known
    if name in MADE_BY:
        return f": {MADE_BY[name]}"
    have = list(columns)
    if close := [each for each in have if _misspelt(name, each)]:
        return nearest(name, close)
    return f"; nothing here makes it: add it with with_column(), the env or a stage. The table has {', '.join(have)}"


def _misspelt(name: str, other: str) -> bool:
    """Whether two names differ by one slip: a letter more, less or other, or two that changed places."""
    one, two = (each.casefold().replace("_", "") for each in (name, other))
    if abs(len(one) - len(two)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    rest, others = one[start:], two[start:]
    swapped = rest[:2] == others[:2][::-1] and rest[2:] == others[2:]
    return rest[1:] == others[1:] or rest[1:] == others or rest == others[1:] or swapped
