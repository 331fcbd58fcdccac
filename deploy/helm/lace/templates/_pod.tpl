{{/* What all pods share: the container, its probes and the model. */}}
{{- define "lace.container" -}}
name: lace
image: {{ .Values.image | quote }}
ports:
  - { name: http, containerPort: {{ .Values.port }} }
volumeMounts:
  - { name: models, mountPath: /models, readOnly: true }
  - { name: keys, mountPath: /etc/lace, readOnly: true }
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: { drop: [ALL] }
{{- end }}

{{- define "lace.probes" -}}
readinessProbe: { httpGet: { path: /ready, port: http, httpHeaders: [{ name: Host, value: localhost }] }, periodSeconds: 2, failureThreshold: 1 }
startupProbe: { httpGet: { path: /ready, port: http, httpHeaders: [{ name: Host, value: localhost }] }, periodSeconds: 5, failureThreshold: 120 }
{{- end }}

{{- define "lace.volumes" -}}
- name: models
  persistentVolumeClaim: { claimName: {{ .Values.modelClaim }}, readOnly: true }
- name: keys
  secret: { secretName: {{ .Values.keysSecret }} }
{{- end }}
