// pulse demo: shows the product without a GPU.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/cli/command.h"
#include "exporter/cli/demo_story.h"
#include "exporter/cli/installation.h"
#include "exporter/cli/local_endpoints.h"
#include "exporter/cli/status/status_words.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/node/listener.h"
#include "simulation/ranks.h"

namespace nccl_pulse {
namespace demo_command {

std::string library;  // NOLINT(cert-err58-cpp)

constexpr int kNoLibrary = 5;  // exit status

constexpr char kHelp[] =
    R"(usage: pulse demo [flags]

Runs a training job of four ranks that is in balance, has a straggler, hangs and recovers, in a loop, and says
what to look at. GPUs and NCCL are simulated; the plugin, the endpoint and the verdicts are real. No GPU is needed.
Ctrl-C ends it.

{flags}

Environment variables work as in a job: NCCL_PULSE_LISTEN=:9500 selects another port. NCCL_PULSE_HANG_SECONDS
defaults to 4 instead of 10, so that a hang shows soon; a shorter --hang-after of this node's agent counts.

Examples:
  pulse demo
  NCCL_PULSE_LISTEN=:9500 pulse demo

Exit status: 0 ended by Ctrl-C; 1 bad usage; 5 a library doesn't load; 7 a process crashed, or nothing can be
served.
)";

constexpr char kHangSeconds[] = "4";
constexpr std::size_t kIndent = 7;  // of the text, after the time
constexpr std::size_t kColumns = 96;
constexpr int kPollMs = 100;
// The page of a demo that has run for long takes the server 5 ms. More requests would use up its
// processor time for pages.
constexpr double kLookSeconds = 2;
constexpr std::chrono::milliseconds kPatience{2000};
constexpr double kEndpointSeconds = 30;
constexpr std::string_view kMetrics = "/metrics";
constexpr char kCommunicators[] = "/api/v1/communicators";

std::atomic<bool> g_stop{false};

void RequestStop(int /*signal*/) { g_stop.store(true); }

void HandleSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// True if Bazel runs the program: program and library then have Bazel's paths.
bool IsBazelRun() { return std::getenv("BUILD_WORKSPACE_DIRECTORY") != nullptr; }

// Returns how to call this program in another shell from the same folder.
const char* OwnName() {
  return IsBazelRun() ? "bazel-bin/exporter/pulse" : program_invocation_name;
}

// Returns the address at which a rank says it serves, in a form that works on this machine: a
// host's own name need not resolve. "" if there is none.
std::string AddressIn(const std::string& text) {
  std::size_t begin = text.find("http://");
  if (begin == text.npos) begin = text.find("unix:/");
  if (begin == text.npos) return "";
  std::string address = text.substr(begin, text.find_first_of(" ,;)", begin) - begin);
  if (absl::EndsWith(address, kMetrics)) address.resize(address.size() - kMetrics.size());
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) return address;
  const std::string named = absl::StrCat("http://", host, ":");
  return absl::StartsWith(address, named)
             ? absl::StrCat("http://localhost:", address.substr(named.size()))
             : address;
}

class Demo {
 public:
  int Run() {
    simulation::JobOptions options;
    options.plugin = library;
    if (options.plugin.empty()) options.plugin = FindPluginLibrary();
    options.driver = FindSimulatedGpu();
    if (options.plugin.empty() || options.driver.empty()) {
      return Fail(
          kNoLibrary,
          absl::StrCat(
              options.plugin.empty() ? "libnccl-profiler-pulse.so" : "libpulse-simulated-gpu.so",
              " is missing from ../lib beside this program. Install the package again"));
    }
    const char* listen = std::getenv("NCCL_PULSE_LISTEN");
    if (listen != nullptr && IsOff(listen)) {
      return Fail(kUsageError,
                  absl::StrCat("the demo needs an endpoint: unset NCCL_PULSE_LISTEN=", listen));
    }
    setenv("NCCL_PULSE_HANG_SECONDS", kHangSeconds, 0);
    HandleSignals();
    std::printf(
        "A training job of %u ranks on simulated GPUs 0 to %u. NCCL is also simulated. The plugin, "
        "its\n"
        "callbacks and what you see are real. Stop with Ctrl-C.\n",
        simulation::kRanks, simulation::kRanks - 1);
    std::fflush(stdout);
    std::string problem;
    if (!ranks_.Start(options, &problem)) return Fail(kCrashed, problem);
    const int status = Conduct();
    const bool have_ended = ranks_.Stop();
    if (have_ended && status == kDone) {
      const std::string next = IsBazelRun() ? "build and install a package (README.md, Install)"
                                            : "export NCCL_PROFILER_PLUGIN=" + options.plugin;
      std::printf("\nNext, for a job of yours: %s\n", next.c_str());
    }
    if (have_ended || status != kDone) return status;
    return Fail(kCrashed, "a rank did not end within 10 s and was killed");
  }

