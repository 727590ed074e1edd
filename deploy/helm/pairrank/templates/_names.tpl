{{- define "pairrank.name" -}}
{{- if contains "pairrank" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-pairrank" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "pairrank.selector" -}}
app.kubernetes.io/name: pairrank
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pairrank.labels" -}}
{{ include "pairrank.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "pairrank.storeSecret" -}}
{{- if .Values.store.existingSecret }}{{ .Values.store.existingSecret }}{{ else }}{{ include "pairrank.name" . }}{{ end -}}
{{- end }}

{{- define "pairrank.keySecret" -}}
{{- if .Values.adminKey.existingSecret }}{{ .Values.adminKey.existingSecret }}{{ else }}{{ include "pairrank.name" . }}{{ end -}}
{{- end }}
