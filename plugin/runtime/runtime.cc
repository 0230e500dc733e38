#include "plugin/runtime/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/http/server.h"
#include "exporter/node/handover.h"
#include "metrics/segment.h"
#include "metrics/segment_reader.h"
#include "metrics/shared_bytes.h"
#include "plugin/cuda/cuda_driver.h"
#include "plugin/runtime/api_version.h"
#include "plugin/runtime/event_masks.h"
#include "plugin/runtime/identity.h"
#include "plugin/runtime/log.h"
#include "plugin/runtime/poller.h"
#include "plugin/runtime/settings.h"
#include "plugin/runtime/version.h"
#include "plugin/tracker/clock.h"

namespace nccl_pulse {
namespace {

// The poller's pause: while launches are in flight, and at rest.
constexpr int kBusyPollMs = 20;
constexpr int kIdlePollMs = 100;
constexpr uint64_t kHousekeepingNs = 100000000;
constexpr uint64_t kAdaptSamplingNs = 1000000000;

// Everything of one process. Made once, never destroyed.
struct Process {
  Settings settings;
  Log log;
  Clock clock;
  std::unique_ptr<Segment> segment;
  std::unique_ptr<Tracker> tracker;
  EventMasks masks;
  std::unique_ptr<Server> server;  // null: switched off, or no address to listen on
  const CudaDriver* driver = nullptr;
  uint32_t versions = 0;         // of the API that were met: 1 << version
  uint64_t housekeeping_ns = 0;  // poller, when last; also the next two
  uint64_t adapted_ns = 0;
  bool mask_warning_given = false;
  bool memory_warning_given = false;
  bool heartbeat_warning_given = false;
  bool graphs_warning_given = false;
};

// Never destroyed either: init may be called while the process exits.
alignas(std::mutex) char g_mutex_storage[sizeof(std::mutex)];
std::mutex& Mutex() { return *std::launder(reinterpret_cast<std::mutex*>(g_mutex_storage)); }
[[maybe_unused]] std::mutex* const g_mutex_made = new (g_mutex_storage) std::mutex;
Process* g_process = nullptr;     // under the mutex
bool g_fork_handler_set = false;  // under the mutex
bool g_gave_up = false;           // under the mutex; init failed, nothing is measured

int64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

uint32_t MakeProcessTag() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != sizeof(bits)) {
    bits = Clock::MonotonicNs() ^ static_cast<uint64_t>(RealtimeNs());
  }
  bits ^= static_cast<uint64_t>(getpid()) << 32;
  bits *= 0x9e3779b97f4a7c15ULL;
  return static_cast<uint32_t>(bits >> 40);
}

void RenewTimes(Process& process) {
  SegmentHeader& header = process.segment->header();
  // Relaxed: each stands alone.
  header.realtime_offset_ns.store(RealtimeNs() - static_cast<int64_t>(Clock::MonotonicNs()),
                                  std::memory_order_relaxed);
  header.last_poll_monotonic_ns.store(process.clock.NowNs(), std::memory_order_relaxed);
}

// What finalized communicators hold is needed: as init would do, which may never come again.
void MakeRoom(Process& process) {
  if (!process.tracker->WantsRoom()) return;
  // Never waits for an init or finalize that another thread is in: they make room themselves.
  const std::unique_lock<std::mutex> lock(Mutex(), std::try_to_lock);
  if (lock.owns_lock()) process.tracker->MakeRoom();
}

void WatchNetwork(Process& process, uint64_t now_ns) {
  NetworkWindow& window = process.masks.window();
  window.Tick(now_ns, process.tracker->network_seen(),
              [&process] { return process.tracker->PrepareSteps(false); });
  // Relaxed: stands alone.
  process.segment->header().network_observed_ns.store(window.observed_ns(),
                                                      std::memory_order_relaxed);
}

