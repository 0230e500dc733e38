"""tools/check_arrows.py: which arrows between folders it lets pass."""

import os
import tempfile
import unittest

from tests import running
from tools import check_arrows


class Arrows(unittest.TestCase):

    def problems(self, files):
        """What is said of a tree with these {path: text}."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return list(check_arrows.problems(*check_arrows.read_arrows(root, sorted(files))))

    def test_down_passes(self):
        self.assertEqual(self.problems({
            "metrics/a.h": "",
            "exporter/node/b.cc": '#include "metrics/a.h"\n#include <vector>\n',
            "bench/c.cc": '#include "exporter/node/b.h"\n#include "metrics/a.h"\n',
            "tests/node/d.py": "from bench import e\n",
            "bench/e.py": "import os\n",
        }), [])

    def test_up_is_named_with_its_file(self):
        self.assertEqual(self.problems({
            "metrics/a.h": '#include "exporter/node/b.h"\n',
            "exporter/node/b.h": "",
        }), ["metrics/a.h: includes exporter/node, which is above metrics"])

    def test_a_folder_without_a_package_is_part_of_the_one_above(self):
        self.assertEqual(self.problems({
            "exporter/diagnosis/a.h": '#include "exporter/diagnosis/facts/b.h"\n',
            "exporter/diagnosis/facts/b.h": '#include "exporter/diagnosis/a.h"\n',
            "metrics/c.h": '#include "exporter/diagnosis/facts/b.h"\n',
        }), ["metrics/c.h: includes exporter/diagnosis, which is above metrics"])

    def test_product_and_bench_do_not_include_tests(self):
        found = self.problems({
            "plugin/abi/a.h": '#include "tests/x/b.h"\n',
            "bench/c.py": "from tests.x import d\n",
            "tests/x/b.h": "",
            "tests/x/d.py": "",
        })
        self.assertEqual(found, ["bench/c.py: includes tests/x, which is above bench",
                                 "plugin/abi/a.h: includes tests/x, which is above plugin/abi"])

    def test_circle_of_folders_without_floors(self):
        self.assertEqual(self.problems({
            "tests/x/a.h": '#include "tests/y/b.h"\n',
            "tests/y/b.h": '#include "tests/z/c.h"\n',
            "tests/z/c.h": '#include "tests/x/a.h"\n',
        }), ["folders in a circle: tests/x, tests/y, tests/z"])

    def test_new_folder_of_the_product_needs_a_floor(self):
        self.assertEqual(self.problems({"exporter/new/a.h": ""}),
                         ["exporter/new: has no place in FLOORS (tools/check_arrows.py)"])


if __name__ == "__main__":
    running.main()
