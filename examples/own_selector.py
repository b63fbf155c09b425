"""A selector of your own: the frames in which most has changed since the frame before.

python examples/own_selector.py talk.mp4 "Which city comes first?" Oslo Rome
"""

import sys

import numpy as np

import gridprobe as gp


class Motion(gp.Selector):
    """The frames that differ most from the frame before."""

    name = "motion"
    input_size = gp.FrameSize(max_side=64)  # the size it wants to see; None if it needs no pixels

    def select(self, pool: gp.FramePool, question: gp.Question) -> gp.Selection:
        """Keep eight frames, in time order."""
        change = np.abs(np.diff(pool.pixels.astype(float), axis=0)).mean(axis=(1, 2, 3))
        kept = tuple(sorted(int(place) + 1 for place in np.argsort(change)[-8:]))
        return gp.Selection.of(self.name, pool, kept)


video, text, *options = sys.argv[1:]
question = gp.Question(text, options=options)
for selector in (Motion(), "gridprobe"):
    answer = gp.ask(video, question, model="embedded", preset="gridworld", effort="full", selector=selector)
    print(answer.selection.selector, answer.text, [round(time, 1) for time in answer.selection.timestamps])
