#!/usr/bin/env bash
# Tells the story of an Echo, from the installation of its operator to its end, on the
# cluster of the current kubeconfig. `make demo` prepares the cluster and calls this.
set -euo pipefail
cd "$(dirname "$0")/.."

namespace=op-demo
operator=echo-operator-system
# Other manifests where the images are not the published ones.
olm=${OLM_MANIFESTS:-config/olm}

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# run shows a command as one would type it, runs it, and shows what it prints.
run() {
	local word line=
	for word; do
		[[ $word =~ ^[A-Za-z0-9_./:=@%,+-]+$ ]] || word="'$word'"
		line+=" $word"
	done
	printf '\033[36m$%s\033[0m\n' "$line"
	"$@"
}

# until_true runs a test every half second, for at most two minutes.
until_true() {
	local what=$1 end=$((SECONDS + 120))
	shift
	until "$@" 2>/dev/null; do
		if ((SECONDS > end)); then
			printf '%s did not happen within two minutes. Look at: kubectl -n %s get csv,installplans,pods\n' "$what" $operator >&2
			exit 1
		fi
		sleep 0.5
	done
}

catalog_ready() {
	[ "$(kubectl -n olm get catalogsource echo-operator -o 'jsonpath={.status.connectionState.lastObservedState}')" = READY ]
}

installed() {
	local csv
	csv=$(kubectl -n $operator get subscription echo-operator -o 'jsonpath={.status.installedCSV}')
	[ "$(kubectl -n $operator get csv "$csv" -o 'jsonpath={.status.phase}')" = Succeeded ]
}

proxy=/api/v1/namespaces/$namespace/services/echo-hello:80/proxy/
answers() { [ "$(kubectl get --raw $proxy)" = "$1" ]; }

gone() { [ -z "$(kubectl -n $namespace get deployments,services,pods -o name)" ]; }

kubectl get crd subscriptions.operators.coreos.com >/dev/null 2>&1 || {
	echo 'This cluster has no OLM. Install it with: operator-sdk olm install' >&2
	exit 1
}

title '1. The operator, installed by OLM from a catalog image through a Subscription'
run kubectl apply -f "$olm/catalogsource.yaml"
until_true 'A ready catalog' catalog_ready
run kubectl -n olm get catalogsource echo-operator
run kubectl apply -k "$olm"
until_true 'The installation' installed
run kubectl -n $operator get subscription,csv

title '2. An Echo'
kubectl create namespace $namespace --dry-run=client -o yaml | kubectl apply -f - >/dev/null
run cat config/samples/hello.yaml
run kubectl -n $namespace apply -f config/samples/hello.yaml
run kubectl -n $namespace wait --for=condition=Ready echo/hello --timeout=120s
run kubectl -n $namespace get ec
run kubectl -n $namespace get deploy echo-hello

title '3. Its answer, fetched through the Service'
until_true 'The answer' answers 'xin chao operator'
run kubectl get --raw $proxy

title '4. The message changes'
run kubectl -n $namespace patch echo hello --type=merge -p '{"spec":{"message":"hello again"}}'
run kubectl -n $namespace rollout status deploy/echo-hello --timeout=120s
run kubectl -n $namespace wait --for=condition=Ready echo/hello --timeout=120s
until_true 'The new answer' answers 'hello again'
run kubectl get --raw $proxy

title '5. It scales'
run kubectl -n $namespace scale echo/hello --replicas=4
run kubectl -n $namespace wait --for='jsonpath={.status.ready}=4/4' echo/hello --timeout=120s
run kubectl -n $namespace get ec

title '6. Somebody meddles with the Deployment, and it comes back'
run kubectl -n $namespace scale deployment/echo-hello --replicas=1
run kubectl -n $namespace wait --for='jsonpath={.spec.replicas}=4' deploy/echo-hello --timeout=60s
run kubectl -n $namespace wait --for=condition=Ready echo/hello --timeout=120s

title '7. The Echo is deleted, and everything that it owned with it'
run kubectl -n $namespace delete echo hello
until_true 'The end of the children' gone
run kubectl -n $namespace get deployments,services,pods

cat <<END

Done in $SECONDS s. The operator is left running, and the namespace $namespace is empty. Play on:

  export KUBECONFIG=${KUBECONFIG:-\$HOME/.kube/config} PATH=$PWD/bin:\$PATH
  kubectl -n $namespace apply -k config/samples        # one Echo of each kind
  kubectl -n $namespace get ec -o wide
  kubectl -n $namespace port-forward service/echo-website 8080:80   # and open http://127.0.0.1:8080

Remove the operator:

  kubectl delete -k $olm && kubectl delete -f $olm/catalogsource.yaml
  kubectl delete crd echoes.kkloud.io                  # and with it every Echo

END
[ "${KUBECONFIG:-}" != "$PWD/bin/cluster/kubeconfig" ] || printf 'Or stop the whole cluster:\n\n  make cluster-down\n\n'
