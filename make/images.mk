# How images are built and pushed, by buildah or by an engine.

# The images of an installation.
INSTALLED := docker bundle catalog

.PHONY: images push
images: scorecard-build $(INSTALLED:%=%-build) # Build all images.
push: scorecard-push $(INSTALLED:%=%-push) # Push all images, by default into the registry of the local cluster.

.PHONY: http-echo-build http-echo-push verifier-build verifier-push scorecard-build scorecard-push
http-echo-build: # Build the image of the default server.
	$(call build_image,$(HTTP_ECHO_IMG),http-echo,$(HTTP_ECHO_PLATFORMS),0)
http-echo-push:
	$(call push,$(HTTP_ECHO_IMG),image)
	$(if $(and $(LOCAL_CLUSTER),$(filter $(PUBLISHED)%,$(HTTP_ECHO_IMG))),$(check_digest))
# A change of the server makes another image than that of the last release. A registry may still have the old one.
define check_digest
@$(call write_digest,$(HTTP_ECHO_IMG)); \
named=$$(sed -n 's|.*$(PUBLISHED)-http-echo@||p' config/manager/manager.yaml) built=$$(cat bin/digest); \
[ "$${named:-$$built}" = "$$built" ] || { printf '%s\n' "config/manager/manager.yaml names $$named, but this tree builds $$built." \
	"Name the tag v$(VERSION) there, run make bundle chart, and set rollsServers in catalog/releases.yaml." >&2; exit 1; }
endef
# $(call write_digest,<image>) writes the digest of an image to bin/digest. buildah ignores a push that failed then.
write_digest = rm -rf bin/oci bin/digest; $(CONTAINER_TOOL) manifest push -q --all --digestfile bin/digest $(1) oci:bin/oci; test -s bin/digest
verifier-build: # Build the image of verifiers.
	$(call build_image,$(VERIFIER_IMG),verifier,$(IMAGE_PLATFORMS),$(RELEASE_TIME))
verifier-push:
	$(call push,$(VERIFIER_IMG),image)
scorecard-build: # Build the image of the scorecard tests.
	$(call build_image,$(SCORECARD_IMG),scorecard,$(IMAGE_PLATFORMS),$(RELEASE_TIME))
scorecard-push:
	$(call push,$(SCORECARD_IMG),image)

.PHONY: prober prometheus
prober: cluster # Build and push the image of the pod that requests Echoes during the tests.
	go -C test build -o $(BIN)/prober/prober ./e2e/prober
	@$(build_data) -f test/e2e/prober/Dockerfile -t $(PROBER_IMG) bin/prober >/dev/null
	$(call push,$(PROBER_IMG),data)
prometheus: cluster bin/prometheus # Build and push the Prometheus of the tests, with the libraries that it needs.
	@rm -rf bin/prometheus-image; mkdir -p bin/prometheus-image/bin; cp bin/prometheus bin/prometheus-image/bin
	@cp -L --parents $$(ldd bin/prometheus | grep -o '/[^ ]*') bin/prometheus-image
	@$(build_data) -f test/e2e/prometheus/Dockerfile -t $(PROMETHEUS_IMG) bin/prometheus-image >/dev/null
	$(call push,$(PROMETHEUS_IMG),data)
PROMETHEUS_IMG = $(shell awk '$$1 == "image:" {print $$2}' test/e2e/prometheus/prometheus.yaml)

# The modes of files are part of the digest of an image. Those of a clone depend on the umask.
normal_modes = chmod -R u=rwX,go=rX LICENSE bundle catalog $$(ls -d bin/package 2>/dev/null)

# buildah needs no engine and no base image: it takes Go, the modules and the build cache from
# this machine. The same tree gives the same image.
export BUILDAH_ISOLATION ?= chroot
RELEASE_TIME = $$(date -d $(RELEASE_DATE) +%s)
ifeq ($(notdir $(firstword $(CONTAINER_TOOL))),buildah)
HOST_GO = --build-arg GO_IMAGE=scratch --volume /tmp:/tmp \
	--volume $$(go env GOROOT):/usr/local/go:ro --volume $$(go env GOMODCACHE):/go/pkg/mod \
	--volume $$(go env GOCACHE):/go/cache --volume /etc/ssl/certs:/etc/ssl/certs:ro

