#include "exporter/base/process_use.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "exporter/base/proc_stat.h"
#include "exporter/base/read_file.h"

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
