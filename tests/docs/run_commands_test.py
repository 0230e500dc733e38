"""The commands of user pages and of help texts do what a reader expects: each runs as it stands there, beside
`pulse demo`, in a network of its own.

Commands on files run in a copy of deploy.

Names of nodes, jobs and files are replaced by those of the demo (REPLACED). Commands of NOT_HERE need more than one
machine has.
"""

import concurrent.futures
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from tests import running
from tests.kit import Server, reply
from tests.node import cluster
from tests.node.demo_test import RANKS, Demo

JOB = "4711"
NOT_HERE = re.compile(r"nvidia-resiliency-ext"  # a clone from elsewhere
                      r"|https://node-1")        # TLS
# These run until they are stopped.
SERVERS = re.compile(r"pulse (agent|watch|demo)|pulse status --watch")
COMMAND = re.compile(r"(?:\$ )?((?:[A-Z_]+=\S+ )?(?:pulse|curl) .+)")
# They change files, and need nothing that runs.
FILES = re.compile(r"((?:sudo )?(?:sed -i|cp|mkdir -p) .+|echo .+ \| sudo tee .+)")
# 3: a hang is suspected. 4: incomplete; a busy machine gives little processor time to answers.
STATUSES = {"diagnose": {0, 3, 4}, "status": {0, 3, 4}, "capture": {0, 4}, "trace": {0, 4}}


