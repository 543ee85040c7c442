#!/usr/bin/env bash
# Runs the validators of operator-sdk on the bundle, for its oldest and for the given Kubernetes, and on what `make operatorhub` writes
# for the hubs. Warnings count as errors. Usage: hack/validate-bundle.sh <version of Kubernetes, such as v1.37.1>
#
# The validator multiarch pulls images, so hack/multiarch-check.sh runs it where they are built.
set -euo pipefail
cd "$(dirname "$0")/.."
newest=${1#v}
oldest=$(sed -n 's/^  minKubeVersion: //p' bundle/manifests/*.clusterserviceversion.yaml)

# validate <directory> [<option> ...]. The only message that is no error is one that the validator operatorhub prints for every bundle.
validate() {
	local result
	if ! result=$(operator-sdk bundle validate -o json-alpha1 "$@" 2>/dev/null) ||
		grep '"message"' <<<"$result" | grep -v 'The \\"operatorhub\\" validator is deprecated' >/dev/null; then
		printf 'operator-sdk bundle validate %s:\n%s\n' "$*" "$result" >&2
		exit 1
	fi
}

validators=$(operator-sdk bundle validate --list-optional | awk '/^[a-z]/ && $1 != "multiarch" {print $1}')
[[ $validators == *good-practices* ]] || {
	echo "operator-sdk lists the validators: $validators; want some with good-practices" >&2
	exit 1
}
validate bundle
for validator in $validators; do
	for kubernetes in "$oldest" "$newest"; do
		validate bundle "--select-optional=name=$validator" "--optional-values=k8s-version=${kubernetes%.*}" \
			--optional-values=index-path=bundle.Dockerfile
	done
done

hubs=$(mktemp -d)
trap 'rm -rf "$hubs"' EXIT
go -C hack run ./operatorhub bundle "$hubs"
for bundle in "$hubs"/*/operators/echo-operator/[0-9]*; do
	validate "$bundle" --select-optional=name=operatorhub
	validate "$bundle" --select-optional=suite=operatorframework
done
echo "The validators of operator-sdk accept the bundle."
