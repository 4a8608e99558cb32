# The manual of this project: `make help` lists the targets. Works with GNU make 3.81 or newer and any POSIX shell.
#
#   PYTHON=python3.12      which Python makes the environment (3.11 or newer; found by itself where possible)
#   PIP_ARGS='...'         more arguments for pip, for example where to find PyTorch's CPU wheels
#   PORT=8000              first port tried for the book
#   LAB_ARGS='--no-browser'  more arguments for JupyterLab
#   PYTEST_ARGS='-k tree'  more arguments for pytest
#   WORKERS=2              processes that run tests side by side (0: all in one process, as for a debugger)

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
# The first Python on the path that is new enough; plain python3 when none is, so that the error message names it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; done; echo python3)
PIP_ARGS ?=
PORT ?= 8000
PYTEST_ARGS ?=
WORKERS ?= 2

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Kernels come from .venv, not from the user's home, and start without the debugger's remarks.
export JUPYTER_PREFER_ENV_PATH := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
export PIP_ARGS
# How long a thread of PyTorch on Linux turns in place before it sleeps. Left alone it does so for milliseconds, and beside one busy
# process a lesson takes many times as long; no turning at all would make each decode step a third slower on a quiet machine.
GOMP_SPINCOUNT ?= 10000
export GOMP_SPINCOUNT

# Stamps: a file that is newer than everything its step was made from, so that no step is done twice. Files alone count: the date of a
# folder changes with whatever is written beside them. A file that is gone has no date, so the list of names counts too.
INSTALLED := $(VENV)/.installed
LIBRARY := _build/.library
SITE := _build/.site

tree = $(shell find $(wildcard $(1)) -type f ! -path '*/.*' ! -path '*/__pycache__/*' ! -name '*.pyc' ! -name '* *')
LIBRARY_FILES := $(call tree,specdec autograder/checks)
SITE_FILES := $(wildcard _config.yml _toc.yml index.md references.bib scripts/chapter_numbers.py scripts/pack.py) $(call tree,chapters appendices figures _static site/vendor)

say = @printf '\n\033[1;35m==>\033[0m \033[1m%s\033[0m\n' $(1)

# -- environment ---------------------------------------------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c pass 2>/dev/null || { \
		echo "Error: '$(PYTHON)' does not run here. Install Python 3.11 or newer, or name it: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Error: '$(PYTHON)' is $$($(PYTHON) --version 2>&1), and this project needs Python 3.11 or newer." >&2; \
		echo "Install one, or name one that is there: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "Error: '$(PYTHON)' cannot make virtual environments. On Debian or Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	$(call say,"Making the environment in $(VENV)")
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(INSTALLED): pyproject.toml constraints.txt scripts/ipython_kernel_config.py | $(BIN)/python
	$(call say,"Installing into $(VENV) (the first time this takes a few minutes)")
	@$(BIN)/python -m pip install $(PIP_ARGS) -c constraints.txt -e '.[all]'
	@mkdir -p $(VENV)/etc/ipython && cp scripts/ipython_kernel_config.py $(VENV)/etc/ipython/
	@touch $@

env: $(INSTALLED)  ## make the environment in .venv

fetch: $(INSTALLED)  ## download the language model once (98 MB) into your cache directory
	@test -f "$$(cat $(VENV)/.model 2>/dev/null)" || { $(BIN)/specdec fetch && $(BIN)/python -c \
		'from specdec.models.checkpoints import smollm2_path; print(smollm2_path())' > $(VENV)/.model; }

# -- book ----------------------------------------------------------------------------------------------------------

_build/.names-%: FORCE
	@mkdir -p _build && printf '%s\n' $(sort $($*)) > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# Executed lessons are cached by their own text alone: forget them when the code that they import has changed.
$(LIBRARY): $(LIBRARY_FILES) _build/.names-LIBRARY_FILES $(INSTALLED)
	@rm -rf _build/.jupyter_cache
	@touch $@

$(SITE): $(SITE_FILES) _build/.names-SITE_FILES $(LIBRARY)
	$(call say,"Building the book (lessons that changed are run)")
	@$(BIN)/jupyter-book build . --all -W --keep-going -n
	@$(BIN)/python scripts/pack.py _build/html/specdec.zip
	@touch $@

