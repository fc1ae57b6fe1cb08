# The two commands of the README, and the developer's shortcuts.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: tune test lint clean

tune: $(VENV)/.installed  ## Find the largest batch on the bundled digits data.
	$(RUN) -m vrgd_ray.tune

test: $(VENV)/.installed  ## Run the tests.
	$(RUN) -m pytest

lint: $(VENV)/.installed  ## Style and types.
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:  ## Remove the environment; results in runs/ stay.
	rm -rf $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; assert sys.version_info >= (3, 10), 'vrgd_ray needs Python 3.10 or newer'"
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[test]' -c constraints.txt
	touch $@
