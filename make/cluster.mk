# The cluster that targets use: the local one, or with USE_EXISTING_CLUSTER=true the one of your kubeconfig.

# Your kubectl, if you have one. Otherwise make builds it with the rest of Kubernetes.
ifeq ($(origin KUBECTL),undefined)
KUBECTL := $(or $(shell command -v kubectl 2>/dev/null),bin/kubectl)
endif

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

.PHONY: local-only
local-only:
	@$(if $(LOCAL_CLUSTER),,echo "This needs the registry of the local cluster: unset USE_EXISTING_CLUSTER." >&2; exit 1)

##@ Local cluster

CLUSTER_TOOLS := catalog containerd containerd-shim-runc-v2 copy-content coredns cpb etcd go-httpbin grpc-health-probe http-echo \
	kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubeadm kubectl kubelet local-cluster nginx olm \
	olm-crds.yaml olm.yaml opm package-server pause

.PHONY: cluster cluster-up cluster-olm-v1 cluster-gateway cluster-down
cluster: $(LOCAL_CLUSTER)
cluster-up: cluster-tools ## Start the local cluster: a disposable Kubernetes with OLM.
	local-cluster up
cluster-olm-v1: cluster-up $(addprefix bin/,catalogd operator-controller olm-v1.yaml) ## Install OLM v1 into the local cluster.
	local-cluster olm-v1
cluster-gateway: cluster-up $(addprefix bin/,gateway-api.yaml traefik) ## Install the Gateway API, Traefik and a Gateway into the local cluster.
	local-cluster gateway
cluster-down: ## Stop the local cluster; only files in bin/ remain.
	@if [ -x bin/local-cluster ]; then local-cluster down; fi

.PHONY: cluster-tools
cluster-tools: debian-packages $(CLUSTER_TOOLS:%=bin/%) # Build everything that the local cluster runs.

# The module hack contains the local cluster, so that its dependencies never reach the operator's go.mod.
CLUSTER_SOURCES := $(shell find hack/local-cluster -type f -not -name '*_test.go' -not -name '*.md' 2>/dev/null)
bin/local-cluster: $(CLUSTER_SOURCES)
	$(call build_cluster,)
bin/coredns bin/pause: bin/%: $(CLUSTER_SOURCES)
	$(call build_cluster,/images/$*)
build_cluster = @echo "Building $(@F) ..."; go -C hack build -ldflags "-s -w" -o $(CURDIR)/$@ ./local-cluster$(1)
