"""
title: gridprobe
description: Attach a video and ask. Answers with times, the frames that show it, and a link to the page.
required_open_webui_version: 0.12.0
"""  # fmt: skip # noqa: D205, D212, D415 - Open WebUI reads these lines
# A model for Open WebUI. Admin panel, Functions, New: paste this file, save, enable it; its gear sets server and key.
# `gridprobe serve` must be reachable for Open WebUI (`server`), and for browsers if the links are to work (`page`).
# Tried with Open WebUI 0.12.4: `make test-openwebui`.

import asyncio
import base64
import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, Field

Emit = Callable[[Mapping[str, Any]], Awaitable[None]]
WRITTEN_TASKS = ("title_generation", "tags_generation", "follow_up_generation", "emoji_generation")
"""Tasks for which the model of the server is asked to write; others, such as queries for a search, get no answer."""
FILE_TAGS = re.compile(r"<attached_files>.*?</attached_files>\s*", re.DOTALL)
"""What Open WebUI writes into a message with files."""
CHUNK = 1 << 20
MOST_UPLOADS = 256


class Pipe:
    """What Open WebUI looks for."""

    class Valves(BaseModel):
        """Settings that an administrator sees."""

        server: str = Field(default="http://127.0.0.1:8765", description="gridprobe serve, as Open WebUI reaches it")
        key: str = Field(
            default="", description="the key of that server", json_schema_extra={"input": {"type": "password"}}
        )
        page: str = Field(default="", description="its page, as browsers reach it; empty if that is the same address")
        frames: int = Field(default=4, ge=0, le=16, description="frames to show under an answer")
        seconds: float = Field(default=600.0, description="how long an answer may take")

    def __init__(self) -> None:
        self.valves = self.Valves()
        self._uploads: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def pipe(
        self,
        body: dict[str, Any],
        __files__: Sequence[Mapping[str, Any]] | None = None,
        __user__: Mapping[str, Any] | None = None,
        __metadata__: Mapping[str, Any] | None = None,
        __task__: str | None = None,
        __event_emitter__: Emit | None = None,
    ) -> str:
        """The answer to a chat, or the text of a task such as its title."""
        messages = _texts_of(body["messages"])
        user = str((__user__ or {}).get("id", ""))
        emit = __event_emitter__ or _nothing
        if __task__ and __task__ not in WRITTEN_TASKS:
            return ""
        question = (__metadata__ or {}).get("base_user_prompt")
        if question and not __task__ and messages:  # without the passages that Open WebUI found in files
            messages[-1]["content"] = FILE_TAGS.sub("", question)
        try:
            async with self._client() as client:
                files = [] if __task__ else await _videos_of(__files__ or (), user)
                reply = await self._ask(client, messages, files, user, emit)
                if files:
                    await self._show_frames(client, reply["gridprobe"], emit)
        except httpx.HTTPError as error:
            return f"gridprobe cannot be reached at {self.valves.server} ({type(error).__name__})."
        except ValueError as error:
            return str(error)
        finally:
            await emit({"type": "status", "data": {"description": "", "done": True, "hidden": True}})
        links = self._links(reply["gridprobe"], messages[-1]["content"]) if files else ""
        return f"{reply['content']}{links}"

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.valves.key}"} if self.valves.key else {}
        return httpx.AsyncClient(base_url=self.valves.server, headers=headers, timeout=self.valves.seconds)

    async def _ask(
        self,
        client: httpx.AsyncClient,
        messages: list[dict[str, Any]],
        files: Sequence[Any],
        user: str,
        emit: Emit,
    ) -> dict[str, Any]:
        """The reply; videos that the server has no more are uploaded again."""
        for attempt in range(2):
            parts = [
                {"type": "video_url", "video_url": {"url": await self._upload(client, file, emit)}} for file in files
            ]
            last = {"role": "user", "content": [*parts, {"type": "text", "text": messages[-1]["content"]}]}
            chat = {"model": "gridprobe", "messages": [*messages[:-1], last], "stream": True, "user": user}
            async with client.stream("POST", "/v1/chat/completions", json=chat) as reply:
                if reply.status_code == 404 and attempt == 0:
                    self._uploads.clear()
                    continue
                if reply.status_code != 200:
                    await reply.aread()
                    raise ValueError(_error_of(reply))
                return await _read(reply, emit)
        raise ValueError("gridprobe lost the video; attach it again.")

    async def _upload(self, client: httpx.AsyncClient, file: Any, emit: Emit) -> str:
        """The name that the server gives the content of a file; each file is sent once."""
        key = (self.valves.server, file.id)
        if key not in self._uploads:
            from open_webui.storage.provider import Storage  # of the program that runs this

            await emit({"type": "status", "data": {"description": f"sending {file.filename}", "done": False}})
            path = await asyncio.to_thread(Storage.get_file, file.path)
            reply = await client.post(
                "/v1/gridprobe/uploads",
                params={"name": file.filename[-500:]},
                content=_content(path),
                headers={"Content-Type": "application/octet-stream"},
            )
            if reply.status_code != 201:
                raise ValueError(_error_of(reply))
            self._uploads[key] = reply.json()["url"]
            while len(self._uploads) > MOST_UPLOADS:
                self._uploads.popitem(last=False)
        return self._uploads[key]

    async def _show_frames(self, client: httpx.AsyncClient, found: Mapping[str, Any], emit: Emit) -> None:
        """The frames of the main moments, as pictures under the answer."""
        pictures = []
        for each in _answered(found):
            moments = each["view"]["moments"][: self.valves.frames]
            for moment in moments:
                path = f"/v1/gridprobe/sessions/{each['session']}/frame.jpg"
                reply = await client.get(path, params={"t": moment["start"], "width": 320})
                if reply.status_code == 200:
                    url = f"data:image/jpeg;base64,{base64.b64encode(reply.content).decode()}"
                    pictures.append({"type": "image", "url": url, "name": moment["words"]})
        if pictures:
            await emit({"type": "files", "data": {"files": pictures[: self.valves.frames]}})

    def _links(self, found: Mapping[str, Any], question: str) -> str:
        """A link to the page for each video."""
        page = (self.valves.page or self.valves.server).rstrip("/")
        links = []
        for each in _answered(found):
            place = urlencode({"s": each["session"], "j": each["job"], "q": question})
            links.append(f"[{each.get('video') or 'Look at it'}]({page}/#{place})".replace("'", "%27"))
        return f"\n\n{' · '.join(links)}" if links else ""


