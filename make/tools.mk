# The tools in bin/. tools/*.mod pins each of them, with all modules that it is built from.

# $(call pinned,<module file>,<module>) is the version that tools/<module file>.mod requires.
pinned = $(shell awk '{sub("^require ", "")} $$1 == "$(2)" && $$2 ~ "^v" {print $$2; exit}' tools/$(1).mod)

OPM := github.com/operator-framework/operator-registry
OLM := github.com/operator-framework/operator-lifecycle-manager
OLM_V1 := github.com/operator-framework/operator-controller
TRAEFIK := github.com/traefik/traefik/v3
LEGO := github.com/go-acme/lego/v5
KUBERNETES_VERSION := $(call pinned,kubernetes,k8s.io/kubernetes)
OLDEST_KUBERNETES_VERSION := $(call pinned,kubernetes-oldest,k8s.io/kubernetes)
CONTAINERD_VERSION := $(call pinned,containerd,github.com/containerd/containerd/v2)
HTTP_ECHO_VERSION := $(patsubst v%,%,$(call pinned,http-echo,github.com/hashicorp/http-echo))
SDK_VERSION := $(call pinned,operator-sdk,github.com/operator-framework/operator-sdk)
OPM_VERSION := $(call pinned,olm,$(OPM))
OLM_V1_VERSION := $(call pinned,olm-v1,$(OLM_V1))
TRAEFIK_VERSION := $(call pinned,traefik,$(TRAEFIK))
SYFT_VERSION := $(call pinned,syft,github.com/anchore/syft)

# make builds a tool once, and again when its module file changes.
# $(call build,<module file>,<flags>,<packages>)
define build
@echo "Building $(1) ..."
@start=$$SECONDS; mkdir -p bin; \
go build -modfile=tools/$(1).mod $(2) $(or $(3),-o bin/ tool); \
touch $@; echo "Built $(1) in $$((SECONDS-start)) s"
endef

# $(call set,<package>,<variable>=<value> ...) sets variables in a package, as the releases of the projects do.
set = $(foreach v,$(2),-X $(1).$(v))

SIMPLE_TOOLS := actionlint controller-gen crd-ref-docs go-httpbin golangci-lint grpc-health-probe http-echo kube-score kubesec kustomize
$(SIMPLE_TOOLS:%=bin/%): bin/%: tools/%.mod tools/%.sum
	$(call build,$*,-ldflags "-s -w")

# The parsers of Vale are written in C.
bin/vale: export CGO_ENABLED = 1
bin/vale: tools/vale.mod tools/vale.sum
	$(call build,vale,-ldflags "-s -w")

bin/syft: tools/syft.mod tools/syft.sum
	$(call build,syft,-ldflags "-s -w $(call set,main,version=$(SYFT_VERSION:v%=%))")

bin/operator-sdk: tools/operator-sdk.mod tools/operator-sdk.sum
	$(call build,operator-sdk,-tags containers_image_openpgp -ldflags "-s -w \
		$(call set,github.com/operator-framework/operator-sdk/internal/version,$(addsuffix =$(SDK_VERSION),Version GitVersion ImageVersion))",-o $@ github.com/operator-framework/operator-sdk/cmd/operator-sdk)

bin/validate-bundle-1.36: hack/validate-bundle/main.go tools/operator-sdk-1.36.mod tools/operator-sdk-1.36.sum
	@echo "Building $(@F) ..."; go -C hack build -modfile=../tools/operator-sdk-1.36.mod -ldflags "-s -w" -o $(CURDIR)/$@ ./validate-bundle

# opm and OLM share a module file, because they are built from the same modules.
comma := ,
OLM_TAGS = -tags containers_image_openpgp$(comma)json1
bin/opm: tools/olm.mod tools/olm.sum
	$(call build,olm,$(OLM_TAGS) -ldflags "-s -w $(call set,$(OPM)/cmd/opm/version,opmVersion=$(OPM_VERSION))",-o $@ $(OPM)/cmd/opm)

bin/opm-1.45: tools/opm-1.45.mod tools/opm-1.45.sum
	$(call build,opm-1.45,$(OLM_TAGS) -ldflags "-s -w",-o $@ $(OPM)/cmd/opm)

bin/olm bin/catalog bin/package-server bin/copy-content bin/cpb &: tools/olm.mod tools/olm.sum
	$(call build,olm,$(OLM_TAGS) -ldflags "-s -w",-o bin/ $(addprefix $(OLM)/,cmd/olm cmd/catalog cmd/package-server cmd/copy-content util/cpb))

