// QueryTable holds the durations that ncclPulseQuery_v1 (plugin/abi/pulse_query.h) returns, by kind
// of call. It is a hash table of fixed size with a sequence lock per slot:
//
//   slot  key       0: free; else the hash of communicator, operation and size class; then fixed
//         sequence  odd while the background thread writes; 0: never written
//         fields
//
// Thread: Ask any; Renew only the background thread. Cost of Ask: up to eight slots, no retry.
// Cost of Renew: a snapshot, and a histogram's quantiles per used slot.
#ifndef PLUGIN_RUNTIME_QUERY_TABLE_H_
#define PLUGIN_RUNTIME_QUERY_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "metrics/atomic_cell.h"
#include "metrics/snapshot.h"
#include "plugin/abi/pulse_query.h"

namespace nccl_pulse {

class QueryTable {
 public:
  static constexpr std::size_t kSlots = 256;

  // Returns the key of a kind of call; 0 if `op` cannot be queried (pulse_query.h).
  static uint64_t KeyOf(uint64_t comm_id, std::string_view op, int size_class);

  // Stores the answer in `durations`. Takes a slot for a new key. Returns a code of pulse_query.h.
  int Ask(uint64_t key, ncclPulseDurations_v1_t* durations);
  // True once Ask was called.
  bool is_used() const { return is_used_; }
  // Computes the answers of all used slots from a snapshot of this process.
  void Renew(const ProcessSnapshot& snapshot, int64_t now_realtime_ns);

 private:
  static constexpr std::size_t kProbes = 8, kFields = 8;
  struct Slot {
    std::atomic<uint64_t> key{0};
    std::atomic<uint32_t> sequence{0};
    std::array<Relaxed<uint64_t>, kFields> fields;
  };

  Slot* Find(uint64_t key);
  static void Write(const ncclPulseDurations_v1_t& durations, Slot* slot);

  Relaxed<bool> is_used_{false};
  std::array<Slot, kSlots> slots_;
};

// Returns the process' only table.
QueryTable& Queries();

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_QUERY_TABLE_H_