# $(call build_index,<name>,<platforms>,<time>,<arguments>) builds the platforms in order, because the order in the
# index is part of its digest.
define build_index
@echo "Building image $(1) for $(2) ..."
@$(CONTAINER_TOOL) manifest rm $(1) >/dev/null 2>&1 || $(CONTAINER_TOOL) rmi --force $(1) >/dev/null 2>&1 || true
@$(CONTAINER_TOOL) manifest create $(1) >/dev/null
@$(normal_modes)
@umask 022; for platform in $(subst $(comma), ,$(2)); do \
	image=$$($(CONTAINER_TOOL) build -q --platform $$platform --timestamp $(3) $(4)); \
	$(CONTAINER_TOOL) manifest add $(1) $$image >/dev/null; \
done
endef
# build_data builds an image of the tests that contains only data, for this platform.
build_data = $(CONTAINER_TOOL) build -q --timestamp $(RELEASE_TIME)
# A published http-echo has the digest of the index of all platforms.
HTTP_ECHO_PLATFORMS = $(if $(shell grep '$(PUBLISHED)-http-echo@' config/manager/manager.yaml),$(PLATFORMS),$(IMAGE_PLATFORMS))
# $(call push_image,<name>,<destination>,<flags>), and push_data for an image without an index
push_image = $(CONTAINER_TOOL) manifest push -q --all $(3) $(1) docker://$(2)
push_data = $(CONTAINER_TOOL) push -q $(3) $(1) docker://$(2)
else
# An engine stores images of one platform only, so buildx pushes an image of several platforms at once.
build_index = $(normal_modes); $(CONTAINER_TOOL) $(if $(findstring $(comma),$(2)),$(if $(filter $(PUBLISHED)%,$(1)),$(error $(no_release)))buildx build --push,build) --platform $(2) -t $(1) $(4)
build_data = $(CONTAINER_TOOL) build -q
push_image = $(CONTAINER_TOOL) push $(3) $(1)
push_data = $(push_image)
HTTP_ECHO_PLATFORMS = $(IMAGE_PLATFORMS)
endif

# $(call build_image,<name>,<target of the Dockerfile>,<platforms>,<time>)
build_image = $(call build_index,$(1),$(3),$(4),--target $(2) $(HOST_GO) --build-arg VERSION=$(VERSION) .)

# A published image whose digest the manifests name needs every platform. For any other, that of this machine is enough.
IMAGE_PLATFORMS := $(if $(and $(filter $(PUBLISHED),$(IMG_NAME)),$(shell grep '$(PUBLISHED)@' config/manager/manager.yaml)),$(PLATFORMS),linux/$(shell go env GOARCH))

# docker knows by itself that a registry on this machine has no TLS.
ifneq ($(notdir $(firstword $(CONTAINER_TOOL))),docker)
PUSH_FLAGS ?= $(if $(filter localhost localhost:% 127.0.0.1:%,$(firstword $(subst /, ,$(IMG)))),--tls-verify=false)
endif
# $(call push,<image>,<data or image>) pushes to the registry that the image names, with PUSH_FLAGS. The published images
# go to the registry of the local cluster instead, which serves every image under its public name.
push = $(if $(and $(LOCAL_CLUSTER),$(filter $(PUBLISHED)% $(PROMETHEUS_IMG),$(1))),$(call push_local,$(1),$(2)),$(if \
	$(filter $(PUBLISHED)%,$(1)),$(error $(no_release)),$(call push_$(2),$(1),$(1),$(PUSH_FLAGS))))
no_release = This would push to $(PUBLISHED), as only hack/release does: set IMG=<registry>/<name>:<tag>
path_of = $(patsubst quay.io/%,%,$(patsubst ghcr.io/%,%,$(1)))
push_local = @test -f bin/cluster/registry || { echo "The local cluster is not running. Run \"make cluster-up\"." >&2; exit 1; }; \
	echo "Pushing $(1) ..."; $(call push_$(2),$(1),$$(cat bin/cluster/registry)/$(call path_of,$(1)),--tls-verify=false)
