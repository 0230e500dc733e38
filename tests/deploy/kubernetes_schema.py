"""The fields of the Kubernetes objects in deploy/kubernetes, and a check against them.

A subset of the API reference (Kubernetes 1.29, Prometheus operator v1, kustomize v1beta1): what our
manifests use, and what is likely to be put beside it. A field that is not here is refused: add it, after
a look into the reference.
"""

from tests.deploy.schema import check, either, fail, mapping, matching, number, one_of, text, yes_no

NAME = matching(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "object name")
LABEL_NAME = matching(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "name of a container or volume")
PORT_NAME = matching(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*", "port name")
KEY = matching(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", "label key")
LABEL = matching(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", "label value")
QUANTITY = either(number(0), matching(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?", "quantity"))
DURATION = matching(r"([0-9]+(ms|[smhdwy]))+", "duration")
PORT = number(1, 65535)
PORT_OR_NAME = either(PORT, PORT_NAME)
COUNT_OR_PERCENT = either(number(0), matching(r"[0-9]{1,3}%", "percentage"))
LABELS = mapping(KEY, LABEL)
PATH = matching(r"/.*", "absolute path")

META = {"name!": NAME, "namespace": NAME, "labels": LABELS, "annotations": mapping(KEY, text)}
SELECTOR = {"matchLabels": LABELS}

SECCOMP = {"type!": one_of("RuntimeDefault", "Localhost", "Unconfined"), "localhostProfile": text}
POD_SECURITY = {
    "runAsNonRoot": yes_no, "runAsUser": number(0), "runAsGroup": number(0), "fsGroup": number(0),
    "supplementalGroups": [number(0)], "seccompProfile": SECCOMP,
}
SECURITY = {
    "runAsNonRoot": yes_no, "runAsUser": number(0), "runAsGroup": number(0),
    "allowPrivilegeEscalation": yes_no, "privileged": yes_no, "readOnlyRootFilesystem": yes_no,
    "capabilities": {"drop": [text], "add": [text]}, "seccompProfile": SECCOMP,
}
PROBE = {
    "httpGet": {"path!": PATH, "port!": PORT_OR_NAME, "scheme": one_of("HTTP", "HTTPS"), "host": text},
    "tcpSocket": {"port!": PORT_OR_NAME, "host": text},
    "initialDelaySeconds": number(0), "periodSeconds": number(1), "timeoutSeconds": number(1),
    "failureThreshold": number(1), "successThreshold": number(1),
}
CONTAINER = {
    "name!": LABEL_NAME, "image!": text, "imagePullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "command": [text], "args": [text], "workingDir": PATH,
    "env": [{"name!": matching(r"[A-Za-z_][A-Za-z0-9_]*", "variable"), "value": text,
             "valueFrom": {"fieldRef": {"fieldPath!": text}}}],
    "ports": [{"name": PORT_NAME, "containerPort!": PORT, "hostPort": PORT,
               "protocol": one_of("TCP", "UDP", "SCTP")}],
    "resources": {"requests": mapping(KEY, QUANTITY), "limits": mapping(KEY, QUANTITY)},
    "securityContext": SECURITY, "startupProbe": PROBE, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "volumeMounts": [{"name!": LABEL_NAME, "mountPath!": PATH, "readOnly": yes_no, "subPath": text}],
}
INIT_CONTAINER = {**CONTAINER, "restartPolicy": one_of("Always")}
POD_SPEC = {
    "containers!": [CONTAINER], "initContainers": [INIT_CONTAINER],
    "restartPolicy": one_of("Always", "OnFailure", "Never"), "hostNetwork": yes_no, "hostPID": yes_no,
    "hostUsers": yes_no, "dnsPolicy": one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "automountServiceAccountToken": yes_no, "serviceAccountName": NAME, "priorityClassName": NAME,
    "nodeSelector": LABELS, "terminationGracePeriodSeconds": number(0),
    "tolerations": [{"key": KEY, "operator": one_of("Exists", "Equal"), "value": LABEL,
                     "effect": one_of("NoSchedule", "PreferNoSchedule", "NoExecute")}],
    "securityContext": POD_SECURITY,
    "volumes": [{"name!": LABEL_NAME, "emptyDir": {"medium": one_of("", "Memory"), "sizeLimit": QUANTITY},
                 "hostPath": {"path!": PATH, "type": text}, "configMap": {"name!": NAME},
                 "secret": {"secretName!": NAME, "defaultMode": number(0, 0o777), "optional": yes_no}}],
}
TEMPLATE = {"metadata": {"labels": LABELS, "annotations": mapping(KEY, text)}, "spec!": POD_SPEC}
PEER = {"namespaceSelector": SELECTOR, "podSelector": SELECTOR, "ipBlock": {"cidr!": text}}
SECRET_KEY = {"name!": NAME, "key!": text}
RELABELING = {"sourceLabels": [text], "targetLabel": text, "replacement": text, "regex": text,
              "separator": text,
              "action": one_of("replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep")}
RULE_LABELS = mapping(matching(r"[a-zA-Z_][a-zA-Z0-9_]*", "label name"), text)

KINDS = {
    ("v1", "Namespace"): {},
    ("scheduling.k8s.io/v1", "PriorityClass"): {
        "value!": number(-2**31), "description": text, "globalDefault": yes_no,
        "preemptionPolicy": one_of("PreemptLowerPriority", "Never")},
    ("v1", "Pod"): {"spec!": POD_SPEC},
    ("v1", "ConfigMap"): {"data": mapping(matching(r"[-._a-zA-Z0-9]+", "ConfigMap key"), text)},
    ("batch/v1", "Job"): {"spec!": {
        "template!": TEMPLATE, "backoffLimit": number(0), "completions": number(1),
        "parallelism": number(0), "completionMode": one_of("Indexed", "NonIndexed"),
        "ttlSecondsAfterFinished": number(0), "suspend": yes_no}},
    ("apps/v1", "DaemonSet"): {"spec!": {
        "selector!": SELECTOR, "template!": TEMPLATE, "minReadySeconds": number(0),
        "updateStrategy": {"type": one_of("RollingUpdate", "OnDelete"),
                           "rollingUpdate": {"maxUnavailable": COUNT_OR_PERCENT,
                                             "maxSurge": COUNT_OR_PERCENT}}}},
    ("apps/v1", "Deployment"): {"spec!": {
        "selector!": SELECTOR, "template!": TEMPLATE, "replicas": number(0)}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"spec!": {
        "podSelector!": SELECTOR, "policyTypes": [one_of("Ingress", "Egress")],
        "ingress": [{"from": [PEER], "ports": [{"port": PORT_OR_NAME,
                                                "protocol": one_of("TCP", "UDP", "SCTP")}]}]}},
    ("monitoring.coreos.com/v1", "PodMonitor"): {"spec!": {
        "selector!": SELECTOR, "namespaceSelector": {"any": yes_no, "matchNames": [NAME]},
        "jobLabel": text, "podTargetLabels": [KEY], "sampleLimit": number(1),
        "podMetricsEndpoints!": [{"port": PORT_NAME, "path": PATH, "interval": DURATION,
                                  "scrapeTimeout": DURATION, "honorLabels": yes_no,
                                  "scheme": one_of("http", "https"),
                                  "basicAuth": {"username!": SECRET_KEY, "password!": SECRET_KEY},
                                  "relabelings": [RELABELING],
                                  "metricRelabelings": [RELABELING]}]}},
    ("monitoring.coreos.com/v1", "PrometheusRule"): {"spec!": {"groups": [{
        "name!": text, "interval": DURATION, "limit": number(0),
        "rules": [{"alert": text, "record": text, "expr!": text, "for": DURATION,
                   "keep_firing_for": DURATION, "labels": RULE_LABELS, "annotations": RULE_LABELS}]}]}},
}
PATCH = {"path": text, "patch": text, "target": {"group": text, "version": text, "kind": text,
                                                 "name": text, "labelSelector": text}}
GENERATOR = {"name!": NAME, "files": [text], "options": {"disableNameSuffixHash": yes_no,
                                                         "labels": LABELS}}
KUSTOMIZATION = {"resources": [text], "components": [text], "patches": [PATCH], "namespace": NAME,
                 "configMapGenerator": [GENERATOR], "labels": [{"pairs!": LABELS}],
                 "images": [{"name!": text, "newName": text, "newTag": text, "digest": text}]}
KUSTOMIZATIONS = {
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): KUSTOMIZATION,
    ("kustomize.config.k8s.io/v1alpha1", "Component"): KUSTOMIZATION,
}


def optional(schema):
    """The schema of a patch: nothing but the names that merging goes by is required."""
    if isinstance(schema, dict):
        return {name if name in ("name!", "mountPath!", "containerPort!") else name.rstrip("!"):
                optional(part) for name, part in schema.items()}
    return [optional(schema[0])] if isinstance(schema, list) else schema


def check_object(value, where, patch=False):
    """Checks a Kubernetes object, or a patch of one, against the schema of its kind."""
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else None
    if kind not in KINDS:
        fail("%s: no schema for %s" % (where, kind))
    schema = optional(KINDS[kind]) if patch else KINDS[kind]
    check(value, {"apiVersion!": text, "kind!": text, "metadata!": META, **schema}, where)


def check_kustomization(value, where):
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else None
    if kind not in KUSTOMIZATIONS:
        fail("%s: no kustomization: %s" % (where, kind))
    check(value, {"apiVersion!": text, "kind!": text, **KUSTOMIZATIONS[kind]}, where)