def commands(pattern=COMMAND):
    """Yields (where, command)."""
    for path in sorted(glob.glob(os.path.join(cluster.RUNFILES, "docs/*.md"))) + [
            os.path.join(cluster.RUNFILES, "README.md")]:
        with open(path, encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if path.endswith("docs/cli.md"):
            blocks = re.findall(r"^Examples:\n((?:  .+\n)+)", text, re.MULTILINE)
        for line in "".join(blocks).splitlines():
            found = pattern.fullmatch(line.strip())
            if found:
                yield os.path.relpath(path, cluster.RUNFILES), found.group(1).split("   ")[0]


def prometheus(handler):
    """Answers as one that has scraped the demo."""
    labels = {"job": "nccl-pulse", "instance": "localhost:9410", "job_id": JOB}
    data = {"resultType": "vector", "result": [{"metric": labels, "value": [0, "1"]}]}
    if handler.path.startswith("/api/v1/targets"):
        data = {"activeTargets": [{"labels": labels, "scrapeUrl": "http://localhost:9410/metrics"}]}
    reply(handler, {"status": "success", "data": data})


class FilesTest(unittest.TestCase):

    def test_commands(self):
        folder = tempfile.TemporaryDirectory(prefix="rc", dir="/tmp")
        self.addCleanup(folder.cleanup)
        shutil.copytree(os.path.join(cluster.RUNFILES, "deploy"), os.path.join(folder.name, "deploy"))
        for made in ("etc/default", "etc/grafana/provisioning/dashboards", "var/lib"):
            os.makedirs(os.path.join(folder.name, made))
        found = [command for _, command in commands(FILES)]
        self.assertGreater(len(found), 5)
        for command in found:
            here = re.sub(r"(?<= )/(?=etc/|var/)", folder.name + "/", command.replace("sudo ", ""))
            ended = subprocess.run(["bash", "-c", here], cwd=folder.name, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, check=False)
            self.assertEqual(0, ended.returncode, command + "\n" + ended.stdout)
        self.assertEqual(4, len(glob.glob(folder.name + "/var/lib/grafana/dashboards/nccl-pulse/*.json")))
        for path in glob.glob(folder.name + "/deploy/**/*.yaml", recursive=True):
            with open(path, encoding="utf-8") as file:
                self.assertNotIn("https://docs.example.com", file.read(), path)


class RunCommandsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        clone_newnet = 0x40000000
        if ctypes.CDLL(None, use_errno=True).unshare(clone_newnet) != 0:
            raise unittest.SkipTest("no network namespace: " + os.strerror(ctypes.get_errno()))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        folder = tempfile.TemporaryDirectory(prefix="rc", dir="/tmp")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.write("bin/py-spy", "#!/bin/sh\necho stack\n")
        cls.write("web.yml", "basic_auth_users:\n  ann: %s\n" %
                  "$2b$04$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2")
        cls.write("targets.json", json.dumps([{"targets": ["localhost:9410"]}]))
        os.symlink(cluster.PULSE, os.path.join(cls.folder, "bin/pulse"))
        for made in ("shared", "captures"):
            os.mkdir(os.path.join(cls.folder, made))
        cls.addClassCleanup(Server(prometheus, port=9090).end)
        cls.demo = Demo(":9410", SLURM_JOB_ID=JOB)
        cls.addClassCleanup(cls.demo.close)
        cls.demo.wait_for("Now all is well")
        cls.ranks = cluster.wait_until(cls.all_pids, "all ranks are on the page")
        for arguments in ("--out=hang.tar.gz", "--format=flight-recorder --out=dumps"):
            cls.pulse("pulse capture --timeout=1m " + arguments, cls.folder)

    @classmethod
    def all_pids(cls):
        answer = cluster.wait_until(lambda: cluster.get(9410, "/api/v1/communicators"))
        pids = {rank["process"]["pid"] for comm in json.loads(answer[1])["communicators"] for rank in comm["ranks"]}
        return list(pids) if len(pids) == RANKS else None

    @classmethod
    def write(cls, name, text):
        path = os.path.join(cls.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    @classmethod
    def pulse(cls, command, folder):
        """Its process, which has ended, and what it printed."""
        path = os.path.join(cls.folder, "bin") + ":" + os.environ["PATH"]
        return subprocess.run(["bash", "-c", command], cwd=folder, env=dict(os.environ, PATH=path), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)

    def here(self, command):
        """The command for what is here."""
        program = os.path.join(self.folder, "bin/py-spy")
        for pattern, here in ((r"\bnode-\d+", "localhost"), (r"prometheus:9090|(?<==)URL\b", "localhost:9090"),
                              (r"my-run|(?<=job-id=)ID", JOB), ("pid=4711", "pid=%d" % self.ranks[0]),
                              ("pid=4712", "pid=%d" % self.ranks[1]), (r"--on-hang=\S+", "--on-hang-as-root --on-hang=" + program),
                              (r"=/etc/prometheus/\S+", "=%s/targets.json" % self.folder), (r"=/var/lib/\S+", "=%s/captures" % self.folder),
                              (r"/(tmp|shared)/dumps", self.folder + "/dumps"),
                              (r"--from=hang", "--from=%s/hang" % self.folder), (r"=(/etc/nccl-pulse/)?web\.yml", "=%s/web.yml" % self.folder),
                              (r"install /shared", "install %s/shared" % self.folder),
                              (r"(pulse (diagnose|capture|trace|set|settings)\b)", r"\1 --timeout=1m")):
            command = re.sub(pattern, here, command)
        return command

    def run_one(self, command):
        """What is wrong, or nothing."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            ended = self.pulse(self.here(command), folder)
        name = re.match(r"(?:pulse )?(\w+)", command).group(1)
        if ended.returncode not in STATUSES.get(name, {0}) or not ended.stdout:
            yield "%s\n-> %d\n%s%s" % (command, ended.returncode, ended.stdout, ended.stderr)

    def run_server(self, command):
        """What is wrong, or nothing: it says something, and ends well when it is told to."""
        path = os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]
        process = subprocess.Popen(["bash", "-c", "exec env " + self.here(command)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=dict(os.environ, PATH=path))
        said = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said += process.stdout.read()
        if process.wait() not in (0, -signal.SIGINT) or said.startswith("pulse: "):
            yield "%s\n-> %d\n%s" % (command, process.returncode, said)

    def test_commands(self):
        found = dict.fromkeys(command for _, command in commands() if not NOT_HERE.search(command))
        self.assertGreater(len(found), 35)
        servers = [each for each in found if SERVERS.search(each)]
        changes = [each for each in found if re.search("pulse set|--every", each)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            looks = pool.map(lambda each: list(self.run_one(each)),
                             (each for each in found if each not in servers + changes))
            wrong = [problem for problems in looks for problem in problems]
        wrong += [problem for each in changes for problem in self.run_one(each)]
        wrong += [problem for each in servers for problem in self.run_server(each)]
        self.assertEqual([], wrong, "\n".join(wrong))


if __name__ == "__main__":
    running.main()
