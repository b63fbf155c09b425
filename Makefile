# Everything a developer or CI needs. Each target installs what is missing into .venv and changes nothing else on the machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: setup demo test test-slow test-oldest lint fmt bench bench-decode bench-engine experiment clean
.DEFAULT_GOAL := test

setup: $(VENV)/.dev

# torch first and by its exact pin: a looser requirement may pull gigabytes of CUDA libraries (see CONTRIBUTING.md).
$(VENV)/.runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing gridprobe and its model runtime into $(VENV) (about a minute and a half, once)"
	$(PIP) install -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(PIP) install -c constraints.txt -e '.[local]'
	@touch $@

# torchvision is only a reference for the tests and may not work beside a CPU build of torch, so it is installed separately.
$(VENV)/.dev: $(VENV)/.runtime
	@echo "installing the development tools into $(VENV)"
	$(PIP) install -c constraints.txt -e '.[dev]'
	rm -rf $(VENV)/reference
	$(PIP) install --no-deps --target $(VENV)/reference "$$(sed -n 's/^# reference: //p' constraints.txt)"
	@touch $@

demo: $(VENV)/.runtime
	$(BIN)/gridprobe demo

# Two processes, a test file each: 3 min 56 s on 2 idle cores instead of 6 min 1 s in one.
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -m slow --timeout 3600 -o faulthandler_timeout=4000

# The oldest supported transformers and PyAV, in a separate environment.
test-oldest: $(VENV)-oldest/.installed
	$(VENV)-oldest/bin/python -m pytest tests/backends tests/test_pipeline.py tests/video

$(VENV)-oldest/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip --quiet install "$$(grep '^torch==' constraints.txt)"
	$(VENV)-oldest/bin/python -m pip --quiet install -e '.[dev]' transformers==5.17.0 av==17.1.0
	$(VENV)-oldest/bin/python -m pip --quiet install --no-deps --target $(VENV)-oldest/reference \
	    "$$(sed -n 's/^# reference: //p' constraints.txt)"
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python speed/sampling.py

# Against decord, OpenCV and torchcodec: make bench-decode RIVALS=/tmp/bench-venv/bin/python (see speed/requirements.txt)
bench-decode: setup
	$(BIN)/python speed/decode.py $(if $(RIVALS),--rival-python $(RIVALS))

# On a GPU: make bench-engine ENGINE="--sizes 2B 8B --compile"
ENGINE ?= --model embedded
bench-engine: setup
	$(BIN)/python speed/engine.py $(ENGINE)

# The embedded models and the method on 600 unseen questions (docs/embedded-models.md): about an hour on 2 cores, by estimate.
# The same command resumes it. Two runs of random frames at the end: with the evidence, and without it (calibration).
RUN ?= gridworld-run
COUNT ?= 600
RENDERED = $(BIN)/gridprobe eval gridworld --data $(RUN)/videos --with source=rendered --with count=$(COUNT) --preset gridworld
experiment: setup
	$(RENDERED) --out $(RUN)/all --model embedded --selector all
	$(RENDERED) --out $(RUN)/gridprobe --model embedded
	$(RENDERED) --out $(RUN)/uniform-like --model embedded --selector uniform-like
	$(RENDERED) --out $(RUN)/gridprobe-8 --model embedded --frames 8
	$(RENDERED) --out $(RUN)/uniform-8 --model embedded --selector uniform --frames 8
	$(RENDERED) --out $(RUN)/nano-chooses --model embedded:nano --answer-model embedded
	$(RENDERED) --out $(RUN)/random-8 --model embedded --selector random --frames 8
	$(RENDERED) --out $(RUN)/hidden-8 --model embedded --selector random --frames 8 --with evidence=hidden
	$(BIN)/gridprobe score --by family $(addprefix $(RUN)/,all gridprobe uniform-like gridprobe-8 uniform-8 nano-chooses random-8)
	$(BIN)/gridprobe score --by family $(RUN)/hidden-8

clean:
	rm -rf $(VENV) $(VENV)-oldest build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
