#include "exporter/node/gpu_use.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "exporter/base/patient_thread.h"
#include "exporter/diagnosis/facts/rank_activity.h"

namespace nccl_pulse {
namespace {

// NVML's types and numbers (nvml.h 13.0).
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
// NVML_GPU_UTILIZATION_SAMPLES, NVML_MEMORY_UTILIZATION_SAMPLES
constexpr int kOfKernels = 1, kOfMemory = 2;
using Device = void*;
struct Sample {
  unsigned long long time_us;  // Unix time
  unsigned value;
};
static_assert(sizeof(Sample) == 16 && offsetof(Sample, value) == 8);
struct ProcessInfo {  // nvmlProcessInfo_v2_t, which _v3 fills
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

constexpr unsigned kMostGpus = 64, kMostProcesses = 64;

constexpr std::size_t kMostSamples = 256;
constexpr int kLeastSamples = 10;  // two seconds
constexpr int64_t kAgainNs = 1000000000;
constexpr int64_t kStaleNs = 5000000000;  // an older answer no longer holds
constexpr int64_t kLeastWindowNs = 3000000000;
constexpr int64_t kKeptNs = 13000000000;  // period of the driver's samples, less one second
// After this time, kernels that still ran when the counter last moved have ended.
constexpr int64_t kEndsNs = 1000000000;
constexpr unsigned kIdlePercent = 5, kBusyPercent = 80, kMemoryPercent = 1;

}  // namespace

struct GpuUses::Nvml {
  int (*initialize)() = nullptr;
  int (*get_handle)(const char* uuid, Device* device) = nullptr;
  int (*get_samples)(Device device, int type, unsigned long long since_us, int* value_type,
                     unsigned* count, Sample* samples) = nullptr;
  int (*get_processes)(Device device, unsigned* count, void* processes) = nullptr;
  int (*get_count)(unsigned* count) = nullptr;
  int (*get_by_index)(unsigned index, Device* device) = nullptr;
  bool is_there = false, can_list = false;

  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
    if (library == nullptr) return;
    const auto find = [library](const char* name, auto* function) {
      *function = reinterpret_cast<std::decay_t<decltype(*function)>>(dlsym(library, name));
      return *function != nullptr;
    };
    is_there = find("nvmlInit_v2", &initialize) && find("nvmlDeviceGetHandleByUUID", &get_handle) &&
               find("nvmlDeviceGetSamples", &get_samples) &&
               find("nvmlDeviceGetComputeRunningProcesses_v3", &get_processes) &&
               initialize() == kSuccess;
    can_list = is_there && find("nvmlDeviceGetCount_v2", &get_count) &&
               find("nvmlDeviceGetHandleByIndex_v2", &get_by_index);
  }

  GpuUse Ask(const std::string& uuid, int64_t since_ns) const {
    Device device = nullptr;
    if (!is_there || get_handle(uuid.c_str(), &device) != kSuccess) return GpuUse::kUnknown;
    unsigned processes = 0;  // room in the result; NVML returns the actual number
    const int result = get_processes(device, &processes, nullptr);
    if (result != kSuccess && result != kInsufficientSize) return GpuUse::kUnknown;
    return processes > 1 ? GpuUse::kShared : UseOf(device, since_ns);
  }

  // Returns the use of the GPU by all processes together.
  GpuUse UseOf(Device device, int64_t since_ns) const {
    const Range kernels = RangeOf(device, kOfKernels, since_ns);
    if (kernels.count < kLeastSamples) return GpuUse::kUnknown;
    if (kernels.most <= kIdlePercent) return GpuUse::kIdle;
    if (kernels.least < kBusyPercent) return GpuUse::kMixed;
    const Range memory = RangeOf(device, kOfMemory, since_ns);
    if (memory.count < kLeastSamples) return GpuUse::kUnknown;
    return memory.most <= kMemoryPercent ? GpuUse::kBusy : GpuUse::kMixed;
  }