// Whether NCCL's masks are still ours.
void WatchMasks(Process& process) {
  const MaskWatch::State state = process.masks.watch().Look();
  SegmentHeader& header = process.segment->header();
  // Relaxed: each stands alone.
  header.foreign_event_mask.store(state.foreign, std::memory_order_relaxed);
  header.event_mask_changes.store(state.changes, std::memory_order_relaxed);
  if (!state.is_new || process.mask_warning_given) return;
  process.mask_warning_given = true;
  try {
    // Not NCCL's logger: it is calling nobody.
    process.log.Warn(nullptr, DescribeMaskChange(state.ours, state.now));
  } catch (...) {
    // bad_alloc: the metrics say it, too.
  }
}

// ---- "pulse-poll". Only plain calls: nothing here throws. ----

void BeginPolling(void* argument) {
  Process& process = *static_cast<Process*>(argument);
  // A query of an event from this thread must not end another thread's stream capture in global
  // mode.
  if (process.driver != nullptr && process.settings.timing != TimingMode::kOff) {
    int mode = kCudaCaptureModeRelaxed;
    process.driver->exchange_capture_mode(&mode);
  }
}

int PollOnce(void* argument) {
  Process& process = *static_cast<Process*>(argument);
  const bool in_flight = process.tracker->PollLaunches();
  RenewTimes(process);
  const uint64_t now_ns = process.clock.NowNs();
  WatchMasks(process);
  WatchNetwork(process, now_ns);
  if (now_ns - process.housekeeping_ns >= kHousekeepingNs) {
    process.housekeeping_ns = now_ns;
    process.clock.Correct();
    process.tracker->SettleIdle();
    process.tracker->ExpectPages();
    MakeRoom(process);
  }
  process.tracker->KeepPagesReady(0);
  if (now_ns - process.adapted_ns >= kAdaptSamplingNs) {
    process.adapted_ns = now_ns;
    process.tracker->AdaptSampling();
  }
  return in_flight ? kBusyPollMs : kIdlePollMs;
}

// Nobody looks at what the GPU does: from the start, or from now on.
void LoseSight(void* argument) {
  Process& process = *static_cast<Process*>(argument);
  process.tracker->LoseSight();
  process.segment->header().poller_state.store(static_cast<uint32_t>(PollerState::kNotStarted),
                                               std::memory_order_relaxed);  // stands alone
}

bool FollowsStreams(const Process& process) {
  return process.driver != nullptr && process.tracker->has_sight();
}

// By the newest NCCL of the process: it gets the best that there is.
void WriteSources(Process& process, int api_version) {
  SegmentHeader& header = process.segment->header();
  const TimingMode timing = process.settings.timing;
  const bool follows = FollowsStreams(process);
  CopyToShared(header.duration_source, DurationSource(api_version, timing, follows));
  CopyToShared(header.completion_source, CompletionSourceName(api_version, timing, follows));
}

std::string Capabilities(const Process& process, int api_version) {
  const TimingMode timing = process.settings.timing;
  const bool follows = FollowsStreams(process);
  return absl::StrCat("profiler API v", api_version, ", timing ", TimingModeName(timing),
                      " (durations: ", DurationSource(api_version, timing, follows),
                      ", completions: ", CompletionSourceName(api_version, timing, follows),
                      "), event mask 0x", absl::Hex(process.masks.Of(api_version)));
}

void WriteProcessIdentity(const Process& process, int api_version) {
  SegmentHeader& header = process.segment->header();
  const ProcessIdentity identity = FindProcessIdentity();
  header.pid = getpid();
  header.pid_namespace = OwnPidNamespace();
  header.nccl_api_version = api_version;
  header.event_mask = process.masks.Of(api_version);
  header.start_realtime_ns = RealtimeNs();
  CopyToShared(header.plugin_version, kVersion);
  CopyToShared(header.timing, TimingModeName(process.settings.timing));
  CopyToShared(header.hostname, identity.hostname);
  CopyToShared(header.global_rank, identity.global_rank);
  CopyToShared(header.local_rank, identity.local_rank);
  CopyToShared(header.job_id, identity.job_id);
  CopyToShared(header.static_labels,
               absl::StrJoin(process.settings.labels, ",", absl::PairFormatter("=")));
}

