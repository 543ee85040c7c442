# The version to build and package. config/ and bundle/ name it, too: `make verify` compares them.
VERSION ?= 1.0.0-rc.3
# The day of the release. It is the bundle's createdAt, so that the same tree always gives the same bundle.
RELEASE_DATE ?= 2026-11-29T00:00:00Z

# The files of this repository name the images at PUBLISHED. IMG=<registry>/<name>:<tag> alone names all of your own images:
# <registry>/<name>-http-echo:<tag> and so on.
PUBLISHED := ghcr.io/kkloud-io/echo-operator
IMAGE_TAG_BASE ?= $(PUBLISHED)
IMG ?= $(IMAGE_TAG_BASE):v$(VERSION)
IMG_TAG = $(if $(findstring @,$(IMG)),$(error IMG is $(IMG): it must have a tag instead of a digest),$(or $(word 2,$(subst :, ,$(notdir $(IMG)))),latest))
IMG_NAME = $(IMG:%:$(IMG_TAG)=%)
HTTP_ECHO_IMG ?= $(IMG_NAME)-http-echo:$(IMG_TAG)
VERIFIER_IMG ?= $(IMG_NAME)-verifier:$(IMG_TAG)
BUNDLE_IMG ?= $(IMG_NAME)-bundle:$(IMG_TAG)
# The tag of the catalog moves: clusters poll it.
CATALOG_TAG := v$(firstword $(subst ., ,$(VERSION)))
CATALOG_IMG ?= $(IMG_NAME)-catalog:$(CATALOG_TAG)
SCORECARD_IMG ?= $(IMG_NAME)-scorecard:$(IMG_TAG)
# The SDK's image of its own scorecard tests.
SCORECARD_TEST_IMG ?= quay.io/operator-framework/scorecard-test:$(SDK_VERSION)
export PROBER_IMG ?= $(IMG_NAME)-prober:test

PLATFORMS ?= linux/amd64,linux/arm64
CHANNELS ?= candidate-v1,stable-v1
DEFAULT_CHANNEL ?= stable-v1

# Use the same Go everywhere: the digest of an image depends on it.
export GOTOOLCHAIN ?= $(shell awk '$$1 == "toolchain" {print $$2}' go.mod)
# Use the same flags everywhere: programs, tests and linters then share the build cache. `make lint` runs go vet.
export CGO_ENABLED = 0
BUILD_FLAGS := -trimpath -buildvcs=false -vet=off
export GOFLAGS := $(filter-out $(BUILD_FLAGS),$(GOFLAGS)) $(BUILD_FLAGS)

BIN := $(CURDIR)/bin
export PATH := $(BIN):$(PATH)
# The make of macOS, 3.81, does not know .SHELLFLAGS.
SHELL := /usr/bin/env bash -eo pipefail
.DELETE_ON_ERROR:
# Images are built before they are pushed.
.NOTPARALLEL:
.DEFAULT_GOAL := help

include make/tools.mk make/cluster.mk make/images.mk make/package.mk make/release.mk make/test.mk

##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36m<target>\033[0m\n"} \
		/^[a-zA-Z0-9_-]+:.*?##/ {printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2} \
		/^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)}' $(MAKEFILE_LIST)

.PHONY: demo
ifeq ($(CLUSTER),kind)
demo: ## Start a cluster, install the operator, create an Echo, and show its response: on kind, or without docker and kind on a local cluster with OLM.
	hack/kind.sh
else
demo: export PLAN := $(call plan,$(CLUSTER_TOOLS) $(if $(LOCAL_CLUSTER),traefik))
demo: cluster $(if $(LOCAL_CLUSTER),cluster-gateway) $(INSTALLED:%=%-build) $(INSTALLED:%=%-push)
	hack/demo.sh
	$(own_bin)
endif

.PHONY: clean
clean: cluster-down ## Stop the local cluster, and delete everything that make has built.
	rm -rf bin dist/install.yaml

.PHONY: version
version: # Print the version, for scripts.
	@echo $(VERSION)

##@ Development

# The Go modules beside the root.
MODULES := hack test

.PHONY: manifests
manifests: bin/controller-gen ## Generate the CRD and the RBAC roles of the operator.
	controller-gen crd rbac:roleName=manager-role paths="{./api/...,./internal/...}" \
		output:crd:artifacts:config=config/crd/bases output:rbac:artifacts:config=config/rbac

.PHONY: generate
generate: bin/controller-gen ## Generate the DeepCopy methods.
	controller-gen object paths=./api/...

.PHONY: docs
docs: ## Generate the page of the metrics.
	go test ./internal/metrics -run Page -update

.PHONY: fmt
fmt: bin/golangci-lint ## Format the Go code.
	golangci-lint fmt ./...
	for module in $(MODULES); do (cd $$module && golangci-lint fmt --config ../.golangci.yml ./...); done

# PKG selects packages of the root module for `make test` and `make lint`.
PKG ?= ./...
# Tests that need no cluster get a kubeconfig that points nowhere.
NO_CLUSTER := KUBECONFIG=$(CURDIR)/hack/no-cluster.yaml USE_EXISTING_CLUSTER=false

