#include "exporter/cli/service.h"

#include <poll.h>
#include <unistd.h>

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "exporter/base/plain_text.h"

namespace nccl_pulse {
namespace {

// A writable pipe accepts this many bytes at once.
constexpr std::size_t kMostLineBytes = 4096;

std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal's handler may store it");
void AskToStop(int /*signal*/) { stop_asked.store(true); }

}  // namespace

void LogLine(LogLevel level, const std::string& message) {
  // The message may contain an endpoint's text, which must not control the terminal.
  std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                   level == LogLevel::kInfo ? " info: " : " warning: ", PlainText(message));
  if (line.size() >= kMostLineBytes) line.resize(kMostLineBytes - 1);
  line += '\n';
  pollfd out = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) != 1 || (out.revents & POLLOUT) == 0) return;
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

sigset_t BlockEndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

const std::atomic<bool>* StopOnSignal() {
  struct sigaction action = {};
  action.sa_handler = AskToStop;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return &stop_asked;
}

void Reload(WebGuard* guard) {
  std::string error;
  if (guard == nullptr) {
    LogLine(LogLevel::kInfo, "SIGHUP ignored: there is no web configuration");
  } else if (guard->Reload(&error)) {
    LogLine(LogLevel::kInfo, "SIGHUP: web configuration, certificates and passwords reloaded");
  } else {
    LogLine(LogLevel::kWarning, "SIGHUP: not reloaded: " + error);
  }
}

}  // namespace nccl_pulse
