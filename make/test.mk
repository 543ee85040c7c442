##@ Tests without a cluster

# The race detector is written in C.
RACE := CGO_ENABLED=1 go test -race
PURE := ./api/... ./internal/apirules ./internal/children/... ./internal/metrics ./internal/status/...

# With -count=1, because go would reuse a result although a file outside of the test's module has changed.
.PHONY: unit
unit: ## Test what needs no API server; statement coverage of children and status is at least 95 %.
	$(RACE) $(PURE)
	CGO_ENABLED=1 go -C test test -race -count=1 ./chaos/... ./docs ./internal/...
	CGO_ENABLED=1 go -C hack test -race -count=1 ./catalog/releases ./isolation
	go test ./cmd/... # Without the race detector, because the metrics servers are large.
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5s
	@mkdir -p bin; go test -coverprofile=bin/unit.cover ./internal/children/... ./internal/status/... >/dev/null
	@$(call covered,bin/unit.cover,95)

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Fuzz children and status, each target for FUZZTIME.
	@for package in $$(go list ./internal/children ./internal/status); do \
		for target in $$(go test -list '^Fuzz' $$package | grep ^Fuzz); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

# Two processes, each with an API server of its own. The specs mostly wait.
GINKGO = go run github.com/onsi/ginkgo/v2/ginkgo -procs=2
.PHONY: integration
integration: build bin/kube-apiserver bin/etcd ## Test the controller on a real API server; coverage is at least 85 %.
	KUBEBUILDER_ASSETS=$(BIN) CGO_ENABLED=1 $(GINKGO) -race -timeout 15m -coverprofile=integration.cover -output-dir=bin ./internal/controller
	@$(call covered,bin/integration.cover,85)

.PHONY: integration-oldest
integration-oldest: build bin/etcd $(OLDEST:%=bin/oldest/%) ## Test the controller on the oldest supported Kubernetes.
	ln -sf ../etcd ../manager bin/oldest
	KUBEBUILDER_ASSETS=$(BIN)/oldest CGO_ENABLED=1 $(GINKGO) -race -timeout 15m -label-filter='!newest-kubernetes' ./internal/controller

# $(call covered,<profile>,<per cent>) fails if a coverage profile has less than that.
covered = go tool cover -func=$(1) | awk '/^total:/ {sub("%","",$$3); printf "coverage %s %% (at least $(2) %%)\n", $$3; exit $$3 < $(2)}'

# bin/isolation runs a command with a kubeconfig that points at a recording server, and fails if that server receives a
# connection. `make test` runs its layers so; this target also covers a plain `go test ./...`.
.PHONY: isolation-check bin/isolation
isolation-check: bin/isolation bin/etcd bin/kube-apiserver bin/kube-score bin/kubesec bin/kustomize bin/opm bin/operator-sdk bin/promtool ## Check that lint and the tests that need no cluster connect to none.
	isolation $(MAKE) lint unit integration
	for module in . $(MODULES); do KUBEBUILDER_ASSETS=$(BIN) isolation go -C $$module test ./...; done
# With "+" make builds it for `make -n`, too, because the layers run it even then.
bin/isolation:
	+@go -C hack build -o $(CURDIR)/$@ ./isolation

# The samples of `make test` depend on the commit, so that a commit always has the same result. They print the command
# that repeats them.
COMMIT := $(shell git rev-parse --verify HEAD 2>/dev/null || echo 0000000)
COMMIT_NUMBER := $(shell printf %d 0x$$(echo $(COMMIT) | cut -c1-7))

# SEED repeats one schedule; SUITE and SCENARIO select others.
CHAOS = go -C test run ./chaos -root $(CURDIR)
.PHONY: chaos chaos-short chaos-mutants
chaos: build bin/kube-apiserver bin/etcd ## Run the fault campaign: every suite, and 2,000 random schedules; two hours.
	$(CHAOS) -report $(BIN)/chaos.json $(if $(SEED),-suite schedules -runs 1 -seed $(SEED),-runs $(or $(RUNS),2000) -suite "$(SUITE)" -scenario "$(SCENARIO)")
