// BusBytes computes the bytes that cross a rank's link. It follows nccl-tests (its
// doc/PERFORMANCE.md), so that bus bandwidths are comparable.
//
// Thread: pure. Cost: a few multiplications.
#ifndef PLUGIN_TRACKER_BUS_BYTES_H_
#define PLUGIN_TRACKER_BUS_BYTES_H_

#include <cstdint>

#include "metrics/name_table.h"

namespace nccl_pulse {

// `bytes`: as the user passed them, so per rank for AllGather and ReduceScatter, and per part for
// AlltoAll, Gather and Scatter.
inline uint64_t BusBytes(NameId op, uint64_t bytes, int32_t nranks) {
  const uint64_t n = nranks > 0 ? static_cast<uint64_t>(nranks) : 1;
  switch (op) {
    case kAllReduceName:  // 2 * (n - 1) / n of the bytes, in an order that does not overflow
      return bytes / n * 2 * (n - 1) + bytes % n * 2 * (n - 1) / n;
    case kAllGatherName:
    case kReduceScatterName:
    case kAlltoAllName:
    case kGatherName:
    case kScatterName:
      return bytes * (n - 1);
    default:  // Broadcast, Reduce, Send, Recv
      return bytes;
  }
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_BUS_BYTES_H_
