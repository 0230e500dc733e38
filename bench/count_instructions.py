"""What the callbacks of one eager collective execute and touch, counted: the plugin by each version of
the API beside the floor plugin and the empty one.

    ./bazelw run -c opt //bench:count_instructions

traced_collective.cc makes the callbacks in single steps; x86-64 Linux, with objdump. Of 21 collectives, each after
2,000 at full speed, the one with the fewest instructions: what a few launches do on top (a gate, a marker, a sampled
duration) does not show, nor do other programs on the machine. A driver whose calls cost nothing stands in for CUDA's; neither its instructions nor the caller's are
counted. Branches are the conditional ones; a taken jump is an instruction that is not followed by the next one in
memory, calls and returns among them. Atomics are read-modify-writes. Lines are of 64 bytes; those of data are the
explicit memory operands of the plugin's own instructions, the stack left out.

The last line is about 8 threads of one process, each with a communicator: how many lines one of them writes and
another one writes or reads, so that they wait for each other.
"""

import bisect
import collections
import functools
import itertools
import os
import re
import struct
import subprocess
import sys

PULSE = "plugin/libnccl-profiler-pulse.so"
FLOOR = "bench/libfloor_plugin.so"
PLUGINS = (
    ("NCCL Pulse, v5", PULSE, "v5", {"NCCL_PULSE_LISTEN": "off"}),
    ("NCCL Pulse, v6", PULSE, "v6", {"NCCL_PULSE_LISTEN": "off"}),
    ("NCCL Pulse, v7", PULSE, "v7", {"NCCL_PULSE_LISTEN": "off"}),
    ("NCCL Pulse, v6, NCCL's counter proven", PULSE, "counted", {"NCCL_PULSE_LISTEN": "off"}),
    ("NCCL Pulse, v6, a Send instead", PULSE, "send", {"NCCL_PULSE_LISTEN": "off"}),
    ("floor, asks", FLOOR, "v5", {"FLOOR_PLUGIN_ASKS": "1"}),
    ("floor", FLOOR, "v5", {}),
    ("empty", "bench/libempty_plugin.so", "v5", {}),
    ("a tuner's query instead", PULSE, "query", {"NCCL_PULSE_LISTEN": "off"}),
)
COLLECTIVES = 21  # in single steps
THREADS = 8
COLLECTIVES_OF_EACH = 2
LINE = 64
STACK = 1 << 16  # around the stack pointer
REGISTERS = ("r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags csgsfs err "
             "trapno oldmask cr2").split()

# `written` and `read` are sets of lines.
Figures = collections.namedtuple(
    "Figures", "instructions branches jumps atomics clock_readings code_lines written read")


class Instruction:
  """Where it ends, what it does, and where its memory operand is, if it has one."""

  OPERAND = re.compile(r"(-?0x[0-9a-f]+)?\((%\w+)?(?:,(%\w+),(\d))?\)")
  # Of what has a memory operand. One that comes last is written, but by these.
  NO_ACCESS = re.compile(r"\b(lea|nop|prefetch)")
  ONLY_READS = re.compile(r"(cmp|test|bt|push|call|jmp|mul|div|idiv|ucomi|comi)[a-z]*$")

  def __init__(self, text):
    text = text.split("#")[0].split("<")[0].strip()
    mnemonic = text.split()[0]
    self.following = None
    self.is_branch = mnemonic[0] == "j" and not mnemonic.startswith("jmp")
    self.reads_clock = mnemonic in ("rdtsc", "rdtscp")
    # Of this thread alone: not looked at.
    operand = None if "%fs:" in text or self.NO_ACCESS.search(text) else self.OPERAND.search(text)
    self.operand = operand.groups() if operand else None
    self.is_atomic = mnemonic == "lock" or bool(operand) and mnemonic.startswith("xchg")
    self.writes = self.is_atomic or bool(operand) and operand.end() == len(text) and not self.ONLY_READS.match(mnemonic)

  def address(self, registers):
    """Of its memory operand."""
    displacement, base, index, scale = self.operand
    address = int(displacement or "0", 16)
    if base:
      address += registers[base[1:]]
    if index:
      address += registers[index[1:]] * int(scale)
    return address & (1 << 64) - 1


