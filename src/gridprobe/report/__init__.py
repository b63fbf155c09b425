"""Views of an answer: text for a terminal, a PNG file and a self-contained HTML page.

    answer_view   the answer, the map, the times of the kept frames and the compute, for a terminal
    save_map      the grid of frames, tinted by importance, with the kept frames outlined
    save_report   a page with all of this, for one answer or more

All three use the same colours (colours.py) and wording (words.py).
"""

from gridprobe.report.answer_page import save_report
from gridprobe.report.png import save_map
from gridprobe.report.terminal import answer_view

__all__ = ["answer_view", "save_map", "save_report"]
