"""Judges: what asks a model or a tool, and fills columns. After that, all is algebra again.

Any policy can judge: a `ChatPolicy` for an OpenAI-compatible endpoint, a script in a test. Answers are cached.
"""

from palaestra.judges.aggregate import aggregate, both_orders, order_balance, swap_consistent
from palaestra.judges.asking import AnswerCache, ask
from palaestra.judges.base import PAIRS, SCORERS, VERDICTS, Judge, Scorer
from palaestra.judges.endpoint import Budget, Endpoint, Progress
from palaestra.judges.judged import Judged, PolicyAsker, judged
from palaestra.judges.language_server import LanguageServer, bundle_id
from palaestra.judges.ledger import Ledger
from palaestra.judges.messages import MessageLabels
from palaestra.judges.panels import Correct, CorrectingPanel, Debate, Panel, Vote, reflux
from palaestra.judges.rubric import Item, cases, judge, read_rubric, vote_columns, weights_of
from palaestra.judges.scorers import Ensemble, Labels, Verifier, ensemble, labels, verifier
from palaestra.judges.stub import StubJudge
from palaestra.judges.workspaces import Bundles, PythonSyntax, check_turns
from palaestra.judges.writer import asking

__all__ = [
    "PAIRS",
    "SCORERS",
    "VERDICTS",
    "AnswerCache",
    "Budget",
    "Bundles",
    "Correct",
    "CorrectingPanel",
    "Debate",
    "Endpoint",
    "Ensemble",
    "Item",
    "Judge",
    "Judged",
    "Labels",
    "LanguageServer",
    "Ledger",
    "MessageLabels",
    "Panel",
    "PolicyAsker",
    "Progress",
    "PythonSyntax",
    "Scorer",
    "StubJudge",
    "Verifier",
    "Vote",
    "aggregate",
    "ask",
    "asking",
    "both_orders",
    "bundle_id",
    "cases",
    "check_turns",
    "ensemble",
    "judge",
    "judged",
    "labels",
    "order_balance",
    "read_rubric",
    "reflux",
    "swap_consistent",
    "verifier",
    "vote_columns",
    "weights_of",
]
