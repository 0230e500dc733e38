// A rank of a made-up training job: a process with the real plugin, on a simulated GPU. The ranks
// of a job share a file, which is their NCCL: it knows when all of them have come to a collective.
//
//   simulated_rank PLUGIN DRIVER FILE NODES GPUS RANK COMMUNICATORS BEHAVIOUR
//
// FILE: made if it is not there. COMMUNICATORS: a number of which their ids are made, the same on
// all ranks. BEHAVIOUR is that of this rank; what hangs begins when the first word of the file is
// not 0:
//   well       as the others
//   patient    the same, but the host waits for each collective
//   silent     does not call on "dp" any more
//   stuck      calls, but its GPU does not come to the launch
//   order, size  calls another operation on "dp", or the same with another size
//   circle     calls on "dp" before "tp", and waits for each collective
//   late_host  calls late on "dp", all the time
//   late_gpu   calls early, but its GPU comes late to the launches on "dp", all the time
//   prefetch   has a Broadcast on "tp" in each step: odd ranks post it ahead of the loss and do not wait for it,
//              even ranks call it when the loss is there
//   ahead      the same, of an odd rank; its host pauses once between the two
//   retried    calls once on "dp" in vain: NCCL reports the call and no launch; then as well
//   exits      is in exit() and does not come to its end
//   saves      its host writes a checkpoint at every third step; nothing goes wrong
//
//   step, 400 ms   2 times compute, AllGather on "tp": the ranks of a node
//                  compute, AllReduce on "dp": all ranks
//                  AllReduce of 4 bytes on "dp" (the loss); the host waits for it
//
// Ends on SIGTERM, and with the process that started it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulation/callbacks.h"
#include "simulation/timeline.h"

namespace nccl_pulse::simulation {
namespace {

constexpr int kFloat32 = 7;  // ncclDataType_t
constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr uint64_t kLateNs = 200 * kMillisecondNs;
constexpr uint64_t kAheadNs = 15 * kMillisecondNs;  // the host of its GPU
constexpr uint64_t kLookNs = 50 * kMillisecondNs;
constexpr uint64_t kPauseNs = 18'000 * kMillisecondNs;
constexpr uint64_t kSaveNs = 12'000 * kMillisecondNs;
constexpr int kStepsToSave = 3;
constexpr uint64_t kNeverNs = 3'600'000 * kMillisecondNs;
// Nobody is late because this machine is busy.
constexpr uint64_t kToleranceNs = 10'000 * kMillisecondNs;
constexpr int kMostNodes = 16;

struct SharedFile {
  std::atomic<uint32_t> is_wrong;
  SharedTimeline dp;
  std::array<SharedTimeline, kMostNodes> tp;
};

struct Collective {
  bool is_dp;
  const char* func;
  size_t count;
  uint64_t ready_ms;  // after the step began
};

constexpr size_t kMiB = size_t{1} << 20;
constexpr Collective kStep[] = {{false, "AllGather", 2 * kMiB, 40},
                                {false, "AllGather", 2 * kMiB, 80},
                                {true, "AllReduce", 16 * kMiB, 240},
                                {true, "AllReduce", 1, 390}};
constexpr uint64_t kDurationNs = kMillisecondNs / 2;

std::atomic<bool> g_stop{false};

void RequestStop(int /*signal*/) { g_stop.store(true); }

__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long /*flags*/,
                                               const char* /*file*/, int line, const char* format,
                                               ...) {
  if (level <= abi::kLogWarn) std::fprintf(stderr, "%s (line %d)\n", format, line);
}

void SleepUntil(uint64_t time_ns) {
  for (uint64_t now_ns = MonotonicNs(); now_ns < time_ns && !g_stop.load();
       now_ns = MonotonicNs()) {
    const timespec pause = {0, static_cast<long>(std::min(time_ns - now_ns, kLookNs))};
    nanosleep(&pause, nullptr);
  }
}

void SleepUntilStopped() {
  while (!g_stop.load()) SleepUntil(MonotonicNs() + kLookNs);
}

enum class Outcome { kArrives, kStalls };

class Communicator {
 public:
  Communicator(const char* name, uint64_t id, int nodes, int rank, int ranks,
               SharedTimeline* shared, const Release& release)
      : timeline_(
            std::make_shared<RankTimeline>(shared, static_cast<uint32_t>(ranks), kToleranceNs)),
        profiler_({id, name, nodes, ranks, rank, false}, release) {
    stream_.timeline = timeline_;
  }

  void Call(const char* func, size_t count, uint64_t ready_ns, Outcome outcome) {
    timeline_->Compute(ready_ns);
    static char buffer;  // nothing is ever read from it
    simulation::Call call{func, &buffer, &buffer, count, kFloat32, 0, false, false, &stream_};
    void* group = profiler_.StartGroup(false, 1);
    profiler_.CallMade(group, &call);
    profiler_.StartEnd(group);
    const std::vector<simulation::Call> calls = {call};
    profiler_.Launch(group, &stream_, calls, [this, outcome] {
      outcome == Outcome::kArrives ? timeline_->Collective(kDurationNs) : timeline_->Stall();
    });
    profiler_.Enqueue(calls);
    profiler_.StopGroup(group);
  }

  // NCCL refuses the call, or only estimates it.
  void CallInVain(const char* func, size_t count) {
    static char buffer;
    simulation::Call call{func, &buffer, &buffer, count, kFloat32, 0, false, false, &stream_};
    void* group = profiler_.StartGroup(false, 1);
    profiler_.CallMade(group, &call);
    profiler_.StartEnd(group);
    profiler_.StopGroup(group);
  }

