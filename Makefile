# The version that is built and packaged. config/ and bundle/ name it, too: `make verify` compares them.
VERSION ?= 0.4.0
# The day of the release: the bundle's createdAt, so that the same tree always makes the same bundle.
RELEASE_DATE ?= 2026-11-21T00:00:00Z

# Where the images live; everything in the tree names the published place.
PUBLISHED := ghcr.io/kkloud-io/echo-operator
IMAGE_TAG_BASE ?= $(PUBLISHED)
IMG ?= $(IMAGE_TAG_BASE):v$(VERSION)
HTTP_ECHO_IMG ?= $(IMAGE_TAG_BASE)-http-echo:1.0.0
BUNDLE_IMG ?= $(IMAGE_TAG_BASE)-bundle:v$(VERSION)
CATALOG_IMG ?= $(IMAGE_TAG_BASE)-catalog:v$(VERSION)
SCORECARD_IMG ?= $(IMAGE_TAG_BASE)-scorecard:v$(VERSION)
export PROBER_IMG ?= $(IMAGE_TAG_BASE)-prober:test

PLATFORMS ?= linux/amd64,linux/arm64
export BUILDAH_ISOLATION ?= chroot

# The same Go everywhere: an image's digest depends on it.
export GOTOOLCHAIN ?= $(shell awk '$$1 == "toolchain" {print $$2}' go.mod)
# And the same flags, so that every package is compiled once for programs, tests and linters.
# `go vet` is one of the linters.
export CGO_ENABLED = 0
BUILD_FLAGS := -trimpath -buildvcs=false -vet=off
export GOFLAGS := $(filter-out $(BUILD_FLAGS),$(GOFLAGS)) $(BUILD_FLAGS)

# Your kubectl, if you have one. Otherwise it is built with the rest of Kubernetes.
ifeq ($(origin KUBECTL),undefined)
KUBECTL := $(or $(shell command -v kubectl 2>/dev/null),bin/kubectl)
endif

BIN := $(CURDIR)/bin
export PATH := $(BIN):$(PATH)
SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec
.DELETE_ON_ERROR:

# Every target uses the local cluster, its registry, and the images that buildah builds for it.
# USE_EXISTING_CLUSTER=true selects the cluster of your kubeconfig and the registries that the
# images name. The targets install, deploy, run and their opposites always use your kubeconfig,
# unless you say CLUSTER=local.
LOCAL_KUBECONFIG := $(BIN)/cluster/kubeconfig
YOUR_KUBECONFIG := $(KUBECONFIG)
ifeq ($(USE_EXISTING_CLUSTER),true)
export USE_EXISTING_CLUSTER
else
LOCAL_CLUSTER := cluster-up
export KUBECONFIG := $(LOCAL_KUBECONFIG)
CONTAINER_TOOL ?= buildah --root $(BIN)/images --runroot $(BIN)/images/run
endif
CONTAINER_TOOL ?= $(shell docker info >/dev/null 2>&1 && echo docker || echo buildah)

# The images of an installation.
INSTALLED := http-echo docker bundle catalog

.DEFAULT_GOAL := help

##@ Main

.PHONY: demo
demo: cluster $(INSTALLED:%=%-build) $(INSTALLED:%=%-push) ## Start a cluster with OLM, install the operator, create an Echo, and show its answer.
	hack/demo.sh

LAYERS := verify lint unit bin/etcd bin/kube-apiserver integration bench-check chaos-short bundle-check manifests-check monitoring-check \
	cluster-test e2e $(if $(LOCAL_CLUSTER),e2e-olm-short cluster-down)

.PHONY: test
test: | bin ## Everything that must pass, layer by layer.
	@ahead=; trap 'kill $$ahead 2>/dev/null || true' EXIT; \
	for layer in $(LAYERS); do \
		printf '\n\033[1m== make %s\033[0m\n' $$layer; start=$$SECONDS; \
		case $$layer in \
			integration) nice -n 19 $(MAKE) ahead >bin/ahead.log 2>&1 & ahead=$$! ;; \
			bundle-check) wait; ahead= ;; \
		esac; \
		$(MAKE) --no-print-directory $$layer; \
		echo "== make $$layer: passed in $$((SECONDS-start)) s"; \
	done; \
	echo "Everything passed in $$SECONDS s."

# While some layers wait more than they work, what the next need is compiled, with what they
# leave of the processors. If that fails, it is made again where it is needed, and tells why.
.PHONY: ahead
ahead: cluster-tools $(addprefix bin/,kube-score kubesec promtool prometheus) images

