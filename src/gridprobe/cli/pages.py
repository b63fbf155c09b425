"""What the help pages say beside the options: the verbs by section, examples, option groups and exit codes."""

from typing import NamedTuple

__all__ = ["COMPLETION", "EXIT_CODES", "GROUPS", "SECTIONS", "TOPICS", "VARIABLES", "VERBS", "Page"]


class Page(NamedTuple):
    """The help of one verb."""

    summary: str
    """What stands beside its name in the list of verbs; whole at 80 columns."""
    examples: tuple[str, ...]
    """Command lines that work as they are, but for the names of files."""


VERBS = {
    "ask": Page(
        "Ask a question about a video; see where the answer is.",
        (
            "gridprobe ask talk.mp4 'Which city comes first?' -o Oslo -o Rome -o Lima -m Qwen/Qwen3-VL-2B-Instruct",
            "gridprobe ask talk.mp4 'What does the sign say?' -m ./checkpoint --map answer.png",
            "gridprobe ask talk.mp4 --questions questions.jsonl -m http://localhost:8000/v1#NAME --json",
            "gridprobe ask talk.mp4 'Who scores?' -o red -o blue --max-seconds 20 --clip goal.mp4",
        ),
    ),
    "compare": Page(
        "Ask one question with several selectors, side by side.",
        (
            "gridprobe compare talk.mp4 'Which city?' -o Oslo -o Rome --selectors gridprobe,siglip,aks --frames 8",
            "gridprobe compare talk.mp4 'Which city?' -o Oslo -o Rome --evidence 12-15 --html compare.html",
        ),
    ),
    "plan": Page(
        "Estimate the cost of a question or of an evaluation.",
        (
            "gridprobe plan talk.mp4 -m Qwen/Qwen3-VL-8B-Instruct",
            "gridprobe plan talk.mp4 --max-tokens 4000",
            "gridprobe plan mlvu --data data/mlvu -m Qwen/Qwen3-VL-2B-Instruct",
        ),
    ),
    "demo": Page(
        "Try the method on two generated videos; needs no data.",
        ("gridprobe demo", "gridprobe demo --out /tmp/demo"),
    ),
    "eval": Page(
        "Ask all questions of a benchmark; run again to resume.",
        (
            "gridprobe eval gridworld --data data/gridworld --out runs/first --limit 20",
            "gridprobe eval mlvu --data data/mlvu --out runs/mlvu -m Qwen/Qwen3-VL-2B-Instruct --workers 2",
            "gridprobe eval jsonl --data mine.jsonl --out runs/mine -m ./checkpoint --selector uniform --frames 8",
        ),
    ),
    "status": Page(
        "Show the progress and the workers of an evaluation.",
        ("gridprobe status runs/first", "gridprobe status runs/first --json"),
    ),
    "score": Page(
        "Show accuracy and compute of evaluations.",
        (
            "gridprobe score runs/first",
            "gridprobe score runs/first runs/uniform --all",
            "gridprobe score runs/first --by duration --format markdown",
        ),
    ),
    "report": Page(
        "Save evaluations as one HTML page.",
        ("gridprobe report runs/first runs/uniform -o report.html",),
    ),
    "figure": Page(
        "Draw the paper's figures from evaluations.",
        ("gridprobe figure compute runs/k6 runs/k12 -o compute.svg", "gridprobe figure skew runs/first -o skew.png"),
    ),
    "judge": Page(
        "Let a model judge the answers in words of a run.",
        ("gridprobe judge runs/open -m Qwen/Qwen3-VL-8B-Instruct",),
    ),
    "calibrate": Page(
        "Find how sure the overview must be to answer.",
        ("gridprobe calibrate jsonl --data mine.jsonl -m ./checkpoint -n 200",),
    ),
    "verify-data": Page(
        "Check the files of a benchmark before a long run.",
        ("gridprobe verify-data mlvu --data data/mlvu", "gridprobe verify-data jsonl --data mine.jsonl --deep"),
    ),
    "export-keyframes": Page(
        "Save which frames a run kept.",
        ("gridprobe export-keyframes runs/first -o frames.json",),
    ),
    "export-predictions": Page(
        "Save a run's answers for an evaluation server.",
        ("gridprobe export-predictions runs/lvb -o predictions.json",),
    ),
    "serve": Page(
        "Answer questions over HTTP; has a page for browsers.",
        ("gridprobe serve -m Qwen/Qwen3-VL-2B-Instruct --videos videos", "gridprobe serve --port 9000"),
    ),
    "mcp": Page(
        "Give agents tools for videos (MCP).",
        ("gridprobe mcp -m ./checkpoint --root videos", "gridprobe mcp --http --port 8766"),
    ),
    "doctor": Page(
        "Check the installation, or a model.",
        ("gridprobe doctor", "gridprobe doctor -m Qwen/Qwen3-VL-2B-Instruct"),
    ),
    "list": Page(
        "List models, selectors, settings, benchmarks and more.",
        ("gridprobe list selectors", "gridprobe list settings"),
    ),
    "help": Page(
        "Show the help of a verb, or of a topic.",
        ("gridprobe help ask", "gridprobe help exit-codes"),
    ),
    "figure compute": Page("", ("gridprobe figure compute -m Qwen/Qwen3-VL-2B-Instruct --k 6,8,12 -o compute.svg",)),
    "figure skew": Page("", ("gridprobe figure skew runs/first runs/all -o skew.svg",)),
    "figure regime": Page("", ("gridprobe figure regime runs/first --ids q17,q23 -o regime.png",)),
}

