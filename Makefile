# Targets only wrap commands. `make help` lists them.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
STAGES := dvc.yaml compare/dvc.yaml release/dvc.yaml
# Debian installs servers in sbin, which is not always in the path.
export PATH := $(abspath $(VENV))/bin:$(PATH):/usr/sbin:/sbin
export DVC_NO_ANALYTICS := 1
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 pytest -n auto --dist worksteal \
  --ignore=tests/integration --ignore=tests/cluster
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup run demo test test-all test-kernels test-bare fuzz differential test-services cluster test-cluster campaign lint bench study docs images clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment and install everything into it (about 3 minutes, 2.5 GB)

$(STAMP): pyproject.toml constraints.txt
	@echo "== virtual environment in $(VENV), pinned by constraints.txt (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[all]'
	@touch $@

run: $(STAMP) ## the whole main job on embedded defaults: synthetic data, CPU, a local folder
	@echo "Someone says: forget my voice. This run trains a model on several modalities, deletes one of them from it, and"
	@echo "attacks the result. If no attack finds the modality, a certificate is signed, published and verified."
	@echo "Data, modality and method are those of params.yaml (unless you changed it: synthetic data, audio, surgery)."
	@echo "Everything is written to build/ on this machine, in about two minutes on two cores:"
	@echo
	@dvc stage list $(STAGES)
	@echo
	@dvc repro $(STAGES)
	@mbd report build/published --out build/certificate.html
	@echo
	@mbd show build
	@echo
	@cat build/comparison/comparison.txt
	@echo
	@mbd verify build/published --model build/deleted --store file://build/store --trust build/keys/trust.json
	@echo
	@echo "Read on: build/certificate.html   the certificate as a page, which verifies it in the browser"
	@echo "         build/leakage/report.md  every attack; build/evaluation-deleted/report.md: what the deletion cost"
	@echo "         README.md                the same with your own data or your own model"
	@echo "\`source $(VENV)/bin/activate\` puts mbd into your path"

demo: $(STAMP) ## the story over HTTP: a server, a worker and a client on this machine, in half a minute
	@python deploy/demo.py

test: $(STAMP) ## what a change breaks, in five minutes on two cores
	$(PYTEST) -m 'not slow'

test-all: $(STAMP) ## what else needs no server: studies, the handbook's commands, notebooks, pipelines, DVC, fuzzing
	$(PYTEST) -m slow
	@$(MAKE) --no-print-directory differential MUTATIONS=2500

NUMERIC := $(addprefix tests/,test_blocks.py training evaluation model/test_joint.py serving/inference) \
  $(patsubst %,tests/deletion/test_%.py,certified exact rounding saliency)

test-kernels: $(STAMP) ## numeric tests with the kernels that OpenBLAS and torch choose on other processors
	for kernels in Haswell/avx2 Prescott/default; do \
	  OPENBLAS_CORETYPE=$${kernels%/*} ATEN_CPU_CAPABILITY=$${kernels#*/} $(PYTEST) -m 'not slow' $(NUMERIC) || exit 1; done

test-bare: ## the auditor's install, without torch, kfp, dvc and boto3: certificates, storage, golden files
	$(PYTHON) -m venv $(VENV)-bare
	$(VENV)-bare/bin/pip install --quiet --require-hashes --requirement requirements-verifier.txt
	$(VENV)-bare/bin/pip install --quiet --no-deps --no-build-isolation .
	$(VENV)-bare/bin/pip install --quiet --constraint constraints.txt hypothesis jsonschema pytest pytest-xdist
	$(VENV)-bare/bin/python -m pytest -n auto -m 'not slow' tests/trust tests/log tests/verifier tests/history tests/certificate tests/golden tests/storage

fuzz: $(STAMP) ## changed files for every parser of files from outside, 60 seconds each (SECONDS_EACH=5: shorter)
	@mkdir -p build/fuzz
	@for name in $$(python -c 'from tests.fuzz.targets import TARGETS; print(*TARGETS)'); do \
	  (cd build/fuzz && PYTHONPATH=$(CURDIR) python -m tests.fuzz.fuzzer $$name $(or $(SECONDS_EACH),60)) || exit 1; done

MUTATIONS ?= 10000
differential: $(STAMP) ## 10,000 changed certificates for mbd verify, and for the page's script beside it (needs Node.js)
	MBD_MUTATIONS=$(MUTATIONS) $(PYTEST) tests/report/test_page_agrees_with_verify.py tests/certificate/test_tampering.py

test-services: $(STAMP) ## tests against real servers (installs them with apt, one with Go, and starts them on loopback)
	tests/integration/install-servers
	pytest -n 2 --dist loadfile --no-loadscope-reorder -m services tests/integration

cluster: $(STAMP) ## a real Kubernetes on this machine, in a network of its own, until Ctrl-C (compiles it once; needs Go)
	tests/cluster/prepare
	tests/cluster/apart python -m tests.cluster.start

test-cluster: $(STAMP) ## tests against a real Kubernetes with our image and manifests
	tests/cluster/prepare
	tests/cluster/apart pytest -m cluster tests/cluster

campaign: $(STAMP) ## remove and exchange every object of a store with 50 certificates: nothing invalid may become valid
	python -m tests.certificate.campaign

lint: $(STAMP) ## ruff and mypy --strict
	ruff check .
	ruff format --check .
	mypy

bench: $(STAMP) ## the performance claims, as ratios measured in one run
	@for file in benchmarks/*.py; do echo "== $$file"; PYTHONPATH=$(CURDIR) python $$file || exit 1; done

study: $(STAMP) ## the paper's tables and figures (NAME=ablation: one; DATA=FILE.npz: your data, or several; REVOKED=voice)
	@python -m studies $(NAME) $(if $(DATA),--data "$$DATA") $(if $(REVOKED),--revoked '$(REVOKED)')

docs: $(STAMP) ## build the handbook into build/site, without a network
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo "open build/site/index.html"

images: ## build the container images (needs a running docker)
	docker/build-images

clean: ## remove what the targets above made, but not the virtual environment
	rm -rf build studies/build dist .mypy_cache .ruff_cache .hypothesis src/*.egg-info
