"""Makes PrometheusRule objects of the rule files in deploy/prometheus, before `kubectl apply -k` of a checkout.

    /usr/bin/python3 deploy/kubernetes/rules.py [FOLDER]

Writes rules-*.yaml into FOLDER (default: monitoring). Anchors and merges are resolved: not every client of Kubernetes
knows them.
"""

import os
import sys

try:
    import yaml
except ImportError:  # A Python of one's own; Debian's module python3-yaml is plain Python.
    sys.path.append("/usr/lib/python3/dist-packages")
    import yaml

FILES = ("recording", "hang", "alerts", "stragglers", "dcgm", "fleet")

HEADER = "# Made by deploy/kubernetes/rules.py from deploy/prometheus/%s.yaml. Change that one.\n"


def rule_object(name, rules):
    """Returns the PrometheusRule of the loaded rule file `rules`."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "nccl-pulse-" + name},
        "spec": {"groups": rules["groups"]},
    }


class Dumper(yaml.SafeDumper):
    """Long texts as blocks, and never an alias."""

    def ignore_aliases(self, data):
        return True


def represent_text(dumper, text):
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, represent_text)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "monitoring")
    for name in FILES:
        with open(os.path.join(here, "../prometheus", name + ".yaml"), encoding="utf-8") as file:
            rules = yaml.safe_load(file)
        with open(os.path.join(folder, "rules-%s.yaml" % name), "w", encoding="utf-8") as file:
            file.write(HEADER % name)
            yaml.dump(rule_object(name, rules), file, Dumper=Dumper, sort_keys=False, width=120,
                      allow_unicode=True)


if __name__ == "__main__":
    main()
