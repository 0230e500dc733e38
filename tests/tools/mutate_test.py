"""tools/mutate over a tiny tree and a stand-in for Bazel, whose tests look at one file."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests import running

MUTATE = os.path.abspath("tools/mutate")
PATIENCE_S = 240

# Fails the build at "syntax", the tests at any number but 60 and 7; at "wait" it waits until it is ended.
BAZEL = '''#!/bin/sh
case "$*" in *shutdown*) echo shutdown >> "$LOG"; exit 0;; esac
echo "$(cat code.cc)" >> "$LOG"
if grep -q syntax code.cc; then echo "code.cc:1: error: no such thing"; exit 1; fi
if grep -q wait code.cc; then
  trap 'exit 8' INT
  echo waiting > "$WAITING"
  while :; do sleep 0.01; done
fi
if grep -q "limit = 60" code.cc && grep -q "ignored = " code.cc; then exit 0; fi
echo "//pkg:code_test   FAILED in 0.1s"
exit 3
'''

LIST = '''# Faults.

== limit
file: code.cc
targets: //pkg:code_test
why: it is a limit
--- find
limit = 60;
--- replace
limit = 30;

== nobody-looks
file: code.cc
targets: //pkg:code_test
why: nobody looks
--- find
ignored = 7;
--- replace
ignored = 8;
'''


def fault(name, replace, survives="", find="ignored = 7;"):
    return ("\n== %s\nfile: code.cc\ntargets: //pkg:code_test\nwhy: for a reason\n%s--- find\n%s\n"
            "--- replace\n%s\n" % (name, "survives: %s\n" % survives if survives else "", find, replace))


class MutateTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.root = os.path.join(self.folder, "root")
        for name in ("pkg", "tools/mutations"):
            os.makedirs(os.path.join(self.root, name))
        self.write("code.cc", "limit = 60;\nignored = 7;\n")
        self.write("pkg/BUILD.bazel", 'cc_test(name = "code_test")\n')
        self.write("bazelw", BAZEL)
        os.chmod(os.path.join(self.root, "bazelw"), 0o755)
        self.write_list(LIST)
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(text)

    def write_list(self, text):
        self.write("tools/mutations/layer.txt", text)

    def command(self, *arguments):
        return [sys.executable, MUTATE, "--root=" + self.root,
                "--scratch=" + os.path.join(self.folder, "scratch"), *arguments]

    def environment(self):
        return dict(os.environ, LOG=os.path.join(self.folder, "log"), HOME=self.folder,
                    WAITING=os.path.join(self.folder, "waiting"))

    def mutate(self, *arguments):
        """(exit status, output)"""
        done = subprocess.run(self.command(*arguments), env=self.environment(), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def code(self, tree):
        with open(os.path.join(self.folder, tree, "code.cc"), encoding="utf-8") as file:
            return file.read()

    def expect_restored(self):
        for tree in ("root", "scratch/tree"):
            self.assertEqual(self.code(tree), "limit = 60;\nignored = 7;\n")

    def test_caught_and_survived(self):
        status, output = self.mutate()
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"(?m)^caught +layer +limit .*//pkg:code_test$")
        self.assertRegex(output, r"(?m)^survived +layer +nobody-looks ")
        self.assertIn("nobody of //pkg:code_test noticed", output)
        self.assertIn("2 faults: 1 caught, 1 survived; 50 % caught", output)
        self.expect_restored()
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as log:
            self.assertEqual(log.read().split("\n")[-2], "shutdown")

    def test_an_explained_survivor_is_no_failure(self):
        self.write_list(fault("explained", "ignored = 8;", survives="it is only a comment"))
        status, output = self.mutate()
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"survived +layer +explained .* it is only a comment")
        self.write_list(fault("stale", "limit = 8;", survives="nobody can see it", find="limit = 60;"))
        status, output = self.mutate()
        self.assertEqual(status, 0, output)
        self.assertIn('stale is caught now: its line "survives" can go', output)

    def test_what_does_not_build_is_not_caught(self):
        self.write_list(fault("broken", "syntax;"))
        status, output = self.mutate()
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"does not build +layer +broken .* no such thing")
        self.expect_restored()

    def test_only_and_layer(self):
        self.write("tools/mutations/other.txt", fault("third", "ignored = 9;"))
        self.assertIn("1 faults: 1 caught", self.mutate("--only=limit")[1])
        self.assertIn("1 faults: 1 survived", self.mutate("--layer=other")[1])
        self.assertIn("there is no fault nonsense", self.mutate("--only=nonsense")[1])
        self.assertIn("there is no layer nonsense", self.mutate("--layer=nonsense")[1])

    def test_tests_that_fail_anyway_say_nothing(self):
        self.write("code.cc", "limit = 61;\nignored = 7;\n")
        self.write_list(fault("nobody-looks", "ignored = 8;"))
        status, output = self.mutate()
        self.assertEqual(status, 2, output)
        self.assertIn("fail without any fault", output)

    def test_check(self):
        self.assertEqual(self.mutate("--check"), (0, ""))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "log")))
        for text, complaint in (
                (fault("gone", "x", find="no longer there"), "gone: the text is found 0 times in code.cc"),
                (fault("twice", "x", find="= "), "twice: the text is found 2 times in code.cc"),
                (fault("same", "ignored = 7;"), "same changes nothing"),
                (fault("target", "x").replace("code_test", "other_test"), "no target //pkg:other_test"),
                (fault("file", "x").replace("file: code.cc", "file: no.cc"), "No such file"),
                (fault("a", "x") + fault("a", "y"), "two faults have the name a"),
                (fault("typo", "x").replace("why:", "wyh:"), "neither file, why, targets nor survives"),
                ("== half\nfile: code.cc\n", "half has no --- find")):
            self.write_list(text)
            status, output = self.mutate("--check")
            self.assertEqual(status, 1, text)
            self.assertIn(complaint, output)

    def test_a_text_that_is_gone_fails_the_run_and_the_others_are_tried(self):
        self.write_list(LIST.replace("ignored = 7;", "ignored = 70;"))
        status, output = self.mutate()
        self.assertEqual(status, 1, output)
        self.assertIn("1 caught, 1 text not found", output)

    def test_what_is_not_committed_is_copied_and_what_is_deleted_goes(self):
        self.write("extra.cc", "new")
        self.mutate("--only=limit")
        self.assertTrue(os.path.exists(os.path.join(self.folder, "scratch/tree/extra.cc")))
        os.remove(os.path.join(self.root, "extra.cc"))
        self.mutate("--only=limit")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "scratch/tree/extra.cc")))

    def interrupt(self, how):
        self.write_list(fault("waits", "wait;"))
        process = subprocess.Popen(self.command(), env=self.environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.exists(os.path.join(self.folder, "waiting")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertIn("wait;", self.code("scratch/tree"))
        status, output = self.mutate()
        self.assertNotEqual(status, 0)
        self.assertIn("another run uses " + os.path.join(self.folder, "scratch"), output)
        process.send_signal(how)
        output, _ = process.communicate(timeout=PATIENCE_S)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("interrupted; every file is as it was", output)
        self.expect_restored()

    def test_interrupted_by_the_keyboard(self):
        self.interrupt(signal.SIGINT)

    def test_terminated(self):
        self.interrupt(signal.SIGTERM)


if __name__ == "__main__":
    running.main()
