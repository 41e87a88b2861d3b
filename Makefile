# `make` lists the targets. Everything runs from a clean clone; downloads of the tests lie in the user's cache.

SHELL := /bin/bash
.DEFAULT_GOAL := help

SUITE := go run ./test/suite
# The build tags of a release. grpcnotrace leaves out code of grpc that makes the binary a quarter larger. Add nodemo to
# leave out the broker of the demo.
TAGS := grpcnotrace
# The version that make build writes into the binary. If it is empty, because git has no tag, Go derives one from the commit.
VERSION ?= $(shell git describe --tags --dirty --match 'v[0-9]*' 2>/dev/null)
# The database of make vulncheck: a path, or a URL.
VULNDB ?= https://vuln.go.dev
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
FUZZTIME ?= 30s
RUNS ?= 20
SCHEDULES ?= 20000
# The random tables of make conformance, and their seed. WRITE=1 also writes docs/conformance.md. DIR keeps tables and
# results: a run with the same CASES and SEED that was stopped continues there. Delete it after a change of the writer.
CASES ?= 200
SEED ?= 1
WRITE ?=
# Tests that fill memory in one goroutine: the race detector finds nothing in them and takes minutes. `make hermetic` runs them.
ONE_GOROUTINE := ^(TestBounds_Positions|TestBounds_CheckpointMemory|TestLargeCheckpoint|TestCheckpoints_NoTemporaryFile|TestSpare|TestOracle|TestGrow_HostileNames|TestPartitioned_ManyValues)$$
# The tests of test/e2e that `make test` runs on the older Kafka, too; `make test-all` runs everything there.
ON_OLDER := ^(TestProducedIsTable|TestKilledAtRandomMoments|TestBehindLogStart|TestTopicRecreated|TestThreeBrokers)$$/^UncleanElection$$

.PHONY: help build image demo test test-all hermetic race lint prose fmt modules notice vulncheck release release-check rules chart pods pods-all schedules fuzz flakes adapters lab lab-all conformance scripts mutants bench golden lab-install clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the static binary, dist/connector
	CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=auto -tags $(TAGS) -ldflags '-s -w$(if $(VERSION), -X main.stamped=$(VERSION))' \
		-o dist/connector ./cmd/connector

image: ## the image of the connector, with Docker
	docker build $(if $(VERSION),--build-arg VERSION=$(VERSION) )-t sluice .

demo: ## fill a Delta table on the local disk, from an in-process broker
	go run ./cmd/connector demo

test: hermetic race lint modules scripts rules chart lab pods ## every change passes this: Go alone, then lint, then real Kafka and MinIO

test-all: hermetic race lint modules scripts rules chart lab-all pods-all conformance release-check fuzz mutants ## test with Spark, the long rows, fuzzing and mutants

hermetic: ## the tests that need nothing but Go
	@$(SUITE) -name hermetic go test ./...

race: ## the same with the race detector, shorter; without the model and tests of sizes, which have one goroutine
	@$(SUITE) -name race go test -race -short -timeout 20m -skip '$(ONE_GOROUTINE)' $$(go list ./... | grep -v '/test/model$$')

lint: prose ## golangci-lint, as .golangci.yml says, and prose
	@$(SUITE) -name lint "$$(test/lab/install lint)" run --build-tags lab,long ./...

prose: ## Vale over documentation, comments and texts, with the rules of test/prose
	@$(SUITE) -name prose go run ./test/prose "$$(test/lab/install vale)"

modules: ## check that the modules in the cache are those of go.sum, and that go.mod needs no change
	@$(SUITE) -name modules go mod verify
	@$(SUITE) -name readonly go build -mod=readonly ./...

notice: ## rewrite NOTICE and THIRD_PARTY_LICENSES after a change of modules
	go run ./test/licences -write

vulncheck: ## govulncheck against the database VULNDB (a path or a URL; default: the public one, over the network)
	go run $(GOVULNCHECK) -db '$(if $(findstring ://,$(VULNDB)),$(VULNDB),file://$(abspath $(VULNDB)))' -tags $(TAGS) ./...

release: modules vulncheck ## dist/release: an archive and a list of modules for each platform, and SHA256SUMS; VULNDB as for vulncheck
	go run ./test/release

release-check: ## build a release twice, the second time without a cache: all checksums must be equal
	@$(SUITE) -name release go test -tags long -count=1 -timeout 0 ./test/release

fmt: ## format the code
	@"$$(test/lab/install lint)" fmt ./...

scripts: ## check that Python and shell scripts parse
	@$(SUITE) -name scripts test/lab/parse

rules: ## promtool and Alertmanager check the alerts in deploy/ and run their tests
	@$(SUITE) -name rules go test -tags lab -count=1 ./test/rules

chart: ## render the Helm chart with many sets of values, and check each object and configuration; a module of its own
	@$(SUITE) -name chart -dir test/chart go test -count=1 ./...

