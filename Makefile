# `make` lists what can be done. Longer recipes live in scripts/.
.DEFAULT_GOAL := help
.PHONY: help prepare test quick lint fuzz spoofing soak faults e2e e2e-short bench bench-packets bench-dns bench-cluster deny advisories build install clean

PREFIX ?= /usr/local
FUZZ_SECONDS ?= 20
SOAK_SECONDS ?= 1800
SEED ?= 1
SPOOF_ROUNDS ?= 1000
SEEDS ?= 40
FIRST_SEED ?= 1
NAMES ?= 10000

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

prepare: ## Install and build what `make test` needs (root, Debian)
	@scripts/prepare

test: ## Run everything CI runs: tests, lints, dependency rules, a little fuzzing and, as root, system tests and two real nodes
	@scripts/test

quick: lint ## Formatting, lints and unit tests, while you work
	cargo test --workspace --locked --lib --bins

lint: ## Check formatting, lints and lock files
	cargo fmt --all --check
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml > /dev/null
	cargo clippy --workspace --all-targets --features system --locked -- -D warnings

fuzz: ## Fuzz each target for FUZZ_SECONDS (20), on stable Rust
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

spoofing: ## Attack the DNS server with forged replies, for SPOOF_ROUNDS (1000) rounds; none may be won
	NAMEWALL_SPOOF_ROUNDS=$(SPOOF_ROUNDS) cargo test --package namewall-dns --test server s6_1_a_blind_forger -- --nocapture

soak: spoofing ## Random changes and faults on one node, against a model, for SOAK_SECONDS (1800) from SEED (1), after SPOOF_ROUNDS of spoofing (root)
	SECONDS=$(SOAK_SECONDS) SEED=$(SEED) cargo test --locked --package namewall --features system --test soak -- --nocapture

faults: ## Faults of shared names on two nodes, SEEDS (40) rounds from FIRST_SEED (1), with NAMES (10000) names (root)
	SEEDS=$(SEEDS) FIRST_SEED=$(FIRST_SEED) NAMES=$(NAMES) cargo test --locked --package namewall --features system --test faults -- --nocapture

e2e: ## Install it on two real nodes of this machine, try everything, remove it (root, about 4 minutes)
	@scripts/e2e

e2e-short: ## The same with one policy and one name (under a minute)
	@scripts/e2e --short

bench: ## Run the benchmarks
	@scripts/bench

bench-packets: ## Run those of the packet path alone
	@scripts/bench packets

bench-dns: ## Run those of the forwarder alone, beside other forwarders
	@scripts/bench dns

bench-cluster: ## Run those of a cluster alone, against a real API server
	@scripts/bench cluster

deny: ## Check licences, sources and versions of the dependencies
	@scripts/deny bans licenses sources

advisories: ## Check the dependencies against the advisory database (needs the network)
	@scripts/deny advisories

build: ## Build the release binary
	cargo build --release --locked --package namewall

install: build ## Install the binary, kubectl plugin, man pages and completions under PREFIX
	@DESTDIR=$(DESTDIR) scripts/install $(PREFIX)

clean: ## Remove what was built; inputs that fuzzing found stay
	cargo clean
	rm -rf fuzz/target dist
