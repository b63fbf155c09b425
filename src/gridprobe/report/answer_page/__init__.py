"""Answers as one self-contained HTML page."""

from gridprobe.report.answer_page.page import save_report

__all__ = ["save_report"]
