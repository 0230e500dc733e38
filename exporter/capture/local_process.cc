#include "exporter/capture/local_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "exporter/base/descriptor.h"
#include "exporter/base/error_text.h"
#include "exporter/base/nccl_variables.h"
#include "exporter/base/patient_thread.h"
#include "exporter/base/plain_text.h"
#include "exporter/base/proc.h"
#include "exporter/node/handover.h"
#include "exporter/node/service_file.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostEnvironment = 4 << 20;
constexpr std::size_t kMostLog = 1 << 20;

// Finds the user of a process. Fails for a process with several user IDs: a set-user-ID program's
// environment comes from one user, and the files that it can read belong to another.
bool FindUser(int folder, uid_t* user) {
  struct stat status {};
  if (fstat(folder, &status) != 0) return false;
  for (const std::string_view line : absl::StrSplit(ReadFileAt(folder, "status", 16384), '\n')) {
    if (!absl::StartsWith(line, "Uid:")) continue;
    const std::vector<std::string_view> ids =
        absl::StrSplit(line.substr(4), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    for (const std::string_view id : ids) {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(id, &number) || number != status.st_uid) return false;
    }
    *user = status.st_uid;
    return ids.size() == 4;
  }
  return false;
}

std::string WhyNotThisOne(int folder, const ProcessSnapshot& process) {
  constexpr int64_t kClockSlackNs = 2000000000;
  if (folder < 0) return "no process has this pid";
  const int64_t start = ProcStat(ReadFileAt(folder, "stat", 4096)).StartRealtimeNs();
  if (start == 0) return "its start in /proc cannot be read";
  return start - kClockSlackNs > process.start_realtime_ns ? "another process has reused this pid"
                                                           : "";
}