.PHONY: help
help: ## This list.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36m<target>\033[0m\n"} \
		/^[a-zA-Z0-9_-]+:.*?##/ {printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2} \
		/^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)}' $(MAKEFILE_LIST)

##@ Development

.PHONY: manifests
manifests: bin/controller-gen ## Generate the CRD and the operator's roles.
	controller-gen crd rbac:roleName=manager-role paths=./... \
		output:crd:artifacts:config=config/crd/bases output:rbac:artifacts:config=config/rbac

.PHONY: generate
generate: bin/controller-gen ## Generate the deep copy functions.
	controller-gen object paths=./api/...

.PHONY: docs
docs: bin/crd-ref-docs ## Generate the references of the API and of the metrics.
	crd-ref-docs --source-path api/v1 --config docs/crd-ref-docs.yaml --renderer markdown --output-path docs/api.md
	go test ./internal/metrics -run Page -update

.PHONY: version
version: # Print the version, for scripts.
	@echo $(VERSION)

.PHONY: fmt
fmt: bin/golangci-lint ## Format the Go code.
	golangci-lint fmt ./...

# The tests that are Go modules of their own.
MODULES := hack test

.PHONY: lint
lint: bin/golangci-lint bin/actionlint ## Lint the Go code and the workflows.
	golangci-lint run ./...
	for module in $(MODULES); do (cd $$module && golangci-lint run --config ../.golangci.yml --disable gosec ./...); done
	actionlint