// The parent's threads do not exist here, its memory and descriptors are not ours to use. Only what
// is async-signal-safe: other threads of the parent may have held any lock.
void ForgetAfterFork(std::atomic<Tracker*>* tracker) {
  tracker->store(nullptr, std::memory_order_relaxed);  // a child has one thread
  new (g_mutex_storage) std::mutex;
  Poller::ForgetAfterFork();
  Server::ResetAfterFork();
  if (g_process != nullptr) {
    if (g_process->server != nullptr) g_process->server->AbandonAfterFork();
    g_process->segment->AbandonAfterFork();
  }
  g_process = nullptr;  // leaked on purpose: freeing could need a lock
  g_gave_up = false;
}

std::unique_ptr<Process> MakeProcess(const InitArguments& arguments) {
  auto process = std::make_unique<Process>();
  std::vector<std::string> warnings;
  process->settings = ReadSettings(environ, &warnings);
  process->log.set_level(process->settings.log_level);
  if (process->settings.timing == TimingMode::kKernel && arguments.api_version < 4) {
    warnings.push_back(absl::StrCat(
        "NCCL_PULSE_TIMING=kernel needs GPU timestamps, which this NCCL (profiler API v",
        arguments.api_version, ") does not give; using auto"));
    process->settings.timing = TimingMode::kAuto;
  }
  process->clock.Initialize(process->settings.clock);
  if (process->settings.timing == TimingMode::kOff && process->settings.network_window_was_set) {
    warnings.emplace_back(
        "NCCL_PULSE_NETWORK_WINDOW needs another NCCL_PULSE_TIMING than off; using off");
  }
  process->masks.Configure(process->settings.timing, process->settings.network_window_percent,
                           static_cast<uint64_t>(RealtimeNs()) ^ static_cast<uint64_t>(getpid())
                                                                     << 32);

  std::string memory_warning;
  Segment::Options options;
  options.series_limit = process->settings.series_limit;
  process->segment = Segment::Create(options, &memory_warning);
  if (!memory_warning.empty()) warnings.push_back(memory_warning);
  for (const std::string& warning : warnings) process->log.Warn(arguments.logger, warning);
  if (process->segment == nullptr) return nullptr;

  process->driver = CudaDriver::Load();
  process->tracker = std::make_unique<Tracker>(
      *process->segment, process->clock, process->settings.timing,
      process->settings.timing == TimingMode::kOff ? nullptr : process->driver, getpid(),
      MakeProcessTag(), process->settings.timed_launches_per_second);
  if (process->settings.follow_graphs && process->driver != nullptr) {
    process->tracker->FollowGraphs(*process->driver);  // what comes of it is said with the first
  }
  if (process->masks.window().is_always() && !process->tracker->PrepareSteps(true)) {
    process->masks.WithoutSteps();
  }
  WriteProcessIdentity(*process, arguments.api_version);
  RenewTimes(*process);
  return process;
}

// What the endpoint shows of this process: its segment, read like anybody else's.
SnapshotSet ReadOwnSegment(const Segment& segment) {
  SnapshotSet set(std::vector<ProcessSnapshot>(1));
  std::string error;
  if (ReadSegment(segment.base(), segment.bytes(), &set.processes.front(), &error)) {
    set.server_labels = set.processes.front().static_labels;
    return set;
  }
  throw std::runtime_error("this process' own segment: " + error);
}

// "http://node17:9410/metrics"; a server on all interfaces is named by the host.
std::string MetricsUrl(const Server& server, const std::string& hostname) {
  const std::string& address = server.address();
  if (address.empty()) {
    return "the node's endpoint is not found yet: another line names it when it is";
  }
  if (absl::StartsWith(address, "unix:")) return address;
  const bool all_interfaces =
      absl::StartsWith(address, "[::]:") || absl::StartsWith(address, "0.0.0.0:");
  return all_interfaces ? absl::StrCat("http://", hostname, ":", server.port(), "/metrics")
                        : absl::StrCat("http://", address, "/metrics");
}

