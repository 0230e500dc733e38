#include "plugin/runtime/runtime.h"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "exporter/base/version.h"
#include "exporter/endpoint/server.h"
#include "metrics/header_writer.h"
#include "plugin/runtime/api_version.h"
#include "plugin/runtime/endpoint.h"
#include "plugin/runtime/identity.h"
#include "plugin/runtime/init_lock.h"
#include "plugin/runtime/poll_work.h"
#include "plugin/runtime/poller.h"
#include "plugin/runtime/process.h"

namespace nccl_pulse {
namespace {

// The parts of one process, and the warnings logged so far. Made once, never destroyed.
struct Program {
  explicit Program(std::unique_ptr<Process> made)
      : process(std::move(made)), poll_work(process.get()) {}

  std::unique_ptr<Process> process;
  PollWork poll_work;
  Endpoint endpoint;
  uint32_t versions = 0;  // API versions seen so far, as bits 1 << version
  bool memory_warning_given = false;
  bool heartbeat_warning_given = false;
  bool graphs_line_given = false;
  bool user_tags_warning_given = false;
};

// The following variables are guarded by the lock of init.
Program* g_program = nullptr;
bool g_fork_handler_set = false;
bool g_gave_up = false;  // init failed, nothing is measured

// Resets the runtime in a forked child. The parent's threads do not exist in a child, and the
// child must not use the parent's memory and descriptors. Everything here is async-signal-safe:
// other threads of the parent may have held any lock.
void ForgetAfterFork(std::atomic<Tracker*>* tracker) {
  tracker->store(nullptr, std::memory_order_relaxed);  // a child has one thread
  InitLock::Reset();
  Poller::ForgetAfterFork();
  if (g_program != nullptr) g_program->process->segment->AbandonAfterFork();
  Server::ResetAfterFork();  // closes all other descriptors
  g_program = nullptr;       // leaked on purpose: freeing could need a lock
  g_gave_up = false;
}

// Starts the background thread and the endpoint. Logs one line that names the measurements and the
// address of the endpoint.
void StartServing(Program& program, const InitArguments& arguments) {
  Process& process = *program.process;
  program.poll_work.Start(arguments.logger);
  process.WriteSources(arguments.api_version);
  const std::string where = program.endpoint.Start(&process, arguments.logger);
  process.log.Info(arguments.logger,
                   absl::StrCat("version ", BuildVersion(), ", ",
                                process.Capabilities(arguments.api_version), ", ", where));
}

// Called for the first communicator of an NCCL version. Logs once which measurements that version
// lacks.
void MeetVersion(Program& program, const InitArguments& arguments) {
  Process& process = *program.process;
  const int version = arguments.api_version;
  const bool is_first = program.versions == 0;
  const bool is_newest = program.versions >> version == 0;
  program.versions |= 1u << version;
  const Settings& settings = process.settings;
  if (settings.network_window_was_set && settings.timing != TimingMode::kOff &&
      version < kFirstVersionWithNetworkSteps) {
    process.log.Warn(
        arguments.logger,
        absl::StrCat("NCCL_PULSE_NETWORK_WINDOW needs NCCL 2.28.3 or newer (this is profiler API v",
                     version, "); using off"));
  }
  if (settings.user_tags > 0 && version < kFirstVersionWithUserTags &&
      !program.user_tags_warning_given) {
    program.user_tags_warning_given = true;
    process.log.Warn(
        arguments.logger,
        absl::StrCat("NCCL_PULSE_USER_TAGS has no effect: tags need NCCL 2.31.2 or newer (this is "
                     "profiler API v",
                     version, ")"));
  }
  if (is_first) return;
  if (is_newest) process.WriteSources(version);
  if (settings.timing == TimingMode::kKernel && version < kFirstVersionWithTimestamps) {
    process.log.Warn(
        arguments.logger,
        absl::StrCat("NCCL_PULSE_TIMING=kernel needs NCCL 2.27.3 or later. Another NCCL in this "
                     "process (profiler API v",
                     version, ") has no durations"));
  }
  process.log.Info(arguments.logger,
                   absl::StrCat("another NCCL in this process: ", process.Capabilities(version)));
}

// Returns the communicator's ticket, or 0 if there is no room. `context_at`: where NCCL stores the
// profiler's context.
uint64_t AddCommunicator(Process& process, const InitArguments& arguments, const void* context_at,
                         int* event_mask) {
  const GpuIdentity gpu = FindCurrentGpu(process.driver);
  const uint64_t ticket = process.tracker->AddCommunicator(
      {arguments.comm_id, arguments.comm_name, arguments.rank, arguments.nranks, arguments.nnodes,
       gpu.index.c_str(), gpu.uuid.c_str(), gpu.pci_bus_id.c_str(), RealtimeNs(),
       arguments.api_version, process.masks.Of(arguments.api_version), context_at});
  if (ticket == 0) {
    HeaderWriter(*process.segment).CountUnmeasured();
    return 0;
  }
  try {
    process.masks.Attach(arguments.api_version, ticket, event_mask, process.clock.NowNs());
  } catch (...) {
    // NCCL would never make a callback for this communicator, so it would look idle.
    process.tracker->FinishCommunicator(ticket);
    throw;
  }
  return ticket;
}

void WarnOfMemory(Program& program, const InitArguments& arguments) {
  if (program.memory_warning_given) return;
  program.memory_warning_given = true;
  program.process->log.Warn(
      arguments.logger,
      "no memory for another communicator or its series (memory limit, or more than 1024 "
      "communicators). It is measured in part or not at all");
}

void WarnWithoutHeartbeat(Program& program, const InitArguments& arguments, uint64_t ticket) {
  const Tracker& tracker = *program.process->tracker;
  if (arguments.api_version < kFirstVersionWithLaunches || program.heartbeat_warning_given ||
      !tracker.WantsHeartbeat() || tracker.HasHeartbeat(ticket)) {
    return;
  }
  program.heartbeat_warning_given = true;
  program.process->log.Warn(
      arguments.logger,
      "no CUDA events for a communicator (no current CUDA context, or the driver refused). "
      "Hangs and durations are not reported for it");
}

// Prepares stamps for CUDA graphs (graph_stamps.h). Called before the communicator is added,
// because its captures can begin right after that.
void PrepareGraphs(Program& program, const InitArguments& arguments) {
  Process& process = *program.process;
  if (!process.settings.follow_graphs || process.tracker->graphs().PrepareContext() ||
      program.graphs_line_given) {
    return;
  }
  program.graphs_line_given = true;
  process.log.Info(
      arguments.logger,
      "replays of CUDA graphs are not followed: they need a CUDA driver 12.0 or newer with "
      "PTX translation, and NCCL_PULSE_TIMING other than off");
}

// Runs when the process ends by exit() or by returning from main, so that the node's server can
// tell a normal end from a crash. Never waits for an init in another thread.
__attribute__((destructor)) void SayGoodbye() {
  const std::unique_lock<std::mutex> lock(InitLock::Mutex(), std::try_to_lock);
  if (lock.owns_lock() && g_program != nullptr) g_program->endpoint.SayGoodbye();
}

}  // namespace

std::atomic<Tracker*> Runtime::tracker_{nullptr};

void Runtime::Init(const InitArguments& arguments, void** context, int* event_mask) {
  if (context != nullptr) *context = nullptr;
  // No exception may leave this function: NCCL is C, and an error from init harms the job.
  try {
    const std::lock_guard<std::mutex> lock(InitLock::Mutex());
    if (!g_fork_handler_set) {
      g_fork_handler_set = pthread_atfork(Server::PrepareFork, Server::ParentAfterFork,
                                          [] { ForgetAfterFork(&tracker_); }) == 0;
    }
    if (g_program == nullptr) {
      // No retry: the event mask of a process must not change, and one warning is enough.
      if (g_gave_up) return;
      g_gave_up = true;
      std::unique_ptr<Process> process = Process::Make(arguments);
      if (process == nullptr) return;
      auto program = std::make_unique<Program>(std::move(process));
      g_gave_up = false;
      g_program = program.release();
      // Stored before anything that may fail: without it, later communicators would look idle.
      tracker_.store(g_program->process->tracker.get(),
                     std::memory_order_release);  // callbacks see all of it
      StartServing(*g_program, arguments);
    }
    Program& program = *g_program;
    Process& process = *program.process;
    if ((program.versions >> arguments.api_version & 1) == 0) MeetVersion(program, arguments);
    process.masks.Write(arguments.api_version, event_mask);
    process.tracker->ExpectChunks();
    PrepareGraphs(program, arguments);
    bool memory = process.tracker->KeepChunksReady(1);
    const uint64_t ticket = AddCommunicator(process, arguments, context, event_mask);
    memory &= ticket != 0;
    if (!memory) WarnOfMemory(program, arguments);
    if (ticket != 0) WarnWithoutHeartbeat(program, arguments, ticket);
    if (context != nullptr) *context = reinterpret_cast<void*>(ticket);  // NOLINT
  } catch (...) {
    // Most likely bad_alloc. The job goes on, and this communicator is not measured.
  }
}

void Runtime::Finalize(void* context) {
  try {
    const std::lock_guard<std::mutex> lock(InitLock::Mutex());
    if (g_program == nullptr || context == nullptr) return;
    g_program->process->masks.Detach(reinterpret_cast<uint64_t>(context),
                                     g_program->process->clock.NowNs());
    g_program->process->tracker->FinishCommunicator(reinterpret_cast<uint64_t>(context));
  } catch (...) {
  }
}

}  // namespace nccl_pulse
