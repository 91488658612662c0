"""The HTML report: one self-contained page per run, and one per comparison of variants."""

from __future__ import annotations

from palaestra.report.comparison import write_comparison
from palaestra.report.page import write_report

__all__ = ["write_comparison", "write_report"]