// Starts what runs beside the job, and says in one line what is measured and where to read it.
void StartServing(Process& process, const InitArguments& arguments) {
  const Settings& settings = process.settings;
  // Relaxed: stands alone. Before the thread, which may end it.
  process.segment->header().poller_state.store(static_cast<uint32_t>(PollerState::kRunning),
                                               std::memory_order_relaxed);
  if (!Poller::Start({BeginPolling, PollOnce, LoseSight, &process})) {
    LoseSight(&process);
    process.log.Warn(
        arguments.logger,
        "no background thread could be started: whether launches complete is not known, "
        "operations are settled only when their place is needed, and series beyond the first few "
        "are not measured");
  }
  WriteSources(process, arguments.api_version);
  std::string where = "metrics are not served (NCCL_PULSE_LISTEN=off)";
  if (settings.listen != "off") {
    ServerOptions options;
    options.listen_address = settings.listen;
    options.memory = process.segment->fd();
    options.service_directory = settings.file_sd_directory;
    options.exposition = settings.exposition;
    options.hang_after = std::chrono::seconds(settings.hang_seconds);
    options.source = [&process] { return ReadOwnSegment(*process.segment); };
    options.log = [&process](LogLevel level, const std::string& message) {
      // The server's own thread: NCCL's logger may be gone by then.
      if (level == LogLevel::kWarning) {
        process.log.Warn(nullptr, message);
      } else {
        process.log.Info(nullptr, message);
      }
    };
    std::string error;
    process.server = Server::Start(std::move(options), &error);
    if (process.server == nullptr) {
      process.log.Warn(arguments.logger, absl::StrCat("metrics can not be served: ", error));
      where = "metrics are not served";
    } else {
      where = MetricsUrl(*process.server, FindProcessIdentity().hostname);
    }
  }
  process.log.Info(arguments.logger,
                   absl::StrCat("version ", kVersion, ", ",
                                Capabilities(process, arguments.api_version), ", ", where));
}

// The first communicator of an NCCL of this version: what is not to be had from it is said once.
void MeetVersion(Process& process, const InitArguments& arguments) {
  const int version = arguments.api_version;
  const bool is_first = process.versions == 0;
  const bool is_newest = process.versions >> version == 0;
  process.versions |= 1u << version;
  const Settings& settings = process.settings;
  if (settings.network_window_was_set && settings.timing != TimingMode::kOff &&
      version < kFirstVersionWithNetworkSteps) {
    process.log.Warn(
        arguments.logger,
        absl::StrCat("NCCL_PULSE_NETWORK_WINDOW needs NCCL 2.28.3 or newer (this is profiler API v",
                     version, "); using off"));
  }
  if (is_first) return;
  if (is_newest) WriteSources(process, version);
  if (settings.timing == TimingMode::kKernel && version < kFirstVersionWithTimestamps) {
    process.log.Warn(
        arguments.logger,
        absl::StrCat("NCCL_PULSE_TIMING=kernel needs GPU timestamps, which a further NCCL of this "
                     "process (profiler API v",
                     version, ") does not give: its operations have no durations"));
  }
  process.log.Info(arguments.logger, absl::StrCat("a further NCCL in this process: ",
                                                  Capabilities(process, version)));
}

// Before the communicator: none of its captures can begin earlier.
void PrepareGraphs(Process& process, const InitArguments& arguments) {
  if (!process.settings.follow_graphs || process.tracker->FollowsGraphsHere() ||
      process.graphs_warning_given) {
    return;
  }
  process.graphs_warning_given = true;
  process.log.Warn(arguments.logger,
                   "NCCL_PULSE_GRAPHS=auto has no effect on a GPU of this process: its driver has "
                   "not what stamps in CUDA graphs need (CUDA 12.0 or newer and the translation of "
                   "PTX), or NCCL_PULSE_TIMING is off; replays are not followed");
}