# What the word list of hack/vale covers: not the documents, nor what is generated.
WORDS := *.go *.yaml *.yml *.sh *.toml *.mk *Makefile *Dockerfile .ci/* :!bundle :!catalog/echo-operator :!config/crd/bases :!hack/vale
.PHONY: lint-words
lint-words: bin/vale ## Check the words of code, manifests and scripts by the list in hack/vale; WORDS=test/chaos checks one folder.
	git ls-files $(WORDS:%='%') | xargs vale --output=line

.PHONY: build
build: ## Build the operator for this machine.
	go build -ldflags "-X main.version=$(VERSION)" -o bin/manager ./cmd

run: install ## Run the operator on this machine against the cluster of your kubeconfig.
	RELATED_IMAGE_HTTP_ECHO=$(HTTP_ECHO_IMG) go run ./cmd --zap-devel

##@ Tests

# The race detector is written in C.
RACE := CGO_ENABLED=1 go test -race
PURE := ./api/... ./internal/children/... ./internal/metrics ./internal/status/...

.PHONY: unit
unit: ## Test what needs no API server; the shapes and the status to at least 95 %.
	$(RACE) $(PURE)
	CGO_ENABLED=1 go -C test test -race ./chaos/... ./docs
	CGO_ENABLED=1 go -C hack test -race ./catalog/releases
	go test ./cmd/... # Without the detector, as the servers of metrics are large.
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5s
	@go test -coverprofile=bin/unit.cover ./internal/children/... ./internal/status/... >/dev/null
	@$(call covered,bin/unit.cover,95)

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Fuzz the shapes and the status, each target for FUZZTIME.
	@for package in $$(go list ./internal/children ./internal/status); do \
		for target in $$(go test -list '^Fuzz' $$package | grep ^Fuzz); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

.PHONY: integration
integration: build bin/kube-apiserver bin/etcd ## Test the controller on a real API server; at least 85 %.
	KUBEBUILDER_ASSETS=$(BIN) $(RACE) -timeout 15m -coverprofile=bin/integration.cover ./internal/controller/...
	@$(call covered,bin/integration.cover,85)

# $(call covered,<profile>,<per cent>) fails where a coverage profile has less than that.
covered = go tool cover -func=$(1) | awk '/^total:/ {sub("%","",$$3); printf "coverage %s %% (at least $(2) %%)\n", $$3; exit $$3 < $(2)}'

# SEED=… replays one schedule; SUITE=… and SCENARIO=… choose among the others.
CHAOS = go -C test run ./chaos -root $(CURDIR)
.PHONY: chaos chaos-short chaos-mutants
chaos: build bin/kube-apiserver bin/etcd ## Try to break the operator by faults of every kind; two hours.
	$(CHAOS) -report $(BIN)/chaos.json $(if $(SEED),-suite schedules -runs 1 -seed $(SEED),-runs $(or $(RUNS),2000) -suite "$(SUITE)" -scenario "$(SCENARIO)")
# Every day has another sample of the planted bugs; MUTANTS=0 takes them all.
MUTANTS ?= $(shell date +%Y%m%d)
chaos-short: build bin/kube-apiserver bin/etcd ## Try it for some minutes, and see that planted bugs are caught.
	$(CHAOS) -short
	$(CHAOS) -short -mutants -seed $(MUTANTS)
chaos-mutants: build bin/kube-apiserver bin/etcd ## See which part of it catches which planted bug; an hour and a half.
	$(CHAOS) -mutants -report $(BIN)/chaos-mutants.json -suite "$(SUITE)" -scenario "$(SCENARIO)"

.PHONY: cluster-test
cluster-test: cluster-tools ## Test the local cluster: that it comes, goes, and leaves nothing behind.
	cd hack/local-cluster && go test ./... && go test -tags lifecycle -run Lifecycle -count=1 .

# N=… and RUNS=… make it shorter.
BENCH = go -C test run ./performance -root $(CURDIR)
.PHONY: bench bench-check bench-writes
bench: build bin/kube-apiserver bin/etcd ## Compare the operator with a baseline client that writes the same objects; seventy minutes, or two with N=200 RUNS=3.
	$(BENCH) -report $(BIN)/bench.json -charts $(BIN)/charts $(if $(N),-n $(N)) $(if $(RUNS),-turns $(RUNS))
bench-check: build bin/kube-apiserver bin/etcd ## Compare requests, allocations and memory with the recorded baseline; RECORD=1 records them again.
	go -C test test ./performance
	$(BENCH) -check $(CURDIR)/test/performance/recorded_baseline.json $(if $(RECORD),-record)
bench-writes: bin/kube-apiserver bin/etcd ## Measure the two ways to write a child; see docs/adr.
	KUBEBUILDER_ASSETS=$(BIN) go -C test test ./performance -run '^$$' -bench . -benchtime 300x -count 5

# The suites with the tag e2e need a cluster: the local one, or any other with USE_EXISTING_CLUSTER=true.
E2E := go -C test test -tags e2e -count=1 -v
.PHONY: e2e
e2e: cluster bin/operator-sdk images push prober ## Test the operator on a cluster, installed by OLM.
	$(E2E) -timeout 30m ./e2e -ginkgo.v

# Upgrades are tested with the images of every release, on the local cluster only.
.PHONY: e2e-olm e2e-olm-short
e2e-olm: ## Test every upgrade edge in both OLMs, and all about the package; half an hour.
	@for part in e2e-olm-v0 e2e-olm-v1 multiarch-check bundle-check-old; do \
		$(MAKE) --no-print-directory $$part; \
	done # One after the other: multiarch-check builds the images anew, for every platform.
	@COLD=1 $(MAKE) --no-print-directory reproducible
# `make test` has no time for all of it: every day another one of these.
DAY := $(shell echo $$(( $$(date +%s) / 86400 % 6 + 1 )))
TODAY = $(word $(DAY),e2e-olm-v0:upgrade e2e-olm-v0:walk e2e-olm-v0:monitoring e2e-olm-v1:walk||!every-edge e2e-olm-v0:modes reproducible:)
e2e-olm-short: export SKIP = scorecard
e2e-olm-short: ## Test a sixth of it, another one every day.
	@$(MAKE) --no-print-directory $(subst :, LABELS=',$(TODAY))'

LABELS ?=
.PHONY: e2e-olm-v0 e2e-olm-v1 test-catalogs
e2e-olm-v0: test-catalogs ## Test upgrades, install modes and a mirror by OLM v0.
	$(E2E) -timeout 40m ./e2e/olmv0 -ginkgo.v -ginkgo.label-filter='$(LABELS)'
e2e-olm-v1: cluster-olm-v1 test-catalogs ## Test installation, upgrades and removal by OLM v1.
	CATALOG_IMG=$(PUBLISHED)-catalog:published $(E2E) -timeout 40m ./e2e/olmv1 -ginkgo.v -ginkgo.label-filter='$(LABELS)'
test-catalogs: local-only cluster images push prober prometheus releases # The catalogs that those tests install from.
	CONTAINER_TOOL="$(CONTAINER_TOOL)" OPM_VERSION=$(OPM_VERSION) hack/catalog/test-catalogs.sh

.PHONY: prober
prober: cluster # The image of the pod that requests Echoes during the tests.
	go -C test build -o $(BIN)/prober/prober ./e2e/prober
	@$(build_data) -f test/e2e/prober/Dockerfile -t $(PROBER_IMG) bin/prober >/dev/null
	$(call push,$(PROBER_IMG),data)

.PHONY: prometheus
prometheus: cluster bin/prometheus # The one that watches the operator in the tests, with the libraries that it needs.
	@rm -rf bin/prometheus-image; mkdir -p bin/prometheus-image/bin; cp bin/prometheus bin/prometheus-image/bin
	@cp -L --parents $$(ldd bin/prometheus | grep -o '/[^ ]*') bin/prometheus-image
	@$(build_data) -f test/e2e/prometheus/Dockerfile -t $(PROMETHEUS_IMG) bin/prometheus-image >/dev/null
	$(call push,$(PROMETHEUS_IMG),data)
PROMETHEUS_IMG = $(shell awk '$$1 == "image:" {print $$2}' test/e2e/prometheus/prometheus.yaml)

.PHONY: manifests-check
manifests-check: bin/kustomize bin/kube-score bin/kubesec ## Check the operator's manifests, and those of Echoes, by the rules of linters.
	go -C test test -count=1 ./manifests/linters

.PHONY: monitoring-check
monitoring-check: bin/promtool ## Test when each alert fires and when not, that it has a runbook, and the dashboard.
	go -C test test -count=1 ./manifests/monitoring

.PHONY: local-only
local-only:
	@$(if $(LOCAL_CLUSTER),,echo "This needs the registry of the local cluster: unset USE_EXISTING_CLUSTER." >&2; exit 1)

.PHONY: reproducible
reproducible: bin/controller-gen bin/kustomize bin/operator-sdk bin/opm ## Build everything in two clones, and compare every byte.
	hack/reproducible.sh

.PHONY: bundle-check
bundle-check: bin/operator-sdk bin/opm ## Validate bundle and catalog; warnings count as errors.
	hack/bundle-check.sh

.PHONY: bundle-check-old
bundle-check-old: bin/validate-bundle-1.36 bin/opm-1.45 ## Validate bundle and catalog with the older tools of OperatorHub's pipeline.
	go -C hack vet -modfile=../tools/operator-sdk-1.36.mod ./validate-bundle
	validate-bundle-1.36 bundle
	opm-1.45 validate catalog/echo-operator
	@echo "The older tools agree."

.PHONY: multiarch-check
multiarch-check: IMAGE_PLATFORMS = $(PLATFORMS)
multiarch-check: cluster bin/operator-sdk debian-packages images push ## Compare the platforms of the pushed images with those that the bundle names.
	hack/multiarch-check.sh $$(cat bin/cluster/registry)

.PHONY: crd-check
crd-check: ## Check that what a released CRD accepted stays valid and unchanged.
	@echo "Trying some thousand Echoes of each release against today's CRD ..."
	@GOGC=400 go -C test test -count=1 ./manifests/crdcompat # GOGC halves the time

.PHONY: verify
verify: bin/controller-gen bin/kustomize bin/operator-sdk bin/opm bin/crd-ref-docs ## Check that everything generated is current, and every version the same.
	hack/verify.sh
	@$(MAKE) --no-print-directory crd-check

##@ Packaging

CHANNELS ?= candidate-v0,fast-v0,stable-v0
DEFAULT_CHANNEL ?= stable-v0

# The manifests name published images; this puts those of one's own in their place.
with_images = sed -e '' $(if $(IMG:$(PUBLISHED):v$(VERSION)=),-e 's|$(PUBLISHED)[:@][^ "]*|$(IMG)|') \
	$(if $(OWN_PLACE),-e 's|$(PUBLISHED)-http-echo[:@][^ "]*|$(HTTP_ECHO_IMG)|' -e 's|$(PUBLISHED)-scorecard[:@][^ "]*|$(SCORECARD_IMG)|')
OWN_PLACE := $(PUBLISHED:$(IMAGE_TAG_BASE)=)

.PHONY: bundle
bundle: manifests generate bin/operator-sdk bin/kustomize ## Generate the bundle.
	operator-sdk generate kustomize manifests -q
	rm -rf bundle
	kustomize build config/manifests | $(with_images) | operator-sdk generate bundle -q --overwrite \
		--version $(VERSION) --channels $(CHANNELS) --default-channel $(DEFAULT_CHANNEL)
	sed -i -e 's/createdAt: .*/createdAt: "$(RELEASE_DATE)"/' \
		-e "s|^  relatedImages:|&\n  - image: $$(sed -n 's/^ *containerImage: //p' bundle/manifests/*.clusterserviceversion.yaml)\n    name: manager\
	\n  - image: $$(sed -n 's/^.*image: //p' bundle/tests/scorecard/config.yaml | sort -u)\n    name: scorecard|" \
		bundle/manifests/*.clusterserviceversion.yaml
	operator-sdk bundle validate bundle

