#include "simulation/job.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "simulation/callbacks.h"

namespace nccl_pulse::simulation {
namespace {

constexpr int kFloat32 = 7;  // ncclDataType_t
constexpr uint64_t kMicrosecondNs = 1'000;
constexpr uint64_t kMillisecondNs = 1'000'000;
// The host runs this far ahead of its GPU.
constexpr uint64_t kAheadNs = 15 * kMillisecondNs;
constexpr uint64_t kLongestSleepNs = 20 * kMillisecondNs;

// Durations, roughly of H100s behind an NVSwitch: a latency, and a bus bandwidth that large
// messages approach.
constexpr double kLatencyNs = 14'000;
constexpr double kBusBytesPerNs = 360;

struct Collective {
  const char* func;
  size_t count;       // elements, as the user passes them
  double bus_bytes;   // for each rank, as nccl-tests counts them
  uint64_t ready_ns;  // after the step began
};

constexpr size_t kMiB = size_t{1} << 20;
constexpr Collective kForward[] = {
    {"AllGather", 2 * kMiB, 8.0 * kMiB, 10 * kMillisecondNs},
    {"ReduceScatter", 2 * kMiB, 8.0 * kMiB, 20 * kMillisecondNs},
    {"AllGather", 2 * kMiB, 8.0 * kMiB, 30 * kMillisecondNs},
    {"ReduceScatter", 2 * kMiB, 8.0 * kMiB, 40 * kMillisecondNs},
};
constexpr Collective kBackward[] = {
    {"AllReduce", 25 * kMiB / 4, 1.5 * 25 * kMiB, 60 * kMillisecondNs},
    {"AllReduce", 25 * kMiB / 4, 1.5 * 25 * kMiB, 75 * kMillisecondNs},
    {"AllReduce", 25 * kMiB / 4, 1.5 * 25 * kMiB, 90 * kMillisecondNs},
    {"AllReduce", 1, 1.5 * 4, 99 * kMillisecondNs},
};

// Returns a duration, equal on all ranks, up to 6 % above the minimum.
uint64_t DurationNs(const Collective& collective, uint64_t number) {
  const uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15U;
  const double more = 1 + 0.06 * static_cast<double>(mixed >> 40) / static_cast<double>(1 << 24);
  return static_cast<uint64_t>((kLatencyNs + collective.bus_bytes / kBusBytesPerNs) * more);
}

void SleepUntil(uint64_t time_ns, const std::atomic<bool>& stop) {
  for (uint64_t now_ns = MonotonicNs(); now_ns < time_ns && !stop.load(); now_ns = MonotonicNs()) {
    const auto pause_ns = static_cast<long>(std::min(time_ns - now_ns, kLongestSleepNs));
    const timespec pause = {0, pause_ns};
    nanosleep(&pause, nullptr);
  }
}

// A communicator and its stream, on one rank.
class Communicator {
 public:
  Communicator(const char* name, int rank, uint32_t ranks, SharedTimeline* shared)
      : name_(name),
        rank_(rank),
        ranks_(ranks),
        timeline_(std::make_shared<RankTimeline>(shared, ranks)) {
    stream_.timeline = timeline_;
  }

  // Destroys the previous one.
  void Make(uint64_t id, const Release& release) {
    profiler_.reset();
    profiler_ = std::make_unique<Profiler>(
        Profiler::Identity{id, name_, 1, static_cast<int>(ranks_), rank_, false}, release);
  }
  void Destroy() { profiler_.reset(); }

  void Call(const Collective& collective, uint64_t ready_ns) {
    // NCCL is called after the preceding computation was enqueued on the stream.
    timeline_->Compute(ready_ns);
    static char buffer;  // nothing is ever read from it
    simulation::Call call{collective.func, &buffer, &buffer, collective.count, kFloat32, 0,
                          false,           false,   &stream_};
    void* group = profiler_->StartGroup(false, 1);
    profiler_->CallMade(group, &call);
    profiler_->StartEnd(group);
    const std::vector<simulation::Call> calls = {call};
    const uint64_t duration_ns = DurationNs(collective, timeline_->enqueued());
    profiler_->Launch(group, &stream_, calls,
                      [this, duration_ns] { timeline_->Collective(duration_ns); });
    profiler_->Enqueue(calls);
    profiler_->StopGroup(group);
  }

  // Like cudaStreamSynchronize. Returns when the last collective ended, or 0 if stopped before.
  uint64_t Wait(const std::atomic<bool>& stop) const {
    while (!stop.load()) {
      const uint64_t end_ns = timeline_->LastEndNs();
      const uint64_t now_ns = MonotonicNs();
      if (end_ns != 0 && end_ns <= now_ns) return end_ns;
      SleepUntil(end_ns != 0 ? end_ns : now_ns + kMillisecondNs, stop);
    }
    return 0;
  }