// When the process ends by exit() or by returning from main: whoever keeps its numbers can tell
// that from a crash. Never waits for an init that another thread is in.
__attribute__((destructor)) void SayGoodbye() {
  const std::unique_lock<std::mutex> lock(Mutex(), std::try_to_lock);
  if (!lock.owns_lock() || g_process == nullptr || g_process->server == nullptr) return;
  g_process->server->SayGoodbye();
}

}  // namespace

std::atomic<Tracker*> Runtime::tracker_{nullptr};

void Runtime::Init(const InitArguments& arguments, void** context, int* event_mask) {
  if (context != nullptr) *context = nullptr;
  // Nothing may leave this function but a value: NCCL is C, and an error from init harms the job.
  try {
    const std::lock_guard<std::mutex> lock(Mutex());
    if (!g_fork_handler_set) {
      g_fork_handler_set = pthread_atfork(Server::PrepareFork, Server::ParentAfterFork,
                                          [] { ForgetAfterFork(&tracker_); }) == 0;
    }
    if (g_process == nullptr) {
      // Not tried again: the event mask of a process must not change, and one warning is enough.
      if (g_gave_up) return;
      g_gave_up = true;
      std::unique_ptr<Process> process = MakeProcess(arguments);
      if (process == nullptr) return;
      g_gave_up = false;
      g_process = process.release();
      // Before what may fail: communicators that come then must not look idle for want of it.
      tracker_.store(g_process->tracker.get(),
                     std::memory_order_release);  // callbacks see all of it
      StartServing(*g_process, arguments);
    }
    Process& process = *g_process;
    if ((process.versions >> arguments.api_version & 1) == 0) MeetVersion(process, arguments);
    process.masks.Write(arguments.api_version, event_mask);
    process.tracker->ExpectPages();
    PrepareGraphs(process, arguments);
    bool memory = process.tracker->KeepPagesReady(1);
    const GpuIdentity gpu = FindCurrentGpu(process.driver);
    const uint64_t ticket = process.tracker->AddCommunicator(
        {arguments.comm_id, arguments.comm_name, arguments.rank, arguments.nranks, arguments.nnodes,
         gpu.index.c_str(), gpu.uuid.c_str(), gpu.pci_bus_id.c_str(), RealtimeNs(),
         arguments.api_version, process.masks.Of(arguments.api_version)});
    if (ticket != 0) {
      try {
        process.masks.Attach(arguments.api_version, ticket, event_mask, process.clock.NowNs());
      } catch (...) {
        // NCCL would not know it, and so never call for it: it must not look idle.
        process.tracker->FinishCommunicator(ticket);
        throw;
      }
    }
    memory &= ticket != 0;
    if (!memory && !process.memory_warning_given) {
      process.memory_warning_given = true;
      process.log.Warn(
          arguments.logger,
          "no memory for a further communicator or its series (memory limit, or more than "
          "1024 communicators at a time): it is measured in part or not at all");
    }
    if (ticket != 0 && arguments.api_version >= kFirstVersionWithLaunches &&
        !process.heartbeat_warning_given && process.tracker->WantsHeartbeat() &&
        !process.tracker->HasHeartbeat(ticket)) {
      process.heartbeat_warning_given = true;
      process.log.Warn(
          arguments.logger,
          "no CUDA events for a communicator (no CUDA context is current, or the driver "
          "refused): it has no durations, and whether its launches complete is not known");
    }
    if (context != nullptr) *context = reinterpret_cast<void*>(ticket);  // NOLINT
  } catch (...) {
    // bad_alloc, most likely: the job goes on without measurements for this communicator.
  }
}

void Runtime::Finalize(void* context) {
  try {
    const std::lock_guard<std::mutex> lock(Mutex());
    if (g_process == nullptr || context == nullptr) return;
    g_process->masks.Detach(reinterpret_cast<uint64_t>(context), g_process->clock.NowNs());
    g_process->tracker->FinishCommunicator(reinterpret_cast<uint64_t>(context));
  } catch (...) {
  }
}

}  // namespace nccl_pulse