.PHONY: operatorhub operatorhub-all
operatorhub: ## Write what a pull request to OperatorHub carries for this version, and check it.
	go -C hack run ./operatorhub -root $(CURDIR) $(BIN)/operatorhub
operatorhub-all: ## Write that for every release, and check it.
	go -C hack run ./operatorhub -all -root $(CURDIR) $(BIN)/operatorhub

.PHONY: images
images: scorecard-build $(INSTALLED:%=%-build) ## Build all images.

.PHONY: push
push: scorecard-push $(INSTALLED:%=%-push) ## Push them, for the local cluster into its own registry.

# buildah serves where there is no engine, and often no registry either: it takes Go, the
# modules and the build cache from this machine. The same tree makes the same image.
RELEASE_TIME = $$(date -d $(RELEASE_DATE) +%s)
ifeq ($(notdir $(firstword $(CONTAINER_TOOL))),buildah)
HOST_GO = --build-arg GO_IMAGE=scratch --volume /tmp:/tmp \
	--volume $$(go env GOROOT):/usr/local/go:ro --volume $$(go env GOMODCACHE):/go/pkg/mod \
	--volume $$(go env GOCACHE):/go/cache --volume /etc/ssl/certs:/etc/ssl/certs:ro

# $(call build_image,<name>,<target of the Dockerfile>,<platforms>,<time>); the platforms
# one after the other, as the order in the index is part of its digest.
define build_image
@echo "Building image $(1) for $(3) ..."
@$(CONTAINER_TOOL) manifest rm $(1) >/dev/null 2>&1 || $(CONTAINER_TOOL) rmi --force $(1) >/dev/null 2>&1 || true
@$(CONTAINER_TOOL) manifest create $(1) >/dev/null
@for platform in $(subst $(comma), ,$(3)); do \
	image=$$($(CONTAINER_TOOL) build -q --target $(2) --platform $$platform --timestamp $(4) $(HOST_GO) --build-arg VERSION=$(VERSION) .); \
	$(CONTAINER_TOOL) manifest add $(1) $$image >/dev/null; \
