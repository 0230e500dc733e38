"""The manifests as the real kubectl renders them: fields exist, and what refers to something refers to something that is there."""

import copy
import functools
import glob
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from deploy.kubernetes import rules
from deploy.kubernetes.rules import yaml
from tests import running
from tests.kit import RUNFILES
from tests.deploy import kubernetes_types, quality, servers

FOLDER = os.path.join(RUNFILES, "deploy/kubernetes")
JOBS = ("overlays/in-process", "overlays/agent-sidecar", "overlays/host-network")
STACK = "overlays/kube-prometheus-stack"
APPLIED = JOBS + ("node-agent", "monitoring", "watch", STACK, "admission")
# (component, an object of its kind, where its pod's template is)
KINDS = (
    ("pytorch-job", "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {pytorchReplicaSpecs: "
     "{Worker: {template: {spec: {containers: [{name: pytorch, image: y}]}}}}}}",
     ("pytorchReplicaSpecs", "Worker", "template")),
    ("leader-worker-set", "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: a}, spec: "
     "{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: worker, image: y}]}}}}}",
     ("leaderWorkerTemplate", "workerTemplate")),
)
AGENT_PORT = 9410
CLIENT = "usr/share/gocode/src/k8s.io/client-go"


@functools.lru_cache(maxsize=None)
def copied():
    """A copy of deploy/ in files: kustomize follows no link out of a kustomization's folder, as runfiles are."""
    target = os.path.join(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]), "deploy")
    shutil.copytree(os.path.join(RUNFILES, "deploy"), target)
    return target


@functools.lru_cache(maxsize=None)
def rendered(name):
    return subprocess.run([servers.path_or_skip("kubectl"), "kustomize", os.path.join(copied(), "kubernetes", name)],
                          check=True, stdout=subprocess.PIPE, text=True).stdout


@functools.lru_cache(maxsize=None)
def parsed(name):
    return list(yaml.load_all(rendered(name), Loader=kubernetes_types.LOADER))


def render(name):
    """The objects, which the caller may change."""
    return copy.deepcopy(parsed(name))


def of_kind(objects, kind):
    return [item for item in objects if item["kind"] == kind]


def templates(objects):
    return [item["spec"]["template"] for item in objects if "template" in item.get("spec", {})]


def all_containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def is_agent(container):
    return (container.get("args") or [""])[0] == "agent"


def web_config(container):
    """The path of the agent's file of passwords and certificates, or None."""
    (path,) = [word.split("=", 1)[1] for word in container["args"] if word.startswith("--web-config=")] or [None]
    return path


def user_of(pod, container):
    return container["securityContext"].get("runAsUser", pod["securityContext"].get("runAsUser"))


def selects(selector, labels):
    return selector["matchLabels"].items() <= labels.items()


class ManifestsTest(unittest.TestCase):

    def test_every_file_is_used_or_named(self):
        used = set()
        for path in glob.glob(os.path.join(FOLDER, "**/kustomization.yaml"), recursive=True):
            folder = os.path.dirname(path)
            with open(path, encoding="utf-8") as file:
                kustomization = yaml.safe_load(file)
            used.add(path)
            for name in (kustomization.get("resources", []) + kustomization.get("components", []) +
                         [patch["path"] for patch in kustomization.get("patches", []) if "path" in patch]):
                used.add(os.path.normpath(os.path.join(folder, name)))
        self.assertEqual(set(), set(glob.glob(os.path.join(FOLDER, "**/*.yaml"), recursive=True)) - used)

    def test_every_field_is_kubernetes_own(self):
        types = kubernetes_types.load(servers.path_or_skip("applyconfigurations/internal/internal.go", CLIENT))
        checked = set()
        for name in ("base",) + APPLIED:
            for item in render(name):
                kind = kubernetes_types.name_of(item)
                if kind is not None:  # else of the Prometheus operator, whose types no package has
                    kubernetes_types.check(types, item, {"namedType": kind}, "%s: %s" % (name, kind))
                    checked.add(item["kind"])
        self.assertEqual({"ConfigMap", "DaemonSet", "Deployment", "Job", "MutatingAdmissionPolicy",
                          "MutatingAdmissionPolicyBinding", "Namespace", "NetworkPolicy", "PriorityClass"}, checked)
        (job,) = of_kind(render("overlays/agent-sidecar"), "Job")
        pod = job["spec"]["template"]["spec"]
        for part, field, value, message in (
                (pod, "initContainer", [], "unknown field initContainer"), (pod, "hostNetwork", "true", "not boolean"),
                (pod["containers"][0]["env"][0], "value", 1, "not string"),
                (job["spec"], "backoffLimit", "0", "not numeric"), (job["spec"], "backoffLimit", True, "not numeric"),
                (pod, "volumes", {}, "not a list")):
            before = dict(part)
            part[field] = value
            with self.assertRaisesRegex(ValueError, message):
                kubernetes_types.check(types, job, {"namedType": "io.k8s.api.batch.v1.Job"}, "job")
            part.clear()
            part.update(before)


