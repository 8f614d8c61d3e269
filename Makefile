# Targets only wrap commands. `make help` lists them.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ALL    := $(VENV)/.installed-all
STAGES := dvc.yaml compare/dvc.yaml release/dvc.yaml
# Debian installs servers in sbin, which is not always in the path.
export PATH := $(abspath $(VENV))/bin:$(PATH):/usr/sbin:/sbin
export DVC_NO_ANALYTICS := 1
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 pytest -n auto --dist worksteal \
  --ignore=tests/integration --ignore=tests/cluster
export PIP_DISABLE_PIP_VERSION_CHECK := 1
SHELL  := /bin/bash
.SHELLFLAGS := -o pipefail -c
INSTALL  := $(BIN)/pip install --progress-bar off --constraint constraints.txt
# Of what pip says: the large files that it fetches, and when it unpacks them.
PROGRESS := | sed -un -e '/^ *Downloading .*[0-9]\{3\}\.[0-9] MB/p' -e 's/^Installing collected packages:.*/   Unpacking them/p'

.DEFAULT_GOAL := help
.PHONY: help setup run dist demo test test-all test-kernels test-bare fuzz differential test-services cluster test-cluster test-kubeflow campaign lint bench study docs images clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(ALL) ## what `make test` needs, into the virtual environment (6.6 GB with CUDA): encoders, Kubeflow, linters

# torch is taken from TORCH_INDEX, an index with builds for CPUs only, if one is named: on Linux the ordinary one brings CUDA.
$(STAMP): pyproject.toml constraints.txt
	@echo "== packages of this run into $(VENV), as in constraints.txt; of torch $(if $(TORCH_INDEX),the build of $(TORCH_INDEX),the ordinary build, which brings CUDA (TORCH_INDEX=URL: another))"
	@$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),@$(INSTALL) --no-deps --index-url '$(TORCH_INDEX)' torch $(PROGRESS))
	@$(INSTALL) --editable '.[train,privacy,data]' $(PROGRESS)
	@touch $@

$(ALL): $(STAMP)
	@echo "== what tests and documentation need, too"
	@$(INSTALL) --editable '.[all]' $(PROGRESS)
	@touch $@

run: $(STAMP) ## the whole main job on embedded defaults (installs 5.5 GB with CUDA, less with TORCH_INDEX=URL)
	@echo "Someone says: forget my voice. This trains a model on several modalities, deletes one of them from it, and attacks"
	@echo "the result. If no attack finds the modality, a certificate is signed, published and verified. Everything is written"
	@echo "to build/; data, modality and method are those of params.yaml. A second run does only what a change has touched."
	@MBD_ISSUER="$${MBD_ISSUER:-Example issuer (make run)}" dvc repro $(STAGES) | sed -u -e '/^> /d; /lock file /d; /^$$/d; /^To /d; /^\t/d; /^Use /d; /^Ways to forget/d' -e "s/^Running stage '\(.*\)':/== \1/"
	@mbd -q report build/published --store file://build/store --trust build/keys/trust.json --out build/certificate.html > /dev/null
	@mbd -v verify build/published --model build/deleted --store file://build/store --trust build/keys/trust.json > build/verification.txt \
	  || { cat build/verification.txt; exit 1; }
	@echo
	@cat build/comparison/comparison.txt
	@echo
	@sed '/^$$/q' build/verification.txt
	@echo "Read on: build/certificate.html   the certificate as a page, which verifies it in the browser"
	@echo "         build/leakage/report.md  every attack; build/evaluation-deleted/report.md: what the deletion cost"
	@echo "         build/verification.txt   every check of the verification; \`mbd show\` lists the other files"
	@echo "         README.md                the same with your own data or your own model: mbd init"
	@echo "\`source $(VENV)/bin/activate\` puts mbd into your path"

dist: $(STAMP) ## wheel and source distribution in dist/, each built from what is committed
	@rm -rf dist build/dist
	@mkdir -p dist build/dist
	@$(INSTALL) --quiet setuptools
	@git archive HEAD | tar -x -C build/dist
	@cd build/dist && python -c 'import setuptools.build_meta as b; b.build_sdist("../../dist"); b.build_wheel("../../dist")' > ../dist.log 2>&1 \
	  || { cat ../dist.log; exit 1; }
	@rm -rf build/dist
	@ls -l dist

