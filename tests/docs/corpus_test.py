"""The corpus of simulated jobs has facts and the truth, and docs/benchmarks.md's reader can read it."""

import contextlib
import glob
import io
import json
import os
import re
import subprocess
import tempfile
import unittest

from tests import running

RUNFILES = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])

EXPECTED = {"ranks", "no rank", "healthy", "communicator", "ranks or mismatch", "ranks or not healthy",
            "ranks or unknown", "first stage or hang", "rank and its opposite"}
CONCLUSIONS = ("health", "hang", "straggler", "first_step", "text", "note")


def keys_of(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


class CorpusTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        corpus = os.path.join(RUNFILES, "bench/jobs/corpus")
        subprocess.run([corpus, "--folder=" + cls.folder.name, "--jobs=1"], check=True)
        cls.jobs = []
        for path in glob.glob(cls.folder.name + "/*.json"):
            with open(path, encoding="utf-8") as file:
                cls.jobs.append(json.load(file))

    def test_facts_and_truth(self):
        self.assertGreater(len({job["fault"] for job in self.jobs}), 80)
        for job in self.jobs:
            with self.subTest(job["fault"]):
                self.assertIn(job["expected"], EXPECTED)
                is_calm = job["expected"] in ("no rank", "healthy")
                if is_calm or job["expected"] == "ranks":
                    self.assertEqual(job["culprits"] == [], is_calm)
                # After a healthy end there is none.
                self.assertTrue(is_calm or all(poll["communicators"] for poll in job["polls"]))
                self.assertEqual(set(keys_of(job["polls"])) & set(CONCLUSIONS), set())

    def test_the_reader_of_the_document(self):
        with open(os.path.join(RUNFILES, "docs/benchmarks.md"), encoding="utf-8") as file:
            reader = re.search(r"```python\n(.*?)```", file.read(), re.DOTALL).group(1)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(reader.replace("/tmp/corpus", self.folder.name), {})  # pylint: disable=exec-used
        right, jobs = map(int, re.fullmatch(r"right: (\d+) of (\d+)\n", said.getvalue()).groups())
        self.assertEqual(jobs, len(self.jobs))
        self.assertTrue(0 < right < jobs, said.getvalue())


if __name__ == "__main__":
    running.main()
