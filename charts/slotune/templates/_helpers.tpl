{{/* Prefix of every name. */}}
{{- define "slotune.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* Names of what belongs to no namespace: teams with releases of one name in namespaces of their own share a cluster. */}}
{{- define "slotune.clusterName" -}}
{{- if .Values.watchNamespaces }}
{{- printf "%s-%s" .Release.Namespace (include "slotune.fullname" .) }}
{{- else }}
{{- include "slotune.fullname" . }}
{{- end }}
{{- end }}

{{- define "slotune.selector" -}}
app.kubernetes.io/name: slotune
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slotune.labels" -}}
{{ include "slotune.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "slotune.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "slotune.fullname" .) }}
{{- else }}
{{- required "serviceAccount.create is false, so serviceAccount.name must be the name of one that exists" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* A digest wins over a tag. */}}
{{- define "slotune.image" -}}
{{- $where := required "image.repository is where you pushed the image, such as registry.example.com/slotune (docs/install.md)" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $where .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $where (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "slotune.subject" -}}
- kind: ServiceAccount
  name: {{ include "slotune.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
