# "make help" lists the targets. Variables, with their defaults:
#
#   DEMO_FLAGS   flags of the demo, as in make demo DEMO_FLAGS='-replicas 8 -traffic burst'
#   TESTFLAGS    flags of go test, as in make test TESTFLAGS='-run Wait -v'
#   FUZZTIME     how long each fuzz target runs
#   BENCH        which benchmarks run, COUNT how often, BENCHTIME how long each time
#   EPISODES     how many episodes soak plays, from which SEED on (default: the clock)
#   CHAOS        how long chaos goes on, from SEED on
#   STRANGERS    how many tenants the benchmark of evictions brings
#   OUTAGE       how long the benchmark of an outage measures with Redis, and then without
#   OUT          where pictures go

GO        ?= go
FUZZTIME  ?= 10s
BENCH     ?= .
COUNT     ?= 6
BENCHTIME ?= 1s
EPISODES  ?= 5000000
CHAOS     ?= 10m
STRANGERS ?= 1000000
OUTAGE    ?= 10s
OUT       ?= .

# The tools are built at these versions when they are first used, and are no part of the module.
GOLANGCI_LINT = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOFUMPT       = $(GO) run mvdan.cc/gofumpt@v0.12.0
GOVULNCHECK   = $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show several replicas that hold one tenant to one limit (needs nothing but Go)
	$(GO) run ./cmd/leaselimit demo $(DEMO_FLAGS)

.PHONY: provision
provision: ## Get what the tests need and is not there: Redis, PostgreSQL, MariaDB, curl, Chromium, Prometheus
	@internal/redistest/provision.sh
	@internal/dbtest/provision.sh
	@httplimit/provision.sh
	@bench/seen/provision.sh

.PHONY: test
test: provision ## Run every test, and every benchmark once
	$(GO) test $(TESTFLAGS) ./...
	cd bench && $(GO) test $(TESTFLAGS) -bench . -benchtime 1x ./...
	cd otellimit && $(GO) test $(TESTFLAGS) ./...
	@$(MAKE) --no-print-directory container

# Ryuk, which cleans up after killed tests, is an image of its own that has to be pulled; these tests clean up by themselves.
.PHONY: container
container: ## Run the tests that need Docker, where Docker is
	@if docker info >/dev/null 2>&1; then \
		LEASELIMIT_REDIS_IMAGE=$$(bench/redis-image.sh) || exit 1; \
		export LEASELIMIT_REDIS_IMAGE TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1; \
		echo "container: $$LEASELIMIT_REDIS_IMAGE"; \
		$(GO) test $(TESTFLAGS) -tags container -run Docker ./internal/redistest && \
		cd bench && $(GO) test $(TESTFLAGS) -tags container -run Container ./...; \
	else \
		echo "container: no Docker here, so its tests are left out"; \
	fi

.PHONY: race
race: provision ## Run every test once under the race detector
	$(GO) test -race $(TESTFLAGS) ./...
	cd otellimit && $(GO) test -race $(TESTFLAGS) ./...

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file" | while read -r target; do \
			echo "$$(dirname "$$file") $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null; \
		done; \
	done

# One seed is one episode, so what a soak finds is seen again by -episodes 4 -seed with the seed that it names.
.PHONY: soak
soak: ## Attack the overshoot bound for EPISODES episodes from SEED on (half an hour or more with the default)
	@seed=$(SEED); seed=$${seed:-$$(date +%s)}; echo "soak: $(EPISODES) episodes from seed $$seed"; \
	$(GO) test ./internal/adversary -run 'TestBoundHolds(ForLimiters)?$$' -count 1 -timeout 0 -v -episodes $(EPISODES) -seed $$seed

.PHONY: chart
chart: ## Measure accuracy on the grid; writes docs/img/accuracy.svg and the table of docs/accuracy.md (minutes)
	$(GO) test ./internal/chart -count 1 -timeout 1h -out ../../docs/img -table ../../docs/accuracy.md

.PHONY: chaos
chaos: provision ## Stage random faults of Redis under load for CHAOS, from SEED on
	@seed=$(SEED); seed=$${seed:-$$(date +%s)}; echo "chaos: $(CHAOS) from seed $$seed"; \
	$(GO) test ./internal/chaos -run 'TestRandomFaults$$' -count 1 -timeout 0 -v -chaos $(CHAOS) -chaos-seed $$seed

.PHONY: tuning
tuning: ## Make the pictures of docs/tuning.md (a minute)
	$(GO) run ./cmd/leaselimit tune -capacity 20 -refill 2 -chart docs/img/tune-free.svg
	$(GO) run ./cmd/leaselimit tune -capacity 200 -refill 50 -chart docs/img/tune-pro.svg
	$(GO) run ./cmd/leaselimit tune -capacity 100 -refill 10 -chart docs/img/tune-burst.svg

.PHONY: pictures
pictures: ## Take pictures of the debug page in Chromium, into OUT
	cd bench && $(GO) test ./seen -count 1 -run Browser -out $(abspath $(OUT))

.PHONY: bench
bench: provision ## Run the benchmarks beside the peers; writes bench/results (half an hour with the defaults)
	@mkdir -p bench/results
	@cd bench && { \
		echo "date: $$(date -u +%F)"; \
		echo "commit: $$(git describe --always --dirty)"; \
		echo "command: make bench BENCH='$(BENCH)' BENCHTIME=$(BENCHTIME) COUNT=$(COUNT)"; \
		$(GO) test -tags gubernator -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) -timeout 0 . -strangers $(STRANGERS) -outage $(OUTAGE); \
	} >results/bench.txt 2>&1 || { tail -n 40 results/bench.txt; exit 1; }
	cd bench && $(GO) run ./report results/bench.txt

.PHONY: bench-check
bench-check: ## Compare the hot paths with bench/ratios.json; fails on a loss of more than 25 %
	cd bench && $(GO) run ./check

.PHONY: cover
cover: provision ## Write the coverage of all tests to coverage.out and show the sum
	$(GO) test -coverpkg=./... -coverprofile=coverage.out $(TESTFLAGS) ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: fmt
fmt: ## Format the code
	$(GOFUMPT) -l -w .

.PHONY: fmt-check
fmt-check: ## Fail if fmt would change something
	@files=$$($(GOFUMPT) -l .) && if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## Run go vet
	$(GO) vet ./...
	cd bench && $(GO) vet -tags container,gubernator ./...
	cd otellimit && $(GO) vet ./...

.PHONY: lint
lint: ## Run golangci-lint (its first run builds it, which takes minutes)
	$(GOLANGCI_LINT) run ./...
	cd bench && $(GOLANGCI_LINT) run ./...
	cd otellimit && $(GOLANGCI_LINT) run ./...

.PHONY: vuln
vuln: ## Look for known vulnerabilities (asks vuln.go.dev)
	$(GOVULNCHECK) ./...

.PHONY: deps
deps: ## Check who imports whom
	$(GO) test ./internal/deptest

.PHONY: check
check: fmt-check lint vet deps vuln ## Everything that is checked without running the library

.PHONY: clean
clean: ## Remove what the other targets wrote
	rm -f coverage.out
	$(GO) clean ./...
