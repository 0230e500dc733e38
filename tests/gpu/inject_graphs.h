// The job of inject_program with its AllReduces in the replays of CUDA graphs.
#ifndef TESTS_GPU_INJECT_GRAPHS_H_
#define TESTS_GPU_INJECT_GRAPHS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"
#include "tests/gpu/spinner.h"

namespace nccl_pulse {

struct GraphOptions {
  int calls = 0;     // AllReduces of a graph; 0: no graphs
  int hold_at = -1;  // behind so many of them a kernel waits for its flag; -1: there is none
  int ahead = 1;     // replays that are launched before any is waited for
};

// Nothing is freed: the process is ended. Thread: all but SetFault on the program's one.
class GraphJob {
 public:
  GraphJob(const RankFlags& flags, const GraphOptions& options);

  // Replays of one graph on "train", until the fault has come.
  [[noreturn]] void Train();
  // Replays of a graph for each case of `control`, on a communicator of its own.
  [[noreturn]] void BeLate(const std::string& control);
  // What this rank has from its next step on: "never", "kernel" or "held". False: no such fault.
  // Any thread, once.
  bool SetFault(const std::string& fault);

 private:
  // One line of the file, the same on all ranks. `call` is the call in front of which the rank's
  // GPU is late; -1: its program launches late.
  struct Control {
    int number = 0;
    int rank = -1;
    float delay_ms = 0;
    int call = -1;
  };
  using Words = std::array<float, 4>;

  void AllReduce(NcclComm comm) const;
  // `late_by_ns` of work of this rank's own GPU stand in front of the call with number `late_at`.
  CudaGraphExec Capture(NcclComm comm, int late_at, uint64_t late_by_ns);
  void Launch(CudaGraphExec exec, int times) const;
  Control Agree(const std::string& path);

  const RankFlags& flags_;
  const GraphOptions options_;
  const Buffers buffers_;
  NamedCommunicators communicators_;
  Spinner spinner_;    // lasts as long as it is told to
  Spinner held_;       // in the graph: passed at once, unless it is held
  std::string fault_;  // written before has_fault_
  std::atomic<bool> has_fault_{false};
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_INJECT_GRAPHS_H_
