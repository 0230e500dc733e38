"""Each package, installed from nothing into a folder: the program finds its plugin, and the demo serves all ranks."""

import glob
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

from tests import running
from tests.node import cluster

PACKAGES = os.path.join(cluster.RUNFILES, "deploy/packages")
ENVIRONMENT = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8"}


def package(ending):
    """Returns the path of the package whose name ends so."""
    path, = glob.glob(os.path.join(PACKAGES, "*" + ending))
    return path


def run(*command, **more):
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **dict({"env": ENVIRONMENT}, **more))
    if done.returncode:
        raise AssertionError("%s exits with %d:\n%s" % (command, done.returncode, done.stdout))
    return done.stdout


# For rpm's chroot.
AS_ROOT = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]


class InstallTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])

    def check(self, pulse, library, *inside):
        """`pulse` and `library` are paths as the program sees them, which is started behind `inside`."""
        command = [*inside, pulse]
        version = run(*command, "--version").split()[1]
        self.assertEqual(library + "\n", run(*command, "path"))
        self.assertEqual("export NCCL_PROFILER_PLUGIN='%s'\n" % library, run(*command, "env"))
        port = cluster.free_port()
        with tempfile.TemporaryFile("w+") as log:
            demo = subprocess.Popen([*command, "demo"], stdout=log, stderr=log,  # pylint: disable=consider-using-with
                                    env=dict(ENVIRONMENT, NCCL_PULSE_LISTEN="127.0.0.1:%d" % port))
            try:
                cluster.wait_until(lambda: demo.poll() is not None or len(cluster.ranks(port)) == 4, "all ranks are served")
                log.seek(0)
                self.assertIsNone(demo.poll(), log.read())
                self.assertIn("<p>NCCL Pulse %s</p>" % version, cluster.get(port, "/")[1])
            finally:
                # unshare ignores SIGTERM, and ends its child when it is killed.
                demo.send_signal(signal.SIGKILL if inside else signal.SIGTERM)
                demo.wait()

    def test_wheel(self):
        # pip of this Python, so that the environment needs none, nor a network.
        run(sys.executable, "-m", "venv", "--without-pip", self.folder)
        run(sys.executable, "-m", "pip", "--python", os.path.join(self.folder, "bin/python"), "install", "--no-index",
            "--disable-pip-version-check", package(".whl"))
        pulse = os.path.join(self.folder, "bin/pulse")
        library = os.path.join(self.folder, "lib/libnccl-profiler-pulse.so")
        self.check(pulse, library)
        self.assertEqual(library, run("sh", "-c", 'eval "$(pulse env)"; printf %s "$NCCL_PROFILER_PLUGIN"',
                                      env={"PATH": os.path.dirname(pulse) + ":/usr/bin:/bin"}))
        for path in ("prometheus/hang.yaml", "kubernetes/watch/deployment.yaml", "grafana/dashboards/job.json"):
            self.assertTrue(os.path.isfile(os.path.join(self.folder, "share/nccl-pulse/deploy", path)), path)
        self.assertTrue(os.access(os.path.join(self.folder, "share/nccl-pulse/deploy/on-hang/capture"), os.X_OK))

    def test_tar(self):
        run("tar", "-C", self.folder, "-xzf", package(".tar.gz"))
        self.check(os.path.join(self.folder, "nccl-pulse/bin/pulse"),
                   os.path.join(self.folder, "nccl-pulse/lib/libnccl-profiler-pulse.so"))

    def test_rpm(self):
        # --nodeps: glibc is no package of this folder. package_test looks at what is required.
        run(*AS_ROOT, "rpm", "--root", self.folder, "--install", "--nodeps", package(".rpm"))
        run(*AS_ROOT, "rpm", "--root", self.folder, "--verify", "--nodeps", "nccl-pulse")
        self.check(os.path.join(self.folder, "usr/bin/pulse"),
                   os.path.join(self.folder, "usr/lib64/libnccl-profiler-pulse.so"))

    def test_image(self):
        in_container = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                        "--mount-proc=" + os.path.join(self.folder, "proc")]
        if os.geteuid():
            in_container.append("--map-root-user")
        os.mkdir(os.path.join(self.folder, "proc"))
        if subprocess.run([*in_container, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("this machine allows no namespace for a container")
        with tarfile.open(package("-image-*.tar")) as image:
            described, = json.load(image.extractfile("manifest.json"))
            layer, = described["Layers"]
            config = json.load(image.extractfile(described["Config"]))["config"]
            with tarfile.open(fileobj=image.extractfile(layer), mode="r:gz") as root:
                root.extractall(self.folder)
        self.assertEqual(["/opt/nccl-pulse/bin/pulse"], config["Entrypoint"])
        self.check(config["Entrypoint"][0], "/opt/nccl-pulse/lib/libnccl-profiler-pulse.so",
                   *in_container, "chroot", self.folder)

    def test_deb(self):
        run("dpkg-deb", "--extract", package(".deb"), self.folder)
        library, = glob.glob(os.path.join(self.folder, "usr/lib/*-linux-gnu/libnccl-profiler-pulse.so"))
        self.check(os.path.join(self.folder, "usr/bin/pulse"), library)


if __name__ == "__main__":
    running.main()
