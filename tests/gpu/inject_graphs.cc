#include "tests/gpu/inject_graphs.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace nccl_pulse {
namespace {

constexpr int kWarmSteps = 5;
constexpr uint64_t kBytes = 16 << 10;
constexpr uint64_t kForEverNs = 40'000'000'000;
constexpr std::chrono::milliseconds kPause(2);

[[noreturn]] void WaitForEver() {
  while (true) pause();
}

}  // namespace

GraphJob::GraphJob(const Api& api, const RankFlags& flags, const GraphOptions& options, Fail fail,
                   Say say)
    : api_(api),
      flags_(flags),
      options_(options),
      fail_(fail),
      say_(say),
      communicators_(api, flags, fail),
      spinner_(fail),
      held_(fail) {
  Check(api_.cudaStreamCreateWithFlags(&stream_, kStreamNonBlocking), "cudaStreamCreate");
  for (void** buffer : {&send_, &recv_}) {
    Check(api_.cudaMalloc(buffer, kBytes), "cudaMalloc");
    Check(api_.cudaMemsetAsync(*buffer, 0, kBytes, stream_), "cudaMemsetAsync");
  }
  // Loaded now: the driver may load a kernel when it is first launched, and not within a capture.
  held_.End();
  held_.Launch(stream_, 1);
  spinner_.Launch(stream_, 1);
  Synchronize();
}

void GraphJob::Train() {
  NcclComm train = communicators_.Get("train");
  for (NcclComm comm : {train, communicators_.Get("other")}) {
    for (int i = 0; i < kWarmSteps; ++i) AllReduce(comm);
  }
  Synchronize();
  CudaGraphExec exec = Capture(train, -1, 0);
  for (int step = 0; !has_fault_.load(); ++step) {
    Launch(exec, options_.ahead);
    Synchronize();
    if (step == kWarmSteps) {
      int version = 0;
      CheckNccl(api_.ncclGetVersion(&version), "ncclGetVersion");
      say_("running", ",\"nccl\":" + std::to_string(version));
    }
    std::this_thread::sleep_for(kPause);
  }
  say_("fault", ",\"fault\":\"" + fault_ + "\"");
  if (fault_ == "never") WaitForEver();
  if (fault_ == "kernel") spinner_.Launch(stream_, kForEverNs);
  if (fault_ == "held") held_.Hold();
  Launch(exec, options_.ahead);
  if (fault_ == "held") {
    while (!held_.IsHolding()) std::this_thread::sleep_for(kPause);
    say_("held", "");
  }
  Synchronize();
  say_("went_on", "");
  WaitForEver();
}

void GraphJob::BeLate(const std::string& control) {
  Control known{-1};
  CudaGraphExec exec = nullptr;
  for (int step = 0;; ++step) {
    const Control now = Agree(control);
    const bool is_late = now.rank == flags_.rank;
    if (now.number != known.number) {
      known = now;
      step = 0;
      NcclComm comm = communicators_.Get("case-" + std::to_string(now.number));
      for (int i = 0; i < kWarmSteps; ++i) AllReduce(comm);
      Synchronize();
      exec = Capture(comm, is_late ? now.call : -1, static_cast<uint64_t>(now.delay_ms * 1e6F));
    }
    std::this_thread::sleep_for(2 * kPause);
    if (is_late && now.call < 0) {
      std::this_thread::sleep_for(std::chrono::duration<float, std::milli>(now.delay_ms));
    }
    Launch(exec, 1);
    Synchronize();
    if (step == kWarmSteps) say_("case", ",\"case\":" + std::to_string(now.number));
  }
}

bool GraphJob::SetFault(const std::string& fault) {
  if (fault != "never" && fault != "kernel" && fault != "held") return false;
  fault_ = fault;
  has_fault_.store(true);
  return true;
}

void GraphJob::Check(CudaError error, const char* what) const {
  if (error != 0) fail_(std::string(what) + ": " + api_.cudaGetErrorString(error));
}

void GraphJob::CheckNccl(NcclResult result, const char* what) const {
  if (result == kNcclSuccess) return;
  fail_(std::string(what) + ": " + api_.ncclGetErrorString(result) + ", " +
        api_.ncclGetLastError(nullptr));
}

void GraphJob::Synchronize() const {
  Check(api_.cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void GraphJob::AllReduce(NcclComm comm) const {
  CheckNccl(api_.ncclAllReduce(send_, recv_, kBytes / 4, kFloat32, kSum, comm, stream_),
            "ncclAllReduce");
}

CudaGraphExec GraphJob::Capture(NcclComm comm, int late_at, uint64_t late_by_ns) {
  CudaGraph graph = nullptr;
  CudaGraphExec exec = nullptr;
  Check(api_.cudaStreamBeginCapture(stream_, kCaptureModeGlobal), "begin capture");
  for (int i = 0; i < options_.calls; ++i) {
    if (i == options_.hold_at) held_.Launch(stream_, kForEverNs);
    if (i == late_at) spinner_.Launch(stream_, late_by_ns);
    AllReduce(comm);
  }
  Check(api_.cudaStreamEndCapture(stream_, &graph), "end capture");
  Check(api_.cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate graph");
  return exec;
}

void GraphJob::Launch(CudaGraphExec exec, int times) const {
  for (int i = 0; i < times; ++i) Check(api_.cudaGraphLaunch(exec, stream_), "launch graph");
}

// What rank 0 reads, known to all. Nobody leaves before the last one has come, so that each step
// begins together.
GraphJob::Control GraphJob::Agree(const std::string& path) {
  Words mine{};
  if (flags_.rank == 0) {
    std::ifstream file(path);
    if (!(file >> mine[0] >> mine[1] >> mine[2] >> mine[3])) fail_("bad " + path);
  }
  Words all{};
  Check(api_.cudaMemcpyAsync(send_, mine.data(), sizeof(mine), kCopyDefault, stream_), "copy");
  CheckNccl(api_.ncclAllReduce(send_, recv_, mine.size(), kFloat32, kSum,
                               communicators_.Get("control"), stream_),
            "ncclAllReduce");
  Synchronize();
  Check(api_.cudaMemcpyAsync(all.data(), recv_, sizeof(all), kCopyDefault, stream_), "copy");
  Synchronize();
  return {static_cast<int>(all[0]), static_cast<int>(all[1]), all[2], static_cast<int>(all[3])};
}

}  // namespace nccl_pulse