 private:
  const char* const name_;
  const int rank_;
  const uint32_t ranks_;
  const std::shared_ptr<RankTimeline> timeline_;
  Stream stream_;
  std::unique_ptr<Profiler> profiler_;
};

class Rank {
 public:
  Rank(const JobOptions& options, int rank, SharedJob* shared, const std::atomic<bool>& stop)
      : rank_(rank),
        shared_(*shared),
        stop_(stop),
        dp_("dp", rank, kRanks, &shared->dp),
        tp_("tp", rank % 2, 2, &shared->tp[static_cast<size_t>(rank / 2)]) {
    release_.library = options.plugin.c_str();
    release_.logger = options.logger;
  }

  void Train() {
    uint32_t round = 0;
    Begin(round);
    uint64_t begin_ns = MonotonicNs();
    for (uint64_t step = 0; !stop_.load(); ++step) {
      Forward(begin_ns);
      Backward(begin_ns, step);
      begin_ns = dp_.Wait(stop_);
      const uint32_t next = shared_.round_of_step[(step + 1) % 4].load();
      if (begin_ns == 0 || next == round) continue;
      round = next;
      Begin(round);
      begin_ns = MonotonicNs();
    }
    dp_.Destroy();
    tp_.Destroy();
  }

 private:
  void Begin(uint32_t round) {
    // Like NCCL's id: a hash, equal on all ranks, and new in every run.
    const uint64_t job = (static_cast<uint64_t>(getppid()) << 20 | round) * 0x9e3779b97f4a7c15U;
    dp_.Make(job ^ 1, release_);
    tp_.Make(job ^ static_cast<uint64_t>(2 + rank_ / 2), release_);
  }

  // Returns a few microseconds: no two GPUs are equal.
  uint64_t Jitter() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 33) % (8 * kMicrosecondNs);
  }

  void Forward(uint64_t begin_ns) {
    for (const Collective& collective : kForward) {
      const uint64_t ready_ns = begin_ns + collective.ready_ns + Jitter();
      SleepUntil(ready_ns - kAheadNs, stop_);
      if (stop_.load()) return;
      tp_.Call(collective, ready_ns);
    }
  }

  void Backward(uint64_t begin_ns, uint64_t step) {
    uint64_t late_ns = shared_.late_rank.load() == rank_ ? shared_.late_ns.load() : 0;
    for (const Collective& collective : kBackward) {
      const uint64_t ready_ns = begin_ns + collective.ready_ns + late_ns + Jitter();
      SleepUntil(ready_ns - kAheadNs, stop_);
      while (shared_.silent_rank.load() == rank_ && !stop_.load()) {
        SleepUntil(MonotonicNs() + kLongestSleepNs, stop_);
      }
      if (stop_.load()) return;
      const bool is_last = &collective == std::end(kBackward) - 1;
      // All ranks see it before they leave this collective. They are never two steps apart.
      if (rank_ == 0 && is_last) shared_.round_of_step[(step + 1) % 4].store(shared_.round.load());
      dp_.Call(collective, ready_ns);
    }
  }

  const int rank_;
  SharedJob& shared_;
  const std::atomic<bool>& stop_;
  Release release_;
  Communicator dp_;
  Communicator tp_;
  uint64_t state_ = static_cast<uint64_t>(rank_) + 1;
};

bool LoadDriver(const JobOptions& options, int rank) {
  // Never unloaded: the plugin's threads use it. From now on the plugin finds this driver by its
  // own name.
  void* driver = dlopen(options.driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* set_device = driver == nullptr ? nullptr
                                       : reinterpret_cast<decltype(&pulseSimulatedDevice)>(
                                             dlsym(driver, "pulseSimulatedDevice"));
  if (set_device == nullptr) {
    options.logger(abi::kLogWarn, 0, "", 0, "no simulated GPU: %s", dlerror());
    return false;
  }
  set_device(rank);
  return true;
}

bool LoadPlugin(const JobOptions& options) {
  void* plugin = dlopen(options.plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin != nullptr && dlsym(plugin, "ncclProfiler_v5") != nullptr) return true;
  options.logger(abi::kLogWarn, 0, "", 0, "no profiler plugin: %s", dlerror());
  return false;
}

}  // namespace

bool RunRank(const JobOptions& options, int rank, SharedJob* shared,
             const std::atomic<bool>& stop) {
  if (!LoadDriver(options, rank) || !LoadPlugin(options)) return false;
  Rank(options, rank, shared, stop).Train();
  return true;
}

}  // namespace nccl_pulse::simulation
