"""Find moments in a library of videos: `gridprobe index` and `gridprobe find`. Needs the extra `find` (LanceDB)."""

from gridprobe.registry import ASKING, Entry

__all__ = ["FIND", "INDEX"]

FIND = Entry("gridprobe_find.command:find", "Find all moments of a library that show something.", section=ASKING)
INDEX = Entry("gridprobe_find.command:index", "Index videos for find; only what is new is read.", section=ASKING)
