##@ Tests without a cluster; see also make test

# These need no cluster. The first ones write files that others read, install packages, or measure, so they run alone.
CHECKS_ALONE := verify package-check test-page chaos-short bench-check
CHECKS_BESIDE := tool-traefik lint race test-support explore
.PHONY: test-all checks layers
test-all: test checks ## Run every check of a change: make test, lint, verify, race, the exploration, the package, and the end-to-end tests.
# .ci/run calls it after `make test`. PLAN: see hack/build-tool.sh.
checks: export PLAN := $(call plan,operator-sdk controller-gen opm kustomize helm kube-score go-httpbin http-echo golangci-lint actionlint $(CLUSTER_TOOLS) traefik)
checks:
	@$(MAKE) --no-print-directory layers LAYERS="$(CHECKS_ALONE)"
	@hack/checks.sh $(CHECKS_BESIDE)

layers: # Make the targets in LAYERS one after the other, with their times.
	@for layer in $(LAYERS); do \
		printf '\n\033[1m== make %s\033[0m\n' $$layer; start=$$SECONDS; \
		$(MAKE) --no-print-directory $$layer; \
		echo "== make $$layer: passed in $$((SECONDS-start)) s"; \
	done; \
	echo "Passed in $$SECONDS s: $(LAYERS)"

.PHONY: race race-operator
race: ## Test the HTTP server and the verifier with the race detector.
	CGO_ENABLED=1 go test -race ./cmd/http-echo ./cmd/verifier ./internal/server ./internal/verifier
race-operator: $(CONTROL_PLANE_TOOLS:%=tool-%) build ## Test everything with the race detector, also the controller.
	CGO_ENABLED=1 $(NO_CLUSTER) go test -race $$($(PACKAGES))
	CGO_ENABLED=1 $(GINKGO) -race -procs=3 -timeout 15m ./internal/controller

.PHONY: test-support
test-support: tool-http-echo ## Test the tools of the repository and what the tests of a cluster share.
	$(NO_CLUSTER) go -C hack test ./...
	$(NO_CLUSTER) go -C test test -count=1 ./docs ./internal/... ./mutants ./performance ./precedence ./server

# GINKGO again, because the control plane of the oldest Kubernetes is in another directory.
.PHONY: test-oldest
test-oldest: build bin/oldest ## Run the controller's specs on the oldest supported Kubernetes.
	$(NO_CLUSTER) KUBEBUILDER_ASSETS=$(BIN)/oldest go run github.com/onsi/ginkgo/v2/ginkgo -procs=4 -timeout 15m \
		-label-filter='!newest-kubernetes' ./internal/controller

.PHONY: test-page
test-page: DEBIAN_PACKAGES = chromium-headless-shell fonts-noto-core
test-page: debian-packages ## Look at pages of Echoes in Chromium; UPDATE=1 writes the picture in docs/images.
	go -C test test -count=1 ./page $(if $(UPDATE),-update)

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Fuzz children, status and the HTTP server, each target for FUZZTIME.
	@for package in $$(go list ./internal/children ./internal/server ./internal/status); do \
		for target in $$(go test -list '^Fuzz' $$package | grep ^Fuzz); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

.PHONY: explore
explore: $(CONTROL_PLANE_TOOLS:%=tool-%) ## Explore every order of events in a model, up to STATES=24000 of each family of operations, and compare the model with Kubernetes; 3 minutes.
	$(NO_CLUSTER) go -C test test -count=1 -timeout 6h -v ./explore -states $(or $(STATES),24000) -programs $(BIN)

CHAOS = $(NO_CLUSTER) go -C test test -count=1 -timeout 2h -v ./chaos $(if $(RUN),-run '$(RUN)')
.PHONY: chaos chaos-short mutants
chaos chaos-short mutants bench bench-check: build $(CONTROL_PLANE_TOOLS:%=tool-%)
chaos: ## Run the operator beside leaders, API servers and webhooks that fail; RUN selects tests; 20 minutes.
	$(CHAOS)
chaos-short: ## Run the core of these tests.
	$(CHAOS) -short
mutants: ## Test the tests: one of them has to find each planted bug; 15 minutes.
	$(NO_CLUSTER) go -C test test -count=1 -timeout 3h -v ./mutants -mutants

BENCH = $(NO_CLUSTER) go -C test test -count=1 -timeout 3h -v ./performance
.PHONY: bench bench-check
bench: ## Compare the operator with a baseline client that writes the same objects; an hour, or two minutes with N=200 RUNS=3.
	$(BENCH) -echoes $(or $(N),5000) $(if $(RUNS),-runs $(RUNS))
bench-check: ## Compare requests, allocations and memory with the recorded baseline, and the HTTP server with http-echo; RECORD=1 records the baseline again.
	$(BENCH) $(if $(RECORD),-record,-check)
	$(if $(RECORD),,$(BENCH_SERVER) -check)

# It needs root, and of the Debian packages only wrk.
BENCH_SERVER = go -C test run ./performance/server -bin $(BIN)
.PHONY: bench-server server wrk
bench-server: DEBIAN_PACKAGES = wrk
bench-server bench-check: wrk tool-http-echo server
bench-server: bin/nginx ## Compare the HTTP server with http-echo and nginx under load, within the limits of a container; 9 minutes.
	$(BENCH_SERVER) $(if $(CPU),-cpu $(CPU))