done
endef
build_data = $(CONTAINER_TOOL) build -q --timestamp $(RELEASE_TIME)
# The manifests always name its digest, which is that of the image for every platform.
HTTP_ECHO_PLATFORMS = $(PLATFORMS)
# $(call push_image,<name>,<where>,<flags>), and push_data for an image without platforms
push_image = $(CONTAINER_TOOL) manifest push -q --all $(3) $(1) docker://$(2)
push_data = $(CONTAINER_TOOL) push -q $(3) $(1) docker://$(2)
else
# An engine keeps images of one platform; one of several goes straight to the registry.
build_image = docker buildx build $(if $(findstring $(comma),$(3)),--push,--load) --platform $(3) --target $(2) --build-arg VERSION=$(VERSION) -t $(1) .
build_data = $(CONTAINER_TOOL) build -q
push_image = $(CONTAINER_TOOL) push $(3) $(1)
push_data = $(push_image)
HTTP_ECHO_PLATFORMS = $(IMAGE_PLATFORMS)
endif

# A digest that the manifests name is that of the image for every platform.
IMAGE_PLATFORMS := $(if $(shell grep '$(PUBLISHED)@' config/manager/manager.yaml),$(PLATFORMS),linux/$(shell go env GOARCH))

.PHONY: docker-build docker-buildx docker-push
docker-build: ## Build the operator's image for this machine.
	$(call build_image,$(IMG),manager,$(IMAGE_PLATFORMS),$(RELEASE_TIME))
docker-buildx: ## Build the operator's image for every platform.
	$(call build_image,$(IMG),manager,$(PLATFORMS),$(RELEASE_TIME))
docker-push: ## Push the operator's image.
	$(call push,$(IMG),image)

.PHONY: http-echo-build http-echo-push
http-echo-build: ## Build the server's image.
	$(call build_image,$(HTTP_ECHO_IMG),http-echo,$(HTTP_ECHO_PLATFORMS),0)
http-echo-push: ## Push the server's image.
	$(call push,$(HTTP_ECHO_IMG),image)

.PHONY: scorecard-build scorecard-push
scorecard-build: ## Build the image of the scorecard's tests.
	$(call build_image,$(SCORECARD_IMG),scorecard,$(IMAGE_PLATFORMS),$(RELEASE_TIME))
scorecard-push: ## Push the image of the scorecard's tests.
	$(call push,$(SCORECARD_IMG),image)