SECTIONS = {
    "Ask about a video": ("ask", "compare", "plan", "demo"),
    "Evaluate on a benchmark": ("eval", "status", "score", "report", "figure", "judge", "calibrate"),
    "Files of benchmarks and runs": ("verify-data", "export-keyframes", "export-predictions"),
    "Serve others": ("serve", "mcp"),
    "Help and names": ("help", "list", "doctor"),
}

GROUPS = {
    "Question": "option questions evidence subtitles",
    "Benchmark": "data out with ids limit n shard template",
    "Model": "model answer-model server device dtype attn device-map quantization",
    "Method": "selector selectors controls frames k effort sure refine probes signal rotations context open-way window "
    "preset order collage seed set epsilon delta",
    "Limits of a question": "max-frames max-tokens max-tflops max-seconds max-gpu-memory",
    "Limits and workers of the run": "total-tokens total-tflops total-seconds workers engine patience start-patience "
    "max-failures retry-failed redo-changed",
    "Server": "host port key allow-host grace http root",
    "Requests": "videos allow-urls queue together max-k session-age max-body max-upload quota session-bytes",
    "Decoding": "decode-timeout decoder stream no-cache",
    "Output": "json json-version details map report save-frames clip html dry-run quiet verbose help",
}
"""The options under each heading of a long help page."""

EXIT_CODES = {
    0: "success",
    1: "the video, model, data or run has a problem; doctor and verify-data found something broken",
    2: "the command line is wrong: an unknown option, a value that breaks a rule, a file that cannot be written",
    130: "interrupted by Ctrl-C; an evaluation is resumed by the same command",
    143: "an evaluation ended by SIGTERM, in order as by Ctrl-C; SIGHUP gives 129 and SIGUSR1 138",
}

COMPLETION = """\
Completion of verbs, options and names (selectors, benchmarks, presets, models):

  bash   eval "$(_GRIDPROBE_COMPLETE=bash_source gridprobe)"    in ~/.bashrc
  zsh    eval "$(_GRIDPROBE_COMPLETE=zsh_source gridprobe)"     in ~/.zshrc
  fish   _GRIDPROBE_COMPLETE=fish_source gridprobe | source     in ~/.config/fish/config.fish
"""

VARIABLES = """\
Environment variables:

  GRIDPROBE_MODEL        the model of ask, eval and others without --model
  GRIDPROBE_JUDGE        the model of judge
  GRIDPROBE_KEY          what clients of serve and mcp --http must send
  GRIDPROBE_API_KEY      the key for a model's server
  GRIDPROBE_CACHE        folder of the frame cache; off disables it
  GRIDPROBE_CALIBRATION  folder of the calibrations; off disables them
  GRIDPROBE_VERBOSE      if set, as --verbose
  HF_HOME, HF_TOKEN      where models are downloaded to, and the token for them
  NO_COLOR               if set, no colours
"""

TOPICS = {
    "exit-codes": "Exit codes:\n\n" + "".join(f"  {code:<4} {meaning}\n" for code, meaning in EXIT_CODES.items()),
    "completion": COMPLETION,
    "environment": VARIABLES,
}
