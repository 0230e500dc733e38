#include "plugin/runtime/process.h"

#include <sys/random.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/base/time.h"
#include "exporter/base/version.h"
#include "exporter/node/handover.h"
#include "metrics/header_writer.h"
#include "plugin/runtime/api_version.h"
#include "plugin/runtime/identity.h"
#include "plugin/runtime/nccl_environment.h"
#include "plugin/runtime/runtime.h"
#include "plugin/runtime/unix_time.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {
namespace {

// Returns the tag of this process' tickets, another one at each call: a forked child holds its
// parent's tickets, which must not match its own. The tag is never 0, so that no ticket looks like
// an address (plugin/next/handle_pairs.h). The caller holds the init lock.
uint32_t MakeProcessTag() {
  static uint32_t last = 0;
  uint32_t tag = 0;
  while (tag == 0 || tag == last) {
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != sizeof(bits)) {
      bits = Clock::MonotonicNs() ^ static_cast<uint64_t>(RealtimeNs());
    }
    bits ^= static_cast<uint64_t>(getpid()) << 32;
    bits *= 0x9e3779b97f4a7c15ULL;
    tag = static_cast<uint32_t>(bits >> (64 - Ticket::kProcessBits));
  }
  last = tag;
  return tag;
}

}  // namespace

std::unique_ptr<Process> Process::Make(const InitArguments& arguments) {
  auto process = std::make_unique<Process>();
  std::vector<std::string> warnings;
  process->settings = ReadSettings(environ, &warnings);
  process->log.set_level(process->settings.log_level);
  if (process->settings.timing == TimingMode::kKernel && arguments.api_version < 4) {
    warnings.push_back(
        absl::StrCat("NCCL_PULSE_TIMING=kernel needs NCCL 2.27.3 or later (this is profiler API v",
                     arguments.api_version, "); using auto"));
    process->settings.timing = TimingMode::kAuto;
  }
  process->clock.Initialize(process->settings.clock);
  if (process->settings.timing == TimingMode::kOff && process->settings.network_window_was_set) {
    warnings.emplace_back(
        "NCCL_PULSE_NETWORK_WINDOW has no effect with NCCL_PULSE_TIMING=off; using off");
  }
  process->masks.Configure(process->settings.timing, process->settings.network_window_percent,
                           static_cast<uint64_t>(RealtimeNs()) ^ static_cast<uint64_t>(getpid())
                                                                     << 32);

  std::string memory_warning;
  Segment::Options options;
  options.series_limit = process->settings.series_limit;
  options.last_calls = process->settings.last_calls;
  process->segment = Segment::Create(options, &memory_warning);
  if (!memory_warning.empty()) warnings.push_back(memory_warning);
  for (const std::string& warning : warnings) process->log.Warn(arguments.logger, warning);
  if (process->segment == nullptr) return nullptr;

  process->driver = CudaDriver::Load();
  process->tracker = std::make_unique<Tracker>(
      *process->segment, process->clock, process->settings.timing,
      process->settings.timing == TimingMode::kOff ? nullptr : process->driver, getpid(),
      MakeProcessTag(), process->settings.timed_launches_per_second);
  process->tracker->SetUserTagLimit(process->settings.user_tags);
  if (process->settings.follow_graphs && process->driver != nullptr) {
    process->tracker->graphs().Begin(*process->driver);  // the first communicator logs a failure
  }
  if (process->settings.follow_work &&
      (process->driver == nullptr || !process->tracker->FollowWork(*process->driver))) {
    process->log.Info(arguments.logger,
                      "work counters disabled: CUDA driver too old, or NCCL_PULSE_TIMING=off. CUDA "
                      "graph replays are not counted");
  }
  if (process->masks.window().is_always() && !process->tracker->PrepareSteps(true)) {
    process->masks.WithoutSteps();
  }
  process->WriteIdentity(arguments);
  process->StoreHangSeconds(process->settings.hang_seconds);
  process->RenewTimes();
  return process;
}

void Process::StoreHangSeconds(int seconds) {
  const bool is_default =
      seconds == Settings().hang_seconds && !settings.IsFromEnvironment(LiveSetting::kHangSeconds);
  HeaderWriter(*segment).StoreHangAfter(is_default ? 0 : static_cast<uint32_t>(seconds));
}

void Process::RenewTimes() {
  HeaderWriter(*segment).RenewTimes(RealtimeOffsetNs(Clock::MonotonicNs, RealtimeNs),
                                    clock.NowNs());
}

void Process::WriteSources(int api_version) {
  const TimingMode timing = settings.timing;
  const bool follows = FollowsStreams();
  HeaderWriter(*segment).NameSources(DurationSource(api_version, timing, follows),
                                     CompletionSourceName(api_version, timing, follows));
}

std::string Process::Capabilities(int api_version) const {
  const TimingMode timing = settings.timing;
  const bool follows = FollowsStreams();
  return absl::StrCat("profiler API v", api_version, ", timing ", TimingModeName(timing),
                      " (durations: ", DurationSource(api_version, timing, follows),
                      ", completions: ", CompletionSourceName(api_version, timing, follows),
                      "), event mask 0x", absl::Hex(masks.Of(api_version)));
}

void Process::WriteIdentity(const InitArguments& arguments) {
  const ProcessIdentity found = FindProcessIdentity();
  const std::string labels = absl::StrJoin(settings.labels, ",", absl::PairFormatter("="));
  const std::string version = BuildVersion();
  HeaderWriter::Identity identity;
  identity.pid = getpid();
  identity.pid_namespace = OwnPidNamespace();
  identity.nccl_api_version = arguments.api_version;
  identity.event_mask = masks.Of(arguments.api_version);
  identity.start_realtime_ns = RealtimeNs();
  identity.plugin_version = version;
  identity.timing = TimingModeName(settings.timing);
  identity.hostname = settings.node_name.empty() ? found.hostname : settings.node_name;
  identity.global_rank = found.global_rank;
  identity.local_rank = found.local_rank;
  identity.job_id = found.job_id;
  identity.static_labels = labels;
  const std::string environment = DescribeNcclEnvironment(
      environ, FindNcclVersion(arguments.logger), kNcclEnvironmentBytes - 1);
  identity.nccl_environment = environment;
  HeaderWriter(*segment).Identify(identity);
}

}  // namespace nccl_pulse
