#!/usr/bin/env bash
# Installs the operator through OLM, or on kind finds it installed, then creates, edits, scales and deletes an Echo, and
# shows each command and its output. `make demo` prepares the cluster and calls this.
set -euo pipefail
cd "$(dirname "$0")/.."

local_kubeconfig=$PWD/bin/cluster/kubeconfig
[ "${KUBECONFIG:-}" = "$local_kubeconfig" ] || [ "${CLUSTER:-}" = kind ] || [ "${USE_EXISTING_CLUSTER:-}" = true ] || {
	echo "KUBECONFIG=${KUBECONFIG:-} is not the local cluster ($local_kubeconfig); set USE_EXISTING_CLUSTER=true to use it anyway" >&2
	exit 1
}

namespace=op-demo
operator_namespace=echo-operator-system
# make prepares a copy of the manifests if the images are in your own registry.
olm=${OLM_MANIFESTS:-config/olm}
# The limit of each wait in seconds: a slow machine needs minutes for some steps.
limit=1800

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# run prints a command in the form in which it can be typed, and runs it.
run() {
	local word line=
	for word; do
		[[ $word =~ ^[A-Za-z0-9_./:=@%,+-]+$ ]] || word="'$word'"
		line+=" $word"
	done
	printf '\033[36m$%s\033[0m\n' "$line"
	"$@"
}

# wait_until <condition> <command ...> repeats the command until it succeeds, for at most the limit. On a slow machine, kubectl
# itself takes seconds, so there are pauses.
wait_until() {
	local condition=$1 end=$((SECONDS + limit)) start=$SECONDS pause
	shift
	until "$@" >/dev/null 2>&1; do
		if ((SECONDS > end)); then
			printf 'After %s s, still waiting until %s.\n' $limit "$condition" >&2
			kubectl get subscriptions,installplans,csvs,jobs,pods --all-namespaces >&2 || true
			kubectl get events --all-namespaces --field-selector type=Warning >&2 || true
			exit 1
		fi
		pause=$((4 * (SECONDS - start)))
		sleep $((pause < 20 ? pause : 20)).5
		start=$SECONDS
	done
}

# Both wait with a watch for a minute, which costs a slow machine less than repeated requests.
catalog_ready() {
	kubectl -n olm wait --for='jsonpath={.status.connectionState.lastObservedState}=READY' catalogsource/echo-operator --timeout=60s
}

installed() {
	kubectl -n $operator_namespace wait --for='jsonpath={.status.state}=AtLatestKnown' subscription/echo-operator --timeout=60s &&
		kubectl -n $operator_namespace wait --for='jsonpath={.status.phase}=Succeeded' --timeout=60s \
			"csv/$(kubectl -n $operator_namespace get subscription echo-operator -o 'jsonpath={.status.installedCSV}')"
}

proxy=/api/v1/namespaces/$namespace/services/echo-hello:80/proxy/
responds() { [ "$(kubectl get --raw "${2:-$proxy}")" = "$1" ]; }

children_deleted() { [ -z "$(kubectl -n $namespace get deployments,services,pods -o name)" ]; }

if [ "${CLUSTER:-}" = kind ]; then
	title '1. The operator, deployed with make deploy'
	run kubectl -n $operator_namespace get deployments,pods
	remove='make undeploy'
else
	kubectl get crd subscriptions.operators.coreos.com >/dev/null 2>&1 || {
		echo 'This cluster has no OLM. Install it with: operator-sdk olm install' >&2
		exit 1
	}
	title '1. Install the operator: OLM, a catalog image, a Subscription'
	run kubectl apply -f "$olm/catalogsource.yaml"
	wait_until 'the catalog is ready' catalog_ready
	run kubectl -n olm get catalogsource echo-operator
	run kubectl apply -k "$olm"
	wait_until 'the operator is installed' installed
	run kubectl -n $operator_namespace get subscription,csv,pods
	remove="kubectl delete -k $olm && kubectl delete -f $olm/catalogsource.yaml
  kubectl delete clusterroles -l app.kubernetes.io/name=echo-operator,olm.managed=true
  kubectl delete crd echoes.kkloud.io                  # deletes every Echo, too"
fi

