"""What POST /v1/chat/completions takes, as pydantic models."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from gridprobe.serving.wire import Options, SettingsBody, Strict

__all__ = ["ChatBody", "GridProbeBody", "MediaKwargs", "MessageBody", "ProcessorKwargs", "VideoKwargs"]

Number = Annotated[FiniteFloat, Field(gt=0, le=1e6)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Pixels = Annotated[int, Field(ge=1, le=1 << 26)]


WITHOUT_INFLUENCE = (
    *("temperature", "top_p", "seed", "max_tokens", "max_completion_tokens"),
    *("frequency_penalty", "presence_penalty", "stop", "metadata"),
)


class GridProbeBody(SettingsBody):
    """Our own part of a request (`extra_body` of the openai client)."""

    options: Options | None = None
    map: bool = False
    content: Literal["label", "text", "both"] = Field(
        default="label", description="what the message says of a chosen option"
    )


class VideoKwargs(Strict):
    """Where the pictures of a request are in the video."""

    fps: Number | None = None
    frames_indices: list[Annotated[int, Field(ge=0)]] | None = Field(default=None, max_length=100_000)
    total_num_frames: Count | None = None
    duration: Number | None = None
    do_sample_frames: bool | None = None
    num_frames: Annotated[int, Field(ge=-1, le=1_000_000)] | None = None


class MediaKwargs(Strict):
    """vLLM's parameters for reading media."""

    video: VideoKwargs = VideoKwargs()


class ProcessorKwargs(Strict):
    """vLLM's and transformers' parameters for sampling and sizes."""

    fps: Number | None = None
    num_frames: Count | None = None
    max_pixels: Pixels | None = None
    min_pixels: Pixels | None = None
    do_sample_frames: bool | None = None


class MessageBody(BaseModel):
    """A message; its parts are checked one by one, since clients write them in many ways."""

    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[dict[str, Any]], Field(max_length=10_000)] | None = None
    name: str | None = None
    refusal: Any = None


class StreamOptions(BaseModel):
    """What a stream has besides the answer."""

    model_config = ConfigDict(extra="forbid")
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatBody(BaseModel):
    """A chat completion. Fields that cannot be honoured are refused; those without influence lead to a warning."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "model": "gridprobe",
                    "messages": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "video_url", "video_url": {"url": "file:///videos/talk.mp4"}},
                                {"type": "text", "text": "Which colour is the ball?"},
                            ],
                        }
                    ],
                    "gridprobe": {"options": ["red", "blue"]},
                }
            ]
        },
    )
    model: str = Field(max_length=500)
    messages: list[MessageBody] = Field(min_length=1, max_length=1000)
    gridprobe: GridProbeBody = GridProbeBody()
    media_io_kwargs: MediaKwargs = MediaKwargs()
    mm_processor_kwargs: ProcessorKwargs = ProcessorKwargs()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    user: str | None = Field(default=None, max_length=200)
    n: Literal[1] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    response_format: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    store: Literal[False] | None = None
    temperature: FiniteFloat | None = None
    top_p: FiniteFloat | None = None
    seed: int | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    frequency_penalty: FiniteFloat | None = None
    presence_penalty: FiniteFloat | None = None
    stop: str | list[str] | None = None

    def without_influence(self) -> list[str]:
        """Warnings about fields that do not change the answer."""
        given = [name for name in WITHOUT_INFLUENCE if getattr(self, name) is not None]
        return [f"{name} does not change the answers of this server" for name in given]