server: # Build the HTTP server.
	go build -ldflags '-s -w' -o bin/server ./cmd/http-echo
wrk: # Install wrk. Another target of the same make may install other packages.
	@dpkg -s wrk >/dev/null 2>&1 || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends wrk >/dev/null; }

##@ Checks of manifests and package

.PHONY: verify
verify: bin/controller-gen bin/kustomize bin/operator-sdk bin/opm ## Check that all generated files are current, and that every version agrees.
	hack/verify.sh

# The images and the clusters choose the user; a tag that never moves needs no pull; the kubelet rotates the log; and topology spread
# constraints spread the pods of one revision, which anti-affinity cannot tell apart.
KUBE_SCORE_WAIVERS := container-security-context-user-group-id,container-image-pull-policy,container-ephemeral-storage-request-and-limit,deployment-has-host-podantiaffinity

.PHONY: package-check
package-check: bin/operator-sdk bin/opm bin/kustomize bin/helm bin/kube-score bin/promtool package ## Validate bundle, catalog, manifests, Helm chart, alerts, dashboard and the CRD; warnings count as errors.
	$(NO_CLUSTER) go -C test test -count=1 ./manifests/...
	hack/validate-bundle.sh $(call pinned,kubernetes,k8s.io/kubernetes)
	sed '1,/^spec:/d; s/^  //' config/prometheus/alerts.yaml >bin/alerts.yaml
	promtool check rules bin/alerts.yaml
	promtool test rules test/manifests/monitoring/alerts/*.yaml
	kustomize build config/default | kube-score score --exit-one-on-warning --ignore-test $(KUBE_SCORE_WAIVERS) -
	go -C hack run ./catalog build $(BUNDLE_IMG)
	opm validate bin/package/echo-operator

.PHONY: reproducible
reproducible: bin/controller-gen bin/kustomize bin/operator-sdk bin/opm ## Build all artifacts in two clones, and compare every byte; COLD=1 starts with an empty build cache.
	hack/reproducible.sh

##@ Tests on the local cluster, or with USE_EXISTING_CLUSTER=true on that of your kubeconfig

# The suites have the build tag e2e. LABELS selects specs.
E2E = go -C test run github.com/onsi/ginkgo/v2/ginkgo -tags e2e -v
LABELS ?=
.PHONY: test-e2e
test-e2e: cluster $(if $(LOCAL_CLUSTER),cluster-samples) images push prober ## Test the operator on a cluster, installed by OLM.
	$(E2E) -procs=4 -timeout 40m -label-filter='$(or $(LABELS),!gateway && !verification && !slow)' ./e2e

.PHONY: e2e-gateway e2e-verification
e2e-gateway: local-only cluster-gateway cluster-samples images push prober ## Test Echoes with a route through a Gateway.
	$(E2E) -procs=4 -timeout 30m -label-filter='gateway && !slow' ./e2e
e2e-verification: local-only cluster cluster-samples images push prober ## Break verified responses in every way.
	$(E2E) -procs=4 -timeout 30m -label-filter='verification && !slow' ./e2e

.PHONY: e2e-slow
e2e-slow: local-only cluster-gateway cluster-samples bin/operator-sdk images push prober ## Run the longest specs: disturbed verification, the scorecard.
	$(E2E) -timeout 3h -label-filter=slow ./e2e

.PHONY: e2e-olm-v0 e2e-olm-v1 e2e-helm test-catalogs
e2e-olm-v0: EXTRA_PACKAGES = skopeo
e2e-olm-v0: test-catalogs ## Test upgrades, install modes, a mirror, and an installation without OLM.
	$(E2E) -procs=3 -timeout 40m -label-filter='$(or $(LABELS),!slow)' ./e2e/olmv0
e2e-olm-v1: cluster-olm-v1 test-catalogs ## Test installation, upgrades and removal with OLM v1.
	$(E2E) -timeout 20m -label-filter='$(LABELS)' ./e2e/olmv1
e2e-helm: test-catalogs bin/helm ## Test installation, upgrades, rollbacks and removal with Helm.
	$(E2E) -timeout 20m -label-filter='$(LABELS)' ./e2e/helm
test-catalogs: local-only cluster cluster-samples docker-build docker-push package prober prometheus bin/opm # Push this tree, its predecessor, later versions, and a catalog.
	CONTAINER_TOOL="$(CONTAINER_TOOL)" OPM_VERSION=$(OPM_VERSION) hack/catalog/test-catalogs.sh

.PHONY: cluster-test
cluster-test: cluster-tools ## Test that the local cluster starts, stops, and leaves nothing behind; yours may run beside it.
	go -C hack/local-cluster test -tags lifecycle -run Lifecycle -count=1 -timeout 30m .

.PHONY: multiarch-check
multiarch-check: IMAGE_PLATFORMS = $(PLATFORMS)
multiarch-check: EXTRA_PACKAGES = skopeo jq
multiarch-check: cluster bin/operator-sdk bin/qemu-aarch64-static images push ## Compare the platforms of the pushed images with those that the bundle names, and start each program on arm64 under emulation.
	hack/multiarch-check.sh $$(cat bin/cluster/registry)
