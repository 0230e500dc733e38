#include "exporter/cli/agent_watch.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/patient_thread.h"
#include "exporter/capture/local_process.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/node/listener.h"
#include "exporter/watch/watcher.h"

namespace nccl_pulse {

using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kInterval{2};

}  // namespace

bool ReadCaptureFlags(const CaptureFlags& flags, const std::string& listen,
                      AutomaticCaptures::Options* options, std::string* error) {
  options->folder.path = flags.dir;
  if (flags.dir.empty()) return true;
  const auto& [dir, keep, mebibytes, pause, time_limit] = flags;
  if (dir[0] != '/') {
    *error = "--capture-dir is not an absolute path";
  } else if (absl::StartsWith(listen, "unix:")) {
    *error = "--capture-dir needs --listen=[host]:port: the agent asks itself over TCP";
  }
  if (!error->empty()) return false;
  options->capture.time_limit = absl::ToChronoMilliseconds(time_limit);
  options->limits.captures = static_cast<std::size_t>(keep);
  options->limits.bytes = static_cast<uint64_t>(mebibytes) << 20;
  options->pause = absl::ToChronoMilliseconds(pause);
  return true;
}

bool FindOwnEndpoint(const std::string& listen_address, uint16_t port, bool is_https,
                     const FleetClientOptions& client, Address* own, std::string* error) {
  ListenAddress listen;
  if (!ParseListenAddress(listen_address, &listen, error)) return false;
  if (is_https && client.tls == nullptr) {
    *error =
        "this system has no file of trusted authorities, so the agent cannot check its own "
        "certificate; name one with --ca-cert";
    return false;
  }
  // Its certificate usually has this name; connections only go to the bound address.
  own->host = "localhost";
  // For all interfaces a loopback address, which nobody else can bind while the agent listens:
  // ":9410" always includes IPv4 (listener.h), "[::]:9410" is IPv6 only.
  own->ip = listen.host.empty() || listen.host == "0.0.0.0" ? "127.0.0.1"
            : listen.host == "::"                           ? "::1"
                                                            : listen.host;
  own->port = port;
  own->has_port = true;
  own->is_https = is_https;
  return true;
}

struct AgentWatch::State : PatientThread {
  void Run() {
    auto next = steady_clock::now();
    while (WaitUntil(next)) {
      next = steady_clock::now() + kInterval;
      try {
        watcher->Round();
        next = watcher->NextRound(next);
      } catch (const std::exception& problem) {
        Report(problem.what());
      }
    }
  }

  void See(const WatchState& seen) {
    if (program != nullptr) program->See(seen);
    if (captures != nullptr) captures->See(seen);
    if (seen.silent.empty()) return Report("");
    Report(absl::StrCat("its own endpoint: ", seen.silent.begin()->first));
  }

  // Logs a problem once; "": none.
  void Report(const std::string& problem) {
    if (problem == last_problem) return;
    last_problem = problem;
    if (!problem.empty()) {
      log(LogLevel::kWarning, absl::StrCat("the agent cannot look for hangs: ", problem));
    }
  }

  LogFunction log;
  std::unique_ptr<HangProgram> program;
  std::unique_ptr<AutomaticCaptures> captures;
  std::unique_ptr<Watcher> watcher;
  std::string last_problem;
};

std::unique_ptr<AgentWatch> AgentWatch::Start(HangProgram::Options on_hang,
                                              AutomaticCaptures::Options captures, Address own,
                                              FleetClientOptions client, const LogFunction& log) {
  auto state = std::make_shared<State>();
  state->log = log;
  if (!on_hang.path.empty()) state->program = HangProgram::Start(std::move(on_hang));
  if (!captures.folder.path.empty()) {
    captures.folder.host = NodeName();
    captures.folder.port = own.port;
    captures.endpoint = own;
    captures.capture.look.client = client;
    captures.log = log;
    state->captures = AutomaticCaptures::Start(std::move(captures));
  }
  if (state->program == nullptr && state->captures == nullptr) return nullptr;
  Watcher::Options watched;
  watched.find = [own, client](std::vector<Address>* endpoints, FleetClientOptions* found,
                               std::string* /*error*/) {
    *endpoints = {own};
    *found = client;
    return true;
  };
  watched.tell = [its = state.get()](const WatchState& seen) { its->See(seen); };
  state->watcher = std::make_unique<Watcher>(std::move(watched));
  const std::string error = PatientThread::Start(state, [](State& its) { its.Run(); });
  if (!error.empty()) {
    state->Report(error);
    return nullptr;
  }
  auto watch = std::make_unique<AgentWatch>();
  watch->state_ = std::move(state);
  return watch;
}

bool AgentWatch::Stop(std::chrono::milliseconds patience) {
  return state_->Stop(patience) &&
         (state_->program == nullptr || state_->program->Stop(patience)) &&
         (state_->captures == nullptr || state_->captures->Stop(patience));
}

}  // namespace nccl_pulse
