// Profiler calls the profiler plugin as NCCL 2.27.3 and newer do, without NCCL: the same callbacks,
// in the same order, on the same threads. Source: the traces in tests/traces, of NCCL 2.28.9.
//
//   application's thread   GroupApi, CollApi, P2pApi
//   launching thread       KernelLaunch, Group, Coll, P2p: the application's, or a fresh one
//                          (non-blocking communicators), or CUDA's (replays of a graph)
//   progress thread        ProxyOp, KernelCh; one per communicator
#ifndef SIMULATION_CALLBACKS_H_
#define SIMULATION_CALLBACKS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "plugin/abi/profiler_v5.h"
#include "simulation/stream.h"

namespace nccl_pulse::simulation {

// A user's call.
struct Call {
  const char* func;
  const void* send;
  void* recv;
  size_t count;
  int datatype;
  int root_or_peer;
  bool is_p2p;
  bool captured;
  void* stream;
  void* api_handle = nullptr;  // CollApi or P2pApi
};

// The NCCL release to simulate, the same for all communicators of a process.
struct Release {
  int newest_api = 5;  // 4 at least
  // True if a Broadcast makes events below its API call.
  bool reports_broadcast = true;
  const char* library = nullptr;  // the plugin's path; null: none
  abi::DebugLogger logger = nullptr;
};

// One communicator's connection to the plugin. Errors: a library that does not load is one log
// line, as in NCCL.
class Profiler {
 public:
  struct Identity {
    uint64_t comm_id;
    const char* name;
    int nnodes, nranks, rank;
    bool has_traffic;  // operations cross a network
  };
  Profiler(const Identity& identity, const Release& release);
  ~Profiler();  // waits for the progress thread, then finalizes
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void* StartGroup(bool captured, int depth);
  void StartEnd(void* group);  // the user's group ends, launches begin
  void StopGroup(void* group);
  void CallMade(void* group, Call* call);
  // Makes the launch callbacks of these calls on `stream`, around `enqueue_kernel`.
  void Launch(void* group, Stream* stream, const std::vector<Call>& calls,
              const std::function<void()>& enqueue_kernel);
  // Makes Coll and P2p callbacks, and those on the progress thread.
  void Enqueue(const std::vector<Call>& calls);
  // True if replays of a graph make events, instead of its capture.
  bool sees_replays() const;
  // True if a plugin is loaded.
  bool is_loaded() const { return context_ != nullptr; }

 private:
  bool Wants(uint32_t bits) const;
  // True if calls and launches have events, as from API v5 on.
  bool ReportsCalls() const { return release_.newest_api >= 5; }
  void* Start(abi::v5::Descriptor* descriptor);
  void Stop(void* handle);
  bool IsReported(const Call& call) const;
  void RunChildren(const Call& call, void* parent);
  void Progress();

  const Identity identity_;
  const Release release_;
  void* context_ = nullptr;
  std::map<std::string, uint64_t> sequence_;  // by function
  uint64_t gpu_ns_ = 1'700'000'000'000'000'000;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ended_ = false;
  std::thread progress_;
};

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_CALLBACKS_H_
