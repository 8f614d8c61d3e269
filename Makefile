# Targets only wrap commands. `make help` lists them.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Debian installs servers in sbin, which is not always in the path.
export PATH := $(abspath $(VENV))/bin:$(PATH):/usr/sbin:/sbin
export DVC_NO_ANALYTICS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup run test test-bare test-services cluster test-cluster lint bench study docs images clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment and install everything into it (about 3 minutes, 2.5 GB)

$(STAMP): pyproject.toml constraints.txt
	@echo "== virtual environment in $(VENV), pinned by constraints.txt (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[all]'
	@touch $@

run: $(STAMP) ## the whole main job on embedded defaults: synthetic data, CPU, a local folder
	dvc repro dvc.yaml release/dvc.yaml
	@mbd report build/published --out build/certificate.html
	@mbd show build
	@mbd verify build/published --model build/deleted
	@echo "look at build/certificate.html (a page that verifies in the browser), build/leakage/report.md, build/evaluation/report.md"
	@echo "\`source $(VENV)/bin/activate\` puts mbd into your path"

test: $(STAMP) ## all tests that need no server
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 pytest -n auto -m 'not services and not cluster'

test-bare: ## the auditor's install, without torch, kfp, dvc and boto3: certificates, storage, golden files
	$(PYTHON) -m venv $(VENV)-bare
	$(VENV)-bare/bin/pip install --quiet --constraint constraints.txt . hypothesis jsonschema pytest pytest-xdist
	$(VENV)-bare/bin/python -m pytest -n auto tests/certificate tests/golden tests/storage

test-services: $(STAMP) ## tests against real servers (installs them with apt, starts them on loopback)
	tests/integration/install-servers
	pytest -n 2 --dist loadfile -m services tests/integration

cluster: $(STAMP) ## a real Kubernetes on this machine, in a network of its own, until Ctrl-C (compiles it once; needs Go)
	tests/cluster/prepare
	tests/cluster/apart python -m tests.cluster.start

test-cluster: $(STAMP) ## tests against a real Kubernetes with our image and manifests
	tests/cluster/prepare
	tests/cluster/apart pytest -m cluster tests/cluster

lint: $(STAMP) ## ruff and mypy --strict
	ruff check .
	ruff format --check .
	mypy

bench: $(STAMP) ## the performance claims, as ratios measured in one run
	@for file in benchmarks/*.py; do echo "== $$file"; python $$file || exit 1; done

study: $(STAMP) ## the paper's tables and figures (NAME=ablation: one; DATA=FILE.npz: your data; REVOKED=voice)
	@python -m studies $(NAME) $(if $(DATA),--data '$(DATA)') $(if $(REVOKED),--revoked '$(REVOKED)')

docs: $(STAMP) ## build the handbook into build/site, without a network
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo "open build/site/index.html"

images: ## build the container images (needs a running docker)
	docker/build-images

clean: ## remove what the targets above made, but not the virtual environment
	rm -rf build studies/build dist .mypy_cache .ruff_cache .hypothesis src/*.egg-info