async def _nothing(event: Mapping[str, Any]) -> None:
    """In place of an emitter, where nobody listens."""


def _texts_of(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The texts of a chat, without the tags and links that were added to them."""
    texts = []
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "\n".join(part["text"] for part in content if part.get("type") == "text")
        if message.get("role") == "assistant":
            content = content.partition("\n\n[")[0]
        texts.append({"role": message.get("role", "user"), "content": FILE_TAGS.sub("", content)})
    return texts


async def _videos_of(files: Sequence[Mapping[str, Any]], user: str) -> list[Any]:
    """The videos among the files of a chat, of those that the user owns: a request may name any id."""
    from open_webui.models.files import Files

    ids = dict.fromkeys(str(each.get("id") or (each.get("file") or {}).get("id")) for each in files)
    owned = [await Files.get_file_by_id_and_user_id(id, user) for id in ids]
    return [file for file in owned if file and str((file.meta or {}).get("content_type", "")).startswith("video/")]


async def _content(path: str) -> AsyncIterator[bytes]:
    with open(path, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


async def _read(reply: httpx.Response, emit: Emit) -> dict[str, Any]:
    """The text of a stream and what comes with it; its comments say how far it is."""
    content, found = "", dict[str, Any]()
    async for line in reply.aiter_lines():
        if line.startswith(": {"):
            progress = json.loads(line[2:]).get("progress")
            if progress:
                words = f"{progress['stage']}: {progress['done']} of {progress['total']}"
                await emit({"type": "status", "data": {"description": words, "done": False}})
        elif line.startswith("data: {"):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise ValueError(chunk["error"]["message"])
            content += "".join(each["delta"].get("content") or "" for each in chunk["choices"])
            found = chunk.get("gridprobe", found)
    return {"content": content, "gridprobe": found}


def _answered(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The results for the videos that were asked about."""
    return [each for each in found.get("videos", [found]) if "answer" in each]


def _error_of(reply: httpx.Response) -> str:
    try:
        return str(reply.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"gridprobe replied with status {reply.status_code}."