  // Empty if NVML does not answer.
  std::vector<UseSample> Samples(Device device, int of, int64_t since_ns) const {
    std::array<Sample, kMostSamples> samples{};
    unsigned count = kMostSamples;
    int value_type = 0;
    const auto since_us = static_cast<unsigned long long>(since_ns / 1000);
    std::vector<UseSample> found;
    if (get_samples(device, of, since_us, &value_type, &count, samples.data()) != kSuccess) {
      return found;
    }
    for (unsigned i = 0; i < std::min<unsigned>(count, kMostSamples); ++i) {
      if (samples[i].time_us < since_us) continue;
      found.push_back({static_cast<int64_t>(samples[i].time_us) * 1000, samples[i].value});
    }
    return found;
  }

  // By NVML's index.
  std::vector<std::pair<int, Device>> Devices() const {
    std::vector<std::pair<int, Device>> devices;
    unsigned count = 0;
    if (!can_list || get_count(&count) != kSuccess) return devices;
    for (unsigned i = 0; i < std::min(count, kMostGpus); ++i) {
      Device device = nullptr;
      if (get_by_index(i, &device) == kSuccess) devices.emplace_back(i, device);
    }
    return devices;
  }

  std::vector<int32_t> PidsOn(Device device) const {
    std::array<ProcessInfo, kMostProcesses> infos{};
    unsigned count = kMostProcesses;
    std::vector<int32_t> pids;
    if (get_processes(device, &count, infos.data()) != kSuccess) return pids;
    for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i) {
      pids.push_back(static_cast<int32_t>(infos[i].pid));
    }
    return pids;
  }

 private:
  struct Range {
    int count = 0;
    unsigned least = UINT32_MAX, most = 0;
  };
  Range RangeOf(Device device, int of, int64_t since_ns) const {
    Range range;
    for (const UseSample& sample : Samples(device, of, since_ns)) {
      ++range.count;
      range.least = std::min(range.least, sample.percent);
      range.most = std::max(range.most, sample.percent);
    }
    return range;
  }
};

// Shared with the thread that asks. `is_asking` orders it with the next one.
struct GpuUses::Loaded {
  std::atomic<bool> is_asking{false};
  std::unique_ptr<Nvml> nvml;  // null: not loaded yet
};

struct GpuUses::Query {
  struct Gpu {
    std::string uuid;
    int64_t since_ns;
    GpuUse use{};
  };
  int64_t asked_ns = 0;
  std::vector<Gpu> gpus;
  std::atomic<std::size_t> answered{0};  // published with their uses
  std::size_t taken = 0;                 // used by the owner
};

GpuUses::GpuUses() : loaded_(std::make_shared<Loaded>()) {}
GpuUses::~GpuUses() = default;

bool GpuUses::Ask(std::chrono::milliseconds patience, std::function<void(const Nvml&)> ask) {
  if (loaded_->is_asking.load(std::memory_order_acquire)) return false;
  loaded_->is_asking.store(true, std::memory_order_relaxed);  // the thread's start publishes it
  const int error = RunWithin(patience, [loaded = loaded_, ask = std::move(ask)] {
    if (loaded->nvml == nullptr) loaded->nvml = std::make_unique<Nvml>();
    ask(*loaded->nvml);
    loaded->is_asking.store(false, std::memory_order_release);
  });
  if (error == EAGAIN) loaded_->is_asking.store(false, std::memory_order_relaxed);
  return true;
}

void GpuUses::Renew(const std::map<std::string, int64_t>& since_ns, int64_t now_realtime_ns) {
  TakeAnswers();  // of a query that took longer than kPatience, before another replaces it
  const auto query = std::make_shared<Query>();
  query->asked_ns = now_realtime_ns;
  for (const auto& [uuid, since] : since_ns) {
    const int64_t asked_ns = answers_[uuid].asked_ns;
    if (asked_ns == 0 || ElapsedNs(now_realtime_ns, asked_ns) >= kAgainNs) {
      query->gpus.push_back({uuid, since});
    }
  }
  const auto ask = [query](const Nvml& nvml) {
    for (Query::Gpu& gpu : query->gpus) {
      gpu.use = nvml.Ask(gpu.uuid, gpu.since_ns);
      query->answered.fetch_add(1, std::memory_order_release);
    }
  };
  if (query->gpus.empty() || !Ask(kPatience, ask)) return;
  query_ = query;
  TakeAnswers();
}

