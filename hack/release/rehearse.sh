#!/usr/bin/env bash
# Rehearses three releases in a row on the local cluster: a release candidate, the release and the next release. It runs
# the scripts of the release workflow in a clone, with the cluster's registry, which it empties, in place of ghcr.io. The
# cluster, which polls the catalog, must upgrade by itself each time. `make rehearse-release` calls this script.
# The clone has the version of its own Makefile.
unset VERSION MAKEFLAGS MAKEOVERRIDES MFLAGS OLM_MANIFESTS
source "$(dirname "$0")/common.sh"
release=${1:?usage: hack/release/rehearse.sh <version>}
release=${release%-rc.*}
candidate=$version
[[ $candidate == "$release"-rc.* ]] || candidate=$release-rc.1
here=$PWD
clone=$(mktemp -d)
trap 'chmod -R u+w "$clone"; rm -rf "$clone"; uninstall' EXIT
local-cluster down
rm -rf bin/cluster/registry-data # Tests push other images under the tags of this version.
local-cluster up
REGISTRY=$(cat bin/cluster/registry)
export REGISTRY SKOPEO_FLAGS=--tls-verify=false HELM_FLAGS=--plain-http
export KUBECONFIG=$here/bin/cluster/kubeconfig
namespace=echo-operator-system

step() { printf '\n\033[1m%4d s  %s\033[0m\n' $SECONDS "$*"; }
uninstall() {
	kubectl delete namespace $namespace rehearsal --ignore-not-found >/dev/null
	kubectl -n olm delete catalogsource echo-operator --ignore-not-found >/dev/null
	kubectl delete clusterroles,clusterrolebindings -l "olm.owner.namespace=$namespace" >/dev/null
	kubectl delete crd echoes.kkloud.io --ignore-not-found >/dev/null
}
# expect_failure <text> <command> fails unless the command fails with the text.
expect_failure() {
	local text=$1 output
	shift
	if output=$("$@" 2>&1) || ! grep -qF -- "$text" <<<"$output"; then fail "$*: printed \"$output\", want the failure \"$text\""; fi
}
# await_version <version> waits until OLM has installed the version.
await_version() {
	kubectl -n $namespace wait --for=jsonpath='{.status.installedCSV}'="echo-operator.v$1" --timeout=10m subscription/echo-operator
	kubectl -n $namespace wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=3m csv "echo-operator.v$1"
}
response() { kubectl get --raw "/api/v1/namespaces/rehearsal/services/echo-hello:80/proxy/"; }

# release <version> <next version> makes a release of the tree in the clone, and begins the next version.
release() {
	step "$1: prepare the commit"
	hack/release/begin.sh "$1" # Also for a tree that is prepared already: tags replace its digests.
	[[ $1 == *-rc.* ]] || expect_failure 'must have the line "## '"$1" hack/release/check.sh
	hack/release/notes.sh | grep -q '^- ' || sed -i "0,/^## .*/s//&\n\n- This release is a rehearsal./" CHANGELOG.md
	[[ $1 != *-rc.* ]] || expect_failure "without a digest" hack/release/check.sh
	hack/release/prepare.sh
	expect_failure "the version of this commit is $1" hack/release/check.sh v99.0.0
	git add -A
	git commit -q --allow-empty -m "Release $1" # The tree may be prepared already.
	git tag "v$1"

	step "$1: build, push, and push again"
	hack/release/build.sh
	hack/release/push.sh
	hack/release/push.sh >/dev/null

	step "$1: record and publish the catalog"
	hack/release/record.sh "v$1"
	expect_failure "has a commit for version $1 already" hack/release/record.sh "v$1"
	hack/release/begin.sh "$2"
	git add -A
	git commit -qm "Begin $2"
	hack/release/publish-catalog.sh

	[[ $1 != *-rc.* ]] || return 0
	make --no-print-directory operatorhub RELEASE="$1"
}

uninstall
git clone -q "$here" "$clone/echo-operator"
cd "$clone/echo-operator"
git config user.name rehearsal
git config user.email rehearsal@example.com
mkdir bin
ln -s "$here"/bin/{controller-gen,kustomize,operator-sdk,opm,helm}-* bin # Reuse the tools of this clone.

# The catalog also offers the releases that this tree names, whose images are those of their commits.
for commit in $(sed -n 's/^  commit: //p' catalog/releases.yaml); do
	step "Build and push the release of commit ${commit::12}"
	git checkout -q "$commit"
	hack/release/build.sh
	hack/release/push.sh
	git checkout -q -
done

release "$candidate" "$release"

step "Install $candidate from channel candidate-v${release%%.*}"
kubectl apply -f config/olm/namespace.yaml -f config/olm/operatorgroup.yaml
sed 's/interval: .*/interval: 1m/' config/olm/catalogsource.yaml | kubectl apply -f -
kubectl -n olm wait --for=jsonpath='{.status.connectionState.lastObservedState}'=READY --timeout=3m catalogsource/echo-operator
sed "s/channel: .*/channel: candidate-v${release%%.*}/" config/olm/subscription.yaml | kubectl apply -f -
await_version "$candidate"
kubectl create namespace rehearsal
kubectl -n rehearsal apply -f - <<<'{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "hello"}, "spec": {"message": "released"}}'
kubectl -n rehearsal wait --for=condition=Ready --timeout=3m echo/hello
response

IFS=. read -r major minor _ <<<"$release"
next=$major.$((minor + 1)).0
for version in "$release" "$next"; do
	release "$version" "${next%.0}.1"
	step "$version: wait until OLM finds it by polling the catalog, and upgrades"
	published=$SECONDS
	await_version "$version"
	echo "OLM upgraded $((SECONDS - published)) s after the publication."
	[ "$(response)" = released ] || fail "the Echo responds $(response), want released"
done

step "A published tag does not move, and no image may be missing"
git checkout -q "v$next"
$CONTAINER_TOOL manifest rm "$(local_image docker)"
CONTAINER_TOOL="$CONTAINER_TOOL" make --no-print-directory docker-build RELEASE_DATE=2020-01-01T00:00:00Z
expect_failure "a published tag is never moved" hack/release/push.sh
sed -i 's/@sha256:..../@sha256:0000/' catalog/echo-operator/*
expect_failure "cannot be pulled without credentials" hack/release/check-images.sh
step "Rehearsed $candidate, $release and $next."
