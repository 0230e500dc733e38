"""The hangs that inject.py makes, and what the product has to say about each.

A case is right when the first verdict that a scraper sees on "train" (after a signal, or on "other")
is the expected one, names the expected ranks on the page and in the JSON, and comes in time.

    case           the fault, on one rank        verdict                named
    never          calls nothing any more        rank_not_called        that rank
    order          AllGather before AllReduce    mismatched_operations  that rank; of two both. It is on a side of
                                                                        its own, with what it called
    order-queued   the same, both enqueued       mismatched_operations  as order; that rank on a side of
                   before either is waited for                          its own, with its last call
    size           an AllReduce of another size  mismatched_operations  as order, with the sizes
    crossed        two communicators in another  rank_not_called        that rank, which waits in the
                   order                                                other communicator
    killed         SIGKILL, it does not serve    process_gone           that rank
    killed-node    the same, and 0.4 s later       process_gone           that rank alone
                   another rank, as by a launcher
    killed-server  SIGKILL, it serves the page   rank_not_seen          that rank
    stopped        SIGSTOP                       process_stopped        that rank
    kernel         a GPU kernel of its own that  rank_not_begun         that rank
                   does not end, before its
                   AllReduce on the same stream
    kernel-waited  the same, and it waits for    rank_not_called        that rank
                   the kernel before it calls
    broadcast-root calls nothing any more; the   rank_not_called        that rank, which is the root
                   others wait in a Broadcast
                   from it
    broadcast-held the same, but not the root:   rank_not_called        that rank; not the ranks that
                   the ranks before it in the                           wait in the Broadcast
                   ring are in the AllReduce
                   behind the Broadcast
    watchdog       calls nothing any more; another rank_not_called        that rank alone
                   rank aborts and ends while it
                   waits
    kernel-alone   none: a GPU runs a long kernel  none                   nobody
                   while no rank has work to do
    finalized      none: rank 0 finalizes after a  none                   nobody
                   Broadcast, and the others not
    run-ahead      none: all ranks have queued   none                   nobody; `pulse status` ends
                   an AllReduce behind work of                          with 4: no claim
                   their own GPUs that takes
                   longer than a hang would be
                   suspected after

With an agent no rank serves: killed-server is left out there. NCCL reports no launch of a Broadcast from
2.29.2 on (nccl_versions.py). The two cases are told alike all the same: the Broadcasts are followed.
"""

import dataclasses
import re
import typing

RANK = "rank"  # the one with the fault
FEWER = "fewer"  # the same, and of two ranks both: nobody can tell which is wrong
NOBODY = "nobody"


@dataclasses.dataclass
class Case:
    name: str
    verdict: str  # "": none
    named: str
    op: str = ""  # "": any
    # What the text must say, a regular expression; "RANK" is the rank.
    text: str = ""
    fault: str = ""  # inject_program's name of it, when that is another
    arguments: typing.Tuple[str, ...] = ()
    variants: typing.Tuple[str, ...] = ("server", "agent")
    rank_from_end: int = 0  # the rank with the fault, 1: the last one; 0: another one each time
    root: bool = False  # rank 0 has it
    gpus: int = 2  # at least
    # What may be said before: as long as one of two communicators has not stood for long enough to be
    # called a hang, nothing is known of a circle.
    at_first: str = ""
    environment: typing.Tuple[typing.Tuple[str, str], ...] = ()


# Known, not concluded from calls.
_WAITS = r"(?i:\branks?) [0-9, and]+ waits?( in [\w, ]+)?\."
_SIDE = r"(?i:\brank) RANK \(pid \d+[^)]*\) has called "

CASES = {case.name: case for case in (
    Case("never", "rank_not_called", RANK, "AllReduce"),
    Case("order", "mismatched_operations", FEWER, "AllGather,AllReduce", _SIDE + "AllGather"),
    Case("size", "mismatched_operations", FEWER, "AllReduce",
         _SIDE + r"AllReduce (of 1024 bytes|\(up to 4KiB\))"),
    Case("killed", "process_gone", RANK),
    Case("killed-node", "process_gone", RANK, variants=("agent",), gpus=3),
    Case("watchdog", "rank_not_called", RANK, fault="never", gpus=3),
    # Its work stands from the same moment on as its threads, so for a look it may be the work alone.
    Case("stopped", "process_stopped", RANK, at_first="no_progress"),
    Case("kernel", "rank_not_begun", RANK, "AllReduce"),
    Case("kernel-waited", "rank_not_called", RANK, "AllReduce", variants=("server",)),
    Case("killed-server", "rank_not_seen", RANK, variants=("server",)),
    Case("crossed", "rank_not_called", RANK, "AllReduce", at_first="blocked_elsewhere",
         variants=("server",), gpus=3),
    Case("order-queued", "mismatched_operations", FEWER, "AllGather,AllReduce",
         _SIDE + r"AllGather of \d+ bytes", fault="order",
         arguments=("--queued=1",), variants=("server",)),
    Case("broadcast-root", "rank_not_called", RANK, "Broadcast", _WAITS, fault="never",
         arguments=("--broadcast=0",), root=True),
    # From rank 0, in a ring of the ranks' numbers, as NCCL makes it on a host with NVSwitch.
    Case("broadcast-held", "rank_not_called", RANK, "", _WAITS, fault="never", arguments=("--broadcast=0",),
         variants=("server",), rank_from_end=2, gpus=3),
    Case("run-ahead", "", NOBODY, arguments=("--together=1",), variants=("server",), root=True),
    Case("kernel-alone", "", NOBODY, arguments=("--together=1",), root=True),
    Case("finalized", "", NOBODY, arguments=("--together=1",), root=True),
)}

SIGNALS = ("killed", "killed-node", "killed-server", "stopped")


def victim(case, wanted, server, gpus):
    """The rank that gets the fault: the wanted one, if it can show what the case is about."""
    if case.name == "killed-server":
        return server
    if case.root:
        return 0
    if case.rank_from_end:
        return gpus - case.rank_from_end
    # Stopped, the serving process answers nobody; killed, it is the case above.
    if case.name in SIGNALS and wanted == server:
        return (wanted + 1) % gpus
    return wanted


def judge(case, rank, gpus, verdict, suspects, page_suspects, op, text):
    """What is wrong with a verdict; "" when it is the expected one."""
    expected = [rank] if case.named == RANK or gpus > 2 else list(range(gpus))
    if case.named == NOBODY:
        expected = []
    wrong = []
    if verdict != case.verdict:
        wrong.append("verdict %s instead of %s" % (verdict, case.verdict))
    if suspects != expected:
        wrong.append("it names %s instead of %s" % (suspects, expected))
    if page_suspects != suspects:
        wrong.append("/metrics names %s" % page_suspects)
    if case.op and op != case.op:
        wrong.append("operation %s instead of %s" % (op, case.op))
    if case.text and not re.search(case.text.replace("RANK", str(rank)), text):
        wrong.append("the text does not say what it should (%s)" % case.text)
    return "; ".join(wrong)