@functools.cache
def instructions_of(library):
  """A library's, by address."""
  listing = subprocess.run(["objdump", "-d", "-w", "--no-show-raw-insn", library], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
  found = {}
  for line in listing.splitlines():
    at, _, text = line.partition(":\t")
    if text.strip():
      found[int(at, 16)] = Instruction(text)
  addresses = sorted(found)
  for at, following in zip(addresses, addresses[1:]):
    found[at].following = following
  return found


class Map:
  """Where the process has its files: [start, end, name], and each file's first address."""

  def __init__(self, text):
    self.areas, self.first = [], {}
    for line in text.splitlines():
      fields = line.split()
      name = fields[5] if len(fields) > 5 else ""
      start, end = (int(part, 16) for part in fields[0].split("-"))
      self.areas.append((start, end, name))
      self.first.setdefault(name, start)

  def name(self, address):
    start, end, name = self.areas[bisect.bisect(self.areas, (address, 1 << 64)) - 1]
    return name if start <= address < end else ""


def figures_of(steps, where, base, code, library, foreign):
  """Of one collective: `steps` are the registers in front of each instruction."""
  instructions = branches = jumps = atomics = clock_readings = 0
  lines, written, read = set(), set(), set()
  for state, following in zip(steps, steps[1:]):
    at = state["rip"]
    name = where.name(at)
    if name in foreign:
      continue
    instructions += 1
    lines.add(at // LINE)
    length = following["rip"] - at
    instruction = code.get(at - base) if name == library else None
    if instruction is None:
      jumps += not 0 < length <= 15
      continue
    jumps += at + length != base + instruction.following
    branches += instruction.is_branch
    atomics += instruction.is_atomic
    clock_readings += instruction.reads_clock
    if instruction.operand is None:
      continue
    registers = dict(state, rip=base + instruction.following)
    touched = instruction.address(registers)
    if not -STACK < touched - state["rsp"] < STACK:
      (written if instruction.writes else read).add(touched // LINE)
  return Figures(instructions, branches, jumps, atomics, clock_readings, len(lines), written, read)


def count(program, library, version, settings, threads=1):
  """For each thread the figures of every collective in single steps. The clock of several stands still."""
  collectives = COLLECTIVES if threads == 1 else COLLECTIVES_OF_EACH
  if threads > 1:
    settings = dict(settings, NCCL_PULSE_CLOCK="monotonic")
  output = subprocess.run([program, library, version, str(threads), str(collectives)], check=True,
                          env=dict(os.environ, **settings), stdout=subprocess.PIPE).stdout
  size, = struct.unpack_from("=Q", output)
  where = Map(output[8:8 + size].decode())
  code = instructions_of(library)
  foreign = {os.path.realpath(program)}
  foreign |= {name for name in where.first if name.endswith("/libcuda.so.1")}
  registers = struct.Struct("=%dQ" % len(REGISTERS))
  at = 8 + size
  figures = []
  while at < len(output):
    steps, = struct.unpack_from("=Q", output, at)
    end = at + 8 + steps * registers.size
    steps = [dict(zip(REGISTERS, step, strict=True)) for step in registers.iter_unpack(output[at + 8:end])]
    figures.append(figures_of(steps, where, where.first[library], code, library, foreign))
    at = end
  assert len(figures) == collectives * threads
  return [figures[thread * collectives:][:collectives] for thread in range(threads)]


def shared_lines(threads):
  """Lines that one thread writes and another one touches; `threads`: as counted."""
  def union(figures, fields):
    return set().union(*(getattr(each, field) for each in figures for field in fields))
  written = [union(figures, ["written"]) for figures in threads]
  touched = [union(figures, ["written", "read"]) for figures in threads]
  return set().union(*(written[one] & touched[other] for one, other in itertools.permutations(range(len(threads)), 2)))


def main():
  if os.uname().machine != "x86_64":
    sys.exit("count_instructions needs an x86-64 processor")
  program = os.path.realpath("bench/traced_collective")
  columns = {
      "instructions": lambda each: each.instructions,
      "branches": lambda each: each.branches,
      "taken jumps": lambda each: each.jumps,
      "atomics": lambda each: each.atomics,
      "clock readings": lambda each: each.clock_readings,
      "lines of code": lambda each: each.code_lines,
      "lines of data": lambda each: len(each.written | each.read),
  }
  print("| all callbacks of one eager collective | %s |" % " | ".join(columns))
  print("|---|" + "---|" * len(columns))
  for name, library, version, settings in PLUGINS:
    figures, = count(program, os.path.realpath(library), version, settings)
    least = min(figures, key=lambda each: each.instructions)
    print("| %s | %s |" % (name, " | ".join("%d" % column(least) for column in columns.values())), flush=True)
  _, library, version, settings = PLUGINS[0]
  threads = count(program, os.path.realpath(library), version, settings, THREADS)
  print("\n%d threads share %d lines of data." % (THREADS, len(shared_lines(threads))))


if __name__ == "__main__":
  main()
