"""Ask a model on vLLM, or on any other OpenAI-compatible server; needs pip install 'gridprobe[server]'.

vllm serve Qwen/Qwen3-VL-8B-Instruct --limit-mm-per-prompt '{"image": 160}' --max-model-len 65536
python examples/ask_vllm.py talk.mp4 "Which city comes first?" Oslo Rome --server http://localhost:8000/v1
"""

import argparse

import gridprobe as gp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("video")
parser.add_argument("question")
parser.add_argument("options", nargs="+")
parser.add_argument("--server", default="http://localhost:8000/v1", help="add #NAME if it serves several models")
parser.add_argument("--k", type=int, default=12, help="k² frames are sampled")
given = parser.parse_args()

model = gp.load_model(given.server)  # tests what the server can do
print("model:", model.identity)
answer = gp.ask(given.video, gp.Question(given.question, options=given.options), model=model, k=given.k)
print(f"answer: {answer.text} ({answer.confidence:.0%})")
print("read from frames at:", ", ".join(f"{time:.1f} s" for time in answer.selection.timestamps))
print("tokens:", answer.cost.total.tokens)