class ReferencesTest(unittest.TestCase):

    def test_selectors_meet_the_pods_that_they_are_for(self):
        for item in of_kind(render("node-agent"), "DaemonSet"):
            self.assertTrue(selects(item["spec"]["selector"], item["spec"]["template"]["metadata"]["labels"]))
        for name in ("overlays/in-process", "overlays/agent-sidecar"):
            objects = render(name)
            (policy,) = of_kind(objects, "NetworkPolicy")
            (template,) = templates(objects)
            labels = template["metadata"]["labels"]
            self.assertTrue(selects(policy["spec"]["podSelector"], labels))
            # Ranks of several pods have to reach each other.
            self.assertTrue(any(selects(peer["podSelector"], labels)
                                for rule in policy["spec"]["ingress"] if "ports" not in rule
                                for peer in rule["from"] if "podSelector" in peer))

    def test_pod_monitors_find_the_port_once_in_each_pod(self):
        monitors = {item["metadata"]["name"]: item["spec"] for item in of_kind(render("monitoring"), "PodMonitor")}
        found = {}
        for name in JOBS + ("node-agent", "watch"):
            (template,) = templates(render(name))
            for monitor, spec in monitors.items():
                if not selects(spec["selector"], template["metadata"]["labels"]):
                    continue
                for endpoint in spec["podMetricsEndpoints"]:
                    # Prometheus discovers the ports of init containers as well: one is scraped once.
                    ports = [port["containerPort"] for container in all_containers(template["spec"])
                             for port in container.get("ports", [])
                             if port.get("name") == endpoint["port"]]
                    self.assertEqual([9420 if name == "watch" else AGENT_PORT], ports, name)
                    found.setdefault(name, []).append(monitor)
        self.assertEqual({"overlays/in-process": ["nccl-pulse"],
                          "overlays/agent-sidecar": ["nccl-pulse"],
                          "node-agent": ["nccl-pulse-agent"],
                          "watch": ["nccl-pulse-watch"]}, found)

    def test_a_monitor_looks_where_its_pods_are_and_names_the_job_as_the_rules_do(self):
        pods = {item["metadata"]["name"]: {item["metadata"]["namespace"]}
                for item in of_kind(render("node-agent"), "DaemonSet") + of_kind(render("watch"), "Deployment")}
        for item in of_kind(render("monitoring"), "PodMonitor"):
            namespaces = item["spec"]["namespaceSelector"]
            self.assertTrue(namespaces.get("any") or set(namespaces["matchNames"]) == pods[item["metadata"]["name"]])
            for endpoint in item["spec"]["podMetricsEndpoints"]:
                jobs = [one["replacement"] for one in endpoint["relabelings"] if one["targetLabel"] == "job"]
                self.assertEqual([item["metadata"]["name"]], jobs)

    def test_the_network_policy_lets_the_namespace_of_prometheus_in(self):
        namespace = {item["metadata"]["namespace"] for item in render("monitoring")}
        (policy,) = of_kind(render("overlays/in-process"), "NetworkPolicy")
        scraper = policy["spec"]["ingress"][0]
        self.assertEqual(namespace, {peer["namespaceSelector"]["matchLabels"]
                                     ["kubernetes.io/metadata.name"] for peer in scraper["from"]})
        self.assertEqual(["nccl-metrics"], [port["port"] for port in scraper["ports"]])

    def test_probes_ask_a_port_that_is_served(self):
        probes = 0
        for name in JOBS + ("node-agent",):
            for template in templates(render(name)):
                for container in all_containers(template["spec"]):
                    named = {port.get("name"): port["containerPort"] for port in container.get("ports", [])}
                    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                        if kind not in container:
                            continue
                        probes += 1
                        self.assertTrue(is_agent(container), "a probe must never restart a job")
                        # Every page of an agent with passwords asks for one: /healthz answers 401.
                        action = "tcpSocket" if web_config(container) else "httpGet"
                        (request,) = [container[kind][one] for one in ("tcpSocket", "httpGet")
                                      if one in container[kind]]
                        self.assertIs(request, container[kind].get(action))
                        self.assertEqual("/healthz", request.get("path", "/healthz"))
                        self.assertEqual(AGENT_PORT, named.get(request["port"], request["port"]))
        self.assertEqual(4, probes)

    def test_what_is_mounted_is_a_volume_and_the_variable_names_a_file_in_it(self):
        for name in JOBS:
            (template,) = templates(render(name))
            pod = template["spec"]
            volumes = {volume["name"] for volume in pod["volumes"]}
            for container in all_containers(pod):
                for mount in container.get("volumeMounts", []):
                    self.assertIn(mount["name"], volumes)
            (library,) = [one for one in all_containers(pod) if (one.get("args") or [""])[0] == "install"]
            (training,) = pod["containers"]
            places = {mount["name"]: mount["mountPath"] for mount in library["volumeMounts"]}
            self.assertEqual(places["nccl-pulse"], library["args"][1])
            seen = {mount["name"]: mount["mountPath"] for mount in training["volumeMounts"]}
            (plugin,) = [one["value"] for one in training["env"] if one["name"] == "NCCL_PROFILER_PLUGIN"]
            self.assertEqual(seen["nccl-pulse"] + "/libnccl-profiler-pulse.so", plugin)
            self.assertIn("shm", seen, "what the job had stays")


