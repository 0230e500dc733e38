#include "exporter/capture/capture_folder.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStart = "nccl-pulse-auto-";
constexpr std::string_view kEnd = ".tar.gz";
constexpr std::string_view kPartial = ".partial-";

// Time of a capture, from its name.
struct Taken {
  std::string_view time;  // 20261122-221500
  uint64_t number = 0;    // of several in one second

  bool operator<(const Taken& other) const {
    return std::tie(time, number) < std::tie(other.time, other.number);
  }
};

struct Found {
  std::string path;
  std::string name;
  uint64_t bytes = 0;
};

// Returns this user's plain files. Leaves out what cannot be inspected.
std::vector<Found> OwnFiles(const CaptureFolder& folder) {
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator at(folder.path, error), end; !error && at != end;
       at.increment(error)) {
    struct stat status {};
    const std::string path = at->path().string();
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != geteuid()) {
      continue;
    }
    found.push_back({path, at->path().filename().string(), static_cast<uint64_t>(status.st_size)});
  }
  return found;
}

bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// Returns the prefix of an agent's captures: "nccl-pulse-auto-node7-9410-".
std::string StartOf(const CaptureFolder& folder) {
  constexpr std::size_t kMostHost = 100;  // a file name has at most 255 bytes
  std::string host = folder.host.substr(0, kMostHost);
  for (char& c : host) {
    const bool is_plain =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-';
    if (!is_plain) c = '_';
  }
  return absl::StrCat(kStart, host, "-", folder.port, "-");
}

// Returns nothing for a capture of another agent.
std::optional<Taken> ParseOwn(const CaptureFolder& folder, std::string_view name) {
  if (!absl::ConsumePrefix(&name, StartOf(folder)) || !absl::ConsumeSuffix(&name, kEnd)) {
    return std::nullopt;
  }
  // 20261122-221500, and an optional number. Exact match: another agent's host and port may begin
  // like this one's.
  constexpr std::size_t kDay = 8, kTime = 15;
  if (name.size() < kTime || !IsDigits(name.substr(0, kDay)) || name[kDay] != '-' ||
      !IsDigits(name.substr(kDay + 1, kTime - kDay - 1))) {
    return std::nullopt;
  }
  Taken taken{name.substr(0, kTime)};
  if (name.size() == kTime) return taken;
  const std::string_view number = name.substr(kTime + 1);
  const bool is_number =
      name[kTime] == '-' && IsDigits(number) && absl::SimpleAtoi(number, &taken.number);
  return is_number ? std::optional(taken) : std::nullopt;
}

}  // namespace

bool IsOwnCapture(const CaptureFolder& folder, std::string_view name) {
  return ParseOwn(folder, name).has_value();
}

std::string NewCapturePath(const CaptureFolder& folder, int64_t now_realtime_ns) {
  const std::string start = absl::StrCat(
      folder.path, "/", StartOf(folder),
      absl::FormatTime("%Y%m%d-%H%M%S", absl::FromUnixNanos(now_realtime_ns), absl::UTCTimeZone()));
  std::string path = absl::StrCat(start, kEnd);
  for (int i = 2; access(path.c_str(), F_OK) == 0 && i < 1000; ++i) {
    path = absl::StrCat(start, "-", i, kEnd);
  }
  return path;
}

void RemoveOldCaptures(const CaptureFolder& folder, const CaptureLimits& limits) {
  std::vector<Found> captures = OwnFiles(folder);
  captures.erase(
      std::remove_if(captures.begin(), captures.end(),
                     [&](const Found& each) { return !IsOwnCapture(folder, each.name); }),
      captures.end());
  std::sort(captures.begin(), captures.end(), [&](const Found& a, const Found& b) {
    return *ParseOwn(folder, a.name) < *ParseOwn(folder, b.name);
  });
  uint64_t bytes = 0;
  for (const Found& each : captures) bytes += each.bytes;
  for (std::size_t i = 0; i + 1 < captures.size(); ++i) {
    if (captures.size() - i <= limits.captures && bytes <= limits.bytes) return;
    if (unlink(captures[i].path.c_str()) == 0) bytes -= captures[i].bytes;
  }
}

void RemovePartialCaptures(const CaptureFolder& folder) {
  for (const Found& each : OwnFiles(folder)) {
    const std::size_t at = each.name.rfind(kPartial);
    pid_t pid = 0;
    if (at == each.name.npos || !IsOwnCapture(folder, each.name.substr(0, at)) ||
        !absl::SimpleAtoi(each.name.substr(at + kPartial.size()), &pid) || pid <= 0) {
      continue;
    }
    if (pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH)) unlink(each.path.c_str());
  }
}

}  // namespace nccl_pulse
