# Each target does all of its own set-up; running one again is cheap.
#
#   PYTHON    the Python to build the environment with (3.10 or newer)
#   PIP_ARGS  more arguments for pip when it is built, e.g. to choose the build of torch (see README)

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=
BIN := .venv/bin
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)  # without it Jupyter refuses root, as whom containers run

# The lines of `make test`: tests and doctests, two files at a time; then every executed chapter, cell by cell, two
# at a time on one thread each.
TESTS := $(BIN)/python -m pytest -n 2 --dist loadfile
CHAPTERS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -o addopts= -n 2 --dist loadfile --nbval-lax chapters

# What `make test-lowest` runs: core, model, drafters, stores and training, and one file of a room above.
LOWEST := architectures convert datastore draft_model execution feature_drafters fetch generate gguf_file invariance laws \
    medusa models parallel records rest rules sampling set_up_cell stopping suffix_decoding training tree viz

.PHONY: help env model book html test test-lowest browser nbgrader lab clean

help:
	@echo "make book     execute every chapter, write figures/"
	@echo "make html     the executed chapters as static pages, in site/"
	@echo "make test     run tests, doctests and chapters"
	@echo "make test-lowest  core, model and drafters with the oldest versions that pyproject.toml admits"
	@echo "make browser  run every chapter in JupyterLab in a headless Chromium"
	@echo "make nbgrader grade a class with nbgrader and with specdec grade, and compare"
	@echo "make lab      open the book in JupyterLab"
	@echo "make model    fetch the default model          (the targets above do it)"
	@echo "make env      build the environment in .venv   (the targets above do it)"
	@echo "make clean    remove .venv and caches; the model stays in its own cache"

env:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "Python 3.10 or newer is needed, and '$(PYTHON)' is not one: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) tools/environment.py $(PIP_ARGS)

model: env
	@$(BIN)/specdec model fetch

book: model
	$(BIN)/python -m specdec_core.book.build

html: env
	$(BIN)/python -m specdec_core.book.site

test: model
	$(TESTS) $(PYTEST_ARGS)
	$(CHAPTERS) $(PYTEST_ARGS)

test-lowest: model
	@$(PYTHON) tools/environment.py --lowest $(PIP_ARGS)
	.venv-lowest/bin/python -m pytest -n 2 --dist loadfile $(LOWEST:%=tests/test_%.py) $(PYTEST_ARGS)

browser: model
	@$(BIN)/python -c "import playwright" 2>/dev/null || \
	    $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt $(PIP_ARGS) -e ".[browser]"
	$(BIN)/python -m pytest --confcutdir tests/browser tests/browser $(PYTEST_ARGS)

nbgrader: env
	@$(BIN)/python -c "import nbgrader" 2>/dev/null || \
	    $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt $(PIP_ARGS) -e ".[nbgrader]"
	$(BIN)/python -m pytest --confcutdir tests/course tests/course $(PYTEST_ARGS)

lab: model
	$(BIN)/jupyter lab $(AS_ROOT) --ServerApp.root_dir=$(CURDIR) --LabApp.default_url=/lab/tree/chapters/00_start_here.ipynb

clean:
	rm -rf .venv .venv.lock .venv-lowest .venv-lowest.lock .pytest_cache .ruff_cache .mypy_cache .hypothesis site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
