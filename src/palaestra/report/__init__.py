"""The HTML report: one self-contained page per run, comparison, evaluation or triage."""

from __future__ import annotations

from palaestra.report.comparison import write_comparison
from palaestra.report.evaluation import write_evaluation
from palaestra.report.page import write_report
from palaestra.report.triage import write_triage

__all__ = ["write_comparison", "write_evaluation", "write_report", "write_triage"]