demo: $(ALL) ## a person's story over HTTP: server, worker and client on this machine; KEEP=1 leaves the console up
	@mbd demo $(if $(KEEP),--keep)

test: $(ALL) ## what a change breaks, in five minutes on two cores
	$(PYTEST) -m 'not slow'

test-all: $(ALL) ## what else needs no server: studies, the handbook's commands, notebooks, pipelines, DVC, fuzzing
	$(PYTEST) -m slow
	@$(MAKE) --no-print-directory differential MUTATIONS=2500

NUMERIC := $(addprefix tests/,test_blocks.py training evaluation model/test_joint.py serving/inference) \
  $(patsubst %,tests/deletion/test_%.py,certified exact rounding saliency)

test-kernels: $(ALL) ## numeric tests with the kernels that OpenBLAS and torch choose on other processors
	for kernels in Haswell/avx2 Prescott/default; do \
	  OPENBLAS_CORETYPE=$${kernels%/*} ATEN_CPU_CAPABILITY=$${kernels#*/} $(PYTEST) -m 'not slow' $(NUMERIC) || exit 1; done

test-bare: ## the auditor's install, without torch, kfp, dvc and boto3: certificates, storage, golden files
	$(PYTHON) -m venv $(VENV)-bare
	$(VENV)-bare/bin/pip install --quiet --require-hashes --requirement requirements-verifier.txt
	$(VENV)-bare/bin/pip install --quiet --no-deps --no-build-isolation .
	$(VENV)-bare/bin/pip install --quiet --constraint constraints.txt hypothesis jsonschema pytest pytest-xdist
	$(VENV)-bare/bin/python -m pytest -n auto -m 'not slow' tests/trust tests/log tests/verifier tests/history tests/certificate tests/golden tests/storage

fuzz: $(ALL) ## changed files for every parser of files from outside, 60 seconds each (SECONDS_EACH=5: shorter)
	@mkdir -p build/fuzz
	@for name in $$(python -c 'from tests.fuzz.targets import TARGETS; print(*TARGETS)'); do \
	  (cd build/fuzz && PYTHONPATH=$(CURDIR) python -m tests.fuzz.fuzzer $$name $(or $(SECONDS_EACH),60)) || exit 1; done

MUTATIONS ?= 10000
differential: $(ALL) ## 10,000 changed certificates for mbd verify, and for the page's script beside it (needs Node.js)
	MBD_MUTATIONS=$(MUTATIONS) $(PYTEST) tests/report/test_page_agrees_with_verify.py tests/certificate/test_tampering.py

test-services: $(ALL) ## tests against real servers (installs them with apt, one with Go, and starts them on loopback)
	tests/integration/install-servers
	pytest -n 2 --dist loadfile --no-loadscope-reorder -m services tests/integration

cluster: $(ALL) ## a real Kubernetes on this machine, in a network of its own, until Ctrl-C (compiles it once; needs Go)
	tests/cluster/prepare
	tests/cluster/apart python -m tests.cluster.start

test-cluster: $(ALL) ## tests against a real Kubernetes with our image and manifests
	tests/cluster/prepare
	tests/cluster/apart pytest -m cluster tests/cluster

test-kubeflow: $(ALL) ## the walk of docs/kubeflow.md and more on the Kubeflow of MBD_KFP_HOST and KUBECONFIG
	pytest -rs tests/kubeflow/test_on_a_real_one.py

campaign: $(ALL) ## remove and exchange every object of a store with 50 certificates: nothing invalid may become valid
	python -m tests.certificate.campaign

lint: $(ALL) ## ruff and mypy --strict
	ruff check .
	ruff format --check .
	mypy

bench: $(ALL) ## the performance claims, as ratios measured in one run
	@for file in benchmarks/*.py; do echo "== $$file"; PYTHONPATH=$(CURDIR) python $$file || exit 1; done

study: $(ALL) ## the paper's tables and figures (NAME=ablation: one; DATA=FILE.npz: your data, or several; REVOKED=voice)
	@python -m studies $(NAME) $(if $(DATA),--data "$$DATA") $(if $(REVOKED),--revoked '$(REVOKED)')

docs: $(ALL) ## build the handbook into build/site, without a network
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo "open build/site/index.html"

images: ## build the container images (needs a running docker)
	docker/build-images

clean: ## remove what the targets above made, but not the virtual environment
	rm -rf build studies/build dist .mypy_cache .ruff_cache .hypothesis src/*.egg-info
