#include "tests/node/ways_to_end.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "plugin/abi/profiler_v5.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

constexpr int kThreads = 2;
// Enough to be sure that it is in its loop.
constexpr int kRounds = 200;
constexpr uint64_t kFirstCommId = 0xb0510000;

std::array<std::atomic<int>, kThreads + 1> g_rounds;

// Nothing of the test's own that exit() destroys.
void MakeCallbacks(NcclCommunicator* communicator, std::atomic<int>* rounds) {
  while (true) {
    communicator->RunWithProxy();
    rounds->fetch_add(1);
  }
}

void MakeCommunicators(std::atomic<int>* rounds) {
  static const auto* const kProfiler = &ProfilerOf<abi::v5::Profiler>(5);
  for (uint64_t id = kFirstCommId + 100;; ++id) {
    void* context = nullptr;
    static int mask = 0;  // the plugin may write it at any time
    kProfiler->init(&context, id, &mask, "brief", 1, 1, 0, nullptr);
    kProfiler->finalize(context);
    rounds->fetch_add(1);
  }
}

bool AllAreBusy() {
  for (int i = 0; i < kThreads; ++i) {
    if (g_rounds[i] < kRounds) return false;
  }
  return g_rounds[kThreads] > 0;
}

void CrashWithoutCore() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

}  // namespace

void Exec() {
  execl("/proc/self/exe", "node_process", getenv("RANK"), nullptr);
  abort();
}

void BeBusyThen(const std::string& how) {
  for (int i = 0; i < kThreads; ++i) {
    // Leaked: they are used until the last moment.
    auto* communicator = new NcclCommunicator(kFirstCommId + static_cast<uint64_t>(i));
    std::thread(MakeCallbacks, communicator, &g_rounds[i]).detach();
  }
  std::thread(MakeCommunicators, &g_rounds[kThreads]).detach();
  while (!AllAreBusy()) std::this_thread::yield();
  if (how == "stay") return;
  if (how == "exit") exit(7);
  if (how == "_exit") _exit(7);
  if (how == "quick_exit") quick_exit(7);
  if (how == "exec") Exec();
  CrashWithoutCore();
  if (how == "abort") abort();
  raise(SIGSEGV);
}

}  // namespace nccl_pulse