# The controller's specs need a control plane. They mostly wait, so several processes share them.
CONTROLLER := $(filter %/... %/controller,$(PKG))
PACKAGES = go list $(PKG) | grep -v /internal/controller$$ || true
GINKGO = $(NO_CLUSTER) KUBEBUILDER_ASSETS=$(BIN) go run github.com/onsi/ginkgo/v2/ginkgo
.PHONY: test
test: export PLAN := $(call plan,$(CONTROL_PLANE_TOOLS))
test: $(if $(CONTROLLER),$(CONTROL_PLANE_TOOLS:%=tool-%) build) ## Run go vet, the unit tests, the controller's specs on a real API server, and a short exploration; no root, no cluster.
	go vet $(PKG)
	packages=$$($(PACKAGES)); [ -z "$$packages" ] || $(NO_CLUSTER) go test -timeout 1h $$packages
	$(if $(CONTROLLER),$(GINKGO) -procs=4 -timeout 1h ./internal/controller)
	$(if $(CONTROLLER),go -C test test ./explore -states 1000)

.PHONY: lint
lint: bin/golangci-lint $(if $(filter ./...,$(PKG)),bin/golangci-lint-kube-api-linter bin/actionlint) ## Lint the Go code, the API and the workflows.
	golangci-lint run $(LINT_FLAGS) $(PKG)
ifeq ($(PKG),./...)
	for module in $(MODULES); do (cd $$module && golangci-lint run --config ../.golangci.yml --disable gosec $(LINT_FLAGS) ./...); done
	golangci-lint-kube-api-linter run --config .golangci-api.yml ./api/...
	actionlint
endif

.PHONY: lint-fix
lint-fix: LINT_FLAGS = --fix
lint-fix: lint ## Lint, and fix what the linters can fix.

##@ Build

.PHONY: build
build: ## Build the operator for this machine.
	go build -ldflags "-X main.version=$(VERSION)" -o bin/manager ./cmd

.PHONY: docker-build
docker-build: http-echo-build verifier-build ## Build the images of the operator, the server and the verifier.
	$(call build_image,$(IMG),manager,$(IMAGE_PLATFORMS),$(RELEASE_TIME))

.PHONY: docker-push
docker-push: http-echo-push verifier-push ## Push these images.
	$(call push,$(IMG),image)

.PHONY: build-installer
build-installer: manifests bin/kustomize ## Write dist/install.yaml: the CRD and the operator, for kubectl apply.
	$(call overlay,default)
	mkdir -p dist
	kustomize build bin/overlays/default >dist/install.yaml

.PHONY: chart
chart: manifests bin/kustomize ## Generate the Helm chart from config/ and the bundle.
	hack/chart.sh $(VERSION)

##@ Deployment without OLM, on the cluster of your kubeconfig; CLUSTER=local selects the local cluster

CLUSTER_TARGETS := install uninstall deploy undeploy run
$(CLUSTER_TARGETS): bin/kustomize $(filter bin/kubectl,$(KUBECTL)) $(LOCAL_CLUSTER)
.PHONY: $(CLUSTER_TARGETS)

install: manifests ## Install the CRD.
	kustomize build config/crd | $(KUBECTL) apply --server-side -f -

uninstall: ## Delete the CRD, and every Echo with it.
	kustomize build config/crd | $(KUBECTL) delete --ignore-not-found -f -

deploy: manifests ## Install the CRD and the operator.
	$(call overlay,default)
	kustomize build bin/overlays/default | $(KUBECTL) apply --server-side -f -

undeploy: ## Delete the operator and the CRD, and every Echo with them.
	kustomize build config/default | $(KUBECTL) delete --ignore-not-found -f -

run: install ## Run the operator on this machine.
	RELATED_IMAGE_HTTP_ECHO=$(HTTP_ECHO_IMG) RELATED_IMAGE_VERIFIER=$(VERIFIER_IMG) go run ./cmd --zap-devel

##@ OLM package

.PHONY: bundle
bundle: manifests generate bin/operator-sdk bin/kustomize ## Generate the bundle and validate it.
	operator-sdk generate kustomize manifests -q
	$(call generate_bundle,.)

.PHONY: bundle-build
bundle-build: package ## Build the image of the bundle.
	$(call build_index,$(BUNDLE_IMG),$(IMAGE_PLATFORMS),$(RELEASE_TIME),-f bin/package/bundle.Dockerfile bin/package)

.PHONY: bundle-push
bundle-push: ## Push the image of the bundle.
	$(call push,$(BUNDLE_IMG),image)

.PHONY: catalog-build
catalog-build: package bin/opm ## Build the image of a catalog that offers only the version of this tree.
	@go -C hack run ./catalog build $(BUNDLE_IMG)
	$(call build_index,$(CATALOG_IMG),$(IMAGE_PLATFORMS),$(RELEASE_TIME),-f catalog/Dockerfile bin/package)

.PHONY: catalog-push
catalog-push: ## Push the image of the catalog.
	$(call push,$(CATALOG_IMG),image)