# kubectl kustomize changes the manifests in the modules of OLM and OLM v1 for the local cluster.
# $(call kustomize,<module file>,<module>,<files>)
define kustomize
@rm -rf bin/$(1)-manifests; mkdir bin/$(1)-manifests; cd bin/$(1)-manifests; \
cp -r --no-preserve=mode $(CURDIR)/hack/local-cluster/manifests/$(1)/* \
	$$(go list -modfile=$(CURDIR)/tools/$(1).mod -m -f '{{.Dir}}' $(2))/$(3) .; \
$(BIN)/kubectl kustomize >$(CURDIR)/$@
endef

bin/olm.yaml: bin/olm bin/kubectl $(wildcard hack/local-cluster/manifests/olm/*)
	$(call kustomize,olm,$(OLM),deploy/upstream/quickstart/olm.yaml)
bin/olm-crds.yaml: bin/olm
	@sed -s '1i ---' $$(go list -modfile=tools/olm.mod -m -f '{{.Dir}}' $(OLM))/deploy/chart/crds/*.yaml >$@

bin/catalogd bin/operator-controller &: tools/olm-v1.mod tools/olm-v1.sum
	$(call build,olm-v1,-tags containers_image_openpgp -ldflags "-s -w \
		$(call set,$(OLM_V1)/internal/shared/version,version=$(OLM_V1_VERSION))")

bin/olm-v1.yaml: bin/catalogd bin/kubectl $(wildcard hack/local-cluster/manifests/olm-v1/*)
	$(call kustomize,olm-v1,$(OLM_V1),config)

# Traefik implements the Gateway API. tools/traefik.mod replaces two of its modules: one that is not published, and Lego,
# of which it uses a copy without the DNS providers and without the two hundred modules that these require.
TRAEFIK_MODULES := hack/local-cluster/images/traefik
LEGO_PACKAGES := acme certcrypto certificate challenge internal lego log platform registration
bin/lego: tools/lego.mod tools/lego.sum $(shell find $(TRAEFIK_MODULES)/lego -type f)
	@rm -rf $@; mkdir -p bin; cp -r $(TRAEFIK_MODULES)/lego $@; \
	cd $$(go list -modfile=tools/lego.mod -f '{{.Module.Dir}}' $(LEGO)/acme); cp -r --no-preserve=mode $(LEGO_PACKAGES) $(BIN)/lego
bin/traefik: tools/traefik.mod tools/traefik.sum bin/lego $(wildcard $(TRAEFIK_MODULES)/ext/*)
	$(call build,traefik,-ldflags "-s -w $(call set,$(TRAEFIK)/pkg/version,Version=$(TRAEFIK_VERSION:v%=%))")

# The CRDs of the version whose types the operator uses.
bin/gateway-api.yaml: go.mod
	@mkdir -p bin; sed -s '1i ---' $$(go list -f '{{.Module.Dir}}' sigs.k8s.io/gateway-api/apis/v1)/config/crd/standard/*.yaml >$@

bin/etcd: tools/etcd.mod tools/etcd.sum
	$(call build,etcd,-ldflags "-s -w",-o bin/etcd go.etcd.io/etcd/server/v3)

KUBERNETES := kubeadm kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl
# $(call kubernetes_flags,<version>) are the flags of the linker for a version of Kubernetes.
kubernetes_flags = -ldflags "-s -w $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
	$(call set,$(p),gitVersion=$(1) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(1)))))"
$(KUBERNETES:%=bin/%) &: tools/kubernetes.mod tools/kubernetes.sum
	$(call build,kubernetes,$(call kubernetes_flags,$(KUBERNETES_VERSION)))

# The control plane of the oldest supported Kubernetes.
OLDEST := kube-apiserver kube-controller-manager
$(OLDEST:%=bin/oldest/%) &: tools/kubernetes-oldest.mod tools/kubernetes-oldest.sum
	$(call build,kubernetes-oldest,$(call kubernetes_flags,$(OLDEST_KUBERNETES_VERSION)),-o bin/oldest/ $(OLDEST:%=k8s.io/kubernetes/cmd/%))

bin/containerd bin/containerd-shim-runc-v2 &: tools/containerd.mod tools/containerd.sum
	$(call build,containerd,-ldflags "-s -w $(call set,github.com/containerd/containerd/v2/version,Version=$(CONTAINERD_VERSION))")

# From Debian packages make takes only the programs: installing nginx or Prometheus would start servers on this machine.
bin/nginx: | debian-packages
	$(call unpack,nginx,usr/sbin/nginx)
bin/prometheus bin/promtool &: | debian-packages
	$(call unpack,prometheus,usr/bin/prometheus usr/bin/promtool)
unpack = @echo "Unpacking $(1) ..."; mkdir -p bin; d=$$(mktemp -d); cd $$d; apt-get -o APT::Sandbox::User=root download -qq $(1); \
	dpkg-deb -x $(1)_*.deb .; install $(2) $(BIN); rm -rf $$d

DEBIAN_PACKAGES := runc iptables iproute2 conntrack containernetworking-plugins buildah docker-registry busybox-static skopeo chromium
.PHONY: debian-packages
debian-packages:
	@if ! dpkg -s $(DEBIAN_PACKAGES) >/dev/null 2>&1; then \
		echo "Installing Debian packages: $(DEBIAN_PACKAGES) ..."; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEBIAN_PACKAGES) >/dev/null; \
	fi

# `make test` downloads the modules of the largest tools while it builds and tests other things.
DOWNLOADS := $(addprefix download-,operator-sdk olm golangci-lint kubernetes containerd)
.PHONY: download $(DOWNLOADS)
download: $(DOWNLOADS)
$(DOWNLOADS): download-%:
	@go list -e -modfile=tools/$*.mod -deps tool >/dev/null
