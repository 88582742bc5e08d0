PYTHON ?= python3
VENV := .venv

MODEL ?= exported/tiny
TEXT ?= README.md

.PHONY: demo test lint notebooks docs dist serving-proof clean

demo: $(VENV)/ready  ## train on the built-in corpus and translate unseen sentences
	$(VENV)/bin/python train.py

test: $(VENV)/ready  ## all tests, in processes by folders; make test FAST=1: without the slow ones
	$(VENV)/bin/python -m tools.run_tests $(if $(FAST),--fast)

lint: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

notebooks: $(VENV)/ready  ## execute the notebooks anew, from their text sources
	$(VENV)/bin/python notebooks/execute.py

docs: $(VENV)/ready  ## the site, in build/site; a warning or a lost link fails
	$(VENV)/bin/sphinx-build -q -W --keep-going -d build/doctrees docs build/site

dist: $(VENV)/ready  ## wheel and source archive in dist, checked by twine
	rm -rf dist
	$(VENV)/bin/python -m build --outdir dist
	$(VENV)/bin/twine check --strict dist/*

serving-proof: $(VENV)/ready  ## TF Serving's own image, by Docker: make serving-proof MODEL=exported/mine TEXT=in.en
	$(VENV)/bin/python serving/proof.py $(MODEL) $(TEXT)

$(VENV)/ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable ".[dev,plot]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
