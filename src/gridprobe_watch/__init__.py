"""Looking at a video without a model: contact sheets with times, shots and subtitles, for agents that see pictures."""

from gridprobe.registry import ASKING, Entry

__all__ = ["WATCH"]

WATCH = Entry("gridprobe_watch.command:watch", "Make contact sheets with times, for agents and people.", section=ASKING)
