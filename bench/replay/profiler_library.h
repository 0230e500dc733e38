// ProfilerLibrary calls a profiler plugin library as NCCL does, through one version of the API.
//
// NCCL's core has one internal form of events (the newest version's) and an adapter for each older
// version. Here, recorded events take the place of that form: the adapter for version N fills
// version N's descriptor like NCCL's adapter, including its oddities:
//
//   v5-v7    native; state arguments of the GroupApi states are NULL (2.28.9, which recorded the
//            traces)
//   v4       parentObj of Coll and P2p is the Group; the descriptor is not cleared, and
//            p2p.nChannels is never written: it holds garbage
//   v1-v3    parentObj as in v4; no identity of the communicator in init, and name NULL, commHash 0
//            in the descriptor; nMaxChannels holds the channels used; *eHandle is NULL before the
//            call; KernelCh without times; transSize always 0
//   v1       names as numbers; an unknown name becomes Send, PAT, SIMPLE or Float64
//
// Source: NCCL 2.30.7 src/plugin/profiler/profiler_v1.cc ... profiler_v6.cc; 2.31.2 profiler_v7.cc.
// Buffers are not recorded; descriptors carry an address that must not be read.
//
// Thread: any, as the plugin's own functions. Cost: filling a descriptor, and the call.
#ifndef BENCH_REPLAY_PROFILER_LIBRARY_H_
#define BENCH_REPLAY_PROFILER_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "bench/replay/trace.h"
#include "plugin/abi/common.h"

namespace nccl_pulse {

inline constexpr int kOldestApi = 1;
inline constexpr int kNewestApi = 7;

class ProfilerLibrary {
 public:
  // Loads `path` as NCCL does (RTLD_NOW | RTLD_LOCAL). `api`: 1 to 7, or 0 for the newest version
  // that the library exports, which is NCCL's choice. Unloads when destroyed. Returns null, with
  // kReplayNoLibrary or kReplayNoSymbol in `error`, on failure.
  static std::unique_ptr<ProfilerLibrary> Load(const std::string& path, int api,
                                               ReplayError* error);

  virtual ~ProfilerLibrary() = default;
  ProfilerLibrary(const ProfilerLibrary&) = delete;
  ProfilerLibrary& operator=(const ProfilerLibrary&) = delete;

  virtual int version() const = 0;

  // The five functions of the API. `comm_id` replaces the recorded ID, see driver.h.
  virtual int Init(void** context, int* mask, const TraceCommunicator& communicator,
                   uint64_t comm_id, abi::DebugLogger logger) = 0;
  virtual void Start(void* context, void** handle, const TraceEvent& event, void* parent,
                     void* parent_group, int32_t pid) = 0;
  virtual void Stop(void* handle) = 0;
  virtual void Record(void* handle, const TraceEvent& event) = 0;
  virtual void Finalize(void* context) = 0;

 protected:
  ProfilerLibrary() = default;
};

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_PROFILER_LIBRARY_H_
