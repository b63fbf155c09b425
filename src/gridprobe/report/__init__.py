"""An answer as something to look at: lines for a terminal, a PNG, and one self-contained HTML page.

    answer_view   the answer, the map in colours or characters, the kept times and the compute, for a terminal
    save_map      the grid of frames, tinted by importance, the kept ones framed
    save_report   a page with all of it, for any number of answers

The three share colours (colours.py) and wording (words.py), so a cell looks and reads the same everywhere.
"""

from gridprobe.report.answer_page import save_report
from gridprobe.report.png import save_map
from gridprobe.report.terminal import answer_view

__all__ = ["answer_view", "save_map", "save_report"]
