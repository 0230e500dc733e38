"""Kubernetes' own types, as its Go client carries them: the schema for server-side apply, made from the API's OpenAPI.

It knows every field and its type, and by which keys lists are merged. It does not know which fields are required.
"""

from deploy.kubernetes.rules import yaml

SCALARS = {"string": str, "numeric": (int, float), "boolean": bool}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(path):
    """Returns {type name: type} of k8s.io/client-go/applyconfigurations/internal/internal.go."""
    with open(path, encoding="utf-8") as file:
        text = file.read().split("typed.YAMLObject(`", 1)[1].rsplit("`)", 1)[0]
    return {one["name"]: one for one in yaml.load(text, Loader=LOADER)["types"]}


def name_of(item):
    """io.k8s.api.batch.v1.Job of batch/v1 and Job; None of what is not Kubernetes' own."""
    group, _, version = item["apiVersion"].rpartition("/")
    if "." in group and not group.endswith(".k8s.io"):
        return None
    return "io.k8s.api.%s.%s.%s" % (group.split(".")[0] or "core", version, item["kind"])


def check(types, value, kind, where):
    """Raises ValueError that says what in `value` is not of `kind`, a type or a reference to one."""
    if "namedType" in kind:
        kind = types[kind["namedType"]]
    if kind.get("scalar") == "untyped":
        return
    if "list" in kind:
        if not isinstance(value, list):
            raise ValueError("%s: not a list" % where)
        for i, item in enumerate(value):
            check(types, item, kind["list"]["elementType"], "%s[%d]" % (where, i))
    elif "map" in kind:
        if not isinstance(value, dict):
            raise ValueError("%s: not a mapping" % where)
        fields = {field["name"]: field["type"] for field in kind["map"].get("fields", [])}
        for name, item in value.items():
            of_item = fields.get(name, kind["map"].get("elementType"))
            if of_item is None:
                raise ValueError("%s: unknown field %s" % (where, name))
            check(types, item, of_item, "%s.%s" % (where, name))
    else:
        expected = SCALARS[kind["scalar"]]
        if not isinstance(value, expected) or isinstance(value, bool) != (expected is bool):
            raise ValueError("%s: %r is not %s" % (where, value, kind["scalar"]))
