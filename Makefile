# Two commands: `make demo` trains a team and proves it; `make test` is what CI runs. The rest is for contributors.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test install lint types unit bench parity clean

demo: $(INSTALLED)
	$(BIN)/palaestra train solver-checker --out runs/demo

test: lint types unit

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip==26.3
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED)
	$(BIN)/mypy

unit: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

bench: $(INSTALLED)
	for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist runs
