#!/usr/bin/env bash
# Runs the demo on kind: creates a cluster unless it exists, loads the images into it, and deploys the operator. `make demo`
# calls this script.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=echo-operator img=kkloud/echo-operator:demo
mkdir -p bin
export KUBECONFIG=$PWD/bin/kind.kubeconfig CLUSTER=kind CONTAINER_TOOL=docker
unset HTTP_ECHO_IMG VERIFIER_IMG

if kind get clusters 2>/dev/null | grep -x $cluster >/dev/null; then
	kind export kubeconfig --name $cluster
else
	kind create cluster --name $cluster --wait 3m
fi
make docker-build IMG=$img
kind load docker-image --name $cluster $img ${img/:/-http-echo:} ${img/:/-verifier:}
make deploy IMG=$img
# The tag is the same for every build.
kubectl -n echo-operator-system rollout restart deployment/echo-operator-controller-manager
kubectl -n echo-operator-system rollout status deployment/echo-operator-controller-manager --timeout=3m
exec hack/demo.sh