# SAMPLE selects an eighth of the short form, and MUTANTS some of the mutants; 0 selects all. The nightly workflow runs all of the long form.
SAMPLE ?= $(COMMIT_NUMBER)
MUTANTS ?= $(COMMIT_NUMBER)
chaos-short: build bin/kube-apiserver bin/etcd ## Run an eighth of the short form of the campaign, and a sample of its mutation tests; the commit selects both.
	@echo "Commit $(COMMIT) selects: make chaos-short SAMPLE=$(SAMPLE) MUTANTS=$(MUTANTS)"
	$(CHAOS) -short -sample $(SAMPLE)
	$(CHAOS) -short -mutants -seed $(MUTANTS)
chaos-mutants: build bin/kube-apiserver bin/etcd ## Run all mutation tests: which suite detects which mutant; an hour and a half.
	$(CHAOS) -mutants -report $(BIN)/chaos-mutants.json -suite "$(SUITE)" -scenario "$(SCENARIO)"

# N and RUNS shorten the benchmark.
BENCH = go -C test run ./performance -root $(CURDIR)
.PHONY: bench bench-check bench-writes
bench: build bin/kube-apiserver bin/etcd ## Compare the operator with a baseline client that writes the same objects; seventy minutes, or two with N=200 RUNS=3.
	$(BENCH) -report $(BIN)/bench.json -charts $(BIN)/charts $(if $(N),-n $(N)) $(if $(RUNS),-turns $(RUNS))
bench-check: build bin/kube-apiserver bin/etcd ## Compare requests, allocations and memory with the recorded baseline; RECORD=1 records them again.
	go -C test test ./performance
	$(BENCH) -check $(CURDIR)/test/performance/recorded_baseline.json $(if $(RECORD),-record)
bench-writes: bin/kube-apiserver bin/etcd ## Measure the two ways to write a child; see docs/adr.
	KUBEBUILDER_ASSETS=$(BIN) go -C test test ./performance -run '^$$' -bench . -benchtime 300x -count 5

##@ Checks of manifests and package

.PHONY: verify
verify: bin/controller-gen bin/kustomize bin/operator-sdk bin/opm bin/crd-ref-docs ## Check that all generated files are current, and that every version agrees.
	hack/verify.sh
	@$(MAKE) --no-print-directory crd-check

.PHONY: crd-check
crd-check: ## Check that every Echo that a released CRD accepted stays valid and unchanged.
	@echo "Trying thousands of Echoes of each release against the current CRD ..."
	@GOGC=400 go -C test test -count=1 ./manifests/crdcompat # GOGC halves the time

.PHONY: manifests-check
manifests-check: bin/kustomize bin/kube-score bin/kubesec ## Check the manifests of the operator, and those of Echoes, with linters.
	go -C test test -count=1 ./manifests/linters

.PHONY: monitoring-check
monitoring-check: bin/promtool ## Test when each alert fires, that each has a runbook, and the dashboard.
	go -C test test -count=1 ./manifests/monitoring

.PHONY: bundle-check
bundle-check: bin/operator-sdk bin/opm package ## Validate the bundle, and the catalog after its release; warnings count as errors.
	go -C hack test -count=1 ./catalog ./operatorhub
	go -C test test -count=1 ./manifests/bundle
	go -C hack run ./catalog test-catalogs
	opm validate bin/catalogs/next

.PHONY: bundle-check-old
bundle-check-old: bin/validate-bundle-1.36 bin/opm-1.45 bin/opm package ## Validate bundle and catalog with the older tools of the OperatorHub pipeline.
	go -C hack vet -modfile=../tools/operator-sdk-1.36.mod ./validate-bundle
	validate-bundle-1.36 bundle
	go -C hack run ./catalog test-catalogs
	opm-1.45 validate bin/catalogs/next
	@echo "The older tools accept bundle and catalog."

.PHONY: reproducible
reproducible: bin/controller-gen bin/kustomize bin/operator-sdk bin/opm ## Build all artifacts in two clones, and compare every byte; COLD=1 starts with an empty build cache.
	hack/reproducible.sh

##@ Tests on the local cluster

# `make test` builds these while suites run that leave processor time.
.PHONY: prerequisites
prerequisites: # Build what the tests on the local cluster need, with low priority.
	@nice -n 19 $(MAKE) --no-print-directory cluster-tools $(addprefix bin/,kube-score kubesec promtool prometheus)
	@nice -n 19 $(MAKE) --no-print-directory images $(if $(findstring e2e-olm,$(SAMPLED_TARGET)),releases-build) $(if $(findstring gateway,$(SAMPLED_TARGET)),bin/traefik)

