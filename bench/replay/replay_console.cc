#include "bench/replay/replay_console.h"

#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/replay/child_messages.h"
#include "bench/replay/recorded_clock.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kProgressLineNs = 5'000'000'000;

// Returns the announced address in a form that works on this machine: a host's own name need not
// resolve.
std::string LocalAddress(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) return url;
  const std::string named = absl::StrCat(kScheme, host, ":");
  if (url.compare(0, named.size(), named) != 0) return url;
  return absl::StrCat(kScheme, "localhost:", url.substr(named.size()));
}

}  // namespace

ReplayConsole::ReplayConsole() : terminal_(isatty(STDERR_FILENO) == 1) {}

void ReplayConsole::ShowLog(const std::string& process, const std::string& text) {
  ClearLine();
  const size_t url = text.find("http://");
  if (url != std::string::npos) {
    const std::string address =
        LocalAddress(text.substr(url, text.find_first_of(" \t,;)\"'", url) - url));
    if (announced_.insert(address).second) {
      std::printf("%s: %s\n", process.c_str(), address.c_str());
      std::fflush(stdout);
    }
    if (!ShowInformation()) return;
  }
  std::fprintf(stderr, "%s: %s\n", process.c_str(), text.c_str());
}

void ReplayConsole::ShowProblem(const std::string& message) {
  if (!reported_.insert(message).second) return;
  ClearLine();
  std::fprintf(stderr, "pulse: %s\n", message.c_str());
}

void ReplayConsole::ShowProgress(int processes, uint64_t passed, uint64_t run, uint64_t repeat) {
  const int64_t now_ns = recorded_clock::RealNow();
  if (!terminal_ && now_ns - last_progress_ns_ < kProgressLineNs) return;
  if (last_progress_ns_ != 0 || terminal_) {
    std::string line = absl::StrFormat("replaying %d processes: ", processes);
    if (repeat == 1) {
      absl::StrAppendFormat(&line, "%d %%, ", 100 * passed / run);
    } else {
      absl::StrAppendFormat(&line, "run %d", passed / run + 1);
      if (repeat != 0) absl::StrAppendFormat(&line, " of %d", repeat);
      absl::StrAppendFormat(&line, ", %d %%, ", 100 * (passed % run) / run);
    }
    absl::StrAppendFormat(&line, "%d callbacks", passed);
    std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
    line_open_ = terminal_;
  }
  last_progress_ns_ = now_ns;
}

void ReplayConsole::ShowReplayed(int processes, uint64_t passed, uint64_t made, bool holds) {
  ClearLine();
  std::printf("replayed %d processes: %llu recorded callbacks, %llu made%s\n", processes,
              static_cast<unsigned long long>(passed), static_cast<unsigned long long>(made),
              holds ? "; holding" : "");
  std::fflush(stdout);
}

void ReplayConsole::ClearLine() {
  if (line_open_) std::fputs("\r\033[K", stderr);
  line_open_ = false;
}

}  // namespace nccl_pulse
