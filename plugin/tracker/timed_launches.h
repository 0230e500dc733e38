// TimedLaunches attributes the durations of one communicator's timed launches to operations.
//
// A launch is timed with a pair of events (stream_timer.h). The calls that waited for the launch
// are stored with the pair. The duration counts for:
//
//   a single call   its operation and bytes: the launch's duration is the operation's
//   several calls   "Grouped", with the sum of the calls' bytes; once NCCL has reported operations
//                   of the launch, their sum instead, because a group can have several launches
//   a composite     (AlltoAll, Gather or Scatter, composite_call.h) as several calls; once NCCL has
//                   reported all of them, the composite operation, with the bytes of one part
//
// Attribution. NCCL reports an operation after its launch, sometimes long after (a CUDA host
// callback). Each sampled call gets a serial, which its ticket carries. NCCL passes that ticket on
// as the parent of the call's operation. If the launch with that serial was timed, the operation
// has a duration. The serials of the last kTimedPairs timed launches are kept. If NCCL reports an
// operation before its launch, the operation counts as not timed, so the launch must not be timed.
//
// Thread: as LaunchFollower; LoadOf also the poller, once the launch's stop has armed the pair
// (TimedPair::kArmed), which publishes the contents. Operations add to them microseconds after the
// launch, long before a poll.
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
  // The operation and the bytes under which a launch is counted.
  struct Load {
    OperationMeta meta;
    uint64_t bytes, bus_bytes;
    bool is_single;  // one operation; else several, or unknown ones
  };

  // Starts anew for a new communicator.
  void Reset() {
    for (auto& serial : timed_serials_) serial.store(0);
    grouped_launches_.store(0);
  }

  // Returns the serial of a sampled call, never 0.
  [[gnu::cold, gnu::noinline]] uint32_t NextSerial() {
    const uint32_t next = (serial_.load() + 1) & Ticket::kGenerationMask;
    serial_.store(next != 0 ? next : 1);
    return serial_.load();
  }
  uint32_t serial() const { return serial_.load(); }
  // Returns the meta data of a launch of several calls, sampled by `launches`, the number of the
  // communicator's earlier launches. Ranks whose launches carry the same calls sample the same
  // launches. NCCL may divide point-to-point plans differently on each rank
  // (exporter/diagnosis/facts/communicator_facts.h).
  OperationMeta NextGrouped(uint64_t launches) {
    const uint64_t groups = grouped_launches_.load();
    grouped_launches_.store(groups + 1);
    // Launches that include set-up are not timed.
    const uint64_t number = groups < Sampler::kUntimedFirstCalls ? 0 : launches;
    return {kGroupedName, 0, 0, false, static_cast<uint32_t>(number)};
  }
  // Returns the meta data of a separately launched part of a group, sampled by the number of such
  // launches.
  OperationMeta NextOfGroup() { return NextGrouped(grouped_launches_.load()); }

  // ---- the calls of a pair's launch ----

  // Stores the calls of a launch with its pair: their number, meta data and sums.
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
  // Adds an operation of the pair's launch, when NCCL reports it.
  void AddSeen(uint32_t pair, uint64_t bytes, uint64_t bus_bytes) {
    Carried& carried = carried_[pair];
    carried.seen_bytes.add(bytes);
    carried.seen_bus_bytes.add(bus_bytes);
    carried.seen.add(1);
  }
  // Returns the Load of the launch timed by `pair`.
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

  // Notes that the launch of this ungrouped call is timed.
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
  // Notes that NCCL has reported the operation of this call.
  void NoteReported(uint32_t serial) { reported_serial_.store(serial); }
  bool WasReportedLast(uint32_t serial) const { return reported_serial_.load() == serial; }
  // Takes back the last NoteTimed, because the launch is not made. Returns true if the operation
  // was already reported as timed. Otherwise it will be reported as not timed.
  bool Forget() {
    Relaxed<uint32_t>& timed = timed_serials_[(timed_calls_.load() - 1) % kTimedPairs];
    if (WasReportedLast(timed.load())) return true;
    timed.store(0);
    return false;
  }

 private:
  struct Carried {
    Relaxed<uint32_t> calls;  // number that waited for the launch
    // `meta`: OperationMeta of the last call; `bytes` and `bus_bytes`: sums over the calls.
    Relaxed<uint64_t> meta, bytes, bus_bytes;
    // Number and sums of the operations that NCCL reported for the launch.
    Relaxed<uint64_t> seen, seen_bytes, seen_bus_bytes;
  };

  Relaxed<uint64_t> grouped_launches_;
  // Serials number the sampled calls, as their tickets carry them (kGenerationBits).
  Relaxed<uint32_t> serial_;  // the last one
  // Serials of the last timed ungrouped calls, one per pair. A CUDA host callback may report an
  // operation long after its launch, but not after its pair was used again.
  Relaxed<uint32_t> timed_serials_[kTimedPairs];
  Relaxed<uint32_t> timed_calls_;  // their number; the last is at (timed_calls_ - 1) % kTimedPairs
  Relaxed<uint32_t> reported_serial_;  // last sampled operation that NCCL reported
  Carried carried_[kTimedPairs];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_TIMED_LAUNCHES_H_
