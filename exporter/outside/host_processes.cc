#include "exporter/outside/host_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "exporter/base/descriptor.h"
#include "exporter/base/patient_thread.h"
#include "exporter/base/plain_text.h"
#include "exporter/base/proc.h"

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
int32_t OwnPid(std::string_view status, int32_t pid) {
  for (const std::string_view line : absl::StrSplit(status, '\n')) {
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
  // From the innermost launcher to the outermost: srun may start mpirun's daemons, mpirun a program.
  // A batch script has a SLURM_PROCID, too, but is no task of a step.
  std::pair<std::string, std::string> open_mpi, pmi, slurm;
  const std::pair<std::string_view, std::string*> wanted[] = {
      {"RANK=", &process->global_rank},
      {"WORLD_SIZE=", &process->world_size},
      {"LOCAL_WORLD_SIZE=", &process->local_world_size},
      {"SLURM_JOB_ID=", &process->slurm_job_id},
      {"NCCL_RAS_ADDR=", &process->ras_address},
      {"NCCL_RAS_ENABLE=", &enabled},
      {"OMPI_COMM_WORLD_RANK=", &open_mpi.first},
      {"OMPI_COMM_WORLD_SIZE=", &open_mpi.second},
      {"PMI_RANK=", &pmi.first},
      {"PMI_SIZE=", &pmi.second},
      {"SLURM_PROCID=", &slurm.first},
      {"SLURM_STEP_NUM_TASKS=", &slurm.second},
  };
  const std::string environment = ReadFileAt(folder, "environ", kMostEnvironBytes);
  for (const std::string_view variable : absl::StrSplit(environment, '\0')) {
    for (const auto& [prefix, value] : wanted) {
      if (!absl::StartsWith(variable, prefix)) continue;
      *value = PlainText(variable.substr(prefix.size(), kMostValueBytes));
    }
  }
  process->is_ras_off = enabled == "0";
  for (const auto& [rank, size] : {open_mpi, pmi, slurm}) {
    if (!process->global_rank.empty() || rank.empty() || size.empty()) continue;
    process->global_rank = rank;
    process->world_size = size;
    process->is_task_rank = true;
  }
}

struct Answer {
  bool is_found = false, has_nccl = false;  // without NCCL: a rank by its environment
  HostProcess process;
};

// `is_on_gpu`: it may have NCCL loaded even if its maps can't be read.
void ReadProcess(const std::string& proc, int32_t pid, bool is_on_gpu, Answer* answer) {
  HostProcess* const process = &answer->process;
  const Descriptor folder(
      open(absl::StrCat(proc, "/", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (folder.get() < 0 || fstat(folder.get(), &status) != 0) return;
  process->pid = pid;
  process->user = status.st_uid;
  answer->has_nccl = ReadMaps(folder.get(), is_on_gpu, process);
  ReadEnvironment(folder.get(), process);
  const bool is_rank = !process->global_rank.empty() && !process->world_size.empty();
  if (!answer->has_nccl && !is_rank) return;
  const ProcStat stat(ReadFileAt(folder.get(), "stat", 4096));
  process->start_realtime_ns = stat.StartRealtimeNs();
  process->state = RunStateIn(stat, folder.get(), absl::StrCat(proc, "/../sys/fs/cgroup"));
  const std::string status_text = ReadFileAt(folder.get(), "status", 16384);
  if (absl::StrContains(status_text, "\nCoreDumping:\t1\n")) {
    process->state = RunState::kDumpingCore;
  }
  process->own_pid = OwnPid(status_text, pid);
  process->network = NetworkOf(folder.get(), proc);
  answer->is_found = process->state != RunState::kEnded && process->state != RunState::kUnknown;
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
  return pids;
}

// Processes whose files have not answered yet, each read by a thread of its own.
std::atomic<int> g_lost{0};

}  // namespace

int ReleaseOf(std::string_view text) {
  const std::vector<std::string_view> parts = absl::StrSplit(text, '.');
  int release = 0;
  for (const std::string_view part : parts) {
    int number = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(part, &number) || number < 0 || number > 99)
      return 0;
    release = release * 100 + number;
  }
  return release;
}

bool HostProcess::IsRasOld() const {
  const int release = ReleaseOf(nccl_version);
  return release != 0 && release < 22807;
}

HostProcesses FindNcclProcesses(std::chrono::milliseconds patience,
                                const std::vector<int32_t>* wanted, const std::string& proc) {
  constexpr std::chrono::milliseconds kPatienceOfOne{500};
  const auto end = std::chrono::steady_clock::now() + patience;
  std::vector<int32_t> pids = wanted != nullptr ? *wanted : PidsIn(proc);
  std::sort(pids.begin(), pids.end());
  HostProcesses result;
  for (const int32_t pid : pids) {
    const auto answer = std::make_shared<Answer>();
    const auto read = [answer, proc, pid, is_on_gpu = wanted != nullptr] {
      ReadProcess(proc, pid, is_on_gpu, answer.get());
      g_lost.fetch_sub(1);
    };
    const bool may_read = std::chrono::steady_clock::now() < end && g_lost.load() < kMostLost;
    if (may_read) g_lost.fetch_add(1);
    const int error = may_read ? RunWithin(kPatienceOfOne, read) : ETIMEDOUT;
    if (error == EAGAIN) g_lost.fetch_sub(1);
    if (error != 0) {
      ++result.unread;
      continue;
    }
    auto& list = answer->has_nccl ? result.processes : result.unloaded;
    if (answer->is_found && list.size() < kMostProcesses) {
      list.push_back(std::move(answer->process));
    }
  }
  return result;
}

bool IsEnding(int32_t pid, const std::string& proc) {
  constexpr std::size_t kFlags = 9;   // of proc(5)
  constexpr unsigned kExiting = 0x4;  // PF_EXITING
  const std::string tasks = absl::StrCat(proc, "/", pid, "/task");
  const std::vector<int32_t> threads = PidsIn(tasks);
  return !threads.empty() && std::all_of(threads.begin(), threads.end(), [&](int32_t thread) {
    const ProcStat stat(ReadFile(absl::StrCat(tasks, "/", thread, "/stat"), 4096));
    unsigned flags = 0;
    return absl::SimpleAtoi(stat.Field(kFlags), &flags) && (flags & kExiting) != 0;
  });
}

}  // namespace nccl_pulse::outside