void GpuUses::TakeAnswers() {
  if (query_ == nullptr) return;
  const std::size_t answered = query_->answered.load(std::memory_order_acquire);
  for (; query_->taken < answered; ++query_->taken) {
    const Query::Gpu& gpu = query_->gpus[query_->taken];
    Answer& answer = answers_[gpu.uuid];
    const int64_t seen_ns = std::max(gpu.since_ns, query_->asked_ns - kKeptNs);
    const bool is_continued = gpu.use == answer.use && seen_ns <= answer.asked_ns;
    answer = {query_->asked_ns, gpu.use, is_continued ? answer.since_ns : seen_ns};
  }
}

void GpuUses::Add(int64_t now_realtime_ns, SnapshotSet* set) {
  std::map<std::string, int64_t> since_ns;
  std::vector<std::pair<CommunicatorSnapshot*, int64_t>> stalled;  // and their thresholds
  for (ProcessSnapshot& process : set->processes) {
    const int64_t stalled_after_ns = process.hang_after_ns;
    if (process.end != ProcessEnd::kLive) continue;
    for (CommunicatorSnapshot& comm : process.communicators) {
      // Also asked without a counter: then only the GPU's use is known.
      const bool is_asked =
          comm.work.state != WorkState::kOff && comm.work.state != WorkState::kGone;
      if (comm.finalized || !comm.captured || !is_asked || comm.uuid.empty() ||
          ElapsedNs(now_realtime_ns, comm.work.moved_realtime_ns) < stalled_after_ns) {
        continue;
      }
      // An inference engine may have been idle for long before.
      since_ns.emplace(comm.uuid,
                       std::max(comm.work.moved_realtime_ns + kEndsNs,
                                now_realtime_ns - std::max(stalled_after_ns, kLeastWindowNs)));
      stalled.emplace_back(&comm, stalled_after_ns);
    }
  }
  if (stalled.empty()) return;
  Renew(since_ns, now_realtime_ns);
  for (const auto& [comm, stalled_after_ns] : stalled) {
    const Answer& answer = answers_[comm->uuid];
    if (answer.asked_ns == 0 || ElapsedNs(now_realtime_ns, answer.asked_ns) >= kStaleNs ||
        ElapsedNs(now_realtime_ns, answer.since_ns) < stalled_after_ns - kEndsNs) {
      continue;
    }
    comm->work.gpu_use = answer.use;
  }
}

std::vector<HostGpu> GpuUses::OfHost(int64_t since_realtime_ns) {
  const auto found = std::make_shared<std::vector<HostGpu>>();
  const bool has_asked = Ask(kHostPatience, [found, since_realtime_ns](const Nvml& nvml) {
    for (const auto& [index, device] : nvml.Devices()) {
      found->push_back({index, nvml.UseOf(device, since_realtime_ns), nvml.PidsOn(device)});
    }
  });
  // Acquire: sees the GPUs that the thread found. It writes no more.
  const bool is_late = loaded_->is_asking.load(std::memory_order_acquire);
  return has_asked && !is_late ? std::move(*found) : std::vector<HostGpu>();
}

std::vector<GpuSamples> GpuUses::SamplesOfHost() {
  const Nvml nvml;
  std::vector<GpuSamples> gpus;
  for (const auto& [index, device] : nvml.Devices()) {
    gpus.push_back({index, nvml.PidsOn(device), nvml.Samples(device, kOfKernels, 0),
                    nvml.Samples(device, kOfMemory, 0)});
  }
  return gpus;
}

}  // namespace nccl_pulse
