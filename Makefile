# Two commands matter: `make run` and `make test`. Both set up everything they need.
PORT ?= 8000
HOST ?= 127.0.0.1
PYTHON ?= python3
UV_VERSION := 0.13.7
SBOM ?= sbom.json
BIN := .venv/bin
# One more than there are processors, because many tests wait.
TEST_PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Native tracebacks: CPython 3.11 may fail while pytest parses sources for its own.
PYTEST := $(BIN)/python -m pytest -q --tb native -n $(TEST_PROCESSES) --dist loadfile
UV := UV_PROJECT_ENVIRONMENT=.venv $(BIN)/uv
# Use the system's certificates: companies may have a proxy with a certificate of its own.
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/*.crt /etc/pki/tls/certs/*.crt),true,false)

.DEFAULT_GOAL := help
.PHONY: help install install-dev run test coverage lint format bench soak fit sbom audit clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

install: .venv/.installed ## install the product into .venv

install-dev: .venv/.installed-dev ## install the tools for tests and lint, too

.venv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Hlas needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing Hlas into .venv (about half a minute the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.installed: .venv/bin/uv pyproject.toml uv.lock
	@test ! -e $@ || echo "Bringing .venv up to date"
	@$(UV) sync --quiet --frozen --inexact --no-dev --extra semantic
	@touch $@

.venv/.installed-dev: .venv/.installed tools/install-system-packages
	@$(UV) sync --quiet --frozen --inexact
	@tools/install-system-packages
	@touch $@

run: install ## start Hlas on 127.0.0.1:8000 (PORT= and HOST= change it)
	@exec $(BIN)/hlas serve --host $(HOST) --port $(PORT)

lint: install-dev ## ruff, mypy, import-linter, and tsc if node is installed
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@tools/check-javascript

format: install-dev ## format the code and sort imports
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

# A test that fails beside others is run again alone, once: a real defect fails there, too.
test: lint ## lint, then every test
	@$(PYTEST) || { test $$? -eq 1 && echo "Running the failed tests again, alone" && \
		$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none; }

# Not part of `make test`: tracing takes half as much processor time again.
coverage: install-dev ## every test, and the lines of each file that none has run
	@$(PYTEST) --cov --cov-report=term

bench: install-dev ## compare with pgbench, a plain FastAPI service and model libraries (AGAINST= an older revision, ONLY= a part)
	@$(BIN)/python -m bench $(if $(AGAINST),--against $(AGAINST)) $(if $(ONLY),--only $(ONLY))

soak: install-dev ## the long fault, fuzz and leak runs
	@$(UV) sync --quiet --frozen --inexact --group fuzz
	@$(BIN)/python -m pytest -q -m soak --timeout 7200

fit: install-dev ## fit the confidence of the ranking to tools/ranking/data, and print how it does
	@$(BIN)/python -m tools.ranking

sbom: install ## write the bill of materials from the lock file, as CycloneDX (SBOM= the file)
	@$(UV) export --quiet --frozen --no-dev --all-extras --preview-features sbom-export --format cyclonedx1.5 --output-file $(SBOM) >/dev/null

audit: install ## check every locked version against the public advisory database
	@tools/audit

clean: ## remove everything the commands above created, except the data in .hlas
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .coverage* .hypothesis .import_linter_cache