title '2. Create an Echo'
kubectl create namespace $namespace --dry-run=client -o yaml | kubectl apply -f - >/dev/null
run cat config/samples/hello.yaml
run kubectl -n $namespace apply -f config/samples/hello.yaml
run kubectl -n $namespace wait --for=condition=Ready echo/hello --timeout=${limit}s
run kubectl -n $namespace get ec
run kubectl -n $namespace get deploy echo-hello
run kubectl -n $namespace get deploy echo-hello \
	-o 'jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name} controller={.metadata.ownerReferences[0].controller}{"\n"}'

title '3. Request its response through the Service'
wait_until 'the Echo responds' responds 'xin chao operator'
run kubectl get --raw $proxy

title '4. Change the message'
run kubectl -n $namespace patch echo hello --type=merge -p '{"spec":{"message":"hello again"}}'
run kubectl -n $namespace rollout status deploy/echo-hello --timeout=${limit}s
run kubectl -n $namespace wait --for=condition=Ready echo/hello --timeout=${limit}s
wait_until 'the Echo responds with the new message' responds 'hello again'
run kubectl get --raw $proxy

title '5. Change the replicas'
run kubectl -n $namespace patch echo hello --type=merge -p '{"spec":{"replicas":4}}'
run kubectl -n $namespace wait --for='jsonpath={.status.ready}=4/4' echo/hello --timeout=${limit}s
run kubectl -n $namespace get deploy echo-hello

title '6. Scale the Deployment: the operator reverts the drift'
run kubectl -n $namespace scale deployment/echo-hello --replicas=1
run kubectl -n $namespace wait --for='jsonpath={.spec.replicas}=4' deploy/echo-hello --timeout=${limit}s
run kubectl -n $namespace wait --for=condition=Ready echo/hello --timeout=${limit}s

if kubectl -n gateways get gateway public >/dev/null 2>&1; then
	title '7. Put a page in front of an application, and take it away'
	gateway=/api/v1/namespaces/traefik/services/traefik:http/proxy/
	kubectl -n $namespace apply -f - >/dev/null <<-END
		apiVersion: gateway.networking.k8s.io/v1
		kind: HTTPRoute
		metadata: {name: shop}
		spec:
		  parentRefs: [{name: public, namespace: gateways, sectionName: http}]
		  rules: [{backendRefs: [{name: echo-hello, port: 80}]}]
	END
	run kubectl -n $namespace get httproute shop
	wait_until 'the application responds through the Gateway' responds 'hello again' $gateway
	run kubectl get --raw $gateway
	page='apiVersion: kkloud.io/v1
kind: Echo
metadata:
  name: page
spec:
  message: Back at 14:00 UTC.
  route:
    overrides:
    - name: shop'
	printf '\033[36m$ kubectl -n %s apply -f - <<END\033[0m\n%s\nEND\n' $namespace "$page"
	kubectl -n $namespace apply -f - <<<"$page"
	run kubectl -n $namespace wait --for=condition=Ready echo/page --timeout=${limit}s
	wait_until 'the page is there' responds 'Back at 14:00 UTC.' $gateway
	run kubectl get --raw $gateway
	run kubectl -n $namespace delete echo page
	wait_until 'the application is back' responds 'hello again' $gateway
	run kubectl get --raw $gateway
	kubectl -n $namespace delete httproute shop >/dev/null
fi

title '8. Delete the Echo: its children are deleted with it'
run kubectl -n $namespace delete echo hello
wait_until 'the children are deleted' children_deleted
run kubectl -n $namespace get deploy echo-hello || true

cat <<END

Done in $SECONDS s. The operator is still running, and the namespace $namespace is empty. Try more:

  export KUBECONFIG=${KUBECONFIG:-\$HOME/.kube/config} PATH=$PWD/bin:\$PATH
  kubectl -n $namespace apply -k config/samples        # one Echo of each kind
  kubectl -n $namespace get ec -o wide
  kubectl -n $namespace port-forward service/echo-website 8080:80   # and open http://127.0.0.1:8080

Remove the operator:

  $remove

END
case ${KUBECONFIG:-} in
"$local_kubeconfig") printf 'Or stop the local cluster:\n\n  make cluster-down\n\n' ;;
*/bin/kind.kubeconfig) printf 'Or delete the cluster:\n\n  kind delete cluster --name echo-operator\n\n' ;;
esac
