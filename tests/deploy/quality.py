"""What Kubernetes makes of a pod: its quality-of-service class, and the pod security that it needs.

Rules as documented for Kubernetes 1.29 to 1.36: "Pod Quality of Service Classes" and "Pod Security Standards".
"""

import re

UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
RESOURCES = ("cpu", "memory")


def amount(quantity):
    """A quantity as a number."""
    number, unit = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(quantity)).groups()
    return float(number) * UNITS[unit]


def containers_of(pod):
    return pod.get("initContainers", []) + pod["containers"]


def class_of(pod):
    """Guaranteed, Burstable or BestEffort. Init containers and sidecars count like the others."""
    guaranteed, any_given = True, False
    for container in containers_of(pod):
        resources = container.get("resources", {})
        limits = resources.get("limits", {})
        # A request that is not given is the limit.
        requests = {**limits, **resources.get("requests", {})}
        any_given |= any(name in requests for name in RESOURCES)
        for name in RESOURCES:
            if name not in limits or amount(limits[name]) != amount(requests[name]):
                guaranteed = False
    if not any_given:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def is_baseline(pod):
    """Of the baseline profile: what our manifests could break of it."""
    if pod.get("hostNetwork") or pod.get("hostPID") or pod.get("hostIPC"):
        return False
    if any("hostPath" in volume for volume in pod.get("volumes", [])):
        return False
    for container in containers_of(pod):
        security = container.get("securityContext", {})
        if security.get("privileged") or security.get("capabilities", {}).get("add"):
            return False
        if any("hostPort" in port for port in container.get("ports", [])):
            return False
    return True


def is_restricted(pod):
    """Of the restricted profile, beside the baseline."""
    whole = pod.get("securityContext", {})
    if not {name for volume in pod.get("volumes", []) for name in volume} <= {
            "name", "emptyDir", "configMap", "secret", "projected", "downwardAPI", "persistentVolumeClaim"}:
        return False
    for container in containers_of(pod):
        security = {**whole, **container.get("securityContext", {})}
        if (security.get("allowPrivilegeEscalation") is not False or
                "ALL" not in security.get("capabilities", {}).get("drop", []) or
                security.get("runAsNonRoot") is not True or security.get("runAsUser") == 0 or
                security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost")):
            return False
    return True


def pod_security(pod):
    """The strictest profile that admits the pod."""
    if not is_baseline(pod):
        return "privileged"
    return "restricted" if is_restricted(pod) else "baseline"
