"""Judges: what asks a model or a tool, and fills columns. After that, all is algebra again.

Any policy can judge: a `ChatPolicy` for an OpenAI-compatible endpoint, a script in a test. Answers are cached.
"""

from palaestra.judges.aggregate import aggregate, both_orders, order_balance, swap_consistent
from palaestra.judges.asking import AnswerCache, ask
from palaestra.judges.base import PAIRS, SCORERS, VERDICTS, Judge, Scorer
from palaestra.judges.corrupt import corrupt, replayed
from palaestra.judges.language_server import LanguageServer, bundle_id
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
from palaestra.judges.rubric import Item, judge, vote_columns, weights_of
from palaestra.judges.stub import StubJudge
from palaestra.judges.workspaces import Bundles, PythonSyntax, check_turns
from palaestra.judges.writer import asking

__all__ = [
    "PAIRINGS",
    "PAIRS",
    "SCORERS",
    "VERDICTS",
    "AnswerCache",
    "Bundles",
    "Item",
    "Judge",
    "LanguageServer",
    "MessageLabels",
    "Pairing",
    "PythonSyntax",
    "Scorer",
    "StubJudge",
    "aggregate",
    "ask",
    "asking",
    "best_vs_worst",
    "both_orders",
    "bundle_id",
    "check_turns",
    "corrupt",
    "current_vs_reference",
    "hindsight",
    "judge",
    "marked",
    "order_balance",
    "pairs",
    "replayed",
    "siblings",
    "swap_consistent",
    "verified_vs_corrupted",
    "vote_columns",
    "weights_of",
]
