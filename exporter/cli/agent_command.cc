// pulse agent: the node's endpoint as a process of its own.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "exporter/base/patient_thread.h"
#include "exporter/base/time.h"
#include "exporter/capture/local_process.h"
#include "exporter/cli/agent_watch.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/cli/flags/hang_flags.h"
#include "exporter/cli/service.h"
#include "exporter/control/control_socket.h"
#include "exporter/control/live_values.h"
#include "exporter/endpoint/server.h"
#include "exporter/exposition/exposition.h"
#include "exporter/node/listener.h"
#include "exporter/outside/outside_monitor.h"
#include "exporter/web/guard.h"

namespace nccl_pulse {
namespace agent_command {

constexpr std::chrono::milliseconds kCapturePatience{500};

struct {
  std::string listen = ":9410", web_config, file_sd_dir, drop_families;
  std::string histograms = kDefaultHistograms;
  std::string without_plugin = "on";
  absl::Duration keep = absl::Minutes(10);
  int keep_processes = 256;
  CaptureFlags captures;
  HangFlags hang;
} flags;  // NOLINT(cert-err58-cpp)

constexpr char kHelp[] =
    R"(usage: pulse agent [flags]

Serves the metrics of all processes of this node from a separate process. Jobs register with it; a job that
serves already gives its port to the agent. Numbers of a process remain after it ends. When the agent ends, the
job's processes serve again. Root's agent serves every user's processes, any other agent those of its own user.

Limits: docs/node-endpoint.md.

{flags}

docs/security.md has an example of a FILE. SIGHUP reads it and the files that it names again; on an error the
agent logs it and keeps the old ones. SIGTERM and SIGINT end the agent.

Examples:
  pulse agent --listen=:9410
  pulse agent --web-config=/etc/nccl-pulse/web.yml --capture-dir=/var/lib/nccl-pulse

Exit status: 0 ended by a signal; 1 bad usage, or a bad FILE; 2 can't serve there.
)";

// Threshold of a hang in ms: from --hang-after, or newer from `pulse set HANG_SECONDS`; 0: neither
// is given. Also read by the server's thread. Relaxed: no other data depends on it.
std::atomic<int64_t> hang_after_ms{0};

// Returns the threshold for jobs without the plugin.
std::chrono::milliseconds OutsideHangAfter() {
  const int64_t own_ms = hang_after_ms.load(std::memory_order_relaxed);
  return own_ms == 0 ? Diagnosis::kDefaultHangAfter : std::chrono::milliseconds(own_ms);
}

// Adds the only setting of an agent.
void AddHangSeconds(LiveValues* values) {
  constexpr int64_t kDefaultMs = Diagnosis::kDefaultHangAfter.count();
  const int64_t flag_ms = hang_after_ms.load(std::memory_order_relaxed);
  const int64_t start_ms = flag_ms == 0 ? kDefaultMs : flag_ms;
  values->Add(LiveSetting::kHangSeconds, static_cast<double>(start_ms) / 1000,
              /*from_environment=*/false, [flag_ms, start_ms](double seconds) {
                const auto wanted_ms = static_cast<int64_t>(seconds * 1000);
                hang_after_ms.store(wanted_ms == start_ms ? flag_ms : wanted_ms,
                                    std::memory_order_relaxed);
                return std::string();
              });
}

// Waits for one of `signals` while answering commands.
int WaitForSignal(const sigset_t& signals, ControlSocket* control) {
  constexpr timespec kPause{0, 100000000};
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &kPause);
    if (signal > 0) return signal;
    try {
      control->Round(MonotonicNow());
    } catch (const std::exception& problem) {
      LogLine(LogLevel::kWarning, std::string("a command failed: ") + problem.what());
    }
  }
}

// Looks for hangs of jobs without the plugin, on a thread of its own: RAS may take seconds to
// answer.
struct OutsideThread : PatientThread {
  OutsideThread(std::function<std::chrono::milliseconds()> hang_after, outside::Sources sources,
                outside::RasChoice ras)
      : watch(std::move(hang_after), std::move(sources), std::move(ras)) {}

  void Run() {
    if (!watch.HasGpus()) {
      return LogLine(LogLevel::kInfo,
                     "jobs without the plugin aren't watched: no GPU, or no NVML here");
    }
    auto next = std::chrono::steady_clock::now();
    while (WaitUntil(next)) {
      try {
        for (const std::string& note : watch.Round()) Say(note);
      } catch (const std::exception& problem) {
        LogLine(LogLevel::kWarning,
                absl::StrCat("cannot look for hangs of jobs without NCCL Pulse: ", problem.what()));
      }
      next = std::chrono::steady_clock::now() + outside::OutsideMonitor::kInterval;
    }
  }

