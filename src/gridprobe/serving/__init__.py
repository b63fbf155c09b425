"""gridprobe as a server (HTTP) and as a tool for agents (MCP)."""
