// InflightOperations finds the age of the oldest operation in flight if launches have no CUDA
// events: without a CUDA driver (also RCCL), before API v5, or after the driver has failed.
//
// An operation is in flight from its enqueue:
//   by the network   while one of its ProxyOps has started and not stopped. NCCL starts them within
//                    milliseconds of the enqueue, long before the GPU reaches it, so operations
//                    that wait behind others are also seen. Operations without network traffic are
//                    not.
//   by the kernel    (kernel timing) until all its channels have stopped. Untimed operations are
//                    not seen.
//
// Left out, because their end is not visible:
//   - Operations whose channels NCCL does not report: CollNet, NVLS over several nodes, API v1 to
//     v3. For the first two NCCL starts ProxyOps and never stops them
//     (docs/nccl-profiler-api.md#network).
//   - All operations, until one of the communicator has been seen to end: copy-engine proxies
//     (NCCL_P2P_USE_CUDA_MEMCPY) never stop theirs either.
//   - An operation that was enqueued a second or more before another operation that has ended. NCCL
//     orders the launches of a communicator, and operations a second apart are not of one launch.
//     So the older operation has ended too, and its last event is missing.
//
// Thread: the background thread. Cost: reads each slot of the ring, about 2 us.
#ifndef PLUGIN_TRACKER_INFLIGHT_OPERATIONS_H_
#define PLUGIN_TRACKER_INFLIGHT_OPERATIONS_H_

#include <cstdint>

namespace nccl_pulse {

class OperationRing;

// One per communicator. All-zero memory is the initial state.
class InflightOperations {
 public:
  // Polls the operations. Forgets all earlier polls if `record_generation` has changed: then
  // another communicator uses this object. `by_kernel`: kernel timing is on, see above.
  void Look(uint32_t record_generation, OperationRing& ring, bool by_kernel);
  // True once the end of an operation was seen. Ignore oldest_ns() before that.
  bool is_known() const { return ends_are_seen_; }
  // Returns the enqueue time of the oldest operation in flight; 0: none.
  uint64_t oldest_ns() const { return oldest_ns_; }

 private:
  uint32_t record_generation_;
  bool ends_are_seen_;         // the end of an operation was seen
  uint64_t newest_ended_ns_;   // enqueue time of the newest operation that has ended
  uint64_t oldest_operation_;  // number in the ring of the oldest operation in flight
  uint64_t oldest_ns_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_INFLIGHT_OPERATIONS_H_
