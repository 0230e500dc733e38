"""What the simulation's Prometheus is told: the cluster's configuration of docs/scale.md, as it stands
there, over the rules of deploy/prometheus, with made-up endpoints and a made-up store."""

import json
import os
import re

try:
    import yaml
except ImportError:  # A Python of one's own; Debian's module python3-yaml is plain Python.
    import sys
    sys.path.append("/usr/lib/python3/dist-packages")
    import yaml

from bench.fleet.files import FLEET_PAGE, RULES

JOB = "nccl-pulse"
_SECONDS = {"s": 1, "m": 60}


def cluster():
    """The first configuration on docs/scale.md, loaded."""
    with open(FLEET_PAGE, encoding="utf-8") as file:
        return yaml.safe_load(re.search(r"```yaml\n(.*?)```", file.read(), re.DOTALL).group(1))


def is_remote_written(name):
    """Whether the page's relabelling lets series of this name through."""
    (remote,) = cluster()["remote_write"]
    for rule in remote["write_relabel_configs"]:
        if rule["source_labels"] != ["__name__"] or rule["action"] not in ("keep", "drop"):
            raise ValueError("docs/scale.md has a relabelling that the simulation does not know")
        if bool(re.fullmatch(rule["regex"], name)) != (rule["action"] == "keep"):
            return False
    return True


def faster_rules(text, factor):
    """A rule file's intervals and ranges, divided by `factor`; at least a second. Ranges of days stay."""
    def shorter(match):
        seconds = int(match.group(2)) * _SECONDS[match.group(3)] // factor
        return "%s%ds%s" % (match.group(1), max(seconds, 1), match.group(4))
    return re.sub(r"(interval: |\[)(\d+)([sm])(\]|\n)", shorter, text)


def load(path):
    """What `write` has written."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _interval_s(text):
    match = re.fullmatch(r"(\d+)([sm])", text)
    return int(match.group(1)) * _SECONDS[match.group(2)]


def rules(path):
    """(group, its interval in deploy/prometheus, rule), of a configuration that `write` has written; the rules
    are as it has them."""
    for name in load(path)["rule_files"]:
        with open(os.path.join(RULES, name), encoding="utf-8") as file:
            real = yaml.safe_load(file)["groups"]
        with open(os.path.join(os.path.dirname(path), name), encoding="utf-8") as file:
            for group, of_real in zip(yaml.safe_load(file)["groups"], real):
                for rule in group["rules"]:
                    yield group["name"], _interval_s(of_real["interval"]), rule


def scrape_interval_s(factor):
    return int(cluster()["global"]["scrape_interval"].rstrip("s")) / factor


def write(folder, endpoints, store_url, factor):
    """Writes all that Prometheus needs into `folder`; returns the configuration's path.

    endpoints: {host: address}.
    factor: how many times faster than in docs/scale.md scrapes and evaluations follow each other.
    """
    configuration = cluster()
    interval = "%dms" % (scrape_interval_s(factor) * 1000)
    configuration["global"].update(scrape_interval=interval, evaluation_interval=interval,
                                   scrape_timeout=interval)
    for name in configuration["rule_files"]:
        with open(os.path.join(RULES, name), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(faster_rules(text, factor))
    configuration["remote_write"][0]["url"] = store_url
    targets = os.path.join(folder, "targets.json")
    with open(targets, "w", encoding="utf-8") as file:
        # All are on this machine: what tells them apart in a cluster is their hosts' names.
        json.dump([{"targets": [address], "labels": {"instance": host + ":9410"}}
                   for host, address in endpoints.items()], file)
    configuration["scrape_configs"] = [
        {"job_name": JOB, "file_sd_configs": [{"files": [targets]}]}]
    path = os.path.join(folder, "prometheus.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(configuration, file)
    return path
