"""The manifests as the real kubectl renders them, against Kubernetes' own types of the same release."""

import copy
import glob
import os
import subprocess
import unittest

from deploy.kubernetes.rules import yaml
from tests import running
from tests.deploy import kubernetes_types, kustomize, servers

RUNFILES = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
FOLDER = os.path.join(RUNFILES, "deploy/kubernetes")
APPLIED = ("base", "overlays/in-process", "overlays/agent-sidecar", "overlays/host-network", "node-agent",
           "monitoring", "watch")
CLIENT = "usr/share/gocode/src/k8s.io/client-go"


def identity(item):
    return item["kind"], item["metadata"]["name"]


class KubectlTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.kubectl = servers.path_or_skip("kubectl")
        cls.types = kubernetes_types.load(
            servers.path_or_skip("applyconfigurations/internal/internal.go", CLIENT))
        cls.copied = copy_of_sources()

    def rendered(self, name):
        result = subprocess.run([self.kubectl, "kustomize", os.path.join(self.copied, "kubernetes", name)],
                                check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                universal_newlines=True)
        self.assertEqual((0, ""), (result.returncode, result.stderr), name)
        return sorted(yaml.load_all(result.stdout, Loader=kubernetes_types.LOADER), key=identity)

    def test_it_renders_what_the_other_tests_look_at(self):
        for name in APPLIED:
            ours = sorted(kustomize.render(os.path.join(FOLDER, name)), key=identity)
            real = self.rendered(name)
            self.assertEqual(list(map(identity, ours)), list(map(identity, real)), name)
            for mine, other in zip(ours, real):
                self.assertTrue(mine == other, "%s: %s differs" % (name, identity(mine)))

    def test_every_field_is_kubernetes_own(self):
        checked = set()
        for name in APPLIED:
            for item in self.rendered(name):
                kind = kubernetes_types.name_of(item)
                if kind is not None:  # else of the Prometheus operator, whose types no package has
                    kubernetes_types.check(self.types, item, {"namedType": kind}, "%s: %s" % (name, kind))
                    checked.add(item["kind"])
        self.assertEqual({"ConfigMap", "DaemonSet", "Deployment", "Job", "Namespace", "NetworkPolicy", "PriorityClass"}, checked)

    def test_the_types_refuse(self):
        (job,) = [item for item in self.rendered("overlays/agent-sidecar") if item["kind"] == "Job"]
        pod = ("spec", "template", "spec")
        for path, value, message in (
                (pod + ("initContainer",), [], "unknown field initContainer"),
                (pod + ("initContainers", 0, "restartpolicy"), "Always", "unknown field restartpolicy"),
                (pod + ("hostNetwork",), "true", "not boolean"),
                (pod + ("containers", 0, "env", 0, "value"), 1, "not string"),
                (("spec", "backoffLimit"), "0", "not numeric"),
                (("spec", "backoffLimit"), True, "not numeric"),
                (pod + ("volumes",), {}, "not a list")):
            wrong = copy.deepcopy(job)
            place = wrong
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            with self.assertRaisesRegex(ValueError, message):
                kubernetes_types.check(self.types, wrong, {"namedType": "io.k8s.api.batch.v1.Job"}, "job")

    def test_lists_are_merged_by_the_keys_of_the_api(self):
        real = kubernetes_types.merge_keys(self.types)
        for field, key in kustomize.MERGE_KEYS.items():
            self.assertIn(key, {keys[0] for keys in real[field]}, field)


def copy_of_sources():
    """A folder like deploy/ of files: kustomize follows no link out of a kustomization's folder, as runfiles are."""
    target = os.path.join(os.environ["TEST_TMPDIR"], "deploy")
    for part in ("kubernetes/**/*.yaml", "grafana/**/*"):
        for path in glob.glob(os.path.join(RUNFILES, "deploy", part), recursive=True):
            if os.path.isdir(path):
                continue
            place = os.path.join(target, os.path.relpath(path, os.path.join(RUNFILES, "deploy")))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(path, "rb") as source, open(place, "wb") as file:
                file.write(source.read())
    return target


if __name__ == "__main__":
    running.main()
