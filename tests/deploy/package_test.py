"""The packages: what is in them, where, with which modes, and that building them twice gives one result."""

import ctypes
import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
import unittest
from unittest import mock

from deploy.package import content, make_package, project
from tests import running
from tests.kit import RUNFILES

PACKAGES = os.path.join(RUNFILES, "deploy/packages")
VERSION_HEADER = os.path.join(RUNFILES, "exporter/base/version.h")
LINKED = os.path.join(RUNFILES, "tests/deploy/shipped_dependencies")

# What every machine has, and which the packages may need.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LARGEST_LIBRARY_BYTES = 4 << 20

OF_DEBIAN_ALONE = {"usr/share/doc/nccl-pulse/changelog.gz", "usr/share/lintian/overrides/nccl-pulse"}

# Bazel's own, and what only says where the compiler is.
NOT_LINKED = {"bazel_tools", "local_config_cc", "platforms", "bazel_skylib", "rules_cc", "local_config_platform"}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def package(ending):
    """Returns the path of the package whose name ends so."""
    path, = glob.glob(os.path.join(PACKAGES, "*" + ending))
    return path


def members_of_ar(archive):
    """Returns {name: bytes} of an ar archive."""
    if archive[:8] != b"!<arch>\n":
        raise ValueError("no ar archive")
    members, at = {}, 8
    while at < len(archive):
        header = archive[at:at + 60]
        size = int(header[48:58])
        members[header[:16].decode().strip()] = archive[at + 60:at + 60 + size]
        at += 60 + size + size % 2
    return members


