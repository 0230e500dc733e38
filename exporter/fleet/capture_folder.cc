#include "exporter/fleet/capture_folder.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
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

struct Found {
  std::string path;
  std::string name;
  uint64_t bytes = 0;
};

// Plain files of this user. What cannot be looked at is left out.
std::vector<Found> OwnFiles(const std::string& folder) {
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
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

}  // namespace

bool IsAutomaticCapture(std::string_view name) {
  if (!absl::ConsumePrefix(&name, kStart) || !absl::ConsumeSuffix(&name, kEnd)) return false;
  // 20261122-221500, and perhaps a number.
  return name.size() >= 15 && std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

std::string NewCapturePath(const std::string& folder, int64_t now_realtime_ns) {
  const std::string start = absl::StrCat(
      folder, "/", kStart,
      absl::FormatTime("%Y%m%d-%H%M%S", absl::FromUnixNanos(now_realtime_ns), absl::UTCTimeZone()));
  std::string path = absl::StrCat(start, kEnd);
  for (int i = 2; access(path.c_str(), F_OK) == 0 && i < 1000; ++i) {
    path = absl::StrCat(start, "-", i, kEnd);
  }
  return path;
}

void RemoveOldCaptures(const std::string& folder, const CaptureLimits& limits) {
  std::vector<Found> captures = OwnFiles(folder);
  captures.erase(std::remove_if(captures.begin(), captures.end(),
                                [](const Found& each) { return !IsAutomaticCapture(each.name); }),
                 captures.end());
  // Their names have their times; without the end, so that "-2" is after "".
  const auto stem = [](const Found& each) {
    return std::string_view(each.name).substr(0, each.name.size() - kEnd.size());
  };
  std::sort(captures.begin(), captures.end(),
            [&](const Found& a, const Found& b) { return stem(a) < stem(b); });
  uint64_t bytes = 0;
  for (const Found& each : captures) bytes += each.bytes;
  for (std::size_t i = 0; i + 1 < captures.size(); ++i) {
    if (captures.size() - i <= limits.captures && bytes <= limits.bytes) return;
    if (unlink(captures[i].path.c_str()) == 0) bytes -= captures[i].bytes;
  }
}

void RemovePartialCaptures(const std::string& folder) {
  for (const Found& each : OwnFiles(folder)) {
    const std::size_t at = each.name.rfind(kPartial);
    pid_t pid = 0;
    if (at == each.name.npos || !IsAutomaticCapture(each.name.substr(0, at)) ||
        !absl::SimpleAtoi(each.name.substr(at + kPartial.size()), &pid) || pid <= 0) {
      continue;
    }
    if (pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH)) unlink(each.path.c_str());
  }
}

}  // namespace nccl_pulse
