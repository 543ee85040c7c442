#!/usr/bin/env bash
# Writes what the Helm chart in dist/chart has from config/: the templates, the version, the images and the icon.
# `make chart` calls this script. Usage: hack/chart.sh <version>
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 chart=dist/chart templates=dist/chart/templates/generated

# condition <kind>-<name> prints the value that an object depends on.
condition() {
	case $1 in
	customresourcedefinition-*) echo .Values.crds.enabled ;;
	networkpolicy-*) echo .Values.networkPolicy.enabled ;;
	servicemonitor-*) echo .Values.monitoring.serviceMonitor ;;
	podmonitor-*) echo .Values.monitoring.podMonitor ;;
	prometheusrule-*) echo .Values.monitoring.prometheusRule ;;
	configmap-*) echo .Values.monitoring.dashboard ;;
	clusterrolebinding-manager-*) echo "not .Values.watchNamespaces" ;;
	esac
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kustomize build config/helm -o "$work"
rm -rf $templates
mkdir -p $templates
fullname='\{\{ include "echo-operator.fullname" \. \}\}-'
for file in "$work"/*; do
	# kustomize names a file <group>_<version>_<kind>_<name>. config/prometheus adds a prefix of its own.
	object=$(sed -E "s/^(.*_)?v1_//; s/_($fullname)?(echo-operator-)?/-/; s/\.yaml$//" <<<"${file##*/}")
	if=$(condition "$object")
	# 1. Alerts and dashboards have templates of their own, such as "{{ $labels.pod }}" and "{{pod}}".
	# 2. A value that is JSON loses its quotes, and kustomize's line break.
	sed -E -e '/\{\{ (include|join|\.Release|\.Values)/!s/\{\{/{{ "{{" }}/g' \
		-e "s/($fullname)echo-operator-/\1/; s/^( *imagePullSecrets)\.json:/\1:/" "$file" |
		sed -Ez "s/'(\{\{[^']*toJson)\s*\}\}'/\1 }}/g" >"$templates/$object.yaml"
	[[ $if != .Values.monitoring.* ]] ||
		sed -i '0,/^  labels:$/s//&\n    {{- with .Values.monitoring.labels }}{{ toYaml . | nindent 4 }}{{ end }}/' "$templates/$object.yaml"
	# Helm deletes no object with this annotation, whatever its value is.
	sed -i '/ helm.sh\/resource-policy: keep$/{s/.*/    {{- if .Values.crds.keep }}\n&\n    {{- end }}/}' "$templates/$object.yaml"
	[ -z "$if" ] || sed -i -e "1i {{- if $if }}" -e '$a {{- end }}' "$templates/$object.yaml"
done

for image in echo-operator echo-operator-http-echo echo-operator-verifier; do
	reference=$(grep -oE "ghcr.io/kkloud-io/$image[:@][^ ]+" config/manager/manager.yaml)
	sed -i -E "s|ghcr.io/kkloud-io/$image[:@].*|$reference|" $chart/Chart.yaml
done
icon=$(sed -n 's/^  - base64data: //p' config/manifests/bases/echo-operator.clusterserviceversion.yaml)
[[ $version == *-* ]] && prerelease=true || prerelease=false
sed -i -E -e "s/^(version|appVersion): .*/\1: $version/" -e "s|^icon: .*|icon: data:image/svg+xml;base64,$icon|" \
	-e "s/(prerelease): .*/\1: \"$prerelease\"/" $chart/Chart.yaml
