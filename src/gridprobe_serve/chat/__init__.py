"""Chats with clients of OpenAI and Anthropic: what they ask, the jobs that answer, and the reply in each API's form."""
