"""As much of kustomize as deploy/kubernetes uses: resources, components, patches, generated ConfigMaps."""

import copy
import functools
import os

from deploy.kubernetes.rules import yaml
from tests.deploy import kubernetes_schema

# Kinds of objects that no namespace holds.
CLUSTER_WIDE = ("Namespace", "PriorityClass")
# By which field of its elements a list is merged; other lists are replaced.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
              "volumeMounts": "mountPath", "ports": "containerPort"}


class StrictLoader(yaml.SafeLoader):
    """A key twice in a mapping is a mistake."""


def construct_mapping(loader, node):
    loader.flatten_mapping(node)
    keys = [loader.construct_object(key) for key, _ in node.value]
    if len(set(keys)) != len(keys):
        raise ValueError("a key twice, near %s" % node.start_mark)
    return {loader.construct_object(key): loader.construct_object(value, deep=True)
            for key, value in node.value}


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct_mapping)


@functools.lru_cache(maxsize=None)
def parse(path):
    with open(path, encoding="utf-8") as file:
        return list(yaml.load_all(file, Loader=StrictLoader))


def load(path):
    """Returns the documents of a YAML file, to be changed at will."""
    return copy.deepcopy(parse(os.path.realpath(path)))


def merge(target, patch, field=""):
    """Returns `target` with `patch` merged in."""
    if isinstance(target, dict) and isinstance(patch, dict):
        merged = dict(target)
        for name, value in patch.items():
            merged[name] = merge(target[name], value, name) if name in target else copy.deepcopy(value)
        return merged
    key = MERGE_KEYS.get(field)
    if key and isinstance(target, list) and isinstance(patch, list):
        # What is new comes first, as kustomize 5 does it: the sidecar before the library's init container.
        merged, new = list(target), []
        for item in patch:
            places = [i for i, old in enumerate(merged) if old[key] == item[key]]
            if places:
                merged[places[0]] = merge(merged[places[0]], item)
            else:
                new.append(copy.deepcopy(item))
        return new + merged
    return copy.deepcopy(patch)


def read_kustomization(folder):
    path = os.path.join(folder, "kustomization.yaml")
    (kustomization,) = load(path)
    kubernetes_schema.check_kustomization(kustomization, path)
    return kustomization


def render(folder, objects=None):
    """Returns the objects of a kustomization, or what a component makes of `objects`."""
    kustomization = read_kustomization(folder)
    objects = list(objects or [])
    for resource in kustomization.get("resources", []):
        path = os.path.join(folder, resource)
        objects += render(path) if os.path.isdir(path) else load(path)
    for generator in kustomization.get("configMapGenerator", []):
        objects.append(config_map(folder, generator))
    for component in kustomization.get("components", []):
        objects = render(os.path.join(folder, component), objects)
    for patch in kustomization.get("patches", []):
        objects = apply(folder, patch, objects)
    for item in objects:
        if "namespace" in kustomization and item["kind"] not in CLUSTER_WIDE:
            item["metadata"]["namespace"] = kustomization["namespace"]
    return objects


def config_map(folder, generator):
    data = {}
    for name in generator["files"]:
        # What kustomize refuses: a file outside of the kustomization's own folder.
        if os.path.isabs(name) or name.startswith(".."):
            raise ValueError("%s is not below %s" % (name, folder))
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            data[os.path.basename(name)] = file.read()
    labels = generator.get("options", {}).get("labels", {})
    return {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": generator["name"], "labels": labels}, "data": data}


def apply(folder, patch, objects):
    path = os.path.join(folder, patch["path"])
    (change,) = load(path)
    kubernetes_schema.check_object(change, path, patch=True)
    change = {name: part for name, part in change.items() if name != "metadata"}
    target = patch["target"]
    version = "/".join(filter(None, (target.get("group"), target["version"])))
    matching = [item for item in objects
                if (item["apiVersion"], item["kind"]) == (version, target["kind"])]
    if not matching:
        raise ValueError("%s: there is nothing to patch" % path)
    return [merge(item, change) if any(item is one for one in matching) else item for item in objects]
