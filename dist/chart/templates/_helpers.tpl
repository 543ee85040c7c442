{{/* The prefix of all names: the name of the release, with that of the chart. A Service name has at most 63 characters. */}}
{{- define "echo-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if regexMatch "^[0-9]" .Release.Name }}
{{- fail "set fullnameOverride: the name of a Service starts with a letter, and the name of this release does not" }}
{{- else if contains .Chart.Name .Release.Name }}
{{- .Release.Name | replace "." "-" | trunc 44 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | replace "." "-" | trunc 44 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "echo-operator.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* An image, as (list <context> <name in values.yaml>). Chart.yaml has the digests, so that helm upgrade --reuse-values
does not reuse those of the version before. */}}
{{- define "echo-operator.image" -}}
{{- $context := first . }}
{{- $images := $context.Values.images }}
{{- $image := index $images (last .) }}
{{- $name := printf "%s/%s" $images.registry $image.repository }}
{{- if $image.digest }}
{{- printf "%s@%s" $name $image.digest }}
{{- else if $image.tag }}
{{- printf "%s:%s" $name $image.tag }}
{{- else }}
{{- range index $context.Chart.Annotations "artifacthub.io/images" | fromYamlArray }}
{{- if eq .name (kebabcase (last $)) }}
{{- regexFind "[:@].*" .image | print $name }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "echo-operator.args" -}}
- --leader-elect
{{- if .Values.allowEveryNodeVerification }}
- --allow-every-node-verification
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "echo-operator.podLabels" -}}
{{- $own := dict "app.kubernetes.io/name" "echo-operator" "control-plane" "controller-manager" }}
{{- merge $own (.Values.podLabels | default dict) | toYaml }}
{{- end }}

{{- define "echo-operator.podAnnotations" -}}
{{- $own := dict "kubectl.kubernetes.io/default-container" "manager" }}
{{- merge $own (.Values.podAnnotations | default dict) | toYaml }}
{{- end }}
