"""Views of an answer: text for a terminal, a picture and a self-contained HTML page.

    answer_view   for a terminal
    save_map      a PNG or JPEG file
    save_report   a page, for one answer or more

All three show the same in the same order: where the answer is, a timeline, the kept frames, the contact sheet, the
options, the stages and the bill. All read an `AnswerView` of view.py.
"""

from gridprobe.report.answer_page import save_report
from gridprobe.report.picture import save_map
from gridprobe.report.terminal import answer_view

__all__ = ["answer_view", "save_map", "save_report"]