.PHONY: cluster-test
cluster-test: cluster-tools ## Test that the local cluster starts, stops, and leaves nothing behind.
	cd hack/local-cluster && go test ./... && go test -tags lifecycle -run Lifecycle -count=1 .

# The suites with the tag e2e need a cluster: the local one, or any other with USE_EXISTING_CLUSTER=true.
E2E := go -C test test -tags e2e -count=1 -v

# Upgrades are tested with the images of every release, on the local cluster only.
.PHONY: e2e-olm
e2e-olm: ## Test every upgrade edge in both OLMs, and every check of the package; two hours.
	@for target in e2e-olm-v0 e2e-olm-v1 multiarch-check bundle-check-old; do \
		$(MAKE) --no-print-directory $$target; \
	done # In this order: multiarch-check builds the images again, for every platform.
	@$(MAKE) --no-print-directory reproducible COLD=1

# `make test` runs one of these, each a target with the labels of its specs. The nightly workflow runs all of them.
E2E_SAMPLES := e2e-olm-v0:upgrade e2e-olm-v0:step-through e2e-olm-v0:monitoring e2e-olm-v1:step-through||!every-edge e2e-olm-v0:modes||installer reproducible \
	e2e-gateway e2e-verify:breakage test-e2e:requests test-e2e:documents||steady-state test-e2e:page||scorecard test-e2e:failover||verification
E2E_SAMPLE ?= $(shell echo $$(($(COMMIT_NUMBER) % $(words $(E2E_SAMPLES)) + 1)))
SAMPLED_TARGET = $(subst :, ,$(word $(E2E_SAMPLE),$(E2E_SAMPLES)))
.PHONY: e2e-short
prerequisites e2e-short: export SKIP = scorecard
# Only these specs upgrade from more than the newest release.
prerequisites e2e-short: export NEWEST = $(if $(findstring step-through,$(SAMPLED_TARGET)),,true)
e2e-short: ## Test the core of test-e2e, and a twelfth of the rest, e2e-olm, e2e-gateway and e2e-verify; the commit selects it.
	@$(MAKE) --no-print-directory test-e2e LABELS='!sampled'
	@echo "Commit $(COMMIT) selects: make $(firstword $(SAMPLED_TARGET)) LABELS='$(word 2,$(SAMPLED_TARGET))'"
	@$(MAKE) --no-print-directory $(firstword $(SAMPLED_TARGET)) LABELS='$(word 2,$(SAMPLED_TARGET))'

LABELS ?=
.PHONY: e2e-olm-v0 e2e-olm-v1 test-catalogs
e2e-olm-v0: test-catalogs build-installer ## Test upgrades, install modes, a mirror, and an installation without OLM.
	$(E2E) -timeout 90m ./e2e/olmv0 -ginkgo.v -ginkgo.timeout 90m -ginkgo.label-filter='$(LABELS)'
e2e-olm-v1: cluster-olm-v1 test-catalogs ## Test installation, upgrades and removal with OLM v1.
	CATALOG_IMG=$(PUBLISHED)-catalog:next $(E2E) -timeout 40m ./e2e/olmv1 -ginkgo.v -ginkgo.label-filter='$(LABELS)'
test-catalogs: local-only cluster images push prober prometheus releases # Push the catalogs that those tests install from.
	CONTAINER_TOOL="$(CONTAINER_TOOL)" OPM_VERSION=$(OPM_VERSION) hack/catalog/test-catalogs.sh

.PHONY: e2e-gateway
e2e-gateway: local-only cluster-gateway images push ## Test Echoes with a route through a Gateway; the first time, make builds Traefik.
	$(E2E) -timeout 30m ./e2e -ginkgo.v -ginkgo.label-filter=gateway

.PHONY: e2e-verify
e2e-verify: local-only cluster images push ## Break verified answers in every way, measure what verifiers cost, and disturb them for an hour, or E2E_DURATION=10m.
	$(E2E) -timeout 2h ./e2e -ginkgo.v -ginkgo.timeout 2h -ginkgo.label-filter='$(or $(LABELS),long || breakage)'

.PHONY: multiarch-check
multiarch-check: IMAGE_PLATFORMS = $(PLATFORMS)
multiarch-check: cluster bin/operator-sdk debian-packages images push ## Compare the platforms of the pushed images with those that the bundle names.
	hack/multiarch-check.sh $$(cat bin/cluster/registry)
