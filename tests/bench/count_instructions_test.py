"""bench/count_instructions: its figures for plugins whose order is known."""

import os
import unittest

from bench import count_instructions

from tests import running


class CountInstructionsTest(unittest.TestCase):

  def count(self, library, settings):
    return count_instructions.count(os.path.realpath("bench/traced_collective"),
                                    os.path.realpath(library), settings)

  def test_plugins_that_do_more_execute_and_touch_more(self):
    figures = [self.count(library, settings) for _, library, settings in count_instructions.PLUGINS]
    pulse, asks, floor, empty = (min(collectives) for collectives in figures)
    self.assertEqual([len(collectives) for collectives in figures], [21] * 4)
    for more, less in ((pulse, asks), (asks, floor), (floor, empty)):
      self.assertGreater(more[0], less[0])
      self.assertGreaterEqual(more[2], less[2])
      self.assertGreaterEqual(more[3], less[3])
    self.assertGreater(pulse[2], 10 * empty[2])
    # The one communicator that the floor keeps, and where its callbacks find the driver.
    self.assertGreaterEqual(floor[3], 1)

  def test_the_same_collective_counts_the_same(self):
    _, library, settings = count_instructions.PLUGINS[2]
    self.assertEqual(len(set(self.count(library, settings))), 1)


if __name__ == "__main__":
  running.main()
