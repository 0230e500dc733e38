"""The SPANK plugin, and TaskProlog and Prolog of docs/deploy.md, in a real Slurm on the loopback interface."""

import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from tests import running
from tests.node import cluster

SOURCE = os.path.join(cluster.RUNFILES, "deploy/slurm/nccl_pulse_spank.c")
LIBRARY = "/opt/pulse/lib.so"
PROGRAMS = ["cc", "munged", "slurmctld", "slurmd", "srun", "sbatch"]
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
TaskProlog={folder}/task_prolog
Prolog={folder}/prolog
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
PlugStackConfig={folder}/plugstack.conf
NodeName=localhost NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes=localhost Default=YES State=UP
"""


def document_script(start):
    """Returns the script of docs/deploy.md that starts with `start`."""
    with open(os.path.join(cluster.RUNFILES, "docs/deploy.md"), encoding="utf-8") as file:
        return re.search(r"^```\n(#!/bin/sh\n%s.*?)^```" % start, file.read(), re.DOTALL | re.MULTILINE).group(1)


def why_not():
    """Returns why Slurm cannot run here, or ""."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if not os.path.exists("/usr/include/slurm/spank.h"):
        missing.append("slurm/spank.h")
    if missing:
        return "no Slurm here: there is no " + ", ".join(missing)
    return "Slurm's daemons need root" if os.geteuid() else ""


