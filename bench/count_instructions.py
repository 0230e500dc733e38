"""What the callbacks of one eager collective execute and touch, counted: the plugin beside the
floor plugin and the empty one.

    ./bazelw run -c opt //bench:count_instructions

Steps through the callbacks with ptrace, one instruction at a time; x86-64 Linux, with objdump.
Medians of 21 collectives, each after 2,000 at full speed, so what a few launches do on top (a gate, a
sampled duration) does not show; the plugin's own threads stand still meanwhile. A driver whose calls cost nothing stands in for CUDA's; neither its instructions nor
the caller's are counted. A taken jump is an instruction that is not followed by the next one in
memory, calls and returns among them. Lines are of 64 bytes; those of data are the explicit memory
operands of the plugin's own instructions, the stack left out.
"""

import bisect
import ctypes
import os
import re
import signal
import statistics
import subprocess
import sys

PLUGINS = (
    ("NCCL Pulse", "plugin/libnccl-profiler-pulse.so", {"NCCL_PULSE_LISTEN": "off"}),
    ("floor, asks", "bench/libfloor_plugin.so", {"FLOOR_PLUGIN_ASKS": "1"}),
    ("floor", "bench/libfloor_plugin.so", {}),
    ("empty", "bench/libempty_plugin.so", {}),
)
FIGURES = ("instructions", "taken jumps", "lines of code", "lines of data")
LINE = 64
STACK = 1 << 16  # above the stack pointer
BREAKPOINT = 0xCC

TRACEME, PEEKTEXT, CONT, SINGLESTEP, GETREGS, ATTACH, DETACH = 0, 1, 7, 9, 12, 16, 17
WALL = 0x40000000  # of waitpid: any thread
REGISTERS = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp "
             "ss fs_base gs_base ds es fs gs").split()

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def registers(pid):
  values = (ctypes.c_ulong * len(REGISTERS))()
  if libc.ptrace(GETREGS, pid, None, ctypes.addressof(values)) != 0:
    sys.exit("ptrace: " + os.strerror(ctypes.get_errno()))
  return dict(zip(REGISTERS, values, strict=True))


def resume(pid, how):
  """Goes on until the next stop, which must be a trap; False when the process has ended."""
  libc.ptrace(how, pid, None, None)
  _, status = os.waitpid(pid, 0)
  if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
    return False
  if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
    sys.exit("traced_collective ended with status %d" % status)
  return True


class Code:
  """One library's instructions: lengths, and where each finds its memory operand."""

  OPERAND = re.compile(r"(%fs:)?(-?0x[0-9a-f]+)?\((%\w+)?(?:,(%\w+),(\d))?\)|(%fs:)(0x[0-9a-f]+)")
  NO_ACCESS = re.compile(r"\b(lea|nop|prefetch)\w*")

  def __init__(self, library):
    listing = subprocess.run(["objdump", "-d", "-w", "--no-show-raw-insn", library], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    self.operands = {}
    for line in listing.splitlines():
      at, _, text = line.partition(":\t")
      if not text or self.NO_ACCESS.search(text):
        continue
      match = self.OPERAND.search(text.split("#")[0].split("<")[0])
      if match:
        self.operands[int(at, 16)] = match.groups()

  def address(self, at, following, state):
    """Of the data that the instruction `at` touches; None: none."""
    operand = self.operands.get(at)
    if operand is None:
      return None
    segment, displacement, base, index, scale, absolute_segment, absolute = operand
    address = int(absolute or displacement or "0", 16)
    if segment or absolute_segment:
      address += state["fs_base"]
    if base == "%rip":
      address += following
    elif base:
      address += state[base[1:]]
    if index:
      address += state[index[1:]] * int(scale)
    return address & (1 << 64) - 1


class Map:
  """Where the process has its files: [start, end, name], and each file's first address."""

  def __init__(self, pid):
    self.areas, self.first = [], {}
    with open("/proc/%d/maps" % pid, encoding="utf-8") as file:
      for line in file:
        fields = line.split()
        name = fields[5] if len(fields) > 5 else ""
        start, end = (int(part, 16) for part in fields[0].split("-"))
        self.areas.append((start, end, name))
        self.first.setdefault(name, start)

  def name(self, address):
    start, end, name = self.areas[bisect.bisect(self.areas, (address, 1 << 64)) - 1]
    return name if start <= address < end else ""


def step_through(pid, code, library):
  """The figures of the collective in front of which the process stands."""
  where = Map(pid)
  foreign = {os.readlink("/proc/%d/exe" % pid)}
  foreign |= {name for name in where.first if name.endswith("/libcuda.so.1")}
  base = where.first[library]
  instructions = jumps = 0
  lines, data = set(), set()
  state = registers(pid)
  while True:
    at = state["rip"]
    name = where.name(at)
    if name in foreign and libc.ptrace(PEEKTEXT, pid, at, None) & 0xFF == BREAKPOINT:
      resume(pid, SINGLESTEP)
      return instructions, jumps, len(lines), len(data)
    resume(pid, SINGLESTEP)
    following = registers(pid)
    if name not in foreign:
      instructions += 1
      lines.add(at // LINE)
      next_at = following["rip"]
      length = next_at - at
      jumped = not 0 < length <= 15 or is_short_jump(pid, at, length)
      jumps += jumped
      if name == library and not jumped:
        touched = code.address(at - base, next_at, state)
        if touched is not None and not -STACK < touched - state["rsp"] < STACK:
          data.add(touched // LINE)
    state = following


def is_short_jump(pid, at, length):
  """Whether an instruction whose successor lies up to 15 bytes ahead went there by a jump."""
  text = (libc.ptrace(PEEKTEXT, pid, at, None) & (1 << 64) - 1).to_bytes(8, "little")
  if 0x70 <= text[0] <= 0x7F or text[0] == 0xEB:
    return length != 2
  if text[0] == 0x0F and 0x80 <= text[1] <= 0x8F:
    return length != 6
  return text[0] in (0xE9, 0xE8) and length != 5


def count(program, library, settings):
  """The figures of every traced collective."""
  process = subprocess.Popen([program, library], env=dict(os.environ, **settings),
                             preexec_fn=lambda: libc.ptrace(TRACEME, 0, None, None))
  os.waitpid(process.pid, 0)  # stands at its first instruction
  code = Code(library)
  figures = []
  while resume(process.pid, CONT):
    # Steps take milliseconds. A poller that looks meanwhile would ask the next launch for a gate.
    threads = [int(name) for name in os.listdir("/proc/%d/task" % process.pid)]
    threads.remove(process.pid)
    for thread in threads:
      libc.ptrace(ATTACH, thread, None, None)
      os.waitpid(thread, WALL)
    figures.append(step_through(process.pid, code, library))
    for thread in threads:
      libc.ptrace(DETACH, thread, None, None)
  process.returncode = 0
  return figures


def main():
  if os.uname().machine != "x86_64":
    sys.exit("count_instructions needs an x86-64 processor")
  program = os.path.realpath("bench/traced_collective")
  print("| all callbacks of one eager collective | %s |" % " | ".join(FIGURES))
  print("|---|" + "---|" * len(FIGURES))
  for name, library, settings in PLUGINS:
    figures = count(program, os.path.realpath(library), settings)
    medians = [statistics.median(column) for column in zip(*figures, strict=True)]
    print("| %s | %s |" % (name, " | ".join("%d" % median for median in medians)), flush=True)


if __name__ == "__main__":
  main()
