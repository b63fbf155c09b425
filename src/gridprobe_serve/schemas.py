"""What the routes take, as pydantic models; and how long the texts of any request may be."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, create_model

from gridprobe.errors import UsageError
from gridprobe.importance import MAX_K
from gridprobe.limits import LIMITS, WHOLE
from gridprobe.options import Setting, settings
from gridprobe.question import MAX_OPTIONS, Question
from gridprobe.video import Window
from gridprobe_serve.errors import ApiError

LONGEST = {"question": 20_000, "option": 2000, "subtitle text": 1_000_000}
"""Characters of each text of a request. How many of its tokens fit, the model says."""
Options = Annotated[list[str], Field(max_length=MAX_OPTIONS)]
User = Annotated[str | None, Field(max_length=200, description="who asks, of people who share a key: they take turns")]
Name = Annotated[str, Field(max_length=60)]
Ends = Annotated[list[FiniteFloat | None], Field(min_length=2, max_length=2)]
"""A window as JSON."""
Video = Annotated[str, Field(min_length=1, description="upload://ID, session://ID, a file's name, or a data: address")]


class Strict(BaseModel):
    """Unknown fields and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _field(setting: Setting) -> tuple[Any, Any]:
    """A field that may be left out; its numbers have bounds and its names are short."""
    bounds = Field(ge=setting.low, le=setting.high)
    special = {int: Annotated[int, bounds], float: Annotated[FiniteFloat, bounds], str: Name, Window: Ends}
    kinds = (*(special.get(kind, kind) for kind in setting.kinds), None)
    return Union[kinds], Field(default=None, description=setting.help)  # noqa: UP007


def _limit(name: str) -> tuple[Any, Any]:
    most = MAX_K**2 if name == "max_frames" else 2**40
    kind = Annotated[int, Field(ge=1, le=most)] if name in WHOLE else Annotated[FiniteFloat, Field(gt=0)]
    return kind | None, Field(default=None, description=LIMITS[name])


FIELDS = {
    **{setting.name: _field(setting) for setting in settings() if setting.request},
    **{name: _limit(name) for name in LIMITS if name != "max_gpu_memory"},
}
Settings = create_model("Settings", __base__=Strict, **FIELDS)  # type: ignore[call-overload]


class SettingsBody(Settings):  # type: ignore[misc, valid-type]
    """Settings of `gridprobe ask`, with the same words."""

    selector: Annotated[str, Field(pattern=r"^(gridprobe|uniform|random(:\d{1,9})?|all|all-small)$")] | None = None

    def changes(self) -> tuple[dict[str, Any], str]:
        """The settings that were given, and the selector."""
        settings = {name: value for name in SettingsBody.model_fields if (value := getattr(self, name)) is not None}
        return settings, settings.pop("selector", "gridprobe")


class SessionBody(Strict):
    """A video to open."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"video": "talk.mp4", "settings": {"k": 12}}]})
    video: Video
    settings: SettingsBody = SettingsBody()
    user: User = None


class PlanBody(Strict):
    """A question that may be asked, and how."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"question": "What happens?", "settings": {"k": 12}}]})
    settings: SettingsBody = SettingsBody()
    question: str = ""
    options: Options = Field(default_factory=list)

    def parse(self) -> Question | None:
        """The question; None for a typical one."""
        return make_question(self.question, self.options) if self.question.strip() else None


class AskBody(SessionBody):
    """A question about a video."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "video": "talk.mp4",
                    "question": "Which colour is the ball?",
                    "options": ["red", "blue"],
                    "settings": {"effort": "auto", "k": 12},
                    "map": True,
                },
                {"video": "upload://5f0c2d6e4b7a49f38f6d2b1c0a9e8d7c", "question": "What happens at the end?"},
            ]
        }
    )
    question: str
    options: Options = Field(default_factory=list, description="2 to 26; none makes it an open question")
    map: bool = Field(default=False, description="make the map also where the overview settles the question")
    subtitles: str = ""

    def parse(self) -> Question:
        """The question."""
        return make_question(self.question, self.options, self.subtitles)


def make_question(text: str, options: Sequence[str] = (), subtitles: str = "") -> Question:
    """The question of a request, over HTTP or from an agent; too long a text is refused with 413."""
    for name, each in (("question", text), ("subtitle text", subtitles), *(("option", option) for option in options)):
        check_length(name, each)
    try:
        return Question(text, options, subtitles=subtitles).distinct()
    except UnicodeError:
        raise UsageError("the question contains characters that are not valid text") from None


def check_length(name: str, text: str, *, param: str | None = None) -> None:
    """Refuse a text that is longer than its kind may be."""
    if len(text) > (most := LONGEST[name]):
        param = param or {"option": "options", "subtitle text": "subtitles"}.get(name, name)
        message = f"the {name} has {len(text):,} characters; at most {most:,} are allowed, so shorten it"
        raise ApiError(message, status=413, code="too_long", param=param)


Number = Annotated[FiniteFloat, Field(gt=0, le=1e6)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Pixels = Annotated[int, Field(ge=1, le=1 << 26)]


class GridProbeBody(SettingsBody):
    """Our own part of a request (`extra_body` of the openai client)."""

    options: Options | None = None
    map: bool | None = Field(default=None, description="as for `ask`; by default if times are said and it is cheap")
    content: Literal["sentence", "label", "text", "both"] | None = Field(
        default=None, description="what the message says; a sentence with times, or a label if `logprobs` are wanted"
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


Stop = Annotated[str, Field(max_length=200)]
OF_TEXT = "for a turn without a video"


class MessageBody(BaseModel):
    """A message; its parts are checked one by one, since clients write them in many ways."""

    model_config = ConfigDict(extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[dict[str, Any]], Field(max_length=10_000)] | None = None


class StreamOptions(BaseModel):
    """What a stream has besides the answer."""

    include_usage: bool | None = None


class ChatBody(BaseModel):
    """A chat completion. Any other field is ignored, and named in `gridprobe.warnings` of the reply."""

    model_config = ConfigDict(
        extra="allow",
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
    model: str = Field(max_length=500, description="`gridprobe`, or a name of GET /v1/models")
    messages: list[MessageBody] = Field(
        min_length=1, max_length=1000, description="videos in any of them, and the question in the last"
    )
    gridprobe: GridProbeBody = GridProbeBody()
    media_io_kwargs: MediaKwargs = MediaKwargs()
    mm_processor_kwargs: ProcessorKwargs = ProcessorKwargs()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    user: User = None
    n: Literal[1] | None = None
    response_format: dict[str, Any] | None = Field(
        default=None, description="`json_object` or `json_schema`: answer, start, end and confidence"
    )
    max_tokens: int | None = Field(default=None, ge=1, description="1 asks for a letter")
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: Annotated[FiniteFloat, Field(ge=0)] | None = Field(default=None, description=OF_TEXT)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = Field(default=None, description=OF_TEXT)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = Field(default=None, description=OF_TEXT)

    @property
    def most_tokens(self) -> int | None:
        """The most tokens of the reply."""
        return min((each for each in (self.max_tokens, self.max_completion_tokens) if each), default=None)

    def unknown(self) -> list[str]:
        """Fields that were not read, of the body and of its messages."""
        messages = {name: value for message in self.messages for name, value in (message.model_extra or {}).items()}
        named = [*(self.model_extra or {}).items(), *((f"{name} of a message", messages[name]) for name in messages)]
        return [name for name, value in named if value is not None]
