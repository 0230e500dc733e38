#include "plugin/runtime/poll_work.h"

#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "metrics/header_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/shared_descriptor.h"
#include "metrics/snapshot.h"
#include "plugin/cuda/cuda_driver.h"
#include "plugin/runtime/init_lock.h"
#include "plugin/runtime/poller.h"
#include "plugin/runtime/query_table.h"

namespace nccl_pulse {
namespace {

// Pauses between rounds: kBusyPollMs while launches are in flight or a client is connected,
// otherwise kIdlePollMs.
constexpr int kBusyPollMs = 20;
constexpr int kIdlePollMs = 100;
// Rounds begin at multiples of these pauses, some microseconds sooner or later. The periods are
// half a pause shorter than 100 ms and 1 s, so that a due task is never late by a whole round.
constexpr uint64_t kHousekeepingNs = (100 - kBusyPollMs / 2) * uint64_t{1000000};
constexpr uint64_t kAdaptSamplingNs = (1000 - kBusyPollMs / 2) * uint64_t{1000000};

}  // namespace

void PollWork::Start(abi::DebugLogger logger) {
  control_.Open();
  // Stored before the thread starts, because the thread may store the end.
  HeaderWriter(*process_.segment).StorePollerState(PollerState::kRunning);
  const auto relax = [](void* work) { static_cast<PollWork*>(work)->RelaxCaptures(); };
  if (!Poller::Launches().Start(
          "pulse-poll",
          {relax, [](void* work) { return static_cast<PollWork*>(work)->Round(); },
           [](void* work) { static_cast<PollWork*>(work)->LoseSight(PollerState::kEnded); },
           this})) {
    control_.Close();  // no thread would answer
    LoseSight(PollerState::kNotStarted);
    process_.log.Warn(
        logger,
        "no background thread could be started (check the limit on threads): launches are not "
        "followed, and little is measured");
  }
  if (process_.tracker->follows_work() &&
      !Poller::Counters().Start(
          "pulse-work",
          {relax, [](void* work) { return static_cast<PollWork*>(work)->ReadCounters(); },
           [](void*) {}, this})) {
    process_.tracker->GiveUpWork();
    process_.log.Warn(
        logger,
        "no thread for NCCL's work counters could be started (check the limit on threads). "
        "CUDA graph replays are not counted");
  }
}

void PollWork::RelaxCaptures() {
  // This thread asks the driver. A query must not invalidate another thread's stream capture in
  // global mode.
  if (process_.driver != nullptr && process_.settings.timing != TimingMode::kOff) {
    int mode = kCudaCaptureModeRelaxed;
    process_.driver->exchange_capture_mode(&mode);
  }
}

int PollWork::Round() {
  const bool in_flight = process_.tracker->PollLaunches();
  process_.RenewTimes();
  const uint64_t now_ns = process_.clock.NowNs();
  MonitorMasks();
  WatchNetwork(now_ns);
  WatchDescriptors();
  if (now_ns - housekeeping_ns_ >= kHousekeepingNs) {
    housekeeping_ns_ = now_ns;
    process_.clock.Correct();
    process_.tracker->SettleIdle();
    process_.tracker->CountUnreported();
    process_.tracker->ExpectChunks();
    MakeRoom();
  }
  process_.tracker->KeepChunksReady(0);
  if (now_ns - adapted_ns_ >= kAdaptSamplingNs) {
    adapted_ns_ = now_ns;
    process_.tracker->AdaptSampling();
    RenewQueries();
  }
  const bool is_asked = control_.Round();
  return in_flight || is_asked ? kBusyPollMs : kIdlePollMs;
}

int PollWork::ReadCounters() {
  HeaderWriter(*process_.segment).StoreCountersRead(process_.clock.NowNs());
  const bool is_deciding = process_.tracker->PollWorkCounters();
  WarnOfRefuted();
  return is_deciding ? kBusyPollMs : kIdlePollMs;
}

// Records that no thread polls the GPU, from the start or from now on.
void PollWork::LoseSight(PollerState why) {
  process_.tracker->LoseSight();
  HeaderWriter(*process_.segment).StorePollerState(why);
}

// Recycles finalized communicators if their series are needed. Init also does that, but may never
// be called again.
void PollWork::MakeRoom() {
  if (!process_.tracker->WantsRoom()) return;
  // Never waits for an init or finalize of another thread: they make room themselves.
  const std::unique_lock<std::mutex> lock(InitLock::Mutex(), std::try_to_lock);
  if (lock.owns_lock()) process_.tracker->MakeRoom();
}

void PollWork::WatchNetwork(uint64_t now_ns) {
  NetworkWindow& window = process_.masks.window();
  window.Tick(now_ns, process_.tracker->network_seen(),
              [this] { return process_.tracker->PrepareSteps(false); });
  HeaderWriter(*process_.segment).StoreNetworkObserved(window.observed_ns());
}

// Checks whether NCCL's masks are still as we wrote them.
void PollWork::MonitorMasks() {
  const MaskMonitor::State state = process_.masks.monitor().Look();
  HeaderWriter(*process_.segment).StoreForeignMask(state.foreign, state.changes);
  if (!state.is_new || mask_warning_given_) return;
  mask_warning_given_ = true;
  try {
    // Not through NCCL's logger: NCCL is not calling now.
    process_.log.Warn(nullptr, DescribeMaskChange(state.ours, state.now));
  } catch (...) {
    // Most likely bad_alloc. The metrics also report it.
  }
}

// Warns when a work counter of NCCL contradicts the launches and is no longer used. Only the first
// few are logged.
void PollWork::WarnOfRefuted() {
  constexpr int kMostLines = 8;
  WorkRefutal refutal{};
  while (const Communicator* const communicator = process_.tracker->TakeRefuted(&refutal)) {
    if (counter_warnings_ == kMostLines) continue;
    ++counter_warnings_;
    try {
      process_.log.Warn(
          nullptr,
          absl::StrCat("CUDA graph replays may be missing on communicator ",
                       absl::Hex(communicator->record->comm_id.load(), absl::kZeroPad16), ", rank ",
                       communicator->rank.load(), ": its work counter is refuted, reason ",
                       WorkRefutalName(refutal), " (docs/work-counters.md)"));
    } catch (...) {
      // Most likely bad_alloc. The metrics also report it.
    }
  }
}

// Warns once if another part of the process has closed one of the plugin's descriptors. The plugin
// continues without the descriptor, or opens a new one.
void PollWork::WatchDescriptors() {
  if (descriptor_warning_given_) return;
  process_.segment->memory().get();  // detects a loss: this descriptor is rarely used
  if (SharedDescriptor::FirstLost() < 0) return;
  descriptor_warning_given_ = true;
  try {
    process_.log.Warn(
        nullptr,
        absl::StrCat("the program has closed descriptor ", SharedDescriptor::FirstLost(),
                     ", which belonged to NCCL Pulse. Metrics of this process may be missing for a "
                     "moment, or be served at another port"));
  } catch (...) {
    // Most likely bad_alloc.
  }
}

// Renews the answers of ncclPulseQuery_v1, if it has been used.
void PollWork::RenewQueries() {
  if (!Queries().is_used()) return;
  try {
    ProcessSnapshot snapshot;
    std::string error;
    const Segment& segment = *process_.segment;
    if (ReadSegment(segment.base(), segment.bytes(), &snapshot, &error)) {
      Queries().Renew(snapshot, RealtimeNs());
    }
  } catch (...) {
    // Most likely bad_alloc. The last answers stay.
  }
}

}  // namespace nccl_pulse