# Bundle and catalog for a place of one's own are made from a copy that names it.
.PHONY: package
package:
	@rm -rf bin/package; mkdir -p bin/package; cp -r bundle bundle.Dockerfile catalog/Dockerfile config/olm config/olm-v1 config/samples bin/package
	@for file in $$(find bin/package -type f); do $(with_images) $$file | sed 's|$(PUBLISHED)|$(IMAGE_TAG_BASE)|g' >$$file.new; mv $$file.new $$file; done
export OLM_MANIFESTS := $(if $(OWN_PLACE),bin/package/olm,config/olm)
export SAMPLES := $(if $(OWN_PLACE),bin/package/samples,config/samples)
export OLM_V1_MANIFESTS := $(if $(OWN_PLACE),bin/package/olm-v1,config/olm-v1)

.PHONY: bundle-build bundle-push
bundle-build: package ## Build the bundle's image.
	@echo "Building image $(BUNDLE_IMG) ..."
	@$(build_data) -f bin/package/bundle.Dockerfile -t $(BUNDLE_IMG) bin/package >/dev/null
bundle-push: ## Push the bundle's image.
	$(call push,$(BUNDLE_IMG),data)

# This catalog offers the version of this tree, and nothing else; the published one is in catalog/.
.PHONY: catalog-build catalog-push
catalog-build: package bin/opm ## Build the image of a catalog that offers this tree's version.
	@echo "Building image $(CATALOG_IMG) ..."
	@go -C hack run ./catalog build $(BUNDLE_IMG)
	@$(build_data) -f bin/package/Dockerfile -t $(CATALOG_IMG) bin/package >/dev/null
catalog-push: ## Push the catalog's image.
	$(call push,$(CATALOG_IMG),data)

# $(call push,<image>,<data or image>) pushes, with PUSH_FLAGS; for the local cluster into
# its registry, which serves every image under its public name.
ifdef LOCAL_CLUSTER
path_of = $(patsubst quay.io/%,%,$(patsubst ghcr.io/%,%,$(1)))
push = @test -f bin/cluster/registry || { echo "The local cluster is not running. Run \"make cluster-up\", or set USE_EXISTING_CLUSTER=true to push to $(1)." >&2; exit 1; }; \
	echo "Pushing $(1) ..."; $(call push_$(2),$(1),$$(cat bin/cluster/registry)/$(call path_of,$(1)),--tls-verify=false)
else
push = $(call push_$(2),$(1),$(1),$(PUSH_FLAGS))
endif

##@ Releases

.PHONY: pin
pin: IMAGE_PLATFORMS = $(PLATFORMS)
pin: bin/controller-gen bin/kustomize bin/operator-sdk http-echo-build docker-build scorecard-build ## Name this version's images by their digests, as a release has to.
	$(call pin_image,$(HTTP_ECHO_IMG),$(PUBLISHED)-http-echo)
	$(call pin_image,$(IMG),$(PUBLISHED))
	$(call pin_image,$(SCORECARD_IMG),$(PUBLISHED)-scorecard)
	@$(MAKE) --no-print-directory bundle

