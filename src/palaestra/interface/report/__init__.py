"""The HTML report: one self-contained page per run, attack, comparison, evaluation or triage."""

from __future__ import annotations

from palaestra.interface.report.attack import write_attack
from palaestra.interface.report.comparison import write_comparison
from palaestra.interface.report.evaluation import write_evaluation
from palaestra.interface.report.page import write_report
from palaestra.interface.report.triage import write_triage

__all__ = ["write_attack", "write_comparison", "write_evaluation", "write_report", "write_triage"]