adapters: ## the adapters' conformance suites against real Kafka, MinIO, Postgres and Redis, and deltalake's tables
	@go run ./test/lab/with kafka,minio,postgres,redis $(SUITE) -name adapters \
		go test -tags lab -count=1 -run 'MinIO|Lab$$' ./sink/delta/objstore ./sink/delta/scan ./connector/kafka ./idempotency/postgres ./health/membership/... ./sink/opslog/mirror/...
	@go run ./test/lab/with kafka-3.9.1 $(SUITE) -name adapters-3.9 \
		go test -tags lab -count=1 -run 'Lab$$' ./connector/kafka

lab: adapters ## the connector against real Kafka and MinIO, with faults (minutes)
	@$(SUITE) -name oracle go test -tags lab -count=1 -timeout 20m ./test/oracle
	@$(SUITE) -name evolution go test -tags lab -count=1 -run '^TestEvolution' ./sink/delta ./cmd/connector
	@$(SUITE) -name deltacheck go test -tags lab -count=1 -timeout 20m ./test/deltacheck
	@$(SUITE) -name lab go test -tags lab -count=1 -timeout 40m -parallel 3 ./test/e2e
	@$(SUITE) -name security go test -tags lab -count=1 -timeout 10m -parallel 3 ./test/security
	@$(SUITE) -name rights go test -tags lab -count=1 -timeout 30m ./test/rights
	@E2E_KAFKA=3.9.1 $(SUITE) -name lab-3.9 go test -tags lab -count=1 -timeout 20m -parallel 3 -run '$(ON_OLDER)' ./test/e2e

lab-all: adapters ## lab with Spark, the long rows and a binary with the race detector
	@$(SUITE) -name oracle-long go test -tags lab,long -count=1 -timeout 40m ./test/oracle
	@$(SUITE) -name evolution-long go test -tags lab,long -count=1 -timeout 20m -run '^TestEvolution' ./sink/delta ./cmd/connector
	@E2E_RACE=1 $(SUITE) -name lab-long go test -tags lab,long -count=1 -timeout 80m -parallel 3 -skip '^(TestMemory|TestHostile|TestOutageTranscripts|TestScale)' ./test/e2e
	@$(SUITE) -name memory go test -tags lab,long -count=1 -timeout 60m -parallel 3 -run '^(TestMemory|TestHostile)' ./test/e2e
	@$(SUITE) -name outages go test -tags lab,long -count=1 -timeout 40m -parallel 4 -run '^TestOutageTranscripts' ./test/e2e
	@$(SUITE) -name scale go test -tags lab,long -count=1 -timeout 90m -run '^TestScale' ./test/e2e
	@$(SUITE) -name schedules go test -tags long -count=1 -timeout 30m -run 'LittleMemory|Starves|FullPool|LogCleanupAndExpiry' ./test/story
	@$(SUITE) -name model-long go test -tags long -count=1 -timeout 30m -run TestLongWorld ./test/model
	@$(SUITE) -name security go test -tags lab -count=1 -timeout 10m -parallel 3 ./test/security
	@$(SUITE) -name rolling go test -tags lab -count=1 -timeout 20m ./test/rolling
	@$(SUITE) -name rights go test -tags lab -count=1 -timeout 30m ./test/rights
	@E2E_KAFKA=3.9.1 $(SUITE) -name lab-all-3.9 go test -tags lab -count=1 -timeout 60m -parallel 3 ./test/e2e

pods: ## the image, and pods of the chart on real Kafka and MinIO, with kills; needs Debian's podman, buildah, runc and catatonit
	@$(SUITE) -name pods go test -tags lab -count=1 -timeout 20m ./test/pods

pods-all: ## pods with more members and more kills
	@$(SUITE) -name pods-long go test -tags lab,long -count=1 -timeout 40m ./test/pods

conformance: ## CASES (200) random tables with SEED (1), read by six engines and checked by a validator
	@$(SUITE) -name conformance go test -tags lab,long -count=1 -timeout 0 ./test/deltacheck \
		-args -conformance.cases $(CASES) -conformance.seed $(SEED) $(if $(WRITE),-conformance.write) $(if $(DIR),-conformance.dir $(abspath $(DIR)))

schedules: ## SCHEDULES (20000) seeded schedules with log cleanup and expiry of txns, with counts
	go test ./test/story -count=1 -timeout 0 -v -run LogCleanupAndExpiry -args -story.expiries $(SCHEDULES)

fuzz: ## each fuzz target for FUZZTIME (30s)
	@$(SUITE) -name fuzz -fuzz $(FUZZTIME) ./...

flakes: ## the hermetic tests RUNS times (20) beside four busy loops; continues an interrupted run
	@$(SUITE) -flakes $(RUNS) ./...

mutants: ## break the code rule by rule: each named test must turn red
	@$(SUITE) -name mutants go run ./test/mutants

bench: ## from Kafka to MinIO, beside a tuned Python pipeline; AGAINST=FILE: in turns with another connector binary
	go run ./test/bench $(if $(AGAINST),-against $(AGAINST) -rounds 12 -memory 256MiB)

golden: ## rewrite testdata, then show what changed
	go test ./internal/config ./cmd/connector ./sink/delta ./test/story -update
	git diff --stat -- '*testdata*' docs

lab-install: ## download everything that the lab needs into the cache
	@test/lab/install kafka minio postgres redis prometheus promtool amtool alertmanager readers spark kernel lint vale

clean: ## delete what build wrote
	rm -rf dist
