"""Judges: what asks a model or a tool, and fills columns. After that, all is algebra again.

Any policy can judge: a `ChatPolicy` for an OpenAI-compatible endpoint, a script in a test. Answers are cached.
"""

from palaestra.judges.aggregate import aggregate, both_orders, order_balance, swap_consistent
from palaestra.judges.argued import Argued
from palaestra.judges.asking import AnswerCache, ask
from palaestra.judges.corrupt import corrupt, replayed
from palaestra.judges.endpoint import Budget, Endpoint, Progress
from palaestra.judges.indicators import failed_messages, indicators_of
from palaestra.judges.judged import Judged, PolicyAsker, judged
from palaestra.judges.language_server import LanguageServer, bundle_id
from palaestra.judges.ledger import Ledger
from palaestra.judges.listed import Listed
from palaestra.judges.messages import MessageLabels
from palaestra.judges.pairs import (
    PAIRINGS,
    Pairing,
    best_vs_worst,
    current_vs_reference,
    hindsight,
    marked,
    pairs,
    siblings,
    verified_vs_corrupted,
)
from palaestra.judges.panels import Correct, CorrectingPanel, Debate, Panel, Vote
from palaestra.judges.protocol import PAIRS, SCORERS, VERDICTS, Judge, Scorer
from palaestra.judges.rubric import Item, cases, judge, read_rubric, vote_columns, weights_of
from palaestra.judges.scorers import Ensemble, HumanLabels, Verifier, ensemble, labels, verifier
from palaestra.judges.stub import StubJudge
from palaestra.judges.tooled import Cascade, ToolScorer
from palaestra.judges.workspaces import DiagnosticsCache, PythonSyntax, apply_edits, check_turns, locate
from palaestra.judges.writer import asking

__all__ = [
    "PAIRINGS",
    "PAIRS",
    "SCORERS",
    "VERDICTS",
    "AnswerCache",
    "Argued",
    "Budget",
    "Cascade",
    "Correct",
    "CorrectingPanel",
    "Debate",
    "DiagnosticsCache",
    "Endpoint",
    "Ensemble",
    "HumanLabels",
    "Item",
    "Judge",
    "Judged",
    "LanguageServer",
    "Ledger",
    "Listed",
    "MessageLabels",
    "Pairing",
    "Panel",
    "PolicyAsker",
    "Progress",
    "PythonSyntax",
    "Scorer",
    "StubJudge",
    "ToolScorer",
    "Verifier",
    "Vote",
    "aggregate",
    "apply_edits",
    "ask",
    "asking",
    "best_vs_worst",
    "both_orders",
    "bundle_id",
    "cases",
    "check_turns",
    "corrupt",
    "current_vs_reference",
    "ensemble",
    "failed_messages",
    "hindsight",
    "indicators_of",
    "judge",
    "judged",
    "labels",
    "locate",
    "marked",
    "order_balance",
    "pairs",
    "read_rubric",
    "replayed",
    "siblings",
    "swap_consistent",
    "verified_vs_corrupted",
    "verifier",
    "vote_columns",
    "weights_of",
]
