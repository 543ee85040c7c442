#!/usr/bin/env bash
# Validates the bundle and the catalog. The validators' warnings count as errors.
#
# The SDK's validator "multiarch" is not among them, as it looks at images:
# hack/multiarch-check.sh runs it where they are built.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0

# validate <what> <argument ...> runs the SDK's validators. One warning is no error: that
# of the validator "operatorhub", which says of itself that it has a successor.
validate() {
	local what=$1 result
	shift
	if result=$(operator-sdk bundle validate "$@" -o json-alpha1 2>/dev/null) && grep -q '"passed": true' <<<"$result" &&
		! grep '"message"' <<<"$result" | grep -qv 'The \\"operatorhub\\" validator is deprecated'; then
		echo "ok    $what"
	else
		echo "FAIL  $what"
		echo "$result"
		failed=1
	fi
}

# check <what> <command ...> runs a command that fails by itself.
check() {
	local what=$1 result
	shift
	if result=$("$@" 2>&1); then
		echo "ok    $what"
	else
		echo "FAIL  $what"
		echo "$result"
		failed=1
	fi
}

oldest=$(sed -n 's/^  minKubeVersion: \([0-9]*\.[0-9]*\).*/\1/p' bundle/manifests/*.clusterserviceversion.yaml)
newest=$(sed -n 's/^require k8s.io\/kubernetes v\([0-9]*\.[0-9]*\).*/\1/p' tools/kubernetes.mod)
: "${oldest:?no minKubeVersion in the bundle}" "${newest:?no version in tools/kubernetes.mod}"

validate "bundle: what OLM asks" bundle
# Every optional validator that the SDK has: a new one joins by itself.
validators=$(operator-sdk bundle validate --list-optional | awk '$2 == "name=" $1 && $1 != "multiarch" {print $1}')
for validator in ${validators:?the SDK lists none}; do
	for kubernetes in "$oldest" "$newest"; do
		validate "bundle: $validator, on Kubernetes $kubernetes" bundle --select-optional "name=$validator" \
			--optional-values="k8s-version=$kubernetes" --optional-values=index-path=bundle.Dockerfile
	done
done
check "bundle: what OperatorHub's pipeline asks" go -C hack run ./operatorhub -root "$PWD" "$PWD/bin/operatorhub"
for version in bin/operatorhub/operators/echo-operator/*/; do
	validate "operatorhub: $(basename "$version"), as the pipeline validates it" "$version" --select-optional name=operatorhub
	validate "operatorhub: $(basename "$version"), and with its suite" "$version" --select-optional suite=operatorframework
done
check "operatorhub: each rule fails where it must" go -C hack test -count=1 ./operatorhub
check "bundle: examples, descriptions, platforms, images" go -C test test -count=1 ./manifests/bundle
check "catalog: a graph without loops or loose ends" opm validate catalog/echo-operator

exit $failed
