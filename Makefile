# make build         build everything, and install the package and the program into .venv
# make test          run all tests
# make test-portable run the numerical tests with the instruction sets of other CPUs and with up to 8 threads
# make test-torch TORCH=2.15.0          run the package's tests with another version of torch
# make wheels TORCH="2.13.0 2.15.0"     build one wheel for these versions, and a source distribution, in dist
# make test-wheels TORCH="2.13.0 2.15.0"  install both with each version, and test them
# make recipes       run docs/recipes.md with the real frameworks (about 6 GB, in build-recipes)
# make docs          build the documentation as a web site in build-docs/site
# make demo          compare four optimizers on a small model
# make bench         run benchmarks against other libraries
# make bench-avx2    measure the ratios as on a CPU with AVX2
# make bench-parts   run micro-benchmarks of the parts of a step
# make lint          check style, and run static analysis
# make format        format the sources
# make asan          run the C++ tests and the program under AddressSanitizer and UBSan, with clang
# make tsan          run the parallel parts under ThreadSanitizer
# make fuzz          run each fuzz target for SECONDS=60
# make clean         remove build products, but not .venv
#
# The targets need make, git and python3. scripts/setup.sh installs the other packages or lists those that are missing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
.PHONY: build test test-portable test-torch wheels test-wheels recipes docs demo bench bench-avx2 bench-parts lint asan tsan fuzz format clean

PYTHON ?= python3
export PYTHON
PIP := .venv/bin/python -m pip --disable-pip-version-check --no-input

SOURCES := $(shell find CMakeLists.txt pyproject.toml README.md LICENSE cmake tensorion lab tests benchmarks \
	python/CMakeLists.txt python/src python/tensorion python/tensorion_lab -type f -not -name '*.pyc' \
	-not -path 'tests/program/*' -not -path 'tests/docs/*' 2>/dev/null)

build: build/.installed

.venv/.ready: scripts/setup.sh scripts/requirements.txt
	scripts/setup.sh
	$(PYTHON) -m venv .venv
	$(PIP) install -qq pip==26.3
	$(PIP) install -qq --requirement scripts/requirements.txt
	touch $@

# The tests, the program and the package share one CMake build. If CI is set, scikit-build-core waits longer for cmake on
# a busy machine.
build/.installed: .venv/.ready $(SOURCES)
	CI=true $(PIP) install --verbose --no-build-isolation --no-deps \
		--config-settings=build-dir=build \
		--config-settings=cmake.define.TENSORION_TESTS=ON \
		--config-settings=cmake.define.TENSORION_LAB=ON \
		--config-settings=cmake.define.TENSORION_TORCH_RPATH=ON .
	touch $@

# Runs pytest even if ctest fails.
test: build
	cmake --build build --target tensorion_tests
	@status=0; \
	ctest --test-dir build --output-on-failure --no-tests=error --parallel 2 || status=1; \
	.venv/bin/python -m pytest -q || status=1; \
	exit $$status

test-portable: build
	cmake --build build --target tensorion_tests
	scripts/test_portable.sh

test-torch:
	@test -n "$(TORCH)" || { echo 'Specify a version of torch: make test-torch TORCH=2.15.0' >&2; exit 2; }
	scripts/setup.sh
	scripts/test_torch.sh $(TORCH)

wheels:
	@test -n "$(TORCH)" || { echo 'Specify versions of torch: make wheels TORCH="2.13.0 2.15.0"' >&2; exit 2; }
	scripts/setup.sh
	scripts/make_wheels.sh $(TORCH)

test-wheels:
	@test -n "$(TORCH)" || { echo 'Specify versions of torch: make test-wheels TORCH="2.13.0 2.15.0"' >&2; exit 2; }
	scripts/test_wheels.sh $(TORCH)

recipes:
	scripts/setup.sh
	scripts/test_recipes.sh

docs:
	scripts/make_docs.sh

