#include "tests/gpu/inject_graphs.h"

#include <chrono>
#include <fstream>
#include <thread>

namespace nccl_pulse {
namespace {

constexpr int kWarmSteps = 5;
constexpr uint64_t kBytes = 16 << 10;
constexpr uint64_t kForEverNs = 40'000'000'000;
constexpr std::chrono::milliseconds kPause(2);

}  // namespace

GraphJob::GraphJob(const RankFlags& flags, const GraphOptions& options)
    : flags_(flags), options_(options), buffers_(kBytes), communicators_(flags) {
  // Loaded now: the driver may load a kernel when it is first launched, and not within a capture.
  held_.End();
  held_.Launch(buffers_.stream(), 1);
  spinner_.Launch(buffers_.stream(), 1);
  buffers_.Synchronize();
}

void GraphJob::Train() {
  NcclComm train = communicators_.Get("train");
  for (NcclComm comm : {train, communicators_.Get("other")}) {
    for (int i = 0; i < kWarmSteps; ++i) AllReduce(comm);
  }
  buffers_.Synchronize();
  CudaGraphExec exec = Capture(train, -1, 0);
  for (int step = 0; !has_fault_.load(); ++step) {
    Launch(exec, options_.ahead);
    buffers_.Synchronize();
    if (step == kWarmSteps) {
      int version = 0;
      CheckNccl(g_api.ncclGetVersion(&version), "ncclGetVersion");
      Say("running", ",\"nccl\":" + std::to_string(version));
    }
    std::this_thread::sleep_for(kPause);
  }
  Say("fault", ",\"fault\":\"" + fault_ + "\"");
  if (fault_ == "never") WaitForEver();
  if (fault_ == "kernel") spinner_.Launch(buffers_.stream(), kForEverNs);
  if (fault_ == "held") held_.Hold();
  Launch(exec, options_.ahead);
  if (fault_ == "held") {
    while (!held_.IsHolding()) std::this_thread::sleep_for(kPause);
    Say("held");
  }
  buffers_.Synchronize();
  Say("went_on");
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
      buffers_.Synchronize();
      exec = Capture(comm, is_late ? now.call : -1, static_cast<uint64_t>(now.delay_ms * 1e6F));
    }
    std::this_thread::sleep_for(2 * kPause);
    if (is_late && now.call < 0) {
      std::this_thread::sleep_for(std::chrono::duration<float, std::milli>(now.delay_ms));
    }
    Launch(exec, 1);
    buffers_.Synchronize();
    if (step == kWarmSteps) Say("case", ",\"case\":" + std::to_string(now.number));
  }
}

bool GraphJob::SetFault(const std::string& fault) {
  if (fault != "never" && fault != "kernel" && fault != "held") return false;
  fault_ = fault;
  has_fault_.store(true);
  return true;
}

void GraphJob::AllReduce(NcclComm comm) const { buffers_.AllReduce(comm, kBytes); }

CudaGraphExec GraphJob::Capture(NcclComm comm, int late_at, uint64_t late_by_ns) {
  CudaGraph graph = nullptr;
  CudaGraphExec exec = nullptr;
  CheckCuda(g_api.cudaStreamBeginCapture(buffers_.stream(), kCaptureModeGlobal), "begin capture");
  for (int i = 0; i < options_.calls; ++i) {
    if (i == options_.hold_at) held_.Launch(buffers_.stream(), kForEverNs);
    if (i == late_at) spinner_.Launch(buffers_.stream(), late_by_ns);
    AllReduce(comm);
  }
  CheckCuda(g_api.cudaStreamEndCapture(buffers_.stream(), &graph), "end capture");
  CheckCuda(g_api.cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate graph");
  return exec;
}

void GraphJob::Launch(CudaGraphExec exec, int times) const {
  for (int i = 0; i < times; ++i)
    CheckCuda(g_api.cudaGraphLaunch(exec, buffers_.stream()), "launch graph");
}

// What rank 0 reads, known to all; each step begins together.
GraphJob::Control GraphJob::Agree(const std::string& path) {
  Words mine{};
  if (flags_.rank == 0) {
    std::ifstream file(path);
    if (!(file >> mine[0] >> mine[1] >> mine[2] >> mine[3])) Fail("bad " + path);
  }
  const Words all = buffers_.Sum(communicators_.Get("control"), mine);
  return {static_cast<int>(all[0]), static_cast<int>(all[1]), all[2], static_cast<int>(all[3])};
}

}  // namespace nccl_pulse