  // Logs each note once: a job may wait often.
  void Say(const std::string& note) {
    constexpr std::size_t kMostSaid = 64;
    if (said.size() == kMostSaid || !said.insert(note).second) return;
    LogLine(LogLevel::kInfo, "jobs without the plugin: " + note);
  }

  outside::OutsideMonitor watch;
  std::set<std::string> said;
};

FlagTable Flags() {
  return Joined(
      {{{"--listen", &flags.listen, "ADDRESS",
         "[host]:port or unix:/path, as NCCL_PULSE_LISTEN of the jobs"},
        {"--keep", &flags.keep, "DURATION", "how long an ended process is kept", "0 to 8760h"},
        {"--keep-processes", &flags.keep_processes, "N",
         "most ended processes to keep; the oldest are dropped first (default 256; 0: none)",
         "0 to 100000"},
        {"--hang-after", &fleet_flags.hang_after, "DURATION",
         "time without progress that counts as a hang, unless the job sets a shorter one (default: "
         "the job's NCCL_PULSE_HANG_SECONDS, or 10s)",
         "1s to 24h"},
        {"--without-plugin", &flags.without_plugin, "on|off",
         "also find hangs of jobs that run without NCCL Pulse, by NCCL's RAS, NVML and /proc: "
         "docs/without-the-plugin.md"},
        NamespacesFlag(),
        {"--file-sd-dir", &flags.file_sd_dir, "FOLDER",
         "where to write a file that tells Prometheus of this endpoint"},
        {"--histograms", &flags.histograms, "FORM",
         "both, classic or native; then exceptions: family=FORM for one histogram, network=FORM "
         "for "
         "timing=\"network\""},
        {"--drop-families", &flags.drop_families, "NAMES",
         "metric families to leave out, separated by commas (default: none)"},
        {"--web-config", &flags.web_config, "FILE",
         "TLS, client certificates and passwords, in the format of Prometheus' exporters"},
        {"Captures of hangs and stragglers (see `pulse help capture`):"},
        {"--capture-dir", &flags.captures.dir, "FOLDER",
         "where to save a capture when one is first suspected (default: none is taken)"},
        {"--capture-keep", &flags.captures.keep, "N",
         "most captures to keep; the oldest are deleted first", "1 to 1000"},
        {"--capture-mebibytes", &flags.captures.mebibytes, "N",
         "limit for all; each may take a quarter before compression", "1 to 1048576"},
        {"--capture-pause", &flags.captures.pause, "DURATION", "shortest time between two captures",
         "1s to 24h"},
        {"--time-limit", &flags.captures.time_limit, "DURATION",
         "limit for everything after the verdict", "1s to 1h"},
        {"Programs, for hangs that ranks of this node show (docs/on-hang.md):"}},
       HangProgramFlags(&flags.hang),
       {{"The agent asks itself for captures and hangs, as localhost. If --web-config "
         "requires more, say what to send:"}},
       AccessFlags()});
}

// The agent's settings from its flags: the server's options, and what the server does not need.
struct Wanted {
  ServerOptions server;
  std::shared_ptr<WebGuard> guard;  // null: no restrictions
  AutomaticCaptures::Options captures;
  HangProgram::Options on_hang;
  FleetQuestion question;
};

bool ReadServerFlags(ServerOptions* options, std::string* wrong) {
  options->listen_address = flags.listen;
  options->service_directory = flags.file_sd_dir;
  ListenAddress address;
  if (!ParseListenAddress(options->listen_address, &address, wrong)) {
    wrong->insert(0, "--listen: ");
    return false;
  }
  std::string unknown;
  if (!options->service_directory.empty() && options->service_directory[0] != '/') {
    *wrong = "--file-sd-dir is not an absolute path";
  } else if (!ParseHistograms(flags.histograms, &options->exposition)) {
    *wrong = "--histograms=" + flags.histograms +
             ": must be both, classic or native, then exceptions such as family=native";
  } else if (!ParseDroppedFamilies(flags.drop_families, &options->exposition, &unknown)) {
    *wrong = "--drop-families: there is no metric family " + unknown;
  }
  if (!wrong->empty()) return false;
  options->log = LogLine;
  options->cpu_share = kAgentCpuShare;
  options->peers.agent = true;
  options->peers.keep = absl::ToChronoMilliseconds(flags.keep);
  options->peers.keep_processes = flags.keep_processes;
  if (const auto given = HangAfter()) {
    hang_after_ms.store(given->count(), std::memory_order_relaxed);
  }
  options->hang_after = [] {
    return std::chrono::milliseconds(hang_after_ms.load(std::memory_order_relaxed));
  };
  return true;
}

