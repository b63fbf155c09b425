"""What the help pages say in addition to the options: option groups, exit codes, completion and environment."""

__all__ = ["COMPLETION", "EXIT_CODES", "GROUPS", "TOPICS", "VARIABLES"]


GROUPS = {
    "Question": "option questions evidence subtitles",
    "Benchmark": "data out with ids limit n shard template",
    "Model": "model answer-model server device dtype attn device-map quantization",
    "Method": "selector selectors controls frames k effort sure refine probes rotations context open-way window "
    "preset order collage seed set epsilon delta",
    "Limits of a question": "max-frames max-tokens max-tflops max-seconds max-gpu-memory",
    "Limits and workers of the run": "total-tokens total-tflops total-seconds workers engine patience start-patience "
    "max-failures retry-failed redo-changed",
    "Server": "host port key allow-host grace http root",
    "Requests": "videos allow-urls queue together max-k session-age max-body max-upload quota session-bytes",
    "Decoding": "decode-timeout stream no-cache",
    "Output": "json details map report save-frames clip html dry-run quiet verbose help",
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
