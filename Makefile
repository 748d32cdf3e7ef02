# Segue's one front door: 'make help' lists what can be done.

PREFIX ?= /usr/local
# mount(8) looks for its helpers here only.
HELPERS ?= /sbin
# Where systemd looks for units and sleep hooks.
SYSTEMD ?= /usr/lib/systemd
# Where cargo puts what it builds.
TARGET = $(or $(CARGO_TARGET_DIR),target)

# The directory of a cargo that is new enough goes first, so that it finds its own rustc.
# Not known before 'setup' has run on a fresh host: hence looked up in each recipe.
with_cargo = PATH="$$(scripts/toolchain.sh):$$PATH"
# One profile for everything that is tested, so that nothing is built twice.
ci = --profile ci --workspace

.PHONY: help setup setup-test setup-bench run stop build check fmt lint doc e2e test run-tests test-long sim bench install uninstall

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## install what building and running needs and is missing (Debian packages)
	@scripts/setup.sh

setup-test:
	@scripts/setup.sh test

setup-bench: ## install the file systems that Segue is compared with
	@scripts/setup.sh bench

run: ## build, serve, and mount volume home at ./mnt-segue, until Ctrl-C
	@scripts/run.sh

stop: ## stop what 'make run' started, from elsewhere
	@scripts/run.sh stop

build: setup ## build the program
	@$(with_cargo) cargo build --release --locked -p segue

check: fmt lint ## format, lints and unit tests: fast, no root
	@$(with_cargo) cargo test $(ci) --locked --lib --bins --quiet

fmt:
	@$(with_cargo) cargo fmt --all --check

# Debian's toolchain may come without clippy; CI's must not.
lint:
	@$(with_cargo); export PATH; \
	if cargo clippy --version >/dev/null 2>&1; then \
	    cargo clippy $(ci) --all-targets --locked -- -D warnings; \
	elif [ -n "$${CI:-}" ]; then \
	    echo "make lint: cargo clippy is missing" >&2; exit 1; \
	else \
	    echo "make lint: SKIPPED: cargo clippy is not installed"; \
	fi

doc:
	@$(with_cargo) RUSTDOCFLAGS="-D warnings" cargo doc $(ci) --no-deps --locked --quiet

# Builds the tests that the options $(1) choose, and has segue-test run those that $(2) names. In
# CI a test may be skipped only if .ci/may-skip names it.
define run_tests
	@$(with_cargo); export PATH; mkdir -p $(TARGET)/ci; \
	cargo test $(ci) --locked --no-run --message-format=json-render-diagnostics $(1) \
	    > $(TARGET)/ci/tests.json && \
	$(TARGET)/ci/segue-test $(TARGET)/ci/tests.json --times $(TARGET)/ci/test-times \
	    --may-skip .ci/may-skip $${CI:+--strict} $(2)
endef

T ?=

# The test of bed comes with the program segue-test.
e2e: setup setup-test ## end-to-end tests alone, or one module of them: make e2e T=promises
	$(call run_tests,--test e2e --test bed,segue/e2e$(if $(T),::$(T)))

test: setup setup-test ## all that CI runs; root and /dev/fuse for the end-to-end tests
	@$(MAKE) --no-print-directory fmt lint
	$(call run_tests)

test-long: setup setup-test ## all tests at full length, and the documentation: 20 minutes
	@$(MAKE) --no-print-directory fmt lint doc
	@$(with_cargo) cargo test $(ci) --locked --doc --quiet
	@SEGUE_TEST_LONG=1; export SEGUE_TEST_LONG; $(MAKE) --no-print-directory run-tests

run-tests:
	$(call run_tests)

SEEDS ?= 1000

sim: ## simulate clients, a server and their failures: make sim SEEDS=10000
	@$(with_cargo) cargo run --profile ci --locked --quiet -p segue-sim -- --swarm --seeds $(SEEDS)

bench: build setup-bench ## measure Segue and its peers, results in bench/results
	@$(with_cargo) cargo build --release --locked -p segue-bench
	@$(TARGET)/release/segue-bench run warm-read stat-storm untar small-files offline $(BENCH)

# What they are told of the places above.
places = PREFIX="$(PREFIX)" HELPERS="$(HELPERS)" SYSTEMD="$(SYSTEMD)" DESTDIR="$(DESTDIR)" \
    TARGET="$(TARGET)"

install: ## install what 'make build' built: PREFIX=/usr/local, HELPERS=/sbin, SYSTEMD=.., DESTDIR=
	@$(places) scripts/install.sh

uninstall: ## remove what 'make install' installed with the same variables
	@$(places) scripts/install.sh uninstall