@unittest.skipIf(why_not(), why_not())
class SlurmTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # Short: it holds sockets.
        cls.folder = tempfile.mkdtemp(dir="/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.environment = {"PATH": os.environ["PATH"], "SLURM_CONF": os.path.join(cls.folder, "slurm.conf")}
        os.mkdir(os.path.join(cls.folder, "spool"))
        plugin = os.path.join(cls.folder, "nccl_pulse_spank.so")
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2", "-o", plugin, SOURCE], check=True)
        cls.write("plugstack.conf", "required %s on %s\n" % (plugin, LIBRARY))
        cls.set_script("task_prolog", "#!/bin/sh\n")
        cls.set_script("prolog", "#!/bin/sh\n")
        cls.write("key", "k" * 1024)
        os.chmod(os.path.join(cls.folder, "key"), 0o400)
        cls.start("munged", "--foreground", "--force", *["--%s=%s/%s" % (name, cls.folder, file) for name, file in (
            ("socket", "munge"), ("key-file", "key"), ("pid-file", "munged.pid"), ("seed-file", "seed"))])
        cluster.wait_until(lambda: os.path.exists(os.path.join(cls.folder, "munge")), "munged serves")
        for _ in range(3):  # others may take a port
            port = cluster.free_port()
            cls.write("slurm.conf", CONFIGURATION.format(folder=cls.folder, ctld_port=port, slurmd_port=port + 1))
            daemons = [cls.start("slurmctld", "-D"), cls.start("slurmd", "-D", "-N", "localhost")]
            try:
                if cluster.wait_until(lambda these=daemons: cls.idle_or_ended(these), "the node is idle") == "idle":
                    return
            except AssertionError:
                break
            for daemon in daemons:
                daemon.kill()
                daemon.wait()
        raise AssertionError("the node is not idle:\n" + "\n".join(cls.read(path) for path in glob.glob(os.path.join(cls.folder, "*.log"))))

    @classmethod
    def start(cls, *command):
        with open(os.path.join(cls.folder, command[0] + ".log"), "a", encoding="utf-8") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log, env=cls.environment)  # pylint: disable=consider-using-with
        cls.addClassCleanup(daemon.wait)
        cls.addClassCleanup(daemon.kill)
        return daemon

    @classmethod
    def idle_or_ended(cls, daemons):
        if any(daemon.poll() is not None for daemon in daemons):
            return "ended"
        return "idle" if "idle" in cls.run_command("sinfo", "--noheader", "--format=%t").stdout else ""

    @classmethod
    def write(cls, name, text):
        with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def read(cls, name):
        path = os.path.join(cls.folder, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

    @classmethod
    def set_script(cls, name, script):
        cls.write(name, script)
        os.chmod(os.path.join(cls.folder, name), 0o755)

    @classmethod
    def run_command(cls, *command, **variables):
        return subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              cwd=cls.folder, env=dict(cls.environment, **variables))

    def plugin_of(self, *flags, **variables):
        """Returns NCCL_PROFILER_PLUGIN of a task of srun."""
        done = self.run_command("srun", "--quiet", *flags, "sh", "-c", "echo $NCCL_PROFILER_PLUGIN", **variables)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.strip()

    def test_the_option_switches_it_on_and_off(self):
        self.assertEqual(LIBRARY, self.plugin_of())
        self.assertEqual(LIBRARY, self.plugin_of("--nccl-pulse=on"))
        self.assertEqual("", self.plugin_of("--nccl-pulse=off"))
        done = self.run_command("srun", "--nccl-pulse=maybe", "true")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("on or off, not maybe", done.stderr)

    def test_a_choice_of_the_job_is_kept(self):
        for flags in ([], ["--nccl-pulse=on"], ["--nccl-pulse=off"]):
            self.assertEqual("none", self.plugin_of(*flags, NCCL_PROFILER_PLUGIN="none"))

    def test_a_step_of_a_batch_job_can_be_switched_off(self):
        self.write("batch", """#!/bin/sh
            echo "batch:$NCCL_PROFILER_PLUGIN"
            srun sh -c 'echo "step:$NCCL_PROFILER_PLUGIN"'
            srun --nccl-pulse=off sh -c 'echo "off:$NCCL_PROFILER_PLUGIN"'
            echo end""")
        for flags, expected in ((["--nccl-pulse=on"], LIBRARY), (["--nccl-pulse=off"], "")):
            out = "out" + expected.replace("/", "_")
            done = self.run_command("sbatch", "--output=" + out, "--error=/dev/null", *flags, "batch")
            self.assertEqual(0, done.returncode, done.stderr)
            cluster.wait_until(lambda name=out: "end" in self.read(name), "the batch job has ended")
            self.assertEqual(["batch:" + expected, "step:" + expected, "off:", "end"], self.read(out).split())

    def test_the_prolog_of_the_document_starts_one_agent_that_outlives_jobs(self):
        listen = "127.0.0.1:%d" % cluster.free_port()
        self.set_script("pulse", "#!/bin/sh\necho $$ >>%s/pids\nexec %s \"$@\" --listen=%s\n" % (
            self.folder, os.path.join(cluster.RUNFILES, "exporter/pulse"), listen))

        def end_agents():
            for pid in self.read("pids").split():
                if os.path.exists("/proc/" + pid):
                    os.kill(int(pid), signal.SIGKILL)
        self.addCleanup(end_agents)
        prolog = document_script("# Slurm kills ")
        for path, name in (("/opt/nccl-pulse/bin/pulse", "pulse"), ("/var/log/nccl-pulse-agent.log", "agent.log")):
            self.assertIn(path, prolog)
            prolog = prolog.replace(path, os.path.join(self.folder, name))
        self.set_script("prolog", prolog)
        self.addCleanup(self.set_script, "prolog", "#!/bin/sh\n")
        self.plugin_of()
        cluster.wait_until(lambda: "the agent serves at " + listen in self.read("agent.log"), "the agent serves")
        self.plugin_of()
        cluster.wait_until(lambda: "an agent serves already" in self.read("agent.log"), "the second agent has ended")
        first = self.read("pids").split()[0]
        self.assertIn("an agent serves already, process %s;" % first, self.read("agent.log").replace("\n", ";"))
        self.assertTrue(os.path.exists("/proc/%s/exe" % first))
        cluster.wait_until(lambda: "idle" in self.run_command("sinfo", "--noheader", "--format=%t").stdout, "the node is not drained")

    def test_the_task_prolog_of_the_document(self):
        self.set_script("task_prolog", document_script("echo \"export NCCL_PROFILER_PLUGIN="))
        self.addCleanup(self.set_script, "task_prolog", "#!/bin/sh\n")
        self.assertEqual("/opt/nccl-pulse/lib/libnccl-profiler-pulse.so", self.plugin_of("--nccl-pulse=off"))
        self.assertEqual("none", self.plugin_of("--nccl-pulse=off", NCCL_PROFILER_PLUGIN="none"))


if __name__ == "__main__":
    running.main()
