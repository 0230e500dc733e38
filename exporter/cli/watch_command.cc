// pulse watch: all jobs at once, as a service.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/cli/command.h"
#include "exporter/cli/fleet_flags.h"
#include "exporter/cli/service.h"
#include "exporter/watch/watch_service.h"
#include "exporter/web/guard.h"

namespace nccl_pulse {
namespace {

constexpr int kUsageError = 1;
constexpr int kCannotServe = 2;

// The flags.
std::string listen_address = ":9420";  // NOLINT(cert-err58-cpp)
std::string web_config;                // NOLINT(cert-err58-cpp)

constexpr char kHelp[] =
    R"(usage: pulse watch [--prometheus=URL | --targets=FILE | --http-sd=URL | --dns=NAME:PORT | HOST:PORT ...] [flags]

Watches all jobs of a cluster. It asks each endpoint for a short summary every 2 s. If something makes no
progress or somebody is late, it asks the endpoints of that job for what they know and gives the verdict of
`pulse diagnose`. It serves:
  /                     all jobs, those in trouble first
  /metrics              for Prometheus: which rank holds up a job, who is late, which endpoints are silent.
                        deploy/prometheus has alerts on these series
  /?job_id=ID, /?comm=ID  a look at one job, at once; /api/v1/diagnosis: the same as JSON
  /alertmanager         for Alertmanager's webhook: a look at the job that the alert names
It keeps nothing: after a restart it says the same, and so does a second one beside it.

Where the endpoints are; files and directories are read again every 10 s:
  --prometheus=URL      a Prometheus, or a database with the same API: what it has scraped within the last
                        15 minutes
  --targets=FILE        a file in the format of file_sd (JSON or YAML)
  --http-sd=URL         a URL that answers in the format of http_sd
  --dns=NAME:PORT       a name whose addresses are those of the endpoints, such as a headless service's
  HOST:PORT             one endpoint; may be given several times. --endpoint=HOST:PORT is the same

How to ask:
  --https               use https for addresses without a scheme
  --ca-cert=FILE        authorities to trust instead of the system's; --insecure: trust everybody
  --cert=FILE, --key=FILE  the client's certificate and key, for endpoints that ask for one
  --server-name=NAME    name in the endpoints' certificates, if it is not the one in their addresses
  --credentials-file=FILE  one line user:password; --bearer-file=FILE  one line with a token
  --prometheus-credentials-file=FILE, --prometheus-bearer-file=FILE  the same for the Prometheus and for http_sd
  --timeout=DURATION    how long to wait for what an endpoint knows, and for the Prometheus (default 3s)
  --hang-after=DURATION time without progress after which a hang is suspected (8s to 1h; default: what the
                        endpoints go by, NCCL_PULSE_HANG_SECONDS, and the longest where they differ)

How to serve:
  --listen=ADDRESS      [host]:port or unix:/path (default :9420)
  --web-config=FILE     TLS, client certificates, passwords, as for `pulse agent`

SIGTERM and SIGINT end it; SIGHUP makes it read the FILE of --web-config again.
Exit status: 0 ended by a signal; 1 bad usage, or a bad FILE; 2 it cannot serve there. docs/prometheus.md says more.
)";

// Files are read anew: targets come and go, tokens and certificates run out.
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

std::vector<Flag> Flags() {
  return WithFleetFlags(kAccessFlags | kEndpointFlags | kPrometheusFlags | kDirectoryFlags,
                        {{"--listen", &listen_address}, {"--web-config", &web_config}});
}

int Run(const std::vector<std::string>& arguments) {
  fleet_flags.endpoints.insert(fleet_flags.endpoints.end(), arguments.begin(), arguments.end());
  if (fleet_flags.endpoints.empty() && fleet_flags.targets.empty() && !IsDirectoryNamed()) {
    return Fail(kUsageError,
                "it needs to be told where the endpoints are: --prometheus, --targets, --http-sd, "
                "--dns or HOST:PORT; see pulse help watch");
  }
  WatchService::Options options;
  options.listen_address = listen_address;
  options.log = LogLine;
  options.watcher.find = Find;
  options.watcher.log = [](const std::string& line) { LogLine(LogLevel::kInfo, line); };
  std::string error;
  // What is wrong with the flags themselves is said at once; a directory may not answer yet.
  FleetQuestion question;
  if (!ReadHangAfter(std::chrono::seconds(8), std::chrono::hours(1),
                     &options.watcher.look.hang_after, &error) ||
      !ReadFleetFlags(&question, &error)) {
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
  const std::unique_ptr<WatchService> service = WatchService::Start(std::move(options), &error);
  if (service == nullptr) return Fail(kCannotServe, error);
  LogLine(LogLevel::kInfo, absl::StrCat("watching; all jobs at http",
                                        guard != nullptr && guard->is_https() ? "s" : "", "://",
                                        service->address(), "/"));
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) Reload(guard.get());
  return 0;
}

}  // namespace

const Command kWatchCommand = {
    "watch", "watch all jobs: alerts and a page that name who holds them up", kHelp, Flags, Run};

}  // namespace nccl_pulse
