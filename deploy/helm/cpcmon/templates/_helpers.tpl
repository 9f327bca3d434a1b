{{- define "cpcmon.selector" -}}
app.kubernetes.io/name: cpcmon
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "cpcmon.labels" -}}
{{ include "cpcmon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "cpcmon.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- end }}

{{- /* The rules select jobs with cpcmon in their name, and the job is the name of the Service. */ -}}
{{- define "cpcmon.name" -}}
{{- if contains "cpcmon" .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-cpcmon" (.Release.Name | trunc 43 | trimSuffix "-") }}
{{- end -}}
{{- end }}

{{- define "cpcmon.metadata" -}}
name: {{ include "cpcmon.name" . }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "cpcmon.labels" . | nindent 2 }}
{{- end }}
