"""The manifests: fields exist, and what refers to something refers to something that is there."""

import glob
import os
import re
import unittest

from deploy.kubernetes import rules
from tests import running
from tests.deploy import kubernetes_schema, kustomize

RUNFILES = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
FOLDER = os.path.join(RUNFILES, "deploy/kubernetes")
JOBS = ("overlays/in-process", "overlays/agent-sidecar", "overlays/host-network")
APPLIED = JOBS + ("node-agent", "monitoring")
AGENT_PORT = 9410


def render(name):
    return kustomize.render(os.path.join(FOLDER, name))


def of_kind(objects, kind):
    return [item for item in objects if item["kind"] == kind]


def templates(objects):
    return [item["spec"]["template"] for item in objects if "template" in item.get("spec", {})]


def all_containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def is_agent(container):
    return container.get("args") == ["agent"]


def user_of(pod, container):
    return container["securityContext"].get("runAsUser", pod["securityContext"].get("runAsUser"))


def selects(selector, labels):
    return selector["matchLabels"].items() <= labels.items()


class ManifestsTest(unittest.TestCase):

    def test_every_file_is_used_or_named(self):
        used = set()
        for path in glob.glob(os.path.join(FOLDER, "**/kustomization.yaml"), recursive=True):
            folder = os.path.dirname(path)
            kustomization = kustomize.read_kustomization(folder)
            used.add(path)
            for name in (kustomization.get("resources", []) + kustomization.get("components", []) +
                         [patch["path"] for patch in kustomization.get("patches", [])]):
                there = os.path.normpath(os.path.join(folder, name))
                self.assertTrue(os.path.exists(there), "%s names %s" % (path, name))
                used.add(there)
        self.assertEqual(set(), set(glob.glob(os.path.join(FOLDER, "**/*.yaml"), recursive=True)) - used)

    def test_what_is_applied_keeps_to_the_schema(self):
        for name in APPLIED:
            objects = render(name)
            self.assertTrue(objects)
            for item in objects:
                kubernetes_schema.check_object(item, "%s: %s" % (name, item["metadata"]["name"]))
        for path in glob.glob(os.path.join(FOLDER, "monitoring/rules-*.yaml")):
            for item in kustomize.load(path):
                kubernetes_schema.check_object(item, path)

    def test_names_are_given_once(self):
        for name in APPLIED:
            names = [(item["kind"], item["metadata"]["name"]) for item in render(name)]
            self.assertEqual(len(names), len(set(names)), names)

    def test_the_schema_refuses(self):
        (job,) = of_kind(render("overlays/in-process"), "Job")
        container = job["spec"]["template"]["spec"]["containers"][0]
        mistakes = [
            (container, "volumeMount", [], "unknown field volumeMount"),
            (container, "image", None, "no text"),
            (container["ports"][0], "name", "nccl-metrics-port", "port name"),
            (container["env"][0], "value", 1, "no text"),
            (container["resources"]["limits"], "memory", "512GB", "quantity"),
            (job["spec"], "backoffLimit", "0", "no number"),
        ]
        for target, field, value, message in mistakes:
            before = dict(target)
            target[field] = value
            with self.assertRaisesRegex(ValueError, message):
                kubernetes_schema.check_object(job, "job")
            target.clear()
            target.update(before)
        kubernetes_schema.check_object(job, "job")
        del job["spec"]["template"]["spec"]["containers"]
        with self.assertRaisesRegex(ValueError, "containers is missing"):
            kubernetes_schema.check_object(job, "job")


