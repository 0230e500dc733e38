"""tools/release over a stand-in for Bazel: what it refuses, what it builds, and the sums."""

import os
import platform
import shutil
import subprocess
import tempfile
import unittest

from tests import running

BAZELW = """#!/bin/sh
case "$*" in *corpus)
  mkdir -p bazel-bin/bench/jobs
  printf '#!/bin/sh\\nmkdir "${1#*=}" && echo {} >"${1#*=}/job.json"\\n' >bazel-bin/bench/jobs/corpus
  chmod +x bazel-bin/bench/jobs/corpus
  exit ;;
esac
mkdir -p bazel-bin/deploy/packages
rm -f bazel-bin/deploy/packages/*
echo "$*" >"bazel-bin/deploy/packages/$(echo "$*" | grep -o arm64 || echo own).whl"
"""


class ReleaseTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        os.mkdir(os.path.join(self.folder, "tools"))
        shutil.copy("tools/release", os.path.join(self.folder, "tools"))
        for path, content in (("exporter/base/version.h", 'inline constexpr char kVersion[] = "1.2.3";\n'),
                              ("CHANGELOG.md", "# Changelog\n\n## 1.2.3\n"), ("bazelw", BAZELW),
                              (".gitignore", "/bazel-*\n/release/\n")):
            self.write(path, content)
        os.chmod(os.path.join(self.folder, "bazelw"), 0o755)
        self.git("init", "--quiet")
        self.commit()

    def write(self, path, content):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)

    def git(self, *arguments):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments], cwd=self.folder,
                              check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=All")

    def release(self, *arguments):
        """Returns (exit status, output)."""
        done = subprocess.run(["tools/release", *arguments], cwd=self.folder, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        return done.returncode, done.stdout

    def test_both_processors_with_commit_and_sums(self):
        status, output = self.release("1.2.3")
        self.assertEqual(0, status, output)
        files = os.path.join(self.folder, "release/1.2.3")
        expected = ["own.whl"] + (["arm64.whl"] if platform.machine() == "x86_64" else [])
        self.assertEqual(sorted(expected + ["SHA256SUMS", "corpus.tar.gz"]), sorted(os.listdir(files)))
        subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=files, check=True)
        corpus = subprocess.check_output(["tar", "-tzf", "corpus.tar.gz"], cwd=files, universal_newlines=True)
        self.assertEqual(["corpus/", "corpus/job.json"], corpus.split())
        with open(os.path.join(files, "own.whl"), encoding="utf-8") as file:
            self.assertEqual("build --define=commit=%s //deploy:packages\n" % self.git("rev-parse", "--short=12", "HEAD"),
                             file.read())

    def test_it_never_mixes_two_releases(self):
        self.write("release/1.2.3/old.whl", "")
        self.assertIn("is not empty", self.refused("1.2.3"))

    def refused(self, *arguments):
        status, output = self.release(*arguments)
        self.assertEqual(1, status, output)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "bazel-bin")))
        return output

    def test_another_version_is_refused(self):
        self.assertIn("exporter/base/version.h", self.refused("1.2.4"))
        self.assertIn("usage", self.refused())

    def test_a_version_without_changes_is_refused(self):
        self.write("CHANGELOG.md", "# Changelog\n\n## Unreleased: 1.2.3\n")
        self.commit()
        self.assertIn("CHANGELOG.md has no heading", self.refused("1.2.3"))

    def test_what_is_not_committed_is_refused(self):
        self.write("new.cc", "")
        self.assertIn("uncommitted", self.refused("1.2.3"))


if __name__ == "__main__":
    running.main()