# $(call pin_image,<image>,<name without tag>)
define pin_image
@$(CONTAINER_TOOL) manifest push -q --all --digestfile bin/digest $(1) oci:bin/oci
@echo "$(1) is $$(cat bin/digest)"
@sed -i "s|$(2)[:@][^ ]*|$(2)@$$(cat bin/digest)|" config/manager/manager.yaml config/manifests/bases/*.yaml \
	config/samples/showcase.yaml config/scorecard/config.yaml
@rm -r bin/digest bin/oci
endef

.PHONY: sbom
sbom: build bin/http-echo bin/syft ## List the modules that the operator and http-echo are made of, as SPDX.
	for program in manager http-echo; do SYFT_CHECK_FOR_APP_UPDATE=false syft scan -q file:bin/$$program -o spdx-json=bin/$$program.spdx.json; done

.PHONY: catalog
catalog: bin/opm ## Render the published catalog from its template and the released bundles.
	go -C hack run ./catalog render

.PHONY: releases
releases: local-only cluster ## Build the images of every release from its commit, and push them into the local cluster.
	CONTAINER_TOOL="$(CONTAINER_TOOL)" hack/catalog/releases.sh

##@ Deployment without OLM

CLUSTER_TARGETS := install uninstall deploy undeploy run
$(CLUSTER_TARGETS): export KUBECONFIG := $(if $(filter local,$(CLUSTER)),$(LOCAL_KUBECONFIG),$(YOUR_KUBECONFIG))
$(CLUSTER_TARGETS): bin/kustomize $(filter bin/kubectl,$(KUBECTL)) $(if $(filter local,$(CLUSTER)),cluster-up)
.PHONY: $(CLUSTER_TARGETS)

install: manifests ## Install the CRD into the cluster of your kubeconfig; CLUSTER=local selects the local cluster.
	kustomize build config/crd | $(KUBECTL) apply --server-side -f -
uninstall: ## Delete the CRD from that cluster, and every Echo with it.
	kustomize build config/crd | $(KUBECTL) delete --ignore-not-found -f -

deploy: manifests ## Install the CRD and the operator into that cluster.
	kustomize build config/default | $(with_images) | $(KUBECTL) apply --server-side -f -
undeploy: ## Delete the operator and the CRD from that cluster, and every Echo with them.
	kustomize build config/default | $(KUBECTL) delete --ignore-not-found -f -

##@ Local cluster

CLUSTER_TOOLS := catalog containerd containerd-shim-runc-v2 copy-content coredns cpb etcd grpc-health-probe http-echo \
	kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet local-cluster nginx olm opm \
	package-server pause

.PHONY: cluster cluster-up cluster-olm-v1 cluster-down
cluster: $(LOCAL_CLUSTER)
cluster-up: cluster-tools ## Start the local cluster: a disposable Kubernetes with OLM.
	local-cluster up
cluster-olm-v1: cluster-up $(addprefix bin/,catalogd operator-controller olm-v1-crds.yaml) ## Add OLM v1 to it.
	local-cluster olm-v1
cluster-down: ## Stop it; nothing stays behind but the files in bin/.
	@if [ -x bin/local-cluster ]; then local-cluster down; fi

.PHONY: cluster-tools
cluster-tools: debian-packages $(CLUSTER_TOOLS:%=bin/%) # Everything that the local cluster is made of.

##@ Tools

# On a machine without modules, those of the large tools come while others are compiled.
bin:
	@mkdir bin; for tool in operator-sdk olm golangci-lint kubernetes containerd; do \
		go list -e -modfile=tools/$$tool.mod -deps tool; \
	done >/dev/null 2>&1 &

# A tool is built from the module file that pins it and all that it is made of: once, and
# again when that file changes.
# $(call build,<module file>,<flags>,<packages>)
define build
@echo "Building $(1) ..."
@start=$$SECONDS; mkdir -p bin; \
go build -modfile=tools/$(1).mod $(2) $(or $(3),-o bin/ tool); \
touch $@; echo "Built $(1) in $$((SECONDS-start)) s"
endef

# $(call set,<package>,<variable>=<value> ...) stamps variables, as the projects' own releases do.
set = $(foreach v,$(2),-X $(1).$(v))

# $(call pinned,<module file>,<module>) is the version that the module file requires.
pinned = $(shell awk '{sub("^require ", "")} $$1 == "$(2)" && $$2 ~ "^v" {print $$2; exit}' tools/$(1).mod)

SIMPLE_TOOLS := actionlint controller-gen crd-ref-docs golangci-lint grpc-health-probe http-echo kube-score kubesec kustomize
$(SIMPLE_TOOLS:%=bin/%): bin/%: tools/%.mod tools/%.sum
	$(call build,$*,-ldflags "-s -w")

# Its parsers are written in C.
bin/vale: tools/vale.mod tools/vale.sum
	CGO_ENABLED=1 go build -modfile=tools/vale.mod -ldflags "-s -w" -o bin/ tool

bin/syft: tools/syft.mod tools/syft.sum
	$(call build,syft,-ldflags "-s -w $(call set,main,version=$(SYFT_VERSION:v%=%))")

bin/operator-sdk: tools/operator-sdk.mod tools/operator-sdk.sum
	$(call build,operator-sdk,-tags containers_image_openpgp -ldflags "-s -w \
		$(call set,github.com/operator-framework/operator-sdk/internal/version,$(addsuffix =$(SDK_VERSION),Version GitVersion ImageVersion))",-o $@ github.com/operator-framework/operator-sdk/cmd/operator-sdk)

# opm and OLM are of one module file, as they are made of the same: that is compiled once.
OPM := github.com/operator-framework/operator-registry
OLM_TAGS = -tags containers_image_openpgp$(comma)json1
bin/opm: tools/olm.mod tools/olm.sum
	$(call build,olm,$(OLM_TAGS) -ldflags "-s -w $(call set,$(OPM)/cmd/opm/version,opmVersion=$(OPM_VERSION))",-o $@ $(OPM)/cmd/opm)

bin/opm-1.45: tools/opm-1.45.mod tools/opm-1.45.sum
	$(call build,opm-1.45,$(OLM_TAGS) -ldflags "-s -w",-o $@ $(OPM)/cmd/opm)

bin/validate-bundle-1.36: hack/validate-bundle/main.go tools/operator-sdk-1.36.mod tools/operator-sdk-1.36.sum
	@echo "Building $(@F) ..."; go -C hack build -modfile=../tools/operator-sdk-1.36.mod -ldflags "-s -w" -o $(CURDIR)/$@ ./validate-bundle

bin/etcd: tools/etcd.mod tools/etcd.sum
	$(call build,etcd,-ldflags "-s -w",-o bin/etcd go.etcd.io/etcd/server/v3)

KUBERNETES := kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl
$(KUBERNETES:%=bin/%) &: tools/kubernetes.mod tools/kubernetes.sum
	$(call build,kubernetes,-ldflags "-s -w $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
		$(call set,$(p),gitVersion=$(KUBERNETES_VERSION) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION)))))")

bin/containerd bin/containerd-shim-runc-v2 &: tools/containerd.mod tools/containerd.sum
	$(call build,containerd,-ldflags "-s -w $(call set,github.com/containerd/containerd/v2/version,Version=$(CONTAINERD_VERSION))")

OLM := github.com/operator-framework/operator-lifecycle-manager
bin/olm bin/catalog bin/package-server bin/copy-content bin/cpb &: tools/olm.mod tools/olm.sum
	$(call build,olm,$(OLM_TAGS) -ldflags "-s -w",-o bin/ $(addprefix $(OLM)/,cmd/olm cmd/catalog cmd/package-server cmd/copy-content util/cpb))

bin/catalogd bin/operator-controller &: tools/olm-v1.mod tools/olm-v1.sum
	$(call build,olm-v1,-tags containers_image_openpgp -ldflags "-s -w \
		$(call set,$(OLM_V1)/internal/shared/version,version=$(OLM_V1_VERSION))")

bin/olm-v1-crds.yaml: bin/catalogd
	cat $$(go list -modfile=tools/olm-v1.mod -m -f '{{.Dir}}' $(OLM_V1))/config/base/*/crd/bases/*.yaml >$@

# The local cluster is a Go module of its own, so that none of it reaches the operator's.
CLUSTER_SOURCES := $(shell find hack/local-cluster -type f -not -name '*_test.go' -not -name '*.md' 2>/dev/null)
bin/local-cluster: $(CLUSTER_SOURCES)
	$(call build_cluster,)
bin/coredns bin/pause: bin/%: $(CLUSTER_SOURCES)
	$(call build_cluster,/images/$*)
build_cluster = @echo "Building $(@F) ..."; go -C hack build -ldflags "-s -w" -o $(CURDIR)/$@ ./local-cluster$(1)

# Only the programs of these Debian packages: to install them would start servers here.
bin/nginx: | debian-packages
	$(call unpack,nginx,usr/sbin/nginx)
bin/prometheus bin/promtool &: | debian-packages
	$(call unpack,prometheus,usr/bin/prometheus usr/bin/promtool)
unpack = @echo "Unpacking $(1) ..."; d=$$(mktemp -d); cd $$d; apt-get -o APT::Sandbox::User=root download -qq $(1); \
	dpkg-deb -x $(1)_*.deb .; install $(2) $(BIN); rm -rf $$d

comma := ,
KUBERNETES_VERSION = $(call pinned,kubernetes,k8s.io/kubernetes)
CONTAINERD_VERSION = $(call pinned,containerd,github.com/containerd/containerd/v2)
SDK_VERSION = $(call pinned,operator-sdk,github.com/operator-framework/operator-sdk)
OLM_V1 := github.com/operator-framework/operator-controller
OLM_V1_VERSION = $(call pinned,olm-v1,$(OLM_V1))
SYFT_VERSION = $(call pinned,syft,github.com/anchore/syft)
OPM_VERSION = $(call pinned,olm,$(OPM))

DEBIAN_PACKAGES := runc iptables iproute2 conntrack containernetworking-plugins buildah docker-registry busybox-static skopeo chromium
.PHONY: debian-packages
debian-packages: | bin
	@if ! dpkg -s $(DEBIAN_PACKAGES) >/dev/null 2>&1; then \
		echo "Installing Debian packages: $(DEBIAN_PACKAGES) ..."; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEBIAN_PACKAGES) >/dev/null; \
	fi