 private:
  int Conduct() {
    begin_s_ = Now();
    double looked_s = 0;
    while (!g_stop.load()) {
      for (const auto& message : ranks_.Read(kPollMs)) Hear(message);
      std::string how;
      if (ranks_.HasLost(&how)) {
        for (const auto& message : ranks_.Read(0)) Hear(message);
        if (g_stop.load()) break;
        return Fail(has_no_library_ ? kNoLibrary : kCrashed, how + ". The other ranks are stopped");
      }
      if (Now() - looked_s < kLookSeconds) continue;
      looked_s = Now();
      if (endpoint_.empty()) {
        if (Now() - begin_s_ < kEndpointSeconds) continue;
        return Fail(kCrashed, "no rank serves an endpoint. Check NCCL_PULSE_LISTEN");
      }
      for (const std::string& line : story_.Advance(Now(), Look())) Tell(line);
      Direct();
    }
    return kDone;
  }

  void Hear(const simulation::Ranks::Message& message) {
    if (message.is_warning) {
      has_no_library_ = has_no_library_ || absl::StartsWith(message.text, "no ");
      std::fprintf(stderr, "rank %d: %s\n", message.rank, message.text.c_str());
      return;
    }
    const std::string address = AddressIn(message.text);
    if (address.empty() || address == endpoint_) return;
    std::string error;
    if (!ParseEndpointAddress(address, false, kDefaultEndpointPort, &asked_, &error)) return;
    endpoint_ = address;
    const bool is_http = absl::StartsWith(address, "http://");
    const std::string_view bare = is_http ? std::string_view(address).substr(7) : address;
    std::printf("\n");
    if (is_http) std::printf("  page      %s/\n", address.c_str());
    const char* chosen = std::getenv("NCCL_PULSE_LISTEN");
    if (is_http && chosen == nullptr && !absl::EndsWith(bare, ":9410")) {
      std::printf("  (another program has port 9410)\n");
    }
    std::printf("  terminal  %s status --watch %s\n", OwnName(), std::string(bare).c_str());
    if (is_http) {
      std::printf("  verdict   %s diagnose %s\n", OwnName(), std::string(bare).c_str());
      std::printf("  metrics   %s/metrics\n", address.c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  DemoSight Look() const {
    FleetClientOptions client;
    client.patience = kPatience;
    const FleetAnswer answer = Ask(asked_, kCommunicators, client);
    std::vector<int> pids;
    for (uint32_t rank = 0; rank < simulation::kRanks; ++rank) {
      pids.push_back(ranks_.pid(static_cast<int>(rank)));
    }
    const std::string problem = ProblemOf(answer, kCommunicators);
    if (problem.empty()) return DemoSight::Of(answer.body, pids);
    DemoSight sight;
    sight.problem = absl::StrCat(asked_.name(), ": ", problem);
    return sight;
  }

  void Tell(const std::string& line) const {
    const int seconds = static_cast<int>(Now() - begin_s_);
    char time[16];
    const int size = std::snprintf(time, sizeof(time), "%d:%02d", seconds / 60, seconds % 60);
    std::string text = Wrap(line, kIndent, kColumns);
    text.replace(0, std::min<std::size_t>(static_cast<std::size_t>(size), kIndent - 1), time);
    std::printf("%s", text.c_str());
    std::fflush(stdout);
  }

  // Makes the job do what the story needs.
  void Direct() {
    using Scene = DemoStory::Scene;
    simulation::SharedJob& job = ranks_.job();
    const Scene scene = story_.scene();
    job.late_ns.store(simulation::kStepNs * kLatePercent / 100);
    job.late_rank.store(scene == Scene::kStraggler ? kLateRank : simulation::kNobody);
    job.silent_rank.store(scene == Scene::kHang ? kSilentRank : simulation::kNobody);
    job.round.store(story_.round());
  }

  simulation::Ranks ranks_;
  DemoStory story_;
  std::string endpoint_;  // "": not known yet
  Address asked_;
  double begin_s_ = 0;
  bool has_no_library_ = false;
};

FlagTable Flags() {
  return {{"--library", &library, "PATH",
           "the plugin library (default: the one of this installation)"}};
}

int Run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return Demo().Run();
  return Fail(kUsageError, "demo takes no argument");
}

}  // namespace demo_command

const Command kDemoCommand = {"demo", "show a job that lags and hangs, on simulated GPUs",
                              demo_command::kHelp, demo_command::Flags, demo_command::Run};

}  // namespace nccl_pulse
