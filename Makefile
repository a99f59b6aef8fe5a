# Each task sets up what it needs in .venv, once. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help demo lab test test-kernels bench lint notebooks clean

VENV ?= .venv
export VENV PYTHON

help: ## list the tasks
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: ## run the tour headless, with a script of answers, and print what the journal says
	@scripts/setup demo
	@$(VENV)/bin/loom demo

lab: ## open JupyterLab on the notebooks
	@scripts/setup demo
	@$(VENV)/bin/loom lab notebooks/tour.ipynb

test: ## every check: format, lint, types, imports, front end, tests, notebooks
	@scripts/setup test
	@scripts/check

test-kernels: ## clicks and interrupts on ipykernel 6.31, 7.1 and the newest
	@scripts/setup test
	@scripts/test-kernels

bench: ## times beside bare fdatasync, DBOS and LangGraph, a journal of a million events, runs of 10,000 nodes
	@scripts/setup bench
	@$(VENV)/bin/python tests/bench/bench.py
	@$(VENV)/bin/python -m tests.bench.journal
	@$(VENV)/bin/python -m tests.bench.scale
	@$(VENV)/bin/python -m tests.bench.answer
	@$(VENV)/bin/python -m tests.bench.agents

lint: ## format and repair what can be repaired
	@scripts/setup test
	@$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix . && scripts/check types imports

notebooks: ## execute the notebooks anew and save them with their outputs
	@scripts/setup test
	@$(VENV)/bin/python scripts/save_notebooks.py

clean: ## remove what the tasks made
	rm -rf .venv .venv-kernels dist build tests/artifacts notebooks/out notebooks/.loom loom_kernel/notebook/static labextension/node_modules
