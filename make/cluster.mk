# Your kubectl, if you have one. Otherwise make builds it with the rest of Kubernetes.
ifeq ($(origin KUBECTL),undefined)
KUBECTL := $(or $(shell command -v kubectl 2>/dev/null),bin/kubectl)
endif

# The targets of the Operator SDK use the cluster of your kubeconfig and the registries that the images name. Tests and the
# demo use the local cluster, its registry, and the images that buildah builds for it; the demo uses kind where docker and
# kind are. USE_EXISTING_CLUSTER=true selects your cluster for all of them, CLUSTER=local the local one.
SDK_TARGETS := help manifests generate fmt lint build install uninstall deploy undeploy run docker-build docker-push build-installer \
	bundle bundle-build bundle-push catalog-build catalog-push scorecard-build scorecard-push \
	http-echo-build http-echo-push verifier-build verifier-push
ifeq ($(USE_EXISTING_CLUSTER),true)
export USE_EXISTING_CLUSTER
CLUSTER := yours
else ifeq ($(filter-out $(SDK_TARGETS),$(or $(MAKECMDGOALS),help)),)
CLUSTER ?= yours
else ifeq ($(MAKECMDGOALS)$(CLUSTER),demo)
CLUSTER := $(shell docker info >/dev/null 2>&1 && kind version >/dev/null 2>&1 && echo kind || echo local)
ifeq ($(CLUSTER),kind)
$(info The demo uses a cluster of kind, because docker and kind are on this machine. CLUSTER=local uses a local cluster with OLM.)
else ifeq ($(shell id -u):$(shell command -v apt-get),0:/usr/bin/apt-get)
$(info The demo uses a local cluster with OLM, because docker and kind are not both on this machine.)
else
$(error The demo needs docker and kind, or Debian and root. It found no docker daemon or no kind)
endif
else
CLUSTER ?= local
endif
ifeq ($(CLUSTER),local)
LOCAL_CLUSTER := cluster-up
export KUBECONFIG := $(BIN)/cluster/kubeconfig
CONTAINER_TOOL ?= buildah --root $(BIN)/images --runroot $(BIN)/images/run
endif
ifeq ($(origin CONTAINER_TOOL),undefined)
CONTAINER_TOOL := $(shell for tool in docker podman buildah; do $$tool info >/dev/null 2>&1 && echo $$tool && exit; done; echo docker)
endif

.PHONY: local-only
local-only:
	@$(if $(LOCAL_CLUSTER),,echo "This needs the registry of the local cluster: unset USE_EXISTING_CLUSTER." >&2; exit 1)

##@ Local cluster

# The tools of the cluster; see make/tools.mk.
CLUSTER_TOOLS := etcd kubernetes-control-plane kubernetes-node containerd olm opm kustomize grpc-health-probe $(if $(filter bin/kubectl,$(KUBECTL)),kubectl)
# Programs of the module hack, so that their dependencies never reach the operator's go.mod.
CLUSTER_PROGRAMS := bin/local-cluster bin/coredns bin/pause

# What root has built belongs to the owner of the checkout, who may run the tests. Clusters and images stay root's.
own_bin = @[ "$$(stat -c %u .)" = 0 ] || find bin ! \( -path bin/cluster -prune -o -path bin/images -prune \) -exec chown -h --reference=. {} +

.PHONY: cluster cluster-up cluster-olm-v1 cluster-gateway cluster-samples cluster-down
cluster: $(LOCAL_CLUSTER)
cluster-up: export PLAN := $(call plan,$(CLUSTER_TOOLS))
cluster-up: cluster-tools ## Start the local cluster: a disposable Kubernetes with OLM.
	local-cluster up
	$(own_bin)
cluster-olm-v1: cluster-up tool-olm-v1 bin/olm-v1.yaml ## Install OLM v1 into the local cluster.
	local-cluster olm-v1
cluster-gateway: cluster-up tool-traefik bin/gateway-api.yaml ## Install the Gateway API, Traefik and a Gateway into the local cluster.
	local-cluster gateway
cluster-samples: cluster-up tool-go-httpbin tool-http-echo tool-operator-sdk bin/nginx ## Push the images of config/samples into the local cluster.
	local-cluster samples
cluster-down: ## Stop the local cluster; only files in bin/ remain.
	@if [ -x bin/local-cluster ]; then local-cluster down; fi

.PHONY: cluster-tools
cluster-tools: debian-packages $(CLUSTER_TOOLS:%=tool-%) $(CLUSTER_PROGRAMS) bin/olm.yaml bin/olm-crds.yaml # Build everything that the local cluster runs.

CLUSTER_SOURCES := $(shell find hack/local-cluster hack/go.mod -type f -not -name '*_test.go' -not -name '*.md')
bin/local-cluster: PACKAGE = .
bin/coredns bin/pause: PACKAGE = ./images/$(@F)
$(CLUSTER_PROGRAMS): $(CLUSTER_SOURCES)
	@echo "Building $(@F)"; go -C hack/local-cluster build -ldflags "-s -w" -o $(CURDIR)/$@ $(PACKAGE)
