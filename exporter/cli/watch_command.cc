// pulse watch: all jobs at once, as a service.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/cli/flags/hang_flags.h"
#include "exporter/cli/service.h"
#include "exporter/watch/watch_service.h"
#include "exporter/web/guard.h"

namespace nccl_pulse {
namespace watch_command {

constexpr std::chrono::milliseconds kPatience{500};

std::string listen_address = ":9420";  // NOLINT(cert-err58-cpp)
std::string web_config;                // NOLINT(cert-err58-cpp)
std::string external_url;              // NOLINT(cert-err58-cpp)
HangFlags hang_flags;                  // NOLINT(cert-err58-cpp)

constexpr char kHelp[] =
    R"(usage: pulse watch [--prometheus=URL | --targets=FILE | --http-sd=URL | --dns=NAME:PORT | HOST:PORT ...] [flags]

Watches all jobs of a cluster. It polls each endpoint every 2 s. If a job makes no progress or a rank is late,
it gives the verdict of `pulse diagnose`. It holds no state; a second one beside it reports the same. It serves:
  /                     all jobs, those in trouble first
  /metrics              the rank that blocks a job, late ranks, silent endpoints; deploy/prometheus alerts on them
  /?job_id=ID           a report on one job now; also /?comm=ID, and as JSON /api/v1/diagnosis
  /alertmanager         a webhook for Alertmanager: a report on the job of the alert

Addresses of endpoints (they must be given), TLS and passwords: `pulse help connect`. Files and directories are read
again every 10 s.

{flags}

SIGTERM and SIGINT end it. SIGHUP reads the FILE of --web-config again.

Examples:
  pulse watch --prometheus=http://prometheus:9090
  pulse watch --targets=/etc/prometheus/nccl-pulse.json --on-hang=/usr/local/bin/page-me

Exit status: 0 ended by a signal; 1 bad usage, or a bad FILE; 2 can't serve there. More: docs/prometheus.md.
)";

// Finds the endpoints for a round. Reads the files each time: targets come and go, tokens and
// certificates expire.
bool Find(std::vector<Address>* endpoints, FleetClientOptions* client, std::string* error) {
  FleetQuestion question;
  if (!ReadFleetFlags(&question, error) || !AddFromDirectories({}, &question, error)) {
    return false;
  }
  KeepDifferent(&question.endpoints);
  if (!HasAuthorities(question, error)) return false;
  *endpoints = std::move(question.endpoints);
  *client = std::move(question.client);
  return true;
}

FlagTable Flags() {
  return Joined({{HangAfterFlag(), {"What to do in a hang (docs/on-hang.md has examples):"}},
                 HangProgramFlags(&hang_flags),
                 {{"How to serve:"},
                  {"--listen", &listen_address, "ADDRESS", "[host]:port or unix:/path"},
                  {"--web-config", &web_config, "FILE",
                   "TLS, client certificates and passwords, as for `pulse agent`"},
                  {"--external-url", &external_url, "URL",
                   "where people reach this page: alerts link to its report on their job (default: "
                   "no link)"}}});
}

int Run(const std::vector<std::string>& arguments) {
  fleet_flags.endpoints.insert(fleet_flags.endpoints.end(), arguments.begin(), arguments.end());
  if (fleet_flags.endpoints.empty() && fleet_flags.targets.empty() && !IsDirectoryNamed()) {
    return Fail(kUsageError,
                "no endpoint is given: use --prometheus, --targets, --http-sd, --dns or HOST:PORT "
                "(`pulse help connect`)");
  }
  if (!external_url.empty() && !absl::StartsWith(external_url, "http://") &&
      !absl::StartsWith(external_url, "https://")) {
    return Fail(kUsageError, "--external-url is not an http:// or https:// URL");
  }
  WatchService::Options options;
  options.listen_address = listen_address;
  options.external_url = external_url;
  if (!external_url.empty() && external_url.back() != '/') options.external_url += '/';
  options.log = LogLine;
  options.watcher.find = Find;
  options.watcher.log = [](const std::string& line) { LogLine(LogLevel::kInfo, line); };
  std::string error;
  // Reports wrong flags at once; a directory may not answer yet.
  FleetQuestion question;
  HangProgram::Options on_hang;
  options.watcher.look.hang_after = HangAfter();
  if (!ReadFleetFlags(&question, &error) || !ReadHangFlags(hang_flags, &on_hang, &error)) {
    return Fail(kUsageError, error);
  }
  std::shared_ptr<WebGuard> guard;
  if (!web_config.empty()) {
    guard = WebGuard::Open(web_config, LogLine, &error);
    if (guard == nullptr) return Fail(kUsageError, error);
    options.guard = guard;
  }
  // Before another thread exists.
  const sigset_t signals = BlockEndingSignals();
  std::shared_ptr<HangProgram> program;
  if (!on_hang.path.empty()) {
    program = HangProgram::Start(std::move(on_hang));
    if (program == nullptr) return kUnreachable;
    options.watcher.tell = [program](const WatchState& state) { program->See(state); };
  }
  std::unique_ptr<WatchService> service = WatchService::Start(std::move(options), &error);
  if (service == nullptr) return Fail(kUnreachable, error);
  LogLine(
      LogLevel::kInfo,
      absl::StrCat("watching; all jobs at http", guard != nullptr && guard->is_https() ? "s" : "",
                   "://", absl::StrReplaceAll(service->address(), {{"[::]", "localhost"}}), "/"));
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) Reload(guard.get());
  // A running round or program is left alone; its thread uses what main would destroy.
  const bool has_ended = service->Stop(kPatience);
  if ((program != nullptr && !program->Stop(kPatience)) || !has_ended) std::_Exit(0);
  return 0;
}

}  // namespace watch_command

const Command kWatchCommand = {"watch",
                               "watch all jobs: alerts and a page that name the blocking ranks",
                               watch_command::kHelp,
                               watch_command::Flags,
                               watch_command::Run,
                               ConnectFlags};

}  // namespace nccl_pulse
