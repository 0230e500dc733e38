// The profiler plugin as NCCL uses it: which callbacks, in which order, on which threads. The facts
// are those recorded in tests/traces; what differs between releases is in release.h.
//
//   application's thread   GroupApi, CollApi, P2pApi
//   launching thread       KernelLaunch, Group, Coll, P2p: the application's, or a fresh one
//                          (non-blocking communicators), or CUDA's (replays of a graph)
//   progress thread        ProxyOp, KernelCh; one for each communicator
#ifndef TESTS_GPU_FAKE_PROFILER_H_
#define TESTS_GPU_FAKE_PROFILER_H_

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
#include "tests/gpu/fake/cuda.h"

namespace nccl_pulse::fake {

// A call of the user.
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

// One communicator's view of the plugin.
class Profiler {
 public:
  struct Identity {
    uint64_t comm_id;
    const char* name;
    int nnodes, nranks, rank;
    bool has_traffic;  // operations cross a network
  };
  explicit Profiler(const Identity& identity);
  ~Profiler();  // waits for the progress thread, then finalize
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void* StartGroup(bool captured, int depth);
  void StartEnd(void* group);  // the user's group ends, launches begin
  void StopGroup(void* group);
  void CallMade(void* group, Call* call);
  // Around it the kernel of these calls is enqueued.
  void Launch(void* group, Stream* stream, const std::vector<Call>& calls);
  // Coll, P2p and what follows on the progress thread.
  void Enqueue(const std::vector<Call>& calls);
  // Whether a replayed graph makes events, and then instead of the capture.
  bool sees_replays() const;

 private:
  bool Wants(uint32_t bits) const;
  void* Start(abi::v5::Descriptor* descriptor);
  void Stop(void* handle);
  void RunChildren(const Call& call, void* parent);
  void Progress();

  const Identity identity_;
  void* context_ = nullptr;
  std::map<std::string, uint64_t> sequence_;  // by function
  uint64_t gpu_ns_ = 1'700'000'000'000'000'000;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ended_ = false;
  std::thread progress_;
};

}  // namespace nccl_pulse::fake

#endif  // TESTS_GPU_FAKE_PROFILER_H_
