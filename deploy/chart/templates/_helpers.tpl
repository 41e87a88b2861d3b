{{- define "sluice.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ include "sluice.name" . }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "sluice.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sluice.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* The configuration of the members: that of the values, with what the pod determines. */ -}}
{{- define "sluice.config" -}}
{{- $pod := dict
    "temp_dir" "/tmp"
    "health" (dict "listen" (printf ":%v" .Values.healthPort))
    "shutdown" (dict "drain" (printf "%vs" .Values.drainSeconds)) -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $pod) -}}
{{- end -}}
