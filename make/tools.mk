# The tools in bin/. tools/<module file>.mod pins each of them, with all modules that it is built from. The name of a
# program ends with its version and with a hash of the module file, so that bin/ can be cached; bin/<program> links to it.

# $(call pinned,<module file>,<module>) is the version that tools/<module file>.mod requires.
pinned = $(shell awk '{sub("^require ", "")} $$1 == "$(2)" && $$2 ~ "^v" {print $$2; exit}' tools/$(1).mod)
# The hash of each module file, as <hash>:<module file>.
HASHES := $(shell { sha256sum tools/*.mod 2>/dev/null || shasum -a 256 tools/*.mod; } | sed -E 's|^(.{8})[^ ]* +tools/(.*)\.mod|\1:\2|')
hash = $(firstword $(subst :, ,$(filter %:$(1),$(HASHES))))

OPM := github.com/operator-framework/operator-registry
OLM := github.com/operator-framework/operator-lifecycle-manager
OLM_V1 := github.com/operator-framework/operator-controller
SDK := github.com/operator-framework/operator-sdk
TRAEFIK := github.com/traefik/traefik/v3
LEGO := github.com/go-acme/lego/v5
CONTAINERD := github.com/containerd/containerd/v2
OPM_VERSION := $(call pinned,olm,$(OPM))
SDK_VERSION := $(call pinned,operator-sdk,$(SDK))
OLM_V1_VERSION := $(call pinned,olm-v1,$(OLM_V1))
TRAEFIK_VERSION := $(call pinned,traefik,$(TRAEFIK))
CONTAINERD_VERSION := $(call pinned,containerd,$(CONTAINERD))

# $(call set,<package>,<variable>=<value> ...) sets variables in a package, as the releases of the projects do.
set = $(foreach v,$(2),-X $(1).$(v))
comma := ,

# $(call tool,<tool>,<module file>,<module of its version>,<minutes>,<programs>,<arguments of go build>)
# defines how the programs of a tool are built, and files_<tool>, their files with their versions.
define tool
id_$(1) := $$(call pinned,$(2),$(3))-$$(call hash,$(2))
files_$(1) := $$(foreach p,$(5),bin/$$(p)-$$(id_$(1)))
plan_$(1) = $$(if $$(wildcard $$(firstword $$(files_$(1)))),,$(1):$(2))
# Without grouped targets, which make 3.81 of macOS does not know.
$$(wordlist 2,9,$$(files_$(1))): $$(firstword $$(files_$(1))) ;
$$(firstword $$(files_$(1))):
	@hack/build-tool.sh $(1) $(4) $(2) $$(id_$(1)) $(5) -- $(6)
$$(foreach p,$(5),bin/$$(p)): bin/%: bin/%-$$(id_$(1)) FORCE
	@ln -sfn $$(<F) $$@
.PHONY: tool-$(1)
tool-$(1): $(5:%=bin/%)
endef
.PHONY: FORCE
# $(call plan,<tools>) lists those that are still to be built, for hack/build-tool.sh.
plan = $(foreach tool,$(1),$(plan_$(tool)))

STRIP := -ldflags '-s -w'
$(eval $(call tool,actionlint,actionlint,github.com/rhysd/actionlint,0.2,actionlint,$(STRIP) tool))
$(eval $(call tool,controller-gen,controller-gen,sigs.k8s.io/controller-tools,0.5,controller-gen,$(STRIP) tool))
$(eval $(call tool,go-httpbin,go-httpbin,github.com/mccutchen/go-httpbin/v2,0.1,go-httpbin,$(STRIP) tool))
$(eval $(call tool,golangci-lint,golangci-lint,github.com/golangci/golangci-lint/v2,4,golangci-lint golangci-lint-kube-api-linter,$(STRIP) tool))
$(eval $(call tool,grpc-health-probe,grpc-health-probe,github.com/grpc-ecosystem/grpc-health-probe,0.3,grpc-health-probe,$(STRIP) tool))
$(eval $(call tool,helm,helm,helm.sh/helm/v4,3,helm,$(STRIP) tool))
$(eval $(call tool,http-echo,http-echo,github.com/hashicorp/http-echo,0.1,http-echo,$(STRIP) tool))
$(eval $(call tool,kube-score,kube-score,github.com/zegl/kube-score,0.5,kube-score,$(STRIP) tool))
$(eval $(call tool,kustomize,kustomize,sigs.k8s.io/kustomize/kustomize/v5,0.3,kustomize,$(STRIP) tool))
$(eval $(call tool,syft,syft,github.com/anchore/syft,3,syft,\
	-ldflags '-s -w $(call set,main,version=$(patsubst v%,%,$(call pinned,syft,github.com/anchore/syft)))' tool))
$(eval $(call tool,operator-sdk,operator-sdk,$(SDK),3,operator-sdk scorecard-test,-tags containers_image_openpgp \
	-ldflags '-s -w $(call set,$(SDK)/internal/version,$(addsuffix =$(SDK_VERSION),Version GitVersion ImageVersion))' $(SDK)/cmd/operator-sdk $(SDK)/images/scorecard-test))

# opm and OLM share a module file, because they are built from the same modules.
OLM_TAGS := -tags containers_image_openpgp$(comma)json1
$(eval $(call tool,opm,olm,$(OPM),1,opm,$(OLM_TAGS) -ldflags '-s -w $(call set,$(OPM)/cmd/opm/version,opmVersion=$(OPM_VERSION))' $(OPM)/cmd/opm))
$(eval $(call tool,olm,olm,$(OLM),2,olm catalog package-server copy-content cpb,\
	$(OLM_TAGS) $(STRIP) $(addprefix $(OLM)/,cmd/olm cmd/catalog cmd/package-server cmd/copy-content util/cpb)))
$(eval $(call tool,olm-v1,olm-v1,$(OLM_V1),3,catalogd operator-controller,-tags containers_image_openpgp \
	-ldflags '-s -w $(call set,$(OLM_V1)/internal/shared/version,version=$(OLM_V1_VERSION))' tool))
$(eval $(call tool,etcd,etcd,go.etcd.io/etcd/server/v3,2,etcd,$(STRIP) go.etcd.io/etcd/server/v3))
$(eval $(call tool,containerd,containerd,$(CONTAINERD),1,containerd containerd-shim-runc-v2,\
	-ldflags '-s -w $(call set,$(CONTAINERD)/version,Version=$(CONTAINERD_VERSION))' tool))

# Kubernetes in two parts: what `make test` runs, and the rest of a cluster.
# $(call kubernetes,<tool>,<module file>,<minutes>,<programs>)
kubernetes = $(call tool,$(1),$(2),k8s.io/kubernetes,$(3),$(4),-ldflags '-s -w $(call kubernetes_version,$(call pinned,$(2),k8s.io/kubernetes))' \
	$(4:%=k8s.io/kubernetes/cmd/%))
kubernetes_version = $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
	$(call set,$(p),gitVersion=$(1) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(1)))))
CONTROL_PLANE_TOOLS := etcd kubernetes-control-plane
CONTROL_PLANE := kube-apiserver kube-controller-manager
$(eval $(call kubernetes,kubernetes-control-plane,kubernetes,10,$(CONTROL_PLANE)))
$(eval $(call kubernetes,kubernetes-node,kubernetes,2,kubelet kube-scheduler kube-proxy kubeadm))
$(eval $(call kubernetes,kubectl,kubernetes,0.5,kubectl))

# The control plane of the oldest supported Kubernetes, whose programs have the same names.
oldest_version := $(call pinned,kubernetes-oldest,k8s.io/kubernetes)
bin/oldest: bin/oldest-$(oldest_version)-$(call hash,kubernetes-oldest) bin/etcd FORCE
	@ln -sfn $(<F) $@; ln -sfn ../etcd ../manager bin/oldest/
bin/oldest-$(oldest_version)-$(call hash,kubernetes-oldest):
	@echo "Building Kubernetes $(oldest_version), about 10 min"; mkdir -p $@.new
	@go build -modfile=tools/kubernetes-oldest.mod -ldflags '-s -w $(call kubernetes_version,$(oldest_version))' -o $@.new/ \
		$(CONTROL_PLANE:%=k8s.io/kubernetes/cmd/%)
	@mv $@.new $@

# Traefik implements the Gateway API. tools/traefik.mod replaces two of its modules: one that is not published, and Lego,
# of which it uses a copy without the DNS providers and without the two hundred modules that these require.
TRAEFIK_MODULES := hack/local-cluster/images/traefik
LEGO_PACKAGES := acme certcrypto certificate challenge internal lego log platform registration
$(eval $(call tool,traefik,traefik,$(TRAEFIK),4,traefik,-ldflags '-s -w $(call set,$(TRAEFIK)/pkg/version,Version=$(TRAEFIK_VERSION:v%=%))' tool))
$(files_traefik): | bin/lego
bin/lego: tools/lego.mod tools/lego.sum $(shell find $(TRAEFIK_MODULES)/lego -type f)
	@rm -rf $@ $@.new; mkdir -p bin; cp -r $(TRAEFIK_MODULES)/lego $@.new; \
	module=$$(go list -modfile=tools/lego.mod -f '{{.Module.Dir}}' $(LEGO)/acme); \
	cp -r --no-preserve=mode $(LEGO_PACKAGES:%=$$module/%) $@.new; mv $@.new $@

# kustomize changes the manifests in the modules of OLM and OLM v1 for the local cluster.
# $(call kustomize,<module file>,<module>,<files>)
define kustomize
@rm -rf bin/$(1)-manifests; mkdir -p bin/$(1)-manifests; cd bin/$(1)-manifests; \
cp -r --no-preserve=mode $(CURDIR)/hack/local-cluster/manifests/$(1)/* \
	$$(go list -modfile=$(CURDIR)/tools/$(1).mod -m -f '{{.Dir}}' $(2))/$(3) .; \
$(BIN)/kustomize build >$(CURDIR)/$@
endef
bin/olm.yaml: tools/olm.mod $(wildcard hack/local-cluster/manifests/olm/*) | bin/kustomize
	$(call kustomize,olm,$(OLM),deploy/upstream/quickstart/olm.yaml)
bin/olm-v1.yaml: tools/olm-v1.mod $(wildcard hack/local-cluster/manifests/olm-v1/*) | bin/kustomize
	$(call kustomize,olm-v1,$(OLM_V1),config)
bin/olm-crds.yaml: tools/olm.mod
	@mkdir -p bin; sed -s '1i ---' $$(go list -modfile=tools/olm.mod -m -f '{{.Dir}}' $(OLM))/deploy/chart/crds/*.yaml >$@
# The CRDs of the version whose types the operator uses.
bin/gateway-api.yaml: go.mod
	@mkdir -p bin; sed -s '1i ---' $$(go list -f '{{.Module.Dir}}' sigs.k8s.io/gateway-api/apis/v1)/config/crd/standard/*.yaml >$@

# From Debian packages make takes only the programs: installing nginx or Prometheus would start servers on this machine.
bin/nginx: | debian-packages
	$(call unpack,nginx,usr/sbin/nginx)
bin/promtool: bin/prometheus ;
bin/prometheus: | debian-packages
	$(call unpack,prometheus,usr/bin/prometheus usr/bin/promtool)
bin/qemu-aarch64-static: | debian-packages
	$(call unpack,qemu-user-static,usr/bin/qemu-aarch64-static)
unpack = @echo "Unpacking $(1) ..."; mkdir -p bin; d=$$(mktemp -d); cd $$d; apt-get -o APT::Sandbox::User=root download -qq $(1); \
	dpkg-deb -x $(1)_*.deb .; install $(2) $(BIN); rm -rf $$d

# What the local cluster and the builds of images need. EXTRA_PACKAGES adds those of a test.
DEBIAN_PACKAGES := runc iptables iproute2 conntrack containernetworking-plugins buildah docker-registry busybox-static
.PHONY: debian-packages
debian-packages:
	@packages="$(DEBIAN_PACKAGES) $(EXTRA_PACKAGES)"; if ! dpkg -s $$packages >/dev/null 2>&1; then \
		echo "Installing Debian packages: $$packages"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages >/dev/null; \
	fi
