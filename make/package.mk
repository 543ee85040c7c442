# The OLM package for the images that the variables name.

# $(call replacement,<published name>,<tag>,<image>) is an argument of kustomize, if the image is another one.
replacement = $(if $(filter-out $(1):$(2),$(3)),$(1)=$(3))
IMAGE_OVERRIDES := $(strip $(call replacement,$(PUBLISHED),v$(VERSION),$(IMG_NAME):$(IMG_TAG)) \
	$(call replacement,$(PUBLISHED)-http-echo,v$(VERSION),$(HTTP_ECHO_IMG)) \
	$(call replacement,$(PUBLISHED)-verifier,v$(VERSION),$(VERIFIER_IMG)) \
	$(call replacement,$(PUBLISHED)-scorecard,v$(VERSION),$(SCORECARD_IMG)) \
	$(call replacement,quay.io/operator-framework/scorecard-test,$(SDK_VERSION),$(SCORECARD_TEST_IMG)) \
	$(call replacement,$(PUBLISHED)-catalog,$(CATALOG_TAG),$(CATALOG_IMG)))

# $(call overlay,<name>,<resource>) writes bin/overlays/<name>: config/<name>, or the resource, with those replacements.
overlay = @rm -rf bin/overlays/$(1); mkdir -p bin/overlays/$(1); cd bin/overlays/$(1); \
	kustomize create --resources ../../../config/$(or $(2),$(1)); kustomize edit add component ../../../config/images; \
	$(if $(IMAGE_OVERRIDES),kustomize edit set image $(IMAGE_OVERRIDES))

# $(call generate_bundle,<directory>) writes the bundle and bundle.Dockerfile into a directory that contains PROJECT.
# The SDK takes the related images from the environment of the operator: the operator's own is added.
define generate_bundle
$(call overlay,manifests)
rm -rf $(1)/bundle
kustomize build bin/overlays/manifests | (cd $(1); operator-sdk generate bundle -q --overwrite \
	--version $(VERSION) --channels $(CHANNELS) --default-channel $(DEFAULT_CHANNEL))
@csv=$$(echo $(1)/bundle/manifests/*.clusterserviceversion.yaml); \
manager=$$(sed -n 's/^ *containerImage: //p' $$csv); \
sed -i -E -e 's/createdAt: .*/createdAt: "$(RELEASE_DATE)"/' \
	-e 's#(echo-operator/(blob|tree)/)main/#\1v$(VERSION)/#' \
	-e "s|^  relatedImages:|&\n  - image: $$manager\n    name: manager|" $$csv
operator-sdk bundle validate $(1)/bundle
endef

# The package in bin/package, and the manifests that install it: those of this tree, or others if the images are others.
export OLM_MANIFESTS := $(if $(IMAGE_OVERRIDES),bin/overlays/olm,config/olm)
.PHONY: package
package: $(if $(IMAGE_OVERRIDES),bin/operator-sdk bin/kustomize)
	@rm -rf bin/package; mkdir -p bin/package; cp -r PROJECT bundle bundle.Dockerfile bin/package
ifdef IMAGE_OVERRIDES
	$(call generate_bundle,bin/package)
	$(call overlay,olm)
	$(call overlay,catalogsource,olm/catalogsource.yaml)
	kustomize build --load-restrictor LoadRestrictionsNone bin/overlays/catalogsource >bin/overlays/olm/catalogsource.yaml
endif
