#include "exporter/base/process_use.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "exporter/base/read_file.h"

namespace nccl_pulse {
namespace {

double SecondsOf(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Field `index` from 0 on; 0: there is none.
double FieldOf(std::string_view text, std::size_t index) {
  const std::vector<std::string_view> fields = absl::StrSplit(text, ' ');
  double value = 0;
  return index < fields.size() && absl::SimpleAtod(fields[index], &value) ? value : 0;
}

double StartSeconds() {
  const std::string stat = ReadFile("/proc/self/stat");
  const std::size_t name_end = stat.rfind(") ");  // the name may contain anything
  if (name_end == stat.npos) return 0;
  const double ticks = FieldOf(std::string_view(stat).substr(name_end + 2), 22 - 3);
  if (ticks == 0) return 0;
  return SecondsOf(CLOCK_REALTIME) - SecondsOf(CLOCK_BOOTTIME) +
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
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

ProcessUse ReadProcessUse() {
  // Once: the difference of two clocks would be a restart in Prometheus' eyes.
  static const double start_seconds = StartSeconds();
  ProcessUse use;
  use.start_seconds = start_seconds;
  use.cpu_seconds = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
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
