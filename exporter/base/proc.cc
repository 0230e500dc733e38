#include "exporter/base/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "exporter/base/time.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {
namespace {

// Returns field `index`, from 0 on; 0 if it is missing.
double FieldOf(std::string_view text, std::size_t index) {
  const std::vector<std::string_view> fields = absl::StrSplit(text, ' ');
  double value = 0;
  return index < fields.size() && absl::SimpleAtod(fields[index], &value) ? value : 0;
}

double OpenFiles() {
  struct stat about {};
  if (stat("/proc/self/fd", &about) == 0 && about.st_size > 0)  // from Linux 6.2 on
    return static_cast<double>(about.st_size);
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  double count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace

std::string ReadUpTo(int fd, std::size_t most) {
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < most) {
    const ssize_t size = read(fd, buffer.data(), std::min(buffer.size(), most - text.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return text;
}

std::string ReadFile(const std::string& path, std::size_t most) {
  SharedDescriptor file;
  {
    const ForkGuard guard;
    file.Set(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  std::string text = ReadUpTo(file.get(), most);
  file.Close();
  return text;
}

std::string ReadFileAt(int folder, const char* name, std::size_t most) {
  const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return "";
  std::string text = ReadUpTo(fd, most);
  close(fd);
  return text;
}

ProcStat::ProcStat(std::string line) : line_(std::move(line)) {
  const std::size_t name_end = line_.rfind(") ");
  if (name_end == line_.npos) return;
  fields_ = absl::StrSplit(std::string_view(line_).substr(name_end + 2), ' ');
}

std::string_view ProcStat::Field(std::size_t number) const {
  constexpr std::size_t kFirst = 3;
  return number - kFirst < fields_.size() ? fields_[number - kFirst] : "";
}

int64_t ProcStat::StartRealtimeNs() const {
  constexpr std::size_t kStart = 22;
  constexpr int64_t kBillion = 1000000000;
  int64_t ticks = 0;
  if (!absl::SimpleAtoi(Field(kStart), &ticks)) return 0;
  timespec since_boot{};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return RealtimeNs() - (since_boot.tv_sec * kBillion + since_boot.tv_nsec) +
         ticks * (kBillion / sysconf(_SC_CLK_TCK));
}

RunState ProcStat::State() const {
  constexpr std::size_t kState = 3, kThreads = 20;
  const std::string_view state = Field(kState);
  if (state.size() != 1) return RunState::kUnknown;
  int threads = 0;
  switch (state[0]) {
    case 'T':
      return RunState::kStopped;
    case 't':
      return RunState::kTraced;
    case 'D':
      return RunState::kUninterruptible;
    case 'X':
      return RunState::kEnded;
    case 'Z':  // the first thread may end before the others
      return absl::SimpleAtoi(Field(kThreads), &threads) && threads > 1 ? RunState::kRunning
                                                                        : RunState::kEnded;
    default:
      return RunState::kRunning;
  }
}

std::string CgroupText(int folder, const std::string& root) {
  std::string cgroups = ReadFileAt(folder, "cgroup", 4096);
  for (std::string_view line : absl::StrSplit(cgroups, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::") || absl::StrContains(line, "..")) continue;
    return absl::StrCat(cgroups, ReadFile(absl::StrCat(root, line, "/cgroup.events")));
  }
  return cgroups;
}

RunState RunStateIn(const ProcStat& stat, int folder, const std::string& root) {
  const RunState state = stat.State();
  const bool may_run = state == RunState::kRunning || state == RunState::kUninterruptible;
  const bool is_frozen = may_run && absl::StrContains(CgroupText(folder, root), "\nfrozen 1\n");
  return is_frozen ? RunState::kFrozen : state;
}

ProcessUse ReadProcessUse() {
  // Read once: jitter between two clock reads would look like a restart to Prometheus.
  static const double kStartSeconds =
      static_cast<double>(ProcStat(ReadFile("/proc/self/stat")).StartRealtimeNs()) * 1e-9;
  ProcessUse use;
  use.start_seconds = kStartSeconds;
  timespec cpu_time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_time);
  use.cpu_seconds =
      static_cast<double>(cpu_time.tv_sec) + static_cast<double>(cpu_time.tv_nsec) * 1e-9;
  const std::string pages = ReadFile("/proc/self/statm");
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  use.virtual_bytes = FieldOf(pages, 0) * page_bytes;
  use.resident_bytes = FieldOf(pages, 1) * page_bytes;
  use.open_files = OpenFiles();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) use.most_files = static_cast<double>(files.rlim_cur);
  return use;
}

}  // namespace nccl_pulse
