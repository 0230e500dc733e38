// Shows calls to whoever listens to NVTX (Nsight, Score-P, ...), as ranges in a domain "NCCL Pulse":
//
//   one call on dp                 GroupApi: from the call, or the first one of a group, until NCCL
//     AllReduce 25 MiB on dp       has launched it. Within: CollApi or P2pApi, what NCCL itself does
//                                  before. API v5 and later
//   AllReduce 25 MiB on dp         a mark, when NCCL enqueues it. API v1 to v4, without calls
//
// NCCL reports begin and end of these on the thread that calls (docs/nccl-profiler-api.md#threads,
// #order-of-the-events-of-an-operation), so a range is pushed and popped. The domain is our own:
// should NCCL leave out an end after an error, no range of the application is popped in its place.
//
// The tool's library is loaded with NCCL_PULSE_NVTX=on alone. Its functions run within the callback;
// what they do there (locks, memory) is the tool's.
//
// Thread: Load init; the rest any. Cost: a name in a buffer on the stack, and the tool's function.
// No allocation, no lock of ours. Errors: Load says why nobody listens.
#ifndef PLUGIN_TRACKER_CALL_RANGES_H_
#define PLUGIN_TRACKER_CALL_RANGES_H_

#include <cstdint>
#include <string>

#include "metrics/segment_layout.h"
#include "plugin/abi/nvtx.h"

namespace nccl_pulse {

class CallRanges {
 public:
  // Loads the library that NVTX_INJECTION64_PATH names; once in a process. "" when it listens.
  std::string Load();

  void PushGroup(bool is_one_call, const CommunicatorRecord& record) const;
  void PushCall(const char* op, uint64_t bytes, const CommunicatorRecord& record) const;
  void Pop() const { pop_(domain_); }
  void MarkCall(const char* op, uint64_t bytes, const CommunicatorRecord& record) const;

 private:
  void* domain_ = nullptr;
  abi::NvtxDomainMark mark_ = nullptr;  // the tool may have none
  abi::NvtxDomainPush push_ = nullptr;
  abi::NvtxDomainPop pop_ = nullptr;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_CALL_RANGES_H_