  // Until the last collective has ended. Returns when that was.
  uint64_t Wait() const {
    while (!g_stop.load()) {
      const uint64_t end_ns = timeline_->LastEndNs();
      const uint64_t now_ns = MonotonicNs();
      if (end_ns != 0 && end_ns <= now_ns) return end_ns;
      SleepUntil(end_ns != 0 ? std::min(end_ns, now_ns + kLookNs) : now_ns + 5 * kMillisecondNs);
    }
    return 0;
  }

 private:
  const std::shared_ptr<RankTimeline> timeline_;
  Stream stream_;
  Profiler profiler_;
};

class Rank {
 public:
  Rank(const std::string& behaviour, bool is_odd, SharedFile* shared, Communicator* tp,
       Communicator* dp)
      : behaviour_(behaviour), is_odd_(is_odd), shared_(*shared), tp_(*tp), dp_(*dp) {}

  void Train() {
    uint64_t begin_ns = MonotonicNs();
    while (!g_stop.load()) {
      if (Is("circle") && IsWrong()) {
        dp_.Call("AllReduce", kStep[2].count, MonotonicNs(), Outcome::kArrives);
        dp_.Wait();
      }
      for (const Collective& each : kStep) {
        if (IsPrefetching() && is_odd_ && each.count == 1) PostAhead();
        Call(each, begin_ns);
        if (g_stop.load()) return;
      }
      begin_ns = dp_.Wait();
      if (IsPrefetching() && !is_odd_) {
        tp_.Call("Broadcast", kMiB, MonotonicNs(), Outcome::kArrives);
      }
      if (Is("saves") && ++steps_ % kStepsToSave == 0) {
        SleepUntil(begin_ns + kSaveNs);
        begin_ns = MonotonicNs();
      }
      if (Is("exits") && IsWrong()) return;
    }
  }

 private:
  bool Is(const char* behaviour) const { return behaviour_ == behaviour; }
  bool IsPrefetching() const { return Is("prefetch") || Is("ahead"); }
  bool IsWrong() const { return shared_.is_wrong.load() != 0; }

  void PostAhead() {
    tp_.Call("Broadcast", kMiB, MonotonicNs(), Outcome::kArrives);
    if (Is("ahead") && IsWrong() && !std::exchange(has_paused_, true)) {
      SleepUntil(MonotonicNs() + kPauseNs);
    }
  }

  void Call(const Collective& each, uint64_t begin_ns) {
    const bool is_late = each.is_dp && (Is("late_host") || Is("late_gpu"));
    uint64_t ready_ns = begin_ns + each.ready_ms * kMillisecondNs + (is_late ? kLateNs : 0);
    SleepUntil(Is("late_gpu") ? begin_ns : ready_ns - kAheadNs);
    const char* func = each.func;
    size_t count = each.count;
    Outcome outcome = Outcome::kArrives;
    if (each.is_dp && IsWrong()) {
      if (Is("silent")) SleepUntilStopped();
      if (Is("retried") && !std::exchange(has_retried_, true)) dp_.CallInVain(func, count);
      if (Is("stuck")) ready_ns = MonotonicNs() + kNeverNs;
      if (Is("order")) func = "AllGather";
      // Of a size class in which it is seen: not the 4 bytes.
      const bool is_larger = Is("size") && each.count > 1;
      if (is_larger) count *= 64;
      if (Is("order") || is_larger) outcome = Outcome::kStalls;
    }
    if (g_stop.load()) return;
    Communicator& communicator = each.is_dp ? dp_ : tp_;
    communicator.Call(func, count, ready_ns, outcome);
    if (Is("patient") || Is("circle") || outcome == Outcome::kStalls) communicator.Wait();
  }

  const std::string behaviour_;
  const bool is_odd_;
  SharedFile& shared_;
  Communicator& tp_;
  Communicator& dp_;
  bool has_paused_ = false;
  bool has_retried_ = false;
  int steps_ = 0;
};

SharedFile* Map(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(SharedFile)) != 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(SharedFile), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<SharedFile*>(memory);
}

int Main(char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigaction(SIGTERM, &action, nullptr);
  // The plugin's own handlers are newer and run first.
  std::atexit(SleepUntilStopped);
  Release release;
  release.library = arguments[1];
  release.logger = Log;
  SharedFile* shared = Map(arguments[3]);
  const int nodes = std::atoi(arguments[4]);
  const int gpus = std::atoi(arguments[5]);
  const int rank = std::atoi(arguments[6]);
  const uint64_t id = std::strtoull(arguments[7], nullptr, 10) * 0x9e3779b97f4a7c15U;
  if (shared == nullptr || nodes < 1 || nodes > kMostNodes || gpus < 2) return EXIT_FAILURE;
  // Never unloaded. From now on the plugin finds this one by its own name.
  void* driver = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
  auto* set_device = driver == nullptr ? nullptr
                                       : reinterpret_cast<decltype(&pulseSimulatedDevice)>(
                                             dlsym(driver, "pulseSimulatedDevice"));
  if (set_device == nullptr) return EXIT_FAILURE;
  set_device(rank);
  const int node = rank / gpus;
  Communicator tp("tp", id ^ static_cast<uint64_t>(2 + node), 1, rank % gpus, gpus,
                  &shared->tp[static_cast<size_t>(node)], release);
  Communicator dp("dp", id ^ 1, nodes, rank, nodes * gpus, &shared->dp, release);
  Rank(arguments[8], rank % 2 == 1, shared, &tp, &dp).Train();
  if (!g_stop.load()) std::exit(EXIT_SUCCESS);  // as Python does: nothing is finalized
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace nccl_pulse::simulation

int main(int argc, char** argv) {
  if (argc == 9) return nccl_pulse::simulation::Main(argv);
  std::fprintf(stderr, "usage: see the top of the source\n");
  return EXIT_FAILURE;
}
