# The README's two commands are `make run` and `make test`. Every target sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/runtime
READY := .venv/ready
# Compiled modules are kept: hundreds of processes start in the tests.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip --quiet --disable-pip-version-check

.PHONY: run test pytest check lint bench torture lock sbom clean

run: $(RUNTIME)
	@$(BIN)/cpcmon demo

# Together: the types take a minute on one core.
test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: $(READY)
	$(BIN)/pytest

# Lint, types and the quick tests that need no server, in less than two minutes.
check: lint
	$(BIN)/pytest -n 3 -m "not (kafka or browser or systemd or torture or slow)"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The table of ratios against an older commit, or another: make bench OLD=main
bench: $(READY)
	$(BIN)/python -m benchmarks.against $(if $(OLD),--old $(OLD))
	$(BIN)/python -m benchmarks.scrape $(if $(OLD),--old $(OLD))
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.kafka
	$(BIN)/python -m benchmarks.labels
	$(BIN)/python -m benchmarks.serve
	$(BIN)/python -m benchmarks.coverage
	$(BIN)/python -m benchmarks.segments
	$(BIN)/python -m benchmarks.performance
	$(BIN)/python -m benchmarks.change
	$(BIN)/python -m benchmarks.audit

# A thousand kills, every system call, hundreds of damaged states, long random histories, 200 faults of Kafka replicas, fuzzing. Less: make torture TORTURE="--kills 100 --points 5"
torture: $(READY)
	@$(PIP) install 'atheris>=3.0' || echo "ATHERIS CANNOT BE INSTALLED HERE: good files are changed at random instead" >&2
	$(BIN)/python -m tests.torture.torture $(TORTURE)

# What cpcmon needs to run: the locked versions, then the package itself without asking for more.
$(RUNTIME): requirements.lock pyproject.toml
	@echo "setting up .venv (once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 is older than 3.11: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "could not create .venv: on Debian, apt-get install python3-venv" >&2; exit 1; }
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --editable .
	@touch $@

# What its development needs besides, in the same environment.
$(READY): $(RUNTIME) requirements-dev.lock
	@echo "adding the development tools to .venv (once)"
	$(PIP) install -r requirements-dev.lock
	@touch $@

lock: $(READY)
	$(BIN)/pip-compile --quiet --upgrade --extra dev --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements-dev.lock pyproject.toml
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --constraint requirements-dev.lock --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml

# What an installation from requirements.lock consists of, in CycloneDX JSON.
sbom: $(READY)
	@$(BIN)/python deploy/sbom.py requirements.lock

clean:
	rm -rf .venv .demo .bench .screenshots build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
