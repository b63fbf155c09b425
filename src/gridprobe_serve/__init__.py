"""gridprobe as a server (HTTP) and as a tool for agents (MCP)."""

from gridprobe.registry import SERVING, Entry

__all__ = [
    "MCP",
    "SERVE",
]

SERVE = Entry("gridprobe_serve.command:serve", "Answer questions over HTTP; has a page for browsers.", section=SERVING)
MCP = Entry("gridprobe_serve.command:mcp", "Give agents tools for videos (MCP).", section=SERVING)
