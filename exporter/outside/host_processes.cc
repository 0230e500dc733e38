#include "exporter/outside/host_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "exporter/base/cgroup.h"
#include "exporter/base/descriptor.h"
#include "exporter/base/plain_text.h"
#include "exporter/base/proc_stat.h"
#include "exporter/base/read_file.h"

namespace nccl_pulse::outside {
namespace {

constexpr std::size_t kMostPids = 65536;
constexpr std::size_t kMostValueBytes = 256;

constexpr std::string_view kNccl = "/libnccl.so", kPlugin = "libnccl-profiler-pulse";

// Returns "2.28.9" for "/libnccl.so.2.28.9"; "": the name has no version.
std::string VersionIn(std::string_view text) {
  const std::size_t at = text.find(kNccl);
  if (at == text.npos) return "";
  text.remove_prefix(at + kNccl.size());
  const std::size_t end = text.find_first_not_of(".0123456789");
  if (end == text.npos || !absl::ConsumePrefix(&text, ".")) return "";
  const std::string_view version = text.substr(0, end - 1);
  return std::count(version.begin(), version.end(), '.') == 2 ? std::string(version) : "";
}

// True if the process has NCCL loaded; `otherwise` if its maps are not readable for this user.
bool ReadMaps(int folder, bool otherwise, HostProcess* process) {
  errno = 0;
  const std::string maps = ReadFileAt(folder, "maps", kMostMapsBytes);
  process->is_guess = otherwise && maps.empty() && (errno == EACCES || errno == EPERM);
  process->has_plugin = absl::StrContains(maps, kPlugin);
  process->nccl_version = VersionIn(maps);
  return process->is_guess || absl::StrContains(maps, kNccl);
}

// Returns the last number of the line NSpid: the pid in the innermost namespace.
int32_t OwnPid(int folder, int32_t pid) {
  for (const std::string_view line : absl::StrSplit(ReadFileAt(folder, "status", 16384), '\n')) {
    if (!absl::StartsWith(line, "NSpid:")) continue;
    int32_t own = 0;
    const std::vector<std::string_view> pids =
        absl::StrSplit(line.substr(6), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (!pids.empty() && absl::SimpleAtoi(pids.back(), &own)) return own;
  }
  return pid;
}

// Returns the inode of the process' network namespace; 0: this program's own, or not readable.
uint64_t NetworkOf(int folder, const std::string& proc) {
  struct stat own {
  }, its{};
  if (fstatat(folder, "ns/net", &its, 0) != 0 ||
      stat(absl::StrCat(proc, "/self/ns/net").c_str(), &own) != 0) {
    return 0;
  }
  return its.st_ino == own.st_ino ? 0 : its.st_ino;
}

void ReadEnvironment(int folder, HostProcess* process) {
  std::string enabled;
  const std::pair<std::string_view, std::string*> wanted[] = {
      {"RANK=", &process->global_rank},
      {"WORLD_SIZE=", &process->world_size},
      {"LOCAL_WORLD_SIZE=", &process->local_world_size},
      {"SLURM_JOB_ID=", &process->slurm_job_id},
      {"NCCL_RAS_ADDR=", &process->ras_address},
      {"NCCL_RAS_ENABLE=", &enabled},
  };
  const std::string environment = ReadFileAt(folder, "environ", kMostEnvironBytes);
  for (const std::string_view variable : absl::StrSplit(environment, '\0')) {
    for (const auto& [prefix, value] : wanted) {
      if (!absl::StartsWith(variable, prefix)) continue;
      *value = PlainText(variable.substr(prefix.size(), kMostValueBytes));
    }
  }
  process->is_ras_off = enabled == "0";
}

enum class Found { kNothing, kNccl, kRankWithoutNccl };

// `is_on_gpu`: it may have NCCL loaded even if its maps can't be read.
Found ReadProcess(const std::string& proc, int32_t pid, bool is_on_gpu, HostProcess* process) {
  const Descriptor folder(
      open(absl::StrCat(proc, "/", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (folder.get() < 0 || fstat(folder.get(), &status) != 0) return Found::kNothing;
  process->pid = pid;
  process->user = status.st_uid;
  const bool has_nccl = ReadMaps(folder.get(), is_on_gpu, process);
  ReadEnvironment(folder.get(), process);
  const bool is_rank = !process->global_rank.empty() && !process->world_size.empty();
  if (!has_nccl && !is_rank) return Found::kNothing;
  const ProcStat stat(ReadFileAt(folder.get(), "stat", 4096));
  process->start_realtime_ns = stat.StartRealtimeNs();
  process->state = RunStateIn(stat, folder.get(), absl::StrCat(proc, "/../sys/fs/cgroup"));
  process->own_pid = OwnPid(folder.get(), pid);
  process->network = NetworkOf(folder.get(), proc);
  if (process->state == RunState::kEnded || process->state == RunState::kUnknown) {
    return Found::kNothing;
  }
  return has_nccl ? Found::kNccl : Found::kRankWithoutNccl;
}

std::vector<int32_t> PidsIn(const std::string& proc) {
  std::vector<int32_t> pids;
  DIR* const folder = opendir(proc.c_str());
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder)) {
    int32_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && pid > 0 && pids.size() < kMostPids) {
      pids.push_back(pid);
    }
  }
  closedir(folder);
  std::sort(pids.begin(), pids.end());
  return pids;
}

// State that the reading threads share with the caller, which doesn't wait for all of them.
struct Scan {
  std::mutex mutex;
  std::condition_variable is_done;
  std::string proc;
  std::vector<int32_t> pids;
  bool are_on_gpus = false;
  std::size_t next = 0, read = 0;  // number of pids begun, and of pids read
  HostProcesses found;
};

std::atomic<int> g_readers{0};

void ReadOn(const std::shared_ptr<Scan>& scan) {
  std::unique_lock<std::mutex> lock(scan->mutex);
  while (scan->next < scan->pids.size()) {
    const int32_t pid = scan->pids[scan->next++];
    lock.unlock();
    HostProcess process;
    const Found found = ReadProcess(scan->proc, pid, scan->are_on_gpus, &process);
    lock.lock();
    auto& list = found == Found::kNccl ? scan->found.processes : scan->found.unloaded;
    if (found != Found::kNothing && list.size() < kMostProcesses) list.push_back(process);
    if (++scan->read == scan->pids.size()) scan->is_done.notify_all();
  }
  g_readers.fetch_sub(1);
}

bool StartReader(const std::shared_ptr<Scan>& scan) {
  try {
    if (g_readers.fetch_add(1) < kMostLost) {
      std::thread([scan] { ReadOn(scan); }).detach();
      return true;
    }
  } catch (const std::system_error&) {
  }
  g_readers.fetch_sub(1);
  return false;
}

}  // namespace

HostProcesses FindNcclProcesses(std::chrono::milliseconds patience,
                                const std::vector<int32_t>* pids, const std::string& proc) {
  constexpr std::chrono::milliseconds kPatienceOfOne{500};
  const auto end = std::chrono::steady_clock::now() + patience;
  const auto scan = std::make_shared<Scan>();
  scan->proc = proc;
  scan->are_on_gpus = pids != nullptr;
  scan->pids = pids != nullptr ? *pids : PidsIn(proc);
  std::unique_lock<std::mutex> lock(scan->mutex);
  // If reading a process blocks, that thread is left behind, and another one continues with the
  // next pid.
  while (scan->next < scan->pids.size() && std::chrono::steady_clock::now() < end &&
         StartReader(scan)) {
    scan->is_done.wait_until(lock, std::min(end, std::chrono::steady_clock::now() + kPatienceOfOne),
                             [&scan] { return scan->read == scan->pids.size(); });
  }
  HostProcesses result = scan->found;
  result.unread = scan->pids.size() - scan->read;
  scan->next = scan->pids.size();
  for (auto* list : {&result.processes, &result.unloaded}) {
    std::sort(list->begin(), list->end(),
              [](const HostProcess& a, const HostProcess& b) { return a.pid < b.pid; });
  }
  return result;
}

}  // namespace nccl_pulse::outside
