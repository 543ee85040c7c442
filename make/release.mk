##@ Releases; see CONTRIBUTING.md

.PHONY: pin
pin: IMAGE_PLATFORMS = $(PLATFORMS)
pin: bin/controller-gen bin/kustomize bin/operator-sdk docker-build scorecard-build ## Name the images of this version by their digests.
	$(call pin_image,$(HTTP_ECHO_IMG),$(PUBLISHED)-http-echo)
	$(call pin_image,$(VERIFIER_IMG),$(PUBLISHED)-verifier)
	$(call pin_image,$(IMG),$(PUBLISHED))
	$(call pin_image,$(SCORECARD_IMG),$(PUBLISHED)-scorecard)
	@$(MAKE) --no-print-directory bundle chart

# $(call pin_image,<image>,<name without tag>) writes the digest into the files that name the image.
define pin_image
@$(call write_digest,$(1))
@echo "$(1) is $$(cat bin/digest)"
@sed -i "s|$(2)[:@][^ ]*|$(2)@$$(cat bin/digest)|" config/manager/manager.yaml config/manifests/bases/*.yaml config/scorecard/config.yaml
@rm -r bin/digest bin/oci
endef

.PHONY: catalog
catalog: bin/opm ## Render the catalog of the published releases.
	go -C hack run ./catalog render

.PHONY: catalog-image
catalog-image: # Build the image of the published catalog, for hack/release/publish-catalog.sh.
	$(call build_index,$(CATALOG_IMG),$(PLATFORMS),0,-f catalog/Dockerfile catalog)

.PHONY: rehearse-release
rehearse-release: EXTRA_PACKAGES = skopeo
rehearse-release: local-only cluster bin/opm bin/operator-sdk bin/kustomize bin/controller-gen bin/helm ## Rehearse the release candidate, the release and the next release of VERSION on the local cluster and its registry.
	CONTAINER_TOOL="$(CONTAINER_TOOL)" hack/release/rehearse.sh $(VERSION)

.PHONY: operatorhub
operatorhub: ## Write the pull requests to both hubs, for RELEASE=<version>.
	go -C hack run ./operatorhub $(or $(RELEASE),$(error set RELEASE to the version of a release)) $(BIN)/operatorhub