void ReadLog(int folder, uid_t user, const ProcessSnapshot& process, const std::string& name,
             LocalProcess* local) {
  if (name.empty()) {
    local->log_error = "NCCL_DEBUG_FILE is not set; the log went to its output";
    return;
  }
  if (process.pid_namespace != OwnPidNamespace()) {
    local->log_error = "its process is in a container: run pulse capture there";
    return;
  }
  // NCCL's placeholders for host and pid. NCCL never uses a node name for the host.
  const std::string own = HostName();
  const std::string host = own.substr(0, own.find('.'));
  const std::string path =
      absl::StrReplaceAll(name, {{"%h", host}, {"%p", absl::StrCat(process.pid)}});
  if (!absl::StartsWith(path, "/")) {
    local->log_error = absl::StrCat("not collected, because its path is relative: ", path);
    return;
  }
  // Checked before opening: opening a device or a FIFO may have side effects.
  const Descriptor found(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (found.get() < 0 || fstat(found.get(), &status) != 0) {
    local->log_error = absl::StrCat("cannot read ", path);
    return;
  }
  struct stat now {};
  if (!S_ISREG(status.st_mode) || status.st_uid != user || fstat(folder, &now) != 0 ||
      now.st_uid != user) {
    local->log_error = absl::StrCat(path, " is not a regular file of the process' user");
    return;
  }
  // Opens the checked file, whatever is at the path by now.
  const Descriptor file(open(absl::StrCat("/proc/self/fd/", found.get()).c_str(),
                             O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0) {
    local->log_error = absl::StrCat("cannot read ", path);
    return;
  }
  if (status.st_size > static_cast<off_t>(kMostLog)) {
    lseek(file.get(), status.st_size - static_cast<off_t>(kMostLog), SEEK_SET);
  }
  local->log = ReadUpTo(file.get(), kMostLog);
  if (local->log.empty()) local->log_error = absl::StrCat(path, " is empty");
}

Descriptor FolderOf(const ProcessSnapshot& process) {
  return Descriptor(open(absl::StrCat("/proc/", LocalPid(process)).c_str(),
                         O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

LocalProcess Read(const ProcessSnapshot& process, bool (*is_setting)(std::string_view)) {
  LocalProcess local;
  const Descriptor folder = FolderOf(process);
  local.settings_error = WhyNotThisOne(folder.get(), process);
  if (!local.settings_error.empty()) return local;
  uid_t user = 0;
  const std::string environment = ReadFileAt(folder.get(), "environ", kMostEnvironment);
  if (environment.empty() || !FindUser(folder.get(), &user)) {
    local.settings_error = "its environment may not be read: another user's process";
    return local;
  }
  std::string log;
  for (const std::string_view variable : absl::StrSplit(environment, '\0')) {
    if (!is_setting(variable)) continue;
    const std::string_view name = variable.substr(0, variable.find('='));
    absl::StrAppend(
        &local.settings,
        IsSecretVariable(name) ? absl::StrCat(name, "=", kWithheld) : PlainText(variable), "\n");
    if (absl::StartsWith(variable, "NCCL_DEBUG_FILE=")) log = variable.substr(16);
  }
  ReadLog(folder.get(), user, process, log, &local);
  return local;
}

// The kernel limits the number of frames.
constexpr std::size_t kMostStack = 16384, kMostThreads = 256;

// Returns the process' identity, without its communicators.
ProcessSnapshot IdentityOf(const ProcessSnapshot& process) {
  ProcessSnapshot who;
  who.pid = process.pid;
  who.pid_namespace = process.pid_namespace;
  who.seen_pid = process.seen_pid;
  who.seen_in = process.seen_in;
  who.start_realtime_ns = process.start_realtime_ns;
  return who;
}

// Returns "" if `read` has ended within the patience.
std::string Within(std::chrono::milliseconds patience, const std::function<void()>& read) {
  static std::atomic<int> running{0};
  const int problem = RunWithin(patience, &running, kMostLost, read);
  if (problem == EBUSY) return "too many earlier reads of processes still hang";
  if (problem == ETIMEDOUT) return "reading it takes too long";
  return problem == 0 ? "" : absl::StrCat("no thread to read it with: ", ErrorText(problem));
}

}  // namespace

std::string NodeName() {
  const char* name = std::getenv("NCCL_PULSE_NODE_NAME");
  const std::string_view text = absl::StripAsciiWhitespace(name == nullptr ? "" : name);
  return text.empty() ? HostName() : std::string(text);
}

bool IsOwnName(std::string_view hostname) {
  return hostname == HostName() || hostname == NodeName();
}

bool IsThisHost(const Address& address) {
  return IsLoopback(address.host) || address.host == HostName();
}

int32_t LocalPid(const ProcessSnapshot& process) {
  const uint32_t own = OwnPidNamespace();
  if (process.pid_namespace == own) return process.pid;
  return process.seen_in == own ? process.seen_pid : 0;
}

std::string WhyNotHere(const ProcessSnapshot& process, const std::vector<Address>& endpoints) {
  if (!std::all_of(endpoints.begin(), endpoints.end(), IsThisHost)) {
    return "some endpoints are on other hosts; for files of processes, run pulse capture on their "
           "host without addresses";
  }
  if (process.end != ProcessEnd::kLive) return "it has ended";
  if (!IsOwnName(process.hostname)) {
    return absl::StrCat("it is on ", process.hostname, "; also run this there");
  }
  if (LocalPid(process) <= 0) return "it is in a container, where it has another pid";
  return WhyNotThisOne(FolderOf(process).get(), process);
}

bool IsSetting(std::string_view variable) {
  for (const char* prefix : {"CUDA_VISIBLE_DEVICES=", "RANK=", "LOCAL_RANK=", "WORLD_SIZE=",
                             "LOCAL_WORLD_SIZE=", "SLURM_JOB_ID="}) {
    if (absl::StartsWith(variable, prefix)) return true;
  }
  return IsNcclVariable(variable);
}

LocalProcess ReadLocalProcess(const ProcessSnapshot& process,
                              bool (*is_setting)(std::string_view variable),
                              std::chrono::milliseconds patience) {
  const auto local = std::make_shared<LocalProcess>();
  LocalProcess failed;
  failed.settings_error = Within(
      patience, [who = IdentityOf(process), is_setting, local] { *local = Read(who, is_setting); });
  return failed.settings_error.empty() ? std::move(*local) : failed;
}

std::string LocalStateText(int folder, const std::string& cgroup_root) {
  std::string text = absl::StrCat(ReadFileAt(folder, "status", 16384), "\ncgroup:\n",
                                  CgroupText(folder, cgroup_root), "\nthreads:\n");
  const int tasks = openat(folder, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  DIR* const list = tasks < 0 ? nullptr : fdopendir(tasks);
  std::size_t threads = 0;
  while (const dirent* entry = list == nullptr ? nullptr : readdir(list)) {
    if (entry->d_name[0] == '.') continue;
    if (++threads > kMostThreads) continue;
    const Descriptor task(
        openat(tasks, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    absl::StrAppend(&text, entry->d_name, " ",
                    ProcStat(ReadFileAt(task.get(), "stat", 4096)).Field(3), " ",
                    ReadFileAt(task.get(), "wchan", 256), " ", ReadFileAt(task.get(), "comm", 64),
                    ReadFileAt(task.get(), "stack", kMostStack));
  }
  if (list != nullptr) closedir(list);
  if (threads > kMostThreads) absl::StrAppend(&text, "and ", threads - kMostThreads, " more\n");
  return PlainLines(absl::StrReplaceAll(text, {{"\t", " "}}));
}

std::string ReadLocalState(const ProcessSnapshot& process, std::chrono::milliseconds patience,
                           std::string* error) {
  const auto state = std::make_shared<std::pair<std::string, std::string>>();
  *error = Within(patience, [who = IdentityOf(process), state] {
    const Descriptor folder = FolderOf(who);
    state->second = WhyNotThisOne(folder.get(), who);
    if (state->second.empty()) state->first = LocalStateText(folder.get(), "/sys/fs/cgroup");
  });
  if (!error->empty()) return "";
  *error = state->second;
  return state->first;
}

}  // namespace nccl_pulse