class UsersTest(unittest.TestCase):

    def test_an_agent_has_the_user_of_the_processes_that_it_serves_or_root(self):
        (template,) = templates(render("overlays/agent-sidecar"))
        pod = template["spec"]
        (agent,) = [container for container in all_containers(pod) if is_agent(container)]
        self.assertEqual("Always", agent["restartPolicy"])
        users = {user_of(pod, container) for container in pod["containers"]}
        self.assertNotIn(None, users, "the image's own user is not known here")
        self.assertTrue(user_of(pod, agent) == 0 or users == {user_of(pod, agent)})

    def test_the_agent_of_a_node_is_root_in_the_nodes_network(self):
        (template,) = templates(render("node-agent"))
        pod = template["spec"]
        self.assertTrue(pod["hostNetwork"])
        self.assertTrue(pod.get("hostUsers", True))
        (agent,) = pod["containers"]
        self.assertEqual(0, user_of(pod, agent))
        for port in agent["ports"]:
            self.assertEqual(port["containerPort"], port["hostPort"])

    def test_nobody_has_more_rights_than_are_needed(self):
        for name in JOBS + ("node-agent",):
            (template,) = templates(render(name))
            pod = template["spec"]
            self.assertEqual("RuntimeDefault", pod["securityContext"]["seccompProfile"]["type"])
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertEqual(name in JOBS, bool(pod["securityContext"].get("runAsNonRoot")))
            for container in all_containers(pod):
                security = container["securityContext"]
                self.assertFalse(security["allowPrivilegeEscalation"])
                self.assertEqual({"drop": ["ALL"]}, security["capabilities"])
                if container["name"] != "training":
                    self.assertTrue(security["readOnlyRootFilesystem"])
                    self.assertIn("requests", container["resources"])
                    self.assertIn("memory", container["resources"]["limits"])

    def test_only_jobs_of_the_nodes_network_are_without_endpoint(self):
        for name in JOBS:
            (template,) = templates(render(name))
            self.assertEqual(template["spec"].get("hostNetwork", False),
                             "nccl-pulse" not in template["metadata"]["labels"])


