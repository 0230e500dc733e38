#include "exporter/fleet/ras_report.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "exporter/fleet/resolver.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint16_t kRasPort = 28028;
constexpr std::size_t kMostLineBytes = 256;
constexpr std::size_t kMostFindingBytes = 2048;  // 1024 of a finding, and where it is from

class Conversation {
 public:
  explicit Conversation(std::chrono::milliseconds patience) : end_(Clock::now() + patience) {}
  ~Conversation() {
    if (fd_ >= 0) close(fd_);
  }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

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
    // Short, and the first in an empty buffer: it goes whole or not at all.
    return send(fd_, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  }

  // A line without its end; false when there is none in time.
  bool Hear(std::string* line, std::size_t most_bytes = kMostLineBytes) {
    while (read_.find('\n') == read_.npos) {
      if (read_.size() > most_bytes || !Read()) return false;
    }
    const std::size_t end = read_.find('\n');
    *line = read_.substr(0, end);
    read_.erase(0, end + 1);
    return true;
  }

  // All until the other side closes. False: it did not, or said too much.
  bool HearAll(std::string* text) {
    while (read_.size() <= kMostRasBytes && Read()) {
    }
    *text = read_.substr(0, kMostRasBytes);
    return is_closed_ && read_.size() <= kMostRasBytes;
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

  const Clock::time_point end_;
  int fd_ = -1;
  std::string read_;
  bool is_closed_ = false;
};

// False: whoever listens there is not RAS.
bool Greet(const Address& address, std::chrono::milliseconds patience, Conversation* with) {
  const auto hosts = ResolveHosts({address.host}, patience);
  const auto found = hosts.find(address.host);
  if (found == hosts.end()) return false;
  const bool is_connected =
      std::any_of(found->second.addresses.begin(), found->second.addresses.end(),
                  [&](const sockaddr_storage& each) { return with->Connect(each, address.port); });
  std::string line;
  return is_connected && with->Say("CLIENT PROTOCOL 2\n") && with->Hear(&line) &&
         absl::StartsWithIgnoreCase(line, "SERVER PROTOCOL ");
}

// RAS waits so long for other processes' answers, and as long again if one is slow.
bool SetTimeout(Conversation* with) {
  const int64_t wait_s = std::max<int64_t>(1, with->LeftMs() / 3000);
  std::string line;
  return with->Say(absl::StrCat("TIMEOUT ", wait_s, "\n")) && with->Hear(&line) && line == "OK";
}

// The finding in a line of RAS' diagnostics, with its tag; "": it is none.
std::string_view FindingIn(std::string_view line) {
  constexpr std::string_view kMark = " NCCL DIAG ";
  const std::size_t mark = line.find(kMark);
  if (mark == line.npos) return "";
  line.remove_prefix(mark + kMark.size());
  return absl::StartsWith(line, "[") ? line : "";
}

bool IsOfOneOf(std::string_view finding, const std::set<uint64_t>& comm_ids) {
  constexpr std::string_view kComm = "in comm 0x";
  const std::size_t comm = finding.find(kComm);
  if (comm == finding.npos) return false;
  finding.remove_prefix(comm + kComm.size());
  uint64_t id = 0;
  return absl::SimpleHexAtoi(finding.substr(0, finding.find_first_not_of("0123456789abcdef")),
                             &id) &&
         comm_ids.count(id) != 0;
}

// What a finding holds against hardware, without its tag; "": nothing. RAS marks faults as [INFO],
// and with them what it could not find out.
std::string_view FaultIn(std::string_view finding) {
  if (!absl::ConsumePrefix(&finding, "[INFO] ")) return "";
  const auto is_any = [](const auto& list, auto is) {
    return std::any_of(std::begin(list), std::end(list), is);
  };
  constexpr std::string_view kHardware[] = {"ECC: ",     "NVLink: ",        "Xid ",
                                            "SXid ",     "GPU inventory: ", "CUDA driver version: ",
                                            "Net device"};
  constexpr std::string_view kHarmless[] = {"unavailable",    "incomplete",     "consistent",
                                            "no uncorrected", "skipped across", "not inspected"};
  const bool is_fault =
      is_any(kHardware, [&](std::string_view each) { return absl::StartsWith(finding, each); }) &&
      !is_any(kHarmless, [&](std::string_view each) { return absl::StrContains(finding, each); });
  return is_fault ? finding : "";
}

// Lines that cannot steer a terminal.
std::string Plain(const std::string& text) {
  std::string plain;
  for (const std::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&plain, CopyFromShared(line.data(), line.size()), "\n");
  }
  while (absl::EndsWith(plain, "\n\n")) plain.pop_back();
  return plain;
}

}  // namespace

bool RasFromFlag(const std::string& text, std::optional<Address>* address, std::string* error) {
  if (text == "off") return true;
  std::string from = text;
  if (const char* set = std::getenv("NCCL_RAS_ADDR");
      from.empty()) {  // NOLINT(concurrency-mt-unsafe)
    from = set == nullptr || *set == '\0' ? "localhost" : set;
  }
  Address parsed;
  if (absl::StrContains(from, "/") || !ParseAddress(from, false, &parsed, error)) {
    *error = absl::StrCat("--ras (or NCCL_RAS_ADDR): ", from, " is not of the form host:port");
    return text.empty();  // what the job was told does not matter here
  }
  if (!parsed.has_port) parsed.port = kRasPort;
  *address = std::move(parsed);
  return true;
}

RasReport AskRas(const Address& address, std::chrono::milliseconds patience) {
  RasReport report;
  Conversation with(patience);
  if (!Greet(address, patience, &with)) return report;
  if (!SetTimeout(&with) || !with.Say("VERBOSE STATUS\n")) {
    report.error = "it does not answer as NCCL's RAS does";
    return report;
  }
  const bool is_whole = with.HearAll(&report.text);
  report.text = report.text.empty() ? "" : Plain(report.text);
  if (!is_whole) {
    report.error = report.text.empty() ? "it does not answer in time" : "the report is not whole";
  }
  return report;
}

std::vector<std::string> AskRasForFaults(const Address& address, std::chrono::milliseconds patience,
                                         const std::set<uint64_t>& comm_ids) {
  std::vector<std::string> faults;
  Conversation with(patience);
  if (!Greet(address, patience, &with) || !SetTimeout(&with) || !with.Say("DIAGNOSTICS\n")) {
    return faults;
  }
  std::string line;
  bool is_of_job = false;
  for (std::size_t bytes = 0; bytes < kMostRasBytes && with.Hear(&line, kMostFindingBytes);
       bytes += line.size() + 1) {
    // Older ones do not know the command, and wait for another.
    if (absl::StartsWith(line, "ERROR") || absl::StartsWith(line, "BUSY")) break;
    const std::string_view finding = FindingIn(line), fault = FaultIn(finding);
    const bool has_comm = absl::StrContains(finding, "in comm 0x");
    const bool is_ours = IsOfOneOf(finding, comm_ids);
    is_of_job |= is_ours;
    const bool is_wanted = !fault.empty() && (is_ours || !has_comm);
    if (is_wanted && faults.size() < kMostRasFindings) {
      faults.push_back(CopyFromShared(fault.data(), fault.size()));
    }
  }
  // An Xid names a host, not a communicator: the others say whose RAS this is.
  if (!is_of_job) faults.clear();
  return faults;
}

}  // namespace nccl_pulse
