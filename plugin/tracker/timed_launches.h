// Knows which of one communicator's launches are timed, what each of them stands for, and which
// operation has the duration.
//
// A launch is timed with a pair of events (stream_timer.h). The pair carries what was pending when
// it was launched:
//
//   a single call   its operation and bytes: the launch's duration is the operation's
//   several calls   their sum, until NCCL reports the operations that the launch really carries (it
//                   may be one of several of a group): then the sum of those
//   a composite     as several calls, unless NCCL reports all of them: then it is the operation,
//                   with the bytes of one part
//
// Attribution. NCCL reports an operation after its launch, sometimes long after (a CUDA host
// callback). A sampled call has a serial. Its ticket carries the serial, and its operation brings
// it back. If the launch with that serial was timed, the operation has a duration. The last serials
// are kept, as many as there are pairs. When NCCL reports an operation before its launch, it is
// counted as not timed, so its launch must not be timed either.
//
// Thread: as LaunchFollower; LoadOf also the poller, for a pair that is armed. What a pair carries
// is published when it is armed. What operations add later comes microseconds after the launch,
// long before a poll.
#ifndef PLUGIN_TRACKER_TIMED_LAUNCHES_H_
#define PLUGIN_TRACKER_TIMED_LAUNCHES_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/name_table.h"
#include "metrics/size_class.h"
#include "plugin/cuda/stream_timer.h"
#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/composite_call.h"
#include "plugin/tracker/operation_slot.h"
#include "plugin/tracker/sampler.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

class TimedLaunches {
 public:
  // What a launch stands for.
  struct Load {
    OperationMeta meta;
    uint64_t bytes, bus_bytes;
    bool is_single;  // else of several operations, or of none that is known
  };

  // A new communicator's.
  void Reset() {
    for (auto& serial : timed_serials_) serial.store(0);
    grouped_launches_.store(0);
  }

  // A call is sampled; its serial, never 0.
  [[gnu::cold, gnu::noinline]] uint32_t NextSerial() {
    const uint32_t next = (serial_.load() + 1) & Ticket::kGenerationMask;
    serial_.store(next != 0 ? next : 1);
    return serial_.load();
  }
  uint32_t serial() const { return serial_.load(); }
  // A launch of several, in front of which its communicator has made `launches`: sampled by that
  // number. Where each rank's launches carry the same, they agree on it; point-to-point plans may
  // be cut differently on each rank, so whoever compares must know (exporter/diagnosis/facts/exchange.h).
  OperationMeta NextGrouped(uint64_t launches) {
    const uint64_t groups = grouped_launches_.load();
    grouped_launches_.store(groups + 1);
    // Those that include set-up are not timed.
    const uint64_t number = groups < Sampler::kUntimedFirstCalls ? 0 : launches;
    return {kGroupedName, 0, 0, false, static_cast<uint32_t>(number)};
  }
  // A part of a group that is launched by itself: sampled by how many there were of all of these.
  OperationMeta NextOfGroup() { return NextGrouped(grouped_launches_.load()); }

  // ---- what a pair carries ----

  // `calls`: that are pending, `load` what they are.
  void Carry(uint32_t pair, uint32_t calls, OperationMeta meta, uint64_t bytes,
             uint64_t bus_bytes) {
    Carried& carried = carried_[pair];
    carried.calls.store(calls);
    carried.meta.store(meta.Pack());
    carried.bytes.store(bytes);
    carried.bus_bytes.store(bus_bytes);
    carried.seen.store(0);
    carried.seen_bytes.store(0);
    carried.seen_bus_bytes.store(0);
  }
  // NCCL reports an operation that the pair's launch carries.
  void AddSeen(uint32_t pair, uint64_t bytes, uint64_t bus_bytes) {
    Carried& carried = carried_[pair];
    carried.seen_bytes.add(bytes);
    carried.seen_bus_bytes.add(bus_bytes);
    carried.seen.add(1);
  }
  Load LoadOf(uint32_t pair) const {
    const Carried& carried = carried_[pair];
    Load load{OperationMeta::Unpack(carried.meta.load()), carried.bytes.load(),
              carried.bus_bytes.load(), carried.calls.load() == 1};
    if (load.is_single) return load;
    const uint32_t calls = carried.calls.load();
    if (CompositeCall::IsName(load.meta.op) && carried.seen.load() == calls) {
      load.bytes /= calls;
      load.bus_bytes = BusBytes(load.meta.op, load.bytes,
                                static_cast<int32_t>(CompositeCall::RanksOf(load.meta.op, calls)));
      return load;
    }
    if (carried.seen.load() > 0) {
      load.bytes = carried.seen_bytes.load();
      load.bus_bytes = carried.seen_bus_bytes.load();
    }
    load.meta = {kGroupedName, static_cast<uint8_t>(SizeClassOf(load.bytes)), 0, false,
                 load.meta.call_number};
    return load;
  }

  // ---- attribution ----

  // The launch of that call, alone, is timed.
  [[gnu::cold, gnu::noinline]] void NoteTimed(uint32_t serial) {
    const uint32_t number = timed_calls_.load();
    timed_serials_[number % kTimedPairs].store(serial);
    timed_calls_.store(number + 1);
  }
  [[gnu::cold, gnu::noinline]] bool WasTimed(uint32_t serial) const {
    for (const auto& timed : timed_serials_) {
      if (timed.load() == serial) return true;
    }
    return false;
  }
  // NCCL reports the operation of that call.
  void NoteReported(uint32_t serial) { reported_serial_.store(serial); }
  bool WasReportedLast(uint32_t serial) const { return reported_serial_.load() == serial; }
  // The launch that was noted as timed last is not made. True when its operation was reported
  // already, as one that is timed; else it will be as one that is not.
  bool Forget() {
    Relaxed<uint32_t>& timed = timed_serials_[(timed_calls_.load() - 1) % kTimedPairs];
    if (WasReportedLast(timed.load())) return true;
    timed.store(0);
    return false;
  }

 private:
  struct Carried {
    Relaxed<uint32_t> calls;  // that were pending when it was launched
    // Of the pending calls; the OperationMeta is that of the last of them.
    Relaxed<uint64_t> meta, bytes, bus_bytes;
    // Of the operations that the launch turned out to carry.
    Relaxed<uint64_t> seen, seen_bytes, seen_bus_bytes;
  };

  Relaxed<uint64_t> grouped_launches_;
  // Serials number the sampled calls, as their tickets carry them (kGenerationBits).
  Relaxed<uint32_t> serial_;  // of the last one
  // Of the calls that were timed alone last, so many as there are pairs: a CUDA host callback may
  // report an operation long after its launch, but not after its pair was used again.
  Relaxed<uint32_t> timed_serials_[kTimedPairs];
  Relaxed<uint32_t> timed_calls_;  // their number; the last is at (timed_calls_ - 1) % kTimedPairs
  Relaxed<uint32_t> reported_serial_;  // of the sampled operation that NCCL reported last
  Carried carried_[kTimedPairs];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_TIMED_LAUNCHES_H_