book: fetch $(SITE)  ## build the book and serve it on localhost
	@$(BIN)/python scripts/serve.py _build/html --port $(PORT)

site: fetch $(SITE)  ## build the book into _build/html; a warning is an error
	@echo "The site is in _build/html"

# scripts/lab: a lesson opens as a notebook, no question about news, and none of the panes that nbgrader has for teachers.
lab: fetch  ## open JupyterLab on the chapters
	@root=; if [ "$$(id -u)" -eq 0 ]; then root=--allow-root; fi; \
	JUPYTER_CONFIG_PATH="$(CURDIR)/scripts/lab$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
	$(BIN)/jupyter lab $$root $(LAB_ARGS) chapters  # without --allow-root Jupyter refuses to run as root, as in a container

# -- checks --------------------------------------------------------------------------------------------------------

# Which tests stand in one process: tests/suite.py. Each process has one thread.
pytest = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --durations 10

test: fetch lint  ## test everything, without the long tests
	@$(pytest) -m 'not slow' $(PYTEST_ARGS)

test-all: fetch lint  ## run every test
	@$(pytest) $(PYTEST_ARGS)

test-turn: fetch lint  ## of the long tests, run those whose turn it is today
	@$(pytest) --turn "$$(date +%j | sed 's/^0*//')" $(PYTEST_ARGS)

lint: $(INSTALLED)  ## check the style of the code
	@$(BIN)/ruff check --quiet .

# -- course --------------------------------------------------------------------------------------------------------

exercises: $(INSTALLED)  ## write the student notebooks again from solutions/
	@$(BIN)/python -m autograder exercises

grade: $(INSTALLED)  ## grade a folder: make grade SUBMISSIONS=submitted OUT=graded
	@test -n "$(SUBMISSIONS)" && test -n "$(OUT)" || { \
		echo "Usage: make grade SUBMISSIONS=folder OUT=folder   (submissions are student/NN-slug/exercise.ipynb)" >&2; \
		echo "       and, where they are needed, ASSIGNMENT=NN-slug ROSTER=gradebook.csv SECRET_FILE=file" >&2; exit 2; }
	@$(BIN)/python -m autograder grade "$(SUBMISSIONS)" "$(OUT)" $(if $(ASSIGNMENT),--assignment "$(ASSIGNMENT)") \
		$(if $(ROSTER),--roster "$(ROSTER)") $(if $(SECRET_FILE),--secret-file "$(SECRET_FILE)")

zoo: $(INSTALLED)  ## judge the whole zoo: right, wrong and cheating submissions
	@$(BIN)/python -m autograder zoo --whole

gradescope: $(INSTALLED)  ## build Gradescope's autograder zip: make gradescope ASSIGNMENT=02-rejection-rule OUT=autograder.zip
	@test -n "$(ASSIGNMENT)" && test -n "$(OUT)" || { \
		echo "Usage: make gradescope ASSIGNMENT=NN-slug OUT=autograder.zip   (and SECRET_FILE=file, for seeds of your own)" >&2; exit 2; }
	@$(BIN)/python -m autograder gradescope-zip "$(ASSIGNMENT)" "$(OUT)" $(if $(SECRET_FILE),--secret-file "$(SECRET_FILE)")

# -- rest ----------------------------------------------------------------------------------------------------------

clean:  ## remove what was built; the environment and the model stay
	rm -rf _build .pytest_cache .ruff_cache
	find specdec autograder tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove the environment too
	rm -rf $(VENV) specdec.egg-info

help:  ## list the targets
	@bold=; plain=; if [ -t 1 ] && [ -z "$$NO_COLOR" ]; then bold=$$(printf '\033[1;36m'); plain=$$(printf '\033[0m'); fi; \
	echo "Usage: make TARGET"; echo; \
	awk -F ':.*##' -v bold="$$bold" -v plain="$$plain" \
		'/^[a-z-]+:.*##/ { sub(/^ +/, "", $$2); printf "  %s%-10s%s %s\n", bold, $$1, plain, $$2 }' $(MAKEFILE_LIST)

FORCE:

.PHONY: env fetch book site lab test test-all test-turn lint exercises grade zoo gradescope clean distclean help