class ReferencesTest(unittest.TestCase):

    def test_selectors_meet_the_pods_that_they_are_for(self):
        for item in of_kind(render("node-agent"), "DaemonSet"):
            self.assertTrue(selects(item["spec"]["selector"],
                                    item["spec"]["template"]["metadata"]["labels"]))
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
        monitors = {item["metadata"]["name"]: item["spec"]
                    for item in of_kind(render("monitoring"), "PodMonitor")}
        found = {}
        for name in JOBS + ("node-agent",):
            (template,) = templates(render(name))
            for monitor, spec in monitors.items():
                if not selects(spec["selector"], template["metadata"]["labels"]):
                    continue
                for endpoint in spec["podMetricsEndpoints"]:
                    # Prometheus discovers the ports of init containers as well: one is scraped once.
                    ports = [port["containerPort"] for container in all_containers(template["spec"])
                             for port in container.get("ports", [])
                             if port.get("name") == endpoint["port"]]
                    self.assertEqual([AGENT_PORT], ports, name)
                    found.setdefault(name, []).append(monitor)
        self.assertEqual({"overlays/in-process": ["nccl-pulse"],
                          "overlays/agent-sidecar": ["nccl-pulse"],
                          "node-agent": ["nccl-pulse-agent"]}, found)

    def test_a_monitor_looks_where_its_pods_are_and_names_the_job_as_the_rules_do(self):
        agents = {item["metadata"]["namespace"] for item in of_kind(render("node-agent"), "DaemonSet")}
        for item in of_kind(render("monitoring"), "PodMonitor"):
            namespaces = item["spec"]["namespaceSelector"]
            self.assertTrue(namespaces.get("any") or set(namespaces["matchNames"]) == agents)
            for endpoint in item["spec"]["podMetricsEndpoints"]:
                jobs = [one["replacement"] for one in endpoint["relabelings"]
                        if one["targetLabel"] == "job"]
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
                    named = {port.get("name"): port["containerPort"]
                             for port in container.get("ports", [])}
                    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                        if kind not in container:
                            continue
                        probes += 1
                        self.assertTrue(is_agent(container), "a probe must never restart a job")
                        request = container[kind]["httpGet"]
                        self.assertEqual("/healthz", request["path"])
                        self.assertEqual(AGENT_PORT, named.get(request["port"], request["port"]))
        self.assertEqual(5, probes)

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
            (plugin,) = [one["value"] for one in training["env"]
                         if one["name"] == "NCCL_PROFILER_PLUGIN"]
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


class GeneratedTest(unittest.TestCase):

    def test_the_rule_objects_are_those_of_the_rule_files(self):
        for name in rules.FILES:
            with open(os.path.join(RUNFILES, "deploy/prometheus", name + ".yaml"),
                      encoding="utf-8") as file:
                expected = rules.rule_object(name, rules.yaml.safe_load(file))
            (made,) = kustomize.load(os.path.join(FOLDER, "monitoring/rules-%s.yaml" % name))
            self.assertTrue(expected == made, "run deploy/kubernetes/rules.py (%s)" % name)

    def test_every_rule_file_is_there(self):
        files = {os.path.basename(path)[:-5]
                 for path in glob.glob(os.path.join(RUNFILES, "deploy/prometheus/*.yaml"))}
        self.assertEqual(files - {"prometheus", "alertmanager"}, set(rules.FILES))

    def test_a_rule_either_records_or_alerts(self):
        for item in of_kind(render("monitoring"), "PrometheusRule"):
            for group in item["spec"]["groups"]:
                for rule in group["rules"]:
                    self.assertEqual(1, ("alert" in rule) + ("record" in rule), rule)

    def test_every_dashboard_is_in_the_config_map(self):
        (dashboards,) = of_kind(render("monitoring"), "ConfigMap")
        files = glob.glob(os.path.join(RUNFILES, "deploy/grafana/dashboards/*.json"))
        self.assertEqual({os.path.basename(path) for path in files}, set(dashboards["data"]))
        # kubectl apply keeps the object in an annotation once more, and that may have 256 KiB.
        self.assertLess(sum(map(len, dashboards["data"].values())), 240 << 10)


class ContainerfileTest(unittest.TestCase):

    def test_it_starts_the_program_from_where_it_puts_it(self):
        with open(os.path.join(FOLDER, "Containerfile"), encoding="utf-8") as file:
            content = file.read()
        self.assertIn("\nARG BASE\nFROM ${BASE}\n", content, "no registry is named")
        self.assertRegex(content, r"\nADD nccl-pulse\.tar\.gz /opt/\n")
        self.assertRegex(content, r"\nENTRYPOINT \[\"/opt/nccl-pulse/bin/pulse\"\]\n")
        self.assertRegex(content, re.compile(r"^USER [1-9][0-9]*:[1-9][0-9]*$", re.MULTILINE))


if __name__ == "__main__":
    running.main()
