"""bench/count_instructions: its figures for plugins whose order is known, and what threads share."""

import functools
import os
import unittest

from bench import count_instructions

from tests import running

OF_PLUGINS = {name: plugin for name, *plugin in count_instructions.PLUGINS}


@functools.cache
def count(name, threads=1):
  library, version, settings = OF_PLUGINS[name]
  return count_instructions.count(os.path.realpath("bench/traced_collective"),
                                  os.path.realpath(library), version, settings, threads)


class CountInstructionsTest(unittest.TestCase):

  def test_plugins_that_do_more_execute_and_touch_more(self):
    names = ("NCCL Pulse, v5", "floor, asks", "floor", "empty")
    figures = [min(count(name)[0], key=lambda each: each.instructions) for name in names]
    for more, less in zip(figures, figures[1:]):
      self.assertGreater(more.instructions, less.instructions)
      self.assertGreaterEqual(more.code_lines, less.code_lines)
      self.assertGreaterEqual(len(more.written | more.read), len(less.written | less.read))
    pulse, _, floor, empty = figures
    self.assertGreater(pulse.code_lines, 10 * empty.code_lines)
    # The begin of a launch shows whether it follows a pause, its end dates it.
    self.assertEqual((pulse.atomics, pulse.clock_readings), (0, 2))
    # The one communicator that the floor keeps.
    self.assertGreaterEqual(len(floor.written), 1)
    for figure in (floor, empty):
      self.assertEqual((figure.atomics, figure.clock_readings), (0, 0))

  def test_the_same_collective_counts_the_same(self):
    figures, = count("floor")
    self.assertEqual(len({each.instructions for each in figures}), 1)

  def test_newer_versions_of_the_api_are_as_cheap(self):
    v5, v6, v7 = (min(each.instructions for each in count("NCCL Pulse, " + version)[0])
                  for version in ("v5", "v6", "v7"))
    # v7 has a tag to look at.
    self.assertLess(max(v6, v7), v5 + 20)

  def test_a_proven_counter_saves_a_callback_and_the_event(self):
    proven, other = (min(each.instructions for each in count(name)[0])
                     for name in ("NCCL Pulse, v6, NCCL's counter proven", "NCCL Pulse, v6"))
    self.assertLess(proven, other)

  def test_a_send_takes_no_lock(self):
    send = min(count("NCCL Pulse, v6, a Send instead")[0], key=lambda each: each.instructions)
    self.assertEqual((send.atomics, send.clock_readings), (0, 2))

  def test_a_query_only_reads(self):
    query = min(count("a tuner's query instead")[0], key=lambda each: each.instructions)
    self.assertEqual((query.atomics, query.clock_readings), (0, 0))
    self.assertLess(query.instructions, 300)

  def test_threads_share_no_line(self):
    threads = count("NCCL Pulse, v5", count_instructions.THREADS)
    self.assertEqual(len(threads), count_instructions.THREADS)
    self.assertEqual(count_instructions.shared_lines(threads), set())


if __name__ == "__main__":
  running.main()