bool ReadFlags(Wanted* wanted, std::string* wrong) {
  if (!ReadServerFlags(&wanted->server, wrong) ||
      !ReadCaptureFlags(flags.captures, flags.listen, &wanted->captures, wrong) ||
      !ReadHangFlags(flags.hang, &wanted->on_hang, wrong) ||
      !ReadFleetFlags(&wanted->question, wrong)) {
    return false;
  }
  if (!wanted->on_hang.path.empty() && absl::StartsWith(flags.listen, "unix:")) {
    *wrong = "--on-hang needs --listen=[host]:port: the agent asks itself over TCP";
    return false;
  }
  if (flags.web_config.empty()) return true;
  wanted->guard = WebGuard::Open(flags.web_config, LogLine, wrong);
  wanted->server.guard = wanted->guard;
  wanted->server.cpu_share -= kPasswordCpuShare;
  return wanted->guard != nullptr;
}

int Run(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    return Fail(kUsageError, "agent takes no argument");
  }
  Wanted wanted;
  std::string error;
  if (!ReadFlags(&wanted, &error) ||
      !outside::ReadRasChoice("", fleet_flags.enter_namespaces, &wanted.captures.capture.ras,
                              &error)) {
    return Fail(kUsageError, error);
  }
  // Captures ask NCCL's RAS only of processes without the plugin.
  outside::RasChoice& ras = wanted.captures.capture.ras;
  ras.address.reset();
  LiveValues values;
  AddHangSeconds(&values);
  const bool is_https = wanted.guard != nullptr && wanted.guard->is_https();

  // Before another thread exists, and before a client can wait for the port.
  const sigset_t signals = BlockEndingSignals();
  // The TLS library may write to connections that clients have closed.
  std::signal(SIGPIPE, SIG_IGN);

  auto sources = outside::SourcesOfThisHost();
  sources.hostname = NodeName();
  const auto rest = std::make_shared<OutsideThread>(OutsideHangAfter, std::move(sources), ras);
  wanted.server.source = [rest](const ReadWish&) { return rest->watch.Snapshots(RealtimeNs()); };
  wanted.server.without_plugin = [rest] { return rest->watch.Processes(); };

  const std::unique_ptr<Server> server = Server::Start(std::move(wanted.server), &error);
  if (server == nullptr) {
    return Fail(kUnreachable, error);
  }
  LogLine(
      LogLevel::kInfo,
      "the agent serves at " + server->address() + (is_https ? " with TLS" : "") +
          (geteuid() == 0 ? ", for processes of every user" : ", for processes of its own user"));
  ControlSocket control;
  ControlSocket::Options control_options;
  control_options.values = &values;
  control_options.owner = kAgentOwner;
  control_options.log = LogLine;
  if (!control.Open(control_options)) {
    LogLine(LogLevel::kWarning, "no socket for commands: `pulse set` does not reach this agent");
  }
  std::unique_ptr<AgentWatch> watch;
  Address own;
  if (wanted.captures.folder.path.empty() && wanted.on_hang.path.empty()) {
    // The agent's own endpoint does not query itself.
  } else if (!FindOwnEndpoint(flags.listen, server->port(), is_https, wanted.question.client, &own,
                              &error)) {
    LogLine(LogLevel::kWarning,
            absl::StrCat("no captures are taken, and no program is started on a hang: ", error));
  } else {
    watch = AgentWatch::Start(std::move(wanted.on_hang), std::move(wanted.captures), own,
                              wanted.question.client, LogLine);
  }
  const bool is_looking = flags.without_plugin == "on";
  if (is_looking) {
    error = PatientThread::Start(rest, [](OutsideThread& its) { its.Run(); });
    if (!error.empty())
      LogLine(LogLevel::kWarning, "no thread for jobs without the plugin: " + error);
  }
  while (WaitForSignal(signals, &control) == SIGHUP) Reload(wanted.guard.get());
  control.Close();
  LogLine(LogLevel::kInfo, "the agent ends; the job's processes serve again");
  bool has_ended = watch == nullptr || watch->Stop(kCapturePatience);
  has_ended &= !is_looking || rest->Stop(kCapturePatience);
  server->Stop();
  // An unfinished capture keeps its partial name, and a started program keeps running. Their
  // threads use what main would destroy.
  if (!has_ended) std::_Exit(0);
  return 0;
}

}  // namespace agent_command

const Command kAgentCommand = {"agent", "serve the metrics of all processes of this node",
                               agent_command::kHelp, agent_command::Flags, agent_command::Run};

}  // namespace nccl_pulse