# Compares four optimizers on a small ResNet and Fashion-MNIST in less than six minutes on two slow cores. The learning
# rates are those of docs/training.md. If the data is not available, the demo runs the Laplace experiment instead.
demo: build
	.venv/bin/tensorion inspect resnet18
	.venv/bin/python examples/compare_unfoldings.py
	rm -rf runs/demo
	@if scripts/setup.sh demo; then \
		.venv/bin/tensorion compare --dataset fashion-mnist --model resnet18 --width 0.25 \
			--optimizers sgd,adamw,muon,tensorion --log-steps 10 --lr sgd=1.6,adamw=0.025,muon=0.025,tensorion=0.025 \
			--schedule onecycle --epochs 3 --limit-train 9000 --limit-test 3000 --out runs/demo; \
		.venv/bin/tensorion report runs/demo; \
		echo; echo 'runs/demo/report/test_accuracy.png shows the test accuracy of each optimizer over the epochs. All'; \
		echo 'optimizers start from the same weights and see the data in the same order.'; \
	else \
		echo; echo 'Fashion-MNIST is not available. Computing the smallest eigenvalue of a Laplacian instead.'; \
		.venv/bin/tensorion laplace --problems 10x32x8 --steps 300 --lrs 0.003,0.01,0.03,0.1 --seeds 0 --out runs/demo; \
	fi

.venv/.bench: .venv/.ready benchmarks/requirements.txt
	$(PIP) install -qq --no-deps --requirement benchmarks/requirements.txt
	touch $@

# BENCH_OUT=results/performance rewrites the committed results, from which docs/performance.md takes its numbers.
BENCH_OUT ?= build/benchmark-results
bench: build .venv/.bench
	mkdir -p $(BENCH_OUT)
	.venv/bin/python benchmarks/peers.py --json $(BENCH_OUT) --plot $(BENCH_OUT)/quality.png
	.venv/bin/python benchmarks/scaling.py --json $(BENCH_OUT)/scaling.json --plot $(BENCH_OUT)/scaling.png
	.venv/bin/python benchmarks/small.py --json $(BENCH_OUT)/small.json
	.venv/bin/python benchmarks/slices.py

# The ratios as a CPU with AVX2 would give them. The results say that they were emulated.
bench-avx2: build
	mkdir -p $(BENCH_OUT)
	ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 .venv/bin/python benchmarks/peers.py --quick --rounds 9 \
		--json $(BENCH_OUT)

bench-parts: build
	scripts/setup.sh bench
	cmake -S . -B build -DTENSORION_BENCHMARKS=ON >build/bench.log 2>&1 || { cat build/bench.log; exit 1; }
	cmake --build build --target tensorion_benchmarks
	build/benchmarks/tensorion_benchmarks

.venv/.lint: .venv/.ready scripts/requirements-lint.txt
	$(PIP) install -qq --requirement scripts/requirements-lint.txt
	touch $@

lint: build .venv/.lint
	scripts/lint.sh

# asan and fuzz share the build in build-fuzz.
asan: .venv/.ready
	scripts/setup.sh fuzz
	cmake --preset fuzz
	cmake --build --preset asan
	ctest --preset asan --no-tests=error
	.venv/bin/python tests/smoke.py build-fuzz/bin/tensorion

SECONDS := 60
fuzz: .venv/.ready
	scripts/setup.sh fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz
	scripts/fuzz.sh $(SECONDS)

# ThreadSanitizer ignores code that was not instrumented, such as torch.
tsan: export TSAN_OPTIONS := halt_on_error=1:ignore_noninstrumented_modules=1
tsan: .venv/.ready
	cmake --preset tsan
	cmake --build --preset tsan
	ctest --preset tsan --no-tests=error
	.venv/bin/python tests/smoke.py build-tsan/bin/tensorion 2

format: .venv/.lint
	git ls-files -z --cached --others --exclude-standard '*.cpp' '*.h' | xargs -0 .venv/bin/clang-format -i
	.venv/bin/ruff check --quiet --fix . || true
	.venv/bin/ruff format --quiet .

clean:
	rm -rf build build-* dist .pytest_cache .hypothesis .ruff_cache