def entries_of_tar(archive, start="./"):
    """Returns ({path: TarInfo}, {path: bytes}) of a tar.gz whose names begin with `start`."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        entries = {entry.name[len(start):]: entry for entry in tar.getmembers()}
        return entries, {path: tar.extractfile(entry).read() for path, entry in entries.items() if entry.isreg()}


class PackageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.deb = members_of_ar(read(package(".deb")))
        cls.control = entries_of_tar(cls.deb["control.tar.gz"])[1]
        cls.entries, cls.files = entries_of_tar(cls.deb["data.tar.gz"])
        cls.tar = read(package(".tar.gz"))
        cls.fields = dict(line.split(": ", 1)
                          for line in cls.control["control"].decode().splitlines()
                          if not line.startswith(" "))
        cls.multiarch = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[cls.fields["Architecture"]]

    def library(self):
        return "usr/lib/%s/libnccl-profiler-pulse.so" % self.multiarch

    def unpacked(self, path):
        file = tempfile.NamedTemporaryFile(dir=os.environ["TEST_TMPDIR"])
        file.write(self.files[path])
        file.flush()
        self.addCleanup(file.close)
        return file.name

    def test_the_control_fields_say_what_it_is(self):
        version = re.search(r'kVersion\[\] = "(.+?)"', read(VERSION_HEADER).decode()).group(1)
        self.assertEqual("nccl-pulse", self.fields["Package"])
        self.assertEqual(version, self.fields["Version"])
        self.assertEqual("libc6 (>= 2.34), libgcc-s1", self.fields["Depends"])
        kib = sum(len(content) for content in self.files.values()) / 1024
        self.assertAlmostEqual(kib, float(self.fields["Installed-Size"]), delta=len(self.files))
        self.assertEqual(b"2.0\n", self.deb["debian-binary"])
        self.assertEqual(["debian-binary", "control.tar.gz", "data.tar.gz"], list(self.deb))

    def test_the_control_fields_say_whose_it_is(self):
        self.assertRegex(self.fields["Maintainer"], r"^[^<]+ <\S+@\S+>$")
        self.assertRegex(self.fields["Homepage"], "^https://")
        changelog = gzip.decompress(self.files["usr/share/doc/nccl-pulse/changelog.gz"]).decode()
        self.assertIn("nccl-pulse (%s) " % self.fields["Version"], changelog)
        self.assertIn(" -- %s  " % self.fields["Maintainer"], changelog)

    @unittest.skipUnless(shutil.which("lintian"), "needs lintian")
    def test_lintian_finds_nothing(self):
        # Findings that stay are named, with a reason, in usr/share/lintian/overrides.
        done = subprocess.run(["lintian", "--no-cfg", "--fail-on", "error,warning",
                               package(".deb")], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_sums_are_those_of_the_files(self):
        sums = dict(reversed(line.split("  ", 1)) for line in self.control["md5sums"].decode().splitlines())
        self.assertEqual({path: hashlib.md5(content).hexdigest() for path, content in self.files.items()}, sums)

    def test_everything_is_there(self):
        for path in [
                "usr/bin/pulse",
                self.library(),
                # Named libcuda.so.1 inside: in no folder that ldconfig reads.
                "usr/lib/nccl-pulse/libpulse-simulated-gpu.so",
                "usr/lib/systemd/system/nccl-pulse-agent.service",
                "usr/lib/systemd/system/nccl-pulse-watch.service",
                "usr/share/man/man1/pulse.1.gz",
                "usr/share/man/man1/pulse-diagnose.1.gz",
                "usr/share/bash-completion/completions/pulse",
                "usr/share/zsh/vendor-completions/_pulse",
                "usr/share/fish/vendor_completions.d/pulse.fish",
                "usr/share/nccl-pulse/deploy/prometheus/alerts.yaml",
                "usr/share/nccl-pulse/deploy/prometheus/recording.yaml",
                "usr/share/nccl-pulse/deploy/kubernetes/monitoring/rules-hang.yaml",
                "usr/share/nccl-pulse/deploy/grafana/dashboards/fleet.json",
                "usr/share/nccl-pulse/deploy/grafana/provisioning/dashboards/nccl-pulse.yaml",
                "usr/share/doc/nccl-pulse/LICENSE",
                "usr/share/doc/nccl-pulse/copyright",
                "usr/share/doc/nccl-pulse/README.md",
                "usr/share/doc/nccl-pulse/docs/node-endpoint.md",
        ]:
            self.assertIn(path, self.files)
            self.assertTrue(self.files[path], path)

    def test_rccl_finds_the_library_under_its_own_name(self):
        rccl = self.entries["usr/lib/%s/librccl-profiler-pulse.so" % self.multiarch]
        self.assertTrue(rccl.issym())
        self.assertEqual("libnccl-profiler-pulse.so", rccl.linkname)

    def test_links_lead_somewhere(self):
        for path, entry in self.entries.items():
            if entry.issym():
                target = os.path.normpath(os.path.join(os.path.dirname(path), entry.linkname))
                self.assertIn(target, self.entries, path)

    def test_what_a_document_links_to_is_there(self):
        links, broken = 0, []
        for path, content in self.files.items():
            if not path.endswith(".md"):
                continue
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", content.decode()):
                links += 1
                target = os.path.normpath(os.path.join(os.path.dirname(path), link))
                for start, entry in self.entries.items():
                    if entry.issym() and target.startswith(start + "/"):
                        target = os.path.normpath(os.path.join(
                            os.path.dirname(start), entry.linkname, target[len(start) + 1:]))
                        break
                if target not in self.entries:
                    broken.append("%s links to %s" % (path, link))
        self.assertEqual([], broken)
        self.assertGreater(links, 10)

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_the_example_tuner_builds_as_its_document_says(self):
        folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        with tarfile.open(fileobj=io.BytesIO(self.tar), mode="r:gz") as tar:
            tar.extractall(folder)
        document = self.files["usr/share/doc/nccl-pulse/docs/tuners.md"].decode()
        command = re.search("^cc .*", document, re.MULTILINE).group()
        environment = dict(os.environ, examples=os.path.join(folder, "nccl-pulse/share/doc/nccl-pulse/examples"))
        subprocess.run(["sh", "-c", command.replace("/opt/lib", folder)], check=True, env=environment)
        tuner = ctypes.CDLL(os.path.join(folder, "libnccl-tuner-example.so"))
        self.assertTrue(hasattr(tuner, "ncclTunerPlugin_v5"))

    def test_modes_and_owners(self):
        programs = [path for path, entry in self.entries.items() if entry.isreg() and entry.mode == 0o755]
        self.assertEqual(["usr/bin/pulse"], [path for path in programs
                                              if not path.startswith("usr/share/nccl-pulse/deploy/on-hang/")])
        for path, entry in self.entries.items():
            self.assertEqual((0, 0, "root", "root"), (entry.uid, entry.gid, entry.uname, entry.gname), path)
            self.assertEqual(content.MODIFIED, entry.mtime, path)
            expected = {tarfile.DIRTYPE: 0o755, tarfile.SYMTYPE: 0o777}.get(entry.type, entry.mode)
            self.assertEqual(expected, entry.mode, path)
            self.assertIn(entry.mode, (0o644, 0o755, 0o777), path)
            parent = os.path.dirname(path)
            if parent:
                self.assertIn(parent, self.entries, "dpkg wants every folder named")

    def test_the_archive_holds_the_same_below_one_folder(self):
        _, files = entries_of_tar(self.tar)
        moved = {re.sub("^usr/", "nccl-pulse/", path).replace("/lib/%s/" % self.multiarch, "/lib/"):
                 content for path, content in self.files.items() if path not in OF_DEBIAN_ALONE}
        self.assertEqual(sorted(moved), sorted(files))
        self.assertTrue(moved == files)

    def test_the_program_of_the_archive_puts_the_library_into_a_folder(self):
        folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        with tarfile.open(fileobj=io.BytesIO(self.tar), mode="r:gz") as tar:
            tar.extractall(folder)
        target = os.path.join(folder, "volume")
        # No RUNFILES_DIR: it is to find its library by itself.
        command = [os.path.join(folder, "nccl-pulse/bin/pulse"), "install", target]
        failed = subprocess.run(command, capture_output=True, text=True, env={}, check=False)
        self.assertEqual(2, failed.returncode)
        self.assertIn("; create it", failed.stderr)
        self.assertIn(target, failed.stderr)
        os.mkdir(target)
        for _ in range(2):
            subprocess.run(command, check=True, env={}, stdout=subprocess.DEVNULL)
            names = ["libnccl-profiler-pulse.so", "librccl-profiler-pulse.so"]
            self.assertEqual(names, sorted(os.listdir(target)))
            for name in names:
                path = os.path.join(target, name)
                self.assertEqual(self.files[self.library()], read(path))
                self.assertEqual(0o644, os.stat(path).st_mode & 0o777)
        self.assertEqual(1, subprocess.run(command[:2], capture_output=True, env={}, check=False).returncode)

    def test_what_the_binaries_need_is_on_every_machine(self):
        for path in ["usr/bin/pulse", self.library(), "usr/lib/nccl-pulse/libpulse-simulated-gpu.so"]:
            tables = subprocess.run(["readelf", "--dynamic", "--version-info", "--wide",
                                     self.unpacked(path)], check=True, capture_output=True,
                                    text=True).stdout
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", tables))
            self.assertLessEqual(needed, SYSTEM_LIBRARIES, path)
            versions = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([0-9.]+)", tables)}
            self.assertLessEqual(max(versions), project.GLIBC, path)
        self.assertLess(len(self.files[self.library()]), LARGEST_LIBRARY_BYTES)

    def test_every_source_that_is_linked_has_its_licence_there(self):
        linked = {match for match in re.findall(r"^@([^/]+)//", read(LINKED).decode(), re.MULTILINE)}
        linked -= NOT_LINKED
        self.assertIn("com_google_absl", linked)
        folder = "usr/share/doc/nccl-pulse/licences/"
        there = {path[len(folder):].split("/")[0] for path in self.files if path.startswith(folder)}
        self.assertEqual(linked, there, "deploy/package/shipped.bzl does not name what is linked")
        for path, text in self.files.items():
            if path.startswith(folder):
                self.assertRegex(text.decode(), r"(?i)copyright|licen[cs]e|public domain", path)

    def test_the_image_is_a_layout_and_an_archive_to_load(self):
        with tarfile.open(package("-image-*.tar")) as tar:
            members = {entry.name: tar.extractfile(entry).read() for entry in tar.getmembers() if entry.isreg()}
        for path, data in members.items():
            if path.startswith("blobs/sha256/"):
                self.assertEqual(os.path.basename(path), hashlib.sha256(data).hexdigest())

        def blob(described):
            data = members["blobs/sha256/" + described["digest"].split(":")[1]]
            self.assertEqual(described["size"], len(data))
            return data

        self.assertEqual({"imageLayoutVersion": "1.0.0"}, json.loads(members["oci-layout"]))
        manifest, = json.loads(members["index.json"])["manifests"]
        manifest = json.loads(blob(manifest))
        layer, = manifest["layers"]
        config = json.loads(blob(manifest["config"]))
        self.assertEqual(["sha256:" + hashlib.sha256(gzip.decompress(blob(layer))).hexdigest()], config["rootfs"]["diff_ids"])
        self.assertEqual((self.fields["Architecture"], "linux"), (config["architecture"], config["os"]))
        self.assertRegex(config["config"]["User"], "^[1-9][0-9]*:[1-9][0-9]*$")  # runAsNonRoot can be checked
        to_load, = json.loads(members["manifest.json"])
        self.assertEqual([blob(layer), blob(manifest["config"])], [members[to_load["Layers"][0]], members[to_load["Config"]]])
        self.assertEqual(["nccl-pulse:" + self.fields["Version"]], to_load["RepoTags"])

    def test_the_image_holds_the_same_beside_the_libraries_of_the_compiler(self):
        with tarfile.open(package("-image-*.tar")) as tar:
            described, = json.load(tar.extractfile("manifest.json"))
            entries, files = entries_of_tar(tar.extractfile(described["Layers"][0]).read(), "")
        _, expected = entries_of_tar(self.tar)
        prefix = "opt/nccl-pulse/"
        self.assertEqual({path[len("nccl-pulse/"):]: data for path, data in expected.items()} == {
            path[len(prefix):]: data for path, data in files.items() if path.startswith(prefix)}, True)
        loaders = [path for path in entries if "ld-linux" in path]
        self.assertEqual(1, len(loaders))
        self.assertEqual(0o755, entries[loaders[0]].mode)
        for name in SYSTEM_LIBRARIES & {"libc.so.6", "libm.so.6", "libgcc_s.so.1"}:
            self.assertIn("usr/lib/" + name, files)

    def test_the_rpm_holds_the_same(self):
        listed = subprocess.run(
            ["rpm", "--query", "--package", "--queryformat", "[%{FILENAMES}\t%{FILEMODES:perms}\t%{FILEDIGESTS}\n]", package(".rpm")],
            check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
        there = dict(line[1:].split("\t", 1) for line in listed.splitlines() if "\tdr" not in line)
        expected = {}
        for path, entry in self.entries.items():
            if not entry.isdir() and path not in OF_DEBIAN_ALONE:
                path = re.sub(r"^usr/lib/[^/]+-linux-gnu/", "usr/lib64/", path).replace("vendor-completions", "site-functions")
                expected[path] = "%s\t%s" % (stat.filemode(entry.mode | (stat.S_IFLNK if entry.issym() else stat.S_IFREG)),
                                             "" if entry.issym() else hashlib.sha256(self.files[entry.name[2:]]).hexdigest())
        self.assertEqual(expected, there)

    def test_rpm_reads_the_rpm_and_finds_a_changed_byte(self):
        path = os.path.join(os.environ["TEST_TMPDIR"], "changed.rpm")
        subprocess.run(["rpm", "--checksig", package(".rpm")], check=True)
        data = bytearray(read(package(".rpm")))
        for at in (len(data) // 2, 4000):  # of the payload and of the header
            changed = bytes(data[:at]) + bytes([data[at] ^ 1]) + bytes(data[at + 1:])
            with open(path, "wb") as file:
                file.write(changed)
            self.assertNotEqual(0, subprocess.run(["rpm", "--checksig", path], check=False).returncode, at)

    def test_the_rpm_takes_no_folder_of_the_system_and_names_what_it_needs(self):
        def query(what):
            return subprocess.run(["rpm", "--query", "--package", what, package(".rpm")], check=True, stdout=subprocess.PIPE,
                                  universal_newlines=True).stdout.splitlines()
        for line in query("--dump"):
            path, _, _, _, mode = line.split()[:5]
            self.assertTrue(not mode.startswith("04") or "/nccl-pulse" in path, path)
        needed = {line for line in query("--requires") if not line.startswith("rpmlib(")}
        self.assertEqual({"libc.so.6(GLIBC_%d.%d)(64bit)" % project.GLIBC, "libm.so.6()(64bit)", "libgcc_s.so.1()(64bit)"}, needed)

    def test_the_bill_of_materials_names_what_is_linked_as_it_is_pinned(self):
        document = json.loads(read(package(".spdx.json")))
        components = {each["SPDXID"]: each for each in document["packages"]}
        self.assertEqual("SPDX-2.3", document["spdxVersion"])
        linked = {components[each["relatedSpdxElement"]]["name"] for each in document["relationships"]
                  if each["relationshipType"] == "STATIC_LINK"}
        self.assertEqual(set(re.findall(r"^@([^/]+)//", read(LINKED).decode(), re.MULTILINE)) - NOT_LINKED | {"libstdc++"}, linked)
        for each in components.values():
            self.assertRegex(each["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
            self.assertRegex(each["versionInfo"], r"^[0-9]+(\.[0-9]+)+|^[0-9a-f]{40}$")
        zlib = components["SPDXRef-zlib"]
        self.assertEqual(("1.2.13", "Zlib"), (zlib["versionInfo"], zlib["licenseDeclared"]))
        self.assertIn(zlib["checksums"][0]["checksumValue"], read(os.path.join(RUNFILES, "third_party/dependencies.bzl")).decode())


class UnitTextTest(unittest.TestCase):
    UNIT = "lib/systemd/system/nccl-pulse-agent.service"

    def setUp(self):
        files = entries_of_tar(members_of_ar(read(package(".deb")))["data.tar.gz"])[1]
        unit, = [content for path, content in files.items() if path.endswith(self.UNIT)]
        self.settings = [line.split("=", 1) for line in unit.decode().splitlines()
                         if "=" in line and not line.startswith("#")]
        self.documents = {os.path.basename(path): content.decode() for path, content in files.items()
                          if path.endswith((".md", ".md.gz"))}

    def test_captures_have_a_lasting_folder_of_their_own(self):
        self.assertIn(["ProtectSystem", "strict"], self.settings)
        self.assertIn(["StateDirectory", "nccl-pulse"], self.settings)
        self.assertIn(["StateDirectoryMode", "0700"], self.settings)
        self.assertIn("`/var/lib/nccl-pulse`, for `--capture-dir`", self.documents["deploy.md"])

    def test_what_the_documents_say_is_hidden_is_hidden(self):
        self.assertIn("are hidden from it", self.documents["deploy.md"].replace("\n", " "))
        for setting in (["CapabilityBoundingSet", ""], ["PrivateDevices", "yes"], ["ProtectProc", "invisible"]):
            self.assertIn(setting, self.settings)


class UnitFileTest(unittest.TestCase):
    UNIT = os.path.join(RUNFILES, "deploy/systemd/nccl-pulse-agent.service")

    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("needs systemd-analyze")
        # The program lies elsewhere here.
        self.folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        self.unit = os.path.join(self.folder, os.path.basename(self.UNIT))
        program = os.path.join(RUNFILES, "exporter/pulse")
        with open(self.unit, "w", encoding="utf-8") as file:
            file.write(read(self.UNIT).decode().replace("/usr/bin/pulse", program))

    def analyze(self, *arguments):
        result = subprocess.run(["systemd-analyze", *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False,
                                env={**os.environ, "SYSTEMD_LOG_TARGET": "console"})
        return result.returncode, result.stdout

    def test_systemd_takes_it(self):
        status, output = self.analyze("verify", "--man=no", "--recursive-errors=no", self.unit)
        # Of our unit; units of the machine are not ours to judge.
        self.assertNotIn(os.path.basename(self.unit), output)
        self.assertEqual(0, status, output)

    def test_systemd_finds_little_that_could_be_closed_further(self):
        status, output = self.analyze("security", "--offline=true", "--no-pager", self.unit)
        if "Unknown" in output or "unrecognized" in output:
            self.skipTest("this systemd cannot judge a unit that is not loaded")
        self.assertEqual(0, status, output)
        exposure = re.search(r"exposure level for .*: ([0-9.]+)", output)
        self.assertIsNotNone(exposure, output)
        self.assertLessEqual(float(exposure.group(1)), 2.0, output)


class WatchUnitFileTest(UnitFileTest):
    UNIT = os.path.join(RUNFILES, "deploy/systemd/nccl-pulse-watch.service")


class ReproducibleTest(unittest.TestCase):
    """The packager itself, over files of its own."""

    def build(self, folder, umask, modified, mode, zone):
        os.makedirs(os.path.join(folder, "external/zlib/licences"))
        os.mkdir(os.path.join(folder, "out"))
        sources = {
            "pulse": b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00" + bytes(100),
            "libnccl-profiler-pulse.so": b"library",
            "version.h": b'inline constexpr char kVersion[] = "1.2.3";\n',
            "external/zlib/licences/LICENSE": "Lizenz für alle\n".encode(),
        }
        # A compiler, as far as it is asked where its libraries are.
        with open(os.path.join(folder, "compiler"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\ncase $1 in -dump*) echo 12.2.0; exit ;; esac\nname=${1#-print-file-name=}\nprintf %s $name >$name\necho $PWD/$name\n")
        os.chmod(os.path.join(folder, "compiler"), 0o755)
        names = list(sources)
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "wb") as file:
                file.write(sources[name])
            os.chmod(path, mode)
            os.utime(path, (modified, modified))
        command = [
            os.path.join(RUNFILES, "deploy/package/make_package"), "--version_header",
            "version.h", "--out", "out", "--compiler", os.path.join(folder, "compiler"),
            "--dependencies", os.path.join(RUNFILES, "third_party/dependencies.bzl"),
            "--debian_sums", os.path.join(RUNFILES, "third_party/debian_archives.sha256"), "--install", "bin", "pulse",
            "--install", "lib", "libnccl-profiler-pulse.so", "--licences", "share/doc/licences",
            "external/zlib/licences/LICENSE",
        ]
        subprocess.run(command, check=True, cwd=folder, preexec_fn=lambda: os.umask(umask),
                       env={**os.environ, "TZ": zone, "LC_ALL": "C"})
        return {os.path.basename(path): read(path) for path in glob.glob(os.path.join(folder, "out/*"))}

    def test_the_same_bytes_whenever_and_by_whomever(self):
        folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        first = self.build(os.path.join(folder, "a"), 0o022, time.time(), 0o644, "UTC")
        second = self.build(os.path.join(folder, "b/c"), 0o077, 1e9, 0o700, "Asia/Tokyo")
        self.assertEqual(first, second)
        entries, _ = entries_of_tar(members_of_ar(first["nccl-pulse_1.2.3_amd64.deb"])["data.tar.gz"])
        self.assertIn("usr/lib/x86_64-linux-gnu/libnccl-profiler-pulse.so", entries)
        self.assertIn("usr/share/doc/licences/zlib/LICENSE", entries)

    def test_the_homepage_of_a_fork_is_in_its_rules_and_documents(self):
        path = os.path.join(os.environ["TEST_TMPDIR"], "rules.yaml")
        with open(path, "wb") as file:
            file.write(b"runbook_url: %s/runbook.md" % make_package.PLACEHOLDER)
        with mock.patch.object(project, "HOMEPAGE", "https://fork.example.com"):
            self.assertEqual(b"runbook_url: https://fork.example.com/runbook.md", make_package.read(path))

    def test_an_unknown_machine_is_named(self):
        with self.assertRaisesRegex(SystemExit, "unknown machine 40"):
            content.processor_of(b"\x7fELF\x02\x01" + bytes(12) + b"\x28\x00")
        with self.assertRaisesRegex(SystemExit, "no 64-bit"):
            content.processor_of(b"#!/bin/sh")

    def test_a_header_without_version_is_named(self):
        with self.assertRaisesRegex(SystemExit, "no kVersion"):
            make_package.version("constexpr int kOther = 1;")

    def test_no_time_of_day_in_the_compressed_streams(self):
        stream = content.tar_gz({"a": b"b"})
        self.assertEqual(bytes(4), stream[4:8])
        self.assertTrue(gzip.decompress(stream))


if __name__ == "__main__":
    running.main()
