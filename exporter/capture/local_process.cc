#include "exporter/capture/local_process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "exporter/base/descriptor.h"
#include "exporter/base/nccl_variables.h"
#include "exporter/base/plain_text.h"
#include "exporter/base/proc_stat.h"
#include "exporter/node/handover.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostEnvironment = 4 << 20;
constexpr std::size_t kMostLog = 1 << 20;

std::string ReadUpTo(int fd, std::size_t most) {
  std::string text;
  char buffer[65536];
  while (text.size() < most) {
    const ssize_t n = read(fd, buffer, std::min(sizeof(buffer), most - text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

std::string ReadAt(int folder, const char* name, std::size_t most) {
  const Descriptor file(openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return file.get() < 0 ? "" : ReadUpTo(file.get(), most);
}

// Finds the user of a process, unless it has several. A set-user-ID program's environment comes
// from another user than the one whose files it can read.
bool FindUser(int folder, uid_t* user) {
  struct stat status {};
  if (fstat(folder, &status) != 0) return false;
  for (const std::string_view line : absl::StrSplit(ReadAt(folder, "status", 16384), '\n')) {
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
  const int64_t start = ProcStat(ReadAt(folder, "stat", 4096)).StartRealtimeNs();
  if (start == 0) return "its start in /proc cannot be read";
  return start - kClockSlackNs > process.start_realtime_ns
             ? "the process of that pid began later: it is another one"
             : "";
}

void ReadLog(int folder, uid_t user, const ProcessSnapshot& process, const std::string& name,
             LocalProcess* local) {
  if (name.empty()) {
    local->log_error = "NCCL_DEBUG_FILE is not set; the log went to its output";
    return;
  }
  if (process.pid_namespace != OwnPidNamespace()) {
    local->log_error = "it is in a container, which may have files of its own";
    return;
  }
  // NCCL's placeholders for host and pid. NCCL never uses a node name for the host.
  const std::string own = HostName();
  const std::string host = own.substr(0, own.find('.'));
  const std::string path =
      absl::StrReplaceAll(name, {{"%h", host}, {"%p", absl::StrCat(process.pid)}});
  if (!absl::StartsWith(path, "/")) {
    local->log_error = absl::StrCat("its path is relative, and not looked for: ", path);
    return;
  }
  // Checked before opening: opening a device or a FIFO may have side effects.
  const Descriptor place(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (place.get() < 0 || fstat(place.get(), &status) != 0) {
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
  const Descriptor file(open(absl::StrCat("/proc/self/fd/", place.get()).c_str(),
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

// `process`: identity only, without communicators.
LocalProcess Read(const ProcessSnapshot& process, bool (*is_setting)(std::string_view)) {
  LocalProcess local;
  const Descriptor folder(open(absl::StrCat("/proc/", LocalPid(process)).c_str(),
                               O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  local.settings_error =
      folder.get() < 0 ? "there is no process of that pid" : WhyNotThisOne(folder.get(), process);
  if (!local.settings_error.empty()) return local;
  uid_t user = 0;
  const std::string environment = ReadAt(folder.get(), "environ", kMostEnvironment);
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

}  // namespace

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string NodeName() {
  const char* name = std::getenv("NCCL_PULSE_NODE_NAME");
  const std::string_view text = absl::StripAsciiWhitespace(name == nullptr ? "" : name);
  return text.empty() ? HostName() : std::string(text);
}

bool IsOwnName(std::string_view hostname) {
  return hostname == HostName() || hostname == NodeName();
}

bool IsThisHost(const Address& address) {
  return address.host == "localhost" || address.host == "::1" ||
         (absl::StartsWith(address.host, "127.") &&
          address.host.find_first_not_of("0123456789.") == address.host.npos) ||
         address.host == HostName();
}

int32_t LocalPid(const ProcessSnapshot& process) {
  const uint32_t own = OwnPidNamespace();
  if (process.pid_namespace == own) return process.pid;
  return process.seen_in == own ? process.seen_pid : 0;
}

std::string WhyNotHere(const ProcessSnapshot& process) {
  if (process.end != ProcessEnd::kLive) return "it has ended";
  if (!IsOwnName(process.hostname)) {
    return absl::StrCat("it is on ", process.hostname, "; run this there, too");
  }
  if (LocalPid(process) <= 0) return "it is in a container, where it has another pid";
  const Descriptor folder(open(absl::StrCat("/proc/", LocalPid(process)).c_str(),
                               O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (folder.get() < 0) return "there is no process of that pid";
  return WhyNotThisOne(folder.get(), process);
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
  static std::atomic<int> running{0};
  LocalProcess failed;
  if (running.fetch_add(1) >= kMostLost) {
    running.fetch_sub(1);
    failed.settings_error = "too many earlier reads of environments or logs have not come back";
    return failed;
  }
  ProcessSnapshot who;
  who.pid = process.pid;
  who.pid_namespace = process.pid_namespace;
  who.seen_pid = process.seen_pid;
  who.seen_in = process.seen_in;
  who.start_realtime_ns = process.start_realtime_ns;
  std::promise<LocalProcess> promise;
  std::future<LocalProcess> future = promise.get_future();
  try {
    std::thread([who = std::move(who), is_setting, promise = std::move(promise)]() mutable {
      LocalProcess local = Read(who, is_setting);
      running.fetch_sub(1);  // first: the caller may ask again once it has the answer
      promise.set_value(std::move(local));
    }).detach();
  } catch (const std::system_error& problem) {
    running.fetch_sub(1);
    failed.settings_error = absl::StrCat("no thread to read it with: ", problem.what());
    return failed;
  }
  if (future.wait_for(patience) == std::future_status::ready) return future.get();
  failed.settings_error = "reading its environment or its log takes too long";
  return failed;
}

}  // namespace nccl_pulse