class NodeTest(unittest.TestCase):
    """What an administrator of the cluster looks for."""

    def test_a_guaranteed_pod_stays_one(self):
        for name in ("base",) + JOBS + ("node-agent",):
            (template,) = templates(render(name))
            self.assertEqual("Guaranteed", quality.class_of(template["spec"]), name)

    def test_what_is_added_takes_no_whole_processor(self):
        for name in JOBS:
            (template,) = templates(render(name))
            for container in all_containers(template["spec"]):
                if container["name"] != "training":
                    # Of a whole number the kubelet's static policy takes processors from the others.
                    self.assertLess(quality.amount(container["resources"]["limits"]["cpu"]), 1)

    def test_training_waits_for_no_agent(self):
        (template,) = templates(render("overlays/agent-sidecar"))
        (agent,) = [one for one in all_containers(template["spec"]) if is_agent(one)]
        for gate in ("startupProbe", "lifecycle"):
            self.assertNotIn(gate, agent)
        # Started as the process runs, so the first liveness probe must leave it the time to serve.
        self.assertGreaterEqual(agent["livenessProbe"]["initialDelaySeconds"], 60)

    def test_series_have_the_name_of_the_node(self):
        for name in JOBS:
            (template,) = templates(render(name))
            (training,) = template["spec"]["containers"]
            (field,) = [one["valueFrom"]["fieldRef"]["fieldPath"] for one in training["env"]
                        if one["name"] == "NCCL_PULSE_NODE_NAME"]
            self.assertEqual("spec.nodeName", field)
        for item in of_kind(render("monitoring"), "PodMonitor"):
            if item["metadata"]["name"] == "nccl-pulse-watch":
                continue  # its series have the nodes of the ranks
            for endpoint in item["spec"]["podMetricsEndpoints"]:
                self.assertIn({"sourceLabels": ["__meta_kubernetes_pod_node_name"],
                               "targetLabel": "node"}, endpoint["relabelings"])

    def test_the_page_of_a_node_needs_a_password(self):
        (template,) = templates(render("node-agent"))
        pod = template["spec"]
        (agent,) = pod["containers"]
        (volume,) = pod["volumes"]
        (mount,) = agent["volumeMounts"]
        self.assertEqual(mount["name"], volume["name"])
        self.assertEqual(mount["mountPath"], os.path.dirname(web_config(agent)))
        self.assertTrue(mount["readOnly"])
        self.assertFalse(volume["secret"].get("optional", False), "without it the pod must not start")
        self.assertEqual(0o400, volume["secret"]["defaultMode"])
        for monitor in of_kind(render("monitoring"), "PodMonitor"):
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            self.assertEqual(monitor["metadata"]["name"] == "nccl-pulse-agent", "basicAuth" in endpoint)
        with open(os.path.join(RUNFILES, "docs/kubernetes.md"), encoding="utf-8") as file:
            manual = file.read()
        for secret in {volume["secret"]["secretName"]} | {
                endpoint["basicAuth"][part]["name"] for monitor in of_kind(render("monitoring"), "PodMonitor")
                for endpoint in monitor["spec"]["podMetricsEndpoints"] if "basicAuth" in endpoint
                for part in ("username", "password")}:
            self.assertIn("create secret generic %s " % secret, manual)

    def test_the_kustomizations_of_the_manual(self):
        with open(os.path.join(RUNFILES, "docs/kubernetes.md"), encoding="utf-8") as file:
            blocks = re.findall(r"^```yaml\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
        made = []
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            shutil.copytree(copied(), os.path.join(folder, "nccl-pulse/deploy"))
            shutil.copy(os.path.join(copied(), "kubernetes/base/job.yaml"), folder)
            for name, text in zip((".", "cluster"), blocks):
                os.makedirs(os.path.join(folder, name), exist_ok=True)
                with open(os.path.join(folder, name, "kustomization.yaml"), "w", encoding="utf-8") as file:
                    file.write(text)
                output = subprocess.run([servers.path_or_skip("kubectl"), "kustomize", os.path.join(folder, name)],
                                        check=True, stdout=subprocess.PIPE, text=True).stdout
                made += yaml.load_all(output, Loader=kubernetes_types.LOADER)
        self.assertLessEqual({"Job", "Deployment", "PodMonitor", "PrometheusRule", "ConfigMap"},
                             {item["kind"] for item in made})
        ours = [container["image"] for template in templates(made) for container in all_containers(template["spec"])
                if "nccl-pulse" in container["image"]]
        self.assertEqual(2, len(ours))
        for image in ours:
            self.assertRegex(image, r"^registry\.example\.com/nccl-pulse@sha256:")

    def test_a_component_gives_another_kind_what_a_job_gets(self):
        (ours,) = templates(render("overlays/in-process"))
        for name, item, path in KINDS:
            folder = os.path.join(copied(), "kubernetes/test-" + name)
            os.mkdir(folder)
            with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as file:
                file.write("resources: [item.yaml]\nimages: [{name: nccl-pulse, newName: registry/x, newTag: '1'}]\n"
                           "components: [../components/%s]\n" % name)
            with open(os.path.join(folder, "item.yaml"), "w", encoding="utf-8") as file:
                file.write(item)
            template, = parsed("test-" + name)
            for step in ("spec",) + path:
                template = template[step]
            self.assertEqual(ours["metadata"]["labels"]["nccl-pulse"], template["metadata"]["labels"]["nccl-pulse"])
            (init,), (ours_init,) = template["spec"]["initContainers"], ours["spec"]["initContainers"]
            self.assertEqual("registry/x:1", init["image"])
            self.assertEqual((ours_init["args"], ours_init["volumeMounts"]), (init["args"], init["volumeMounts"]))
            (training,), (ours_training,) = template["spec"]["containers"], ours["spec"]["containers"]
            for field in ("env", "ports", "volumeMounts"):
                self.assertEqual([], [each for each in training[field] if each not in ours_training[field]])
            self.assertEqual({variable["name"] for variable in training["env"]},
                             {variable["name"] for variable in ours_training["env"] if "NCCL_P" in variable["name"]})

    def test_the_policy_adds_what_a_job_gets(self):
        """The words of it: its expressions are evaluated by a cluster alone."""
        (policy,) = of_kind(render("admission"), "MutatingAdmissionPolicy")
        (binding,) = of_kind(render("admission"), "MutatingAdmissionPolicyBinding")
        self.assertEqual(policy["metadata"]["name"], binding["spec"]["policyName"])
        self.assertTrue(binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"], "never a whole cluster")
        applied, patched = [mutation[kind]["expression"] for mutation, kind in zip(
            policy["spec"]["mutations"], ("applyConfiguration", "jsonPatch"))]
        for expression in [applied, patched] + [each["expression"] for each in policy["spec"]["matchConditions"]]:
            for pair in ("()", "[]", "{}"):
                self.assertEqual(expression.count(pair[0]), expression.count(pair[1]))
        (ours,) = templates(render("overlays/in-process"))
        (init,), (training,) = ours["spec"]["initContainers"], ours["spec"]["containers"]
        variables = {one["name"]: one for one in training["env"]}
        for text in (init["name"], init["volumeMounts"][0]["mountPath"], ours["metadata"]["labels"]["nccl-pulse"],
                     variables["NCCL_PROFILER_PLUGIN"]["value"], training["ports"][0]["name"]):
            self.assertIn('"%s"' % text, applied)
        self.assertIn("containerPort: %d" % training["ports"][0]["containerPort"], applied)
        for text in init["args"] + ["NCCL_PULSE_NODE_NAME", "spec.nodeName"]:
            self.assertIn('"%s"' % text, patched)
        # The API server refuses these in an ApplyConfiguration: they are atomic.
        for field in ("args", "drop", "fieldRef"):
            self.assertNotRegex(applied, r"\b%s\b" % field)

    def test_the_chart_selects_what_its_overlay_has(self):
        for item in render(STACK):
            self.assertEqual("kube-prometheus-stack", item["metadata"]["labels"]["release"])
        self.assertEqual(len(render("monitoring") + render("watch")), len(render(STACK)))

    def test_a_job_in_the_nodes_network_serves_the_node_alone(self):
        for name in JOBS:
            (template,) = templates(render(name))
            (training,) = template["spec"]["containers"]
            listen = [one["value"] for one in training["env"] if one["name"] == "NCCL_PULSE_LISTEN"]
            self.assertEqual(["localhost:%d" % AGENT_PORT] if template["spec"].get("hostNetwork") else [], listen)

    def test_no_scrape_is_endless(self):
        for item in of_kind(render("monitoring"), "PodMonitor"):
            self.assertEqual(300000, item["spec"]["sampleLimit"])

    def test_agent_and_job_do_not_displace_each_other(self):
        objects = render("node-agent")
        (template,) = templates(objects)
        (priority,) = of_kind(objects, "PriorityClass")
        self.assertEqual(priority["metadata"]["name"], template["spec"]["priorityClassName"])
        self.assertGreater(priority["value"], 0)
        self.assertEqual("Never", priority["preemptionPolicy"])

    def test_only_the_nodes_network_takes_a_privileged_namespace(self):
        levels = {name: quality.pod_security(templates(render(name))[0]["spec"]) for name in JOBS + ("node-agent",)}
        self.assertEqual({"overlays/in-process": "restricted", "overlays/agent-sidecar": "restricted",
                          "overlays/host-network": "privileged", "node-agent": "privileged"}, levels)
        (namespace,) = of_kind(render("node-agent"), "Namespace")
        self.assertEqual("privileged", namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"])


class GeneratedTest(unittest.TestCase):

    def test_every_rule_file_is_there(self):
        files = {os.path.basename(path)[:-5] for path in glob.glob(os.path.join(RUNFILES, "deploy/prometheus/*.yaml"))}
        self.assertEqual(files - {"prometheus", "alertmanager"}, set(rules.FILES))

    def test_every_dashboard_is_in_the_config_map(self):
        (dashboards,) = of_kind(render("monitoring"), "ConfigMap")
        files = glob.glob(os.path.join(RUNFILES, "deploy/grafana/dashboards/*.json"))
        self.assertEqual({os.path.basename(path) for path in files}, set(dashboards["data"]))
        # kubectl apply keeps the object in an annotation once more, and that may have 256 KiB.
        self.assertLess(sum(map(len, dashboards["data"].values())), 240 << 10)


if __name__ == "__main__":
    running.main()
