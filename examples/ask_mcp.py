"""Use gridprobe's tools as an agent does, by the Model Context Protocol; needs pip install 'gridprobe[mcp,local]'.

python examples/ask_mcp.py VIDEOS talk.mp4 "Which city comes first?" Oslo Rome
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters


async def main(folder: str, video: str, question: str, *options: str) -> None:
    """Start `gridprobe mcp`, list its tools, and ask."""
    arguments = ["-m", "gridprobe", "mcp", "--model", "embedded", "--preset", "gridworld", "--root", folder]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))
        asked = {"video": video, "question": question, "options": list(options)}
        found = await client.call_tool("ask_video", asked)
        print(found.structured_content)


asyncio.run(main(*sys.argv[1:]))
