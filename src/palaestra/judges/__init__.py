"""Judges: what asks a model or a tool, and fills columns. After that, all is algebra again.

Any policy can judge: a `ChatPolicy` for an OpenAI-compatible endpoint, a script in a test. Answers are cached.
"""

from palaestra.judges.asking import AnswerCache, ask
from palaestra.judges.base import PAIRS, SCORERS, VERDICTS, Scorer
from palaestra.judges.language_server import LanguageServer, bundle_id
from palaestra.judges.messages import MessageLabels
from palaestra.judges.rubric import Item, judge, vote_columns, weights_of
from palaestra.judges.workspaces import Bundles, PythonSyntax, check_turns
from palaestra.judges.writer import asking

__all__ = [
    "PAIRS",
    "SCORERS",
    "VERDICTS",
    "AnswerCache",
    "Bundles",
    "Item",
    "LanguageServer",
    "MessageLabels",
    "PythonSyntax",
    "Scorer",
    "ask",
    "asking",
    "bundle_id",
    "check_turns",
    "judge",
    "vote_columns",
    "weights_of",
]
