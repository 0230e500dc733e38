"""The examples of deploy/on-hang: what they run and send for a verdict."""

import json
import os
import subprocess
import unittest

from tests import running
from tests.kit import Server, posted, reply, temporary_folder

EXAMPLES = "deploy/on-hang/"
VERDICT = {"job_id": "4711", "workload": "llama", "users": [1000], "since": 1.0, "lasted": 600.0,
           "endpoints": ["http://node-0:9410/", "http://node-1:9410/"], "diagnosis": {"sentence": "HANG  rank 2"}}
# Of a stand-in for squeue.
OWNED_BY_1000 = 'case "$*" in *%U*) echo 1000; exit;; esac\n'


class OnHangTest(unittest.TestCase):

    def setUp(self):
        self.folder = temporary_folder(self)

    def stand_in(self, name, lines=""):
        """Writes its arguments, one in a line."""
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nprintf "%%s\\n" %s "$@" >> %s/ran\n%s\n' % (name, self.folder, lines))
        os.chmod(path, 0o755)

    def run_example(self, name, verdict, **environment):
        environment = dict(os.environ, PATH=self.folder + ":" + os.environ["PATH"], **environment)
        done = subprocess.run([EXAMPLES + name], input=json.dumps(verdict), text=True, env=environment, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        ran = os.path.join(self.folder, "ran")
        if not os.path.exists(ran):
            return done.returncode, done.stdout, []
        with open(ran, encoding="utf-8") as file:
            return done.returncode, done.stdout, file.read().split()

    def test_capture(self):
        self.stand_in("pulse", "exit 3")
        status, out, ran = self.run_example("capture", dict(VERDICT, job_id="../47 11"), ON_HANG_FOLDER="/keep")
        self.assertEqual((status, out), (3, ""))
        self.assertEqual(ran[:2], ["pulse", "capture"])
        self.assertRegex(ran[2], r"^--out=/keep/\.\._47_11-\d{8}-\d{6}\.tar\.gz$")
        self.assertEqual(ran[3:], ["--job-id=../47", "11", "--endpoint=http://node-0:9410/",
                                   "--endpoint=http://node-1:9410/"])

    def test_capture_of_a_job_without_an_id(self):
        self.stand_in("pulse")
        _, _, ran = self.run_example("capture", dict(VERDICT, job_id=""), STATE_DIRECTORY="/state")
        self.assertTrue(ran[2].startswith("--out=/state/job-"), ran)
        self.assertFalse([each for each in ran if each.startswith("--job-id")])

    def test_end_slurm_step(self):
        self.stand_in("squeue", OWNED_BY_1000 + "echo 4711.batch 4711.extern 4711.0 4711.12 14711.3")
        self.stand_in("scancel")
        status, out, ran = self.run_example("end_slurm_step", VERDICT)
        self.assertEqual((status, out), (0, "ended 4711.0 4711.12\n"))
        self.assertIn("--jobs=4711", ran)
        self.assertEqual(ran[ran.index("scancel"):], ["scancel", "4711.0", "4711.12"])

    def test_end_slurm_step_leaves_others_alone(self):
        self.stand_in("squeue", OWNED_BY_1000 + "echo 4711.batch")
        self.stand_in("scancel")
        for verdict, said, environment in (
                (dict(VERDICT, job_id="none"), "not Slurm's: 'none'", {}),
                (dict(VERDICT, job_id="4711 4712"), "not Slurm's", {}),
                (dict(VERDICT, lasted=20), "nothing is done", {"ON_HANG_PATIENCE": "300"}),
                (VERDICT, "has no step: 4711.batch", {})):
            status, out, ran = self.run_example("end_slurm_step", verdict, **environment)
            self.assertEqual(status, 1)
            self.assertIn(said, out)
            self.assertNotIn("scancel", ran)

    def test_end_slurm_step_believes_no_job_id_of_another_user(self):
        self.stand_in("squeue", OWNED_BY_1000 + "echo 4711.0")
        self.stand_in("scancel")
        without_users = dict(VERDICT)
        del without_users["users"]
        for verdict, said in (
                (dict(VERDICT, users=[65534]), "belongs to user 1000, and processes of user 65534 hang"),
                (dict(VERDICT, users=[0]), "processes of user 0 hang"),
                (dict(VERDICT, users=[1000, 65534]), "processes of user 1000, 65534 hang"),
                (dict(VERDICT, users=[None, 1000]), "processes of user 1000, unknown hang"),
                (dict(VERDICT, users=[]), "processes of user unknown hang"),
                (without_users, "processes of user unknown hang")):
            status, out, ran = self.run_example("end_slurm_step", verdict)
            self.assertEqual(status, 1)
            self.assertIn(said, out)
            self.assertNotIn("scancel", ran)

    def test_end_slurm_step_of_a_job_that_slurm_does_not_know(self):
        self.stand_in("squeue")
        self.stand_in("scancel")
        status, out, ran = self.run_example("end_slurm_step", dict(VERDICT, users=[]))
        self.assertEqual(status, 1)
        self.assertIn("belongs to user unknown", out)
        self.assertNotIn("scancel", ran)

    def test_webhook(self):
        said = []

        def keep(handler):
            said.append(posted(handler))
            reply(handler)
        server = Server(keep)
        self.addCleanup(server.end)
        status, out, _ = self.run_example("webhook", VERDICT, ON_HANG_URL="http://%s/" % server.name, no_proxy="*")
        self.assertEqual((status, out), (0, "answered with status 200\n"))
        self.assertEqual(said, [{"text": "job 4711: HANG  rank 2"}])
        status, out, _ = self.run_example("webhook", VERDICT)
        self.assertEqual((status, out), (1, "ON_HANG_URL says nowhere to post to\n"))


if __name__ == "__main__":
    running.main()
