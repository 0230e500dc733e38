#include "exporter/fleet/ras_report.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/fleet/resolver.h"

namespace nccl_pulse {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint16_t kRasPort = 28028;
constexpr std::size_t kMostLineBytes = 256;
// RAS' own thread sends a greeting at once. A stopped process accepts connections, but never
// greets.
constexpr std::chrono::milliseconds kGreetingPatience{2000};

class Conversation {
 public:
  explicit Conversation(std::chrono::milliseconds patience)
      : begin_(Clock::now()), end_(begin_ + patience) {}
  ~Conversation() {
    if (fd_ >= 0) close(fd_);
  }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // Counts from the beginning.
  void SetPatience(std::chrono::milliseconds patience) { end_ = begin_ + patience; }

  int64_t LeftMs() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
  }

  bool Connect(sockaddr_storage to, uint16_t port) {
    if (fd_ >= 0) close(fd_);
    fd_ = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) return false;
    socklen_t size = sizeof(sockaddr_in);
    if (to.ss_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&to)->sin6_port = htons(port);
      size = sizeof(sockaddr_in6);
    } else {
      reinterpret_cast<sockaddr_in*>(&to)->sin_port = htons(port);
    }
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), size) == 0) return true;
    if (errno != EINPROGRESS || !Await(POLLOUT)) return false;
    int problem = 0;
    socklen_t problem_size = sizeof(problem);
    return getsockopt(fd_, SOL_SOCKET, SO_ERROR, &problem, &problem_size) == 0 && problem == 0;
  }

  bool Say(std::string_view line) {
    // The line is short, and the buffer is empty, so it is sent as a whole or not at all.
    return send(fd_, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  }

  // Receives a line, without its line end. Returns false if none arrives in time.
  bool Hear(std::string* line) {
    while (read_.find('\n') == read_.npos) {
      if (read_.size() > kMostLineBytes || !Read()) return false;
    }
    const std::size_t end = read_.find('\n');
    *line = read_.substr(0, end);
    read_.erase(0, end + 1);
    return true;
  }

  // Receives until the other side closes. Returns false if it does not close in time, or sends too
  // much.
  bool HearAll(std::size_t most_bytes, std::string* text) {
    while (read_.size() <= most_bytes && Read()) {
    }
    const bool is_whole = is_closed_ && read_.size() <= most_bytes;
    read_.resize(std::min(read_.size(), most_bytes));
    *text = std::move(read_);
    return is_whole;
  }

 private:
  bool Await(short events) {
    while (true) {
      const int64_t left = LeftMs();
      if (left <= 0) return false;
      pollfd each = {fd_, events, 0};
      const int ready = poll(&each, 1, static_cast<int>(left));
      if (ready > 0) return true;
      if (ready == 0 || errno != EINTR) return false;
    }
  }

  bool Read() {
    char buffer[16 << 10];
    while (Await(POLLIN)) {
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (got > 0) {
        read_.append(buffer, static_cast<std::size_t>(got));
        return true;
      }
      is_closed_ = got == 0;
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    }
    return false;
  }

  const Clock::time_point begin_;
  Clock::time_point end_;
  int fd_ = -1;
  std::string read_;
  bool is_closed_ = false;
};

// Connects and exchanges the greeting. Returns false if nobody answers at `address`, or if the
// server there is not NCCL's RAS. `report->is_connected` is false in the first case.
bool Greet(const Address& address, std::chrono::milliseconds patience, Conversation* with,
           RasReport* report) {
  const ResolvedHost host = ResolveHosts({address.host}, patience)[address.host];
  report->error = host.error;
  report->is_connected =
      std::any_of(host.addresses.begin(), host.addresses.end(),
                  [&](const sockaddr_storage& each) { return with->Connect(each, address.port); });
  std::string line;
  return report->is_connected && with->Say("CLIENT PROTOCOL 2\n") && with->Hear(&line) &&
         absl::StartsWithIgnoreCase(line, "SERVER PROTOCOL ");
}

// Sends a command that RAS answers with one line. Returns false if no answer arrives.
bool Command(Conversation* with, std::string_view command, bool* is_ok) {
  std::string line;
  if (!with->Say(absl::StrCat(command, "\n")) || !with->Hear(&line)) return false;
  *is_ok = line == "OK";
  return true;
}

// Sets how long RAS waits for other processes; it waits twice as long if one is slow.
bool SetTimeout(Conversation* with) {
  const int64_t wait_s = std::max<int64_t>(1, with->LeftMs() / 3000);
  bool is_ok = false;
  return Command(with, absl::StrCat("TIMEOUT ", wait_s), &is_ok) && is_ok;
}

}  // namespace

bool RasFromFlag(const std::string& text, std::optional<Address>* address, std::string* error) {
  if (text == "off") return true;
  std::string from = text;
  if (from.empty()) {
    const char* set = std::getenv("NCCL_RAS_ADDR");
    from = absl::StripAsciiWhitespace(set == nullptr ? "" : set);
    if (from.empty()) from = "localhost";
  }
  Address parsed;
  if (absl::StrContains(from, "/") || !ParseAddress(from, false, &parsed, error)) {
    *error = absl::StrCat("--ras (or NCCL_RAS_ADDR): ", from, " is not of the form host:port");
    return text.empty();  // a wrong NCCL_RAS_ADDR means no address
  }
  if (!parsed.has_port) parsed.port = kRasPort;
  *address = std::move(parsed);
  return true;
}

RasReport AskRas(const Address& address, std::chrono::milliseconds patience,
                 std::size_t most_bytes) {
  RasReport report;
  Conversation with(std::min(patience, kGreetingPatience));
  if (!Greet(address, patience, &with, &report)) return report;
  with.SetPatience(patience);
  bool is_ok = false;
  if (!Command(&with, "SET FORMAT json", &is_ok)) {
    report.error = "it does not answer in time";
  } else if (!is_ok) {
    report.error =
        "NCCL is older than 2.28.7: it has no JSON report, and its text report can crash the job";
  } else if (!SetTimeout(&with) || !with.Say("STATUS\n")) {
    report.error = "it does not answer as NCCL's RAS does";
  } else if (!with.HearAll(most_bytes, &report.json)) {
    report.error = report.json.empty() ? "it does not answer in time" : "the report is not whole";
  }
  return report;
}

}  // namespace nccl_pulse
