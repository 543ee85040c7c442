##@ Releases; see CONTRIBUTING.md

.PHONY: pin
pin: IMAGE_PLATFORMS = $(PLATFORMS)
pin: bin/controller-gen bin/kustomize bin/operator-sdk http-echo-build verifier-build docker-build scorecard-build ## Name the images of this version by their digests.
	$(call pin_image,$(HTTP_ECHO_IMG),$(PUBLISHED)-http-echo)
	$(call pin_image,$(VERIFIER_IMG),$(PUBLISHED)-verifier)
	$(call pin_image,$(IMG),$(PUBLISHED))
	$(call pin_image,$(SCORECARD_IMG),$(PUBLISHED)-scorecard)
	@$(MAKE) --no-print-directory bundle

# $(call pin_image,<image>,<name without tag>) writes the digest into the files that name the image.
define pin_image
@$(CONTAINER_TOOL) manifest push -q --all --digestfile bin/digest $(1) oci:bin/oci
@echo "$(1) is $$(cat bin/digest)"
@sed -i "s|$(2)[:@][^ ]*|$(2)@$$(cat bin/digest)|" config/manager/manager.yaml config/manifests/bases/*.yaml \
	config/samples/showcase.yaml config/scorecard/config.yaml
@rm -r bin/digest bin/oci
endef

.PHONY: catalog
catalog: bin/opm ## Render the published catalog from its template and the released bundles.
	go -C hack run ./catalog render

.PHONY: releases
releases: local-only cluster ## Build the images of every release from its commit, and push them into the local cluster.
	CONTAINER_TOOL="$(CONTAINER_TOOL)" hack/catalog/releases.sh

.PHONY: operatorhub
operatorhub: ## Write and check the content of a pull request to OperatorHub for this version.
	go -C hack run ./operatorhub -root $(CURDIR) $(BIN)/operatorhub
