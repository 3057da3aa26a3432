"""Pod templates as people write them."""

from __future__ import annotations

from typing import Any

import yaml

UNTIDY: dict[str, Any] = yaml.safe_load(
    """
metadata:
  labels: {app: chat}
  annotations: {prometheus.io/scrape: "true", example.com/team: nlp}
spec:
  serviceAccountName: chat
  priorityClassName: production
  priority: 1000
  hostNetwork: true
  hostname: chat
  runtimeClassName: nvidia
  schedulerName: gang
  dnsPolicy: None
  dnsConfig: {nameservers: [10.0.0.10]}
  hostAliases: [{ip: 10.1.1.1, hostnames: [store]}]
  imagePullSecrets: [{name: registry}]
  nodeSelector: {pool: gpu, nvidia.com/gpu.product: NVIDIA-T4}
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - labelSelector: {matchLabels: {app: batch}}
          topologyKey: kubernetes.io/hostname
  topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: chat}}}
  securityContext: {runAsUser: 1000, fsGroup: 1000}
  terminationGracePeriodSeconds: 600
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}, {name: other, resourceClaimTemplateName: nic}]
  volumes:
    - {name: models, persistentVolumeClaim: {claimName: models}}
    - {name: fetched, emptyDir: {}}
    - {name: shm, emptyDir: {medium: Memory}}
    - {name: store-key, secret: {secretName: store-key}}
    - {name: tls, secret: {secretName: tls}}
    - {name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}
    - {name: logs, emptyDir: {}}
    - {name: slotune, configMap: {name: unlucky}}
  initContainers:
    - name: mesh
      image: mesh:1
      restartPolicy: Always
    - name: fetch
      image: fetcher:1
      env: [{name: KEY, valueFrom: {secretKeyRef: {name: store, key: key}}}]
      volumeMounts:
        - {name: fetched, mountPath: /out}
        - {name: models, mountPath: /models}
        - {name: store-key, mountPath: /key}
        - {name: token, mountPath: /token}
  containers:
    - name: shipper
      image: shipper:1
      volumeMounts: [{name: logs, mountPath: /logs}]
    - name: llama
      image: llama.cpp:server-cuda-b11434
      command: [/app/llama-server, -m, /models/m.gguf]
      args: [-c, "8192"]
      env:
        - {name: CUDA_VISIBLE_DEVICES, value: "0"}
        - {name: LLAMA_ARG_PORT, value: "9000"}
        - {name: LLAMA_API_KEY, value: open}
        - {name: HF_TOKEN, value: written-out}
        - {name: DB, valueFrom: {secretKeyRef: {name: db, key: url}}}
        - {name: LICENCE, valueFrom: {secretKeyRef: {name: licence, key: key}}}
      envFrom:
        - {configMapRef: {name: flags}}
        - {secretRef: {name: all}, prefix: S_}
      ports: [{containerPort: 8080, hostPort: 8080}]
      livenessProbe: {httpGet: {path: /health, port: 8080}}
      readinessProbe: {httpGet: {path: /health, port: 8080}}
      startupProbe: {httpGet: {path: /health, port: 8080}, failureThreshold: 3}
      lifecycle: {preStop: {exec: {command: [sleep, "60"]}}}
      resources:
        limits: {nvidia.com/gpu: "1", rdma/hca: "1", memory: 16Gi, cpu: "4"}
        claims: [{name: gpu}]
      securityContext: {capabilities: {add: [IPC_LOCK]}}
      volumeMounts:
        - {name: models, mountPath: /models}
        - {name: fetched, mountPath: /fetched}
        - {name: shm, mountPath: /dev/shm}
        - {name: tls, mountPath: /tls}
        - {name: slotune, mountPath: /etc/chat, subPath: chat}
"""
)
