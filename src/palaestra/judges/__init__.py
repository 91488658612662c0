"""Judges: annotators that ask a model and add what it says; after that, all is algebra again.

Any policy can judge: a `ChatPolicy` for an OpenAI-compatible endpoint, a script in a test. Answers are cached.
"""

from palaestra.judges.asking import AnswerCache, ask
from palaestra.judges.messages import MessageLabels
from palaestra.judges.rubric import Item, judge, vote_columns, weights_of

__all__ = ["AnswerCache", "Item", "MessageLabels", "ask", "judge", "vote_columns", "weights_of"]
