// The answers for ncclPulseQuery_v1 (plugin/abi/pulse_query.h), by kind of call.
//
//   place     key       0 free; else the hash of communicator, operation and size class, for ever
//             sequence  odd while the background thread writes; 0: never written
//             fields
//
// Thread: Ask any; Renew the background thread alone. Cost of Ask: up to eight places are looked
// at, and it never tries again; of Renew: a snapshot, and a histogram's quantiles for each place in
// use.
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
  static constexpr std::size_t kPlaces = 256;

  // 0: there is no such operation.
  static uint64_t KeyOf(uint64_t comm_id, std::string_view op, int size_class);

  int Ask(uint64_t key, ncclPulseDurations_v1_t* durations);
  // Somebody has asked.
  bool is_used() const { return is_used_; }
  void Renew(const ProcessSnapshot& snapshot, int64_t now_realtime_ns);

 private:
  static constexpr std::size_t kProbes = 8, kFields = 8;
  struct Place {
    std::atomic<uint64_t> key{0};
    std::atomic<uint32_t> sequence{0};
    std::array<Relaxed<uint64_t>, kFields> fields;
  };

  Place* Find(uint64_t key);
  static void Write(const ncclPulseDurations_v1_t& durations, Place* place);

  Relaxed<bool> is_used_{false};
  std::array<Place, kPlaces> places_;
};

// The process'.
QueryTable& Queries();

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_QUERY_TABLE_H_
