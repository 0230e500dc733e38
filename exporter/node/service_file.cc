#include "exporter/node/service_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exporter/base/error_text.h"
#include "exporter/base/files.h"
#include "exporter/base/proc.h"

namespace nccl_pulse {
namespace {

// Returns this boot's id.
std::string BootId() {
  return std::string(absl::StripAsciiWhitespace(ReadFile("/proc/sys/kernel/random/boot_id")));
}

// Returns "nccl-pulse-node17-", to which the port is appended.
std::string NamePrefix() { return absl::StrCat("nccl-pulse-", HostName(), "-"); }

std::string BootLabel(const std::string& boot) {
  return absl::StrCat("\"__meta_nccl_pulse_boot\": \"", boot, "\"");
}

// True if the file's process is gone. No ForkGuard here and below: the file system may be slow, and
// a child that inherits this descriptor does no harm.
bool IsAbandoned(const std::string& path, const std::string& boot) {
  SharedDescriptor file;
  std::string error;
  file.Set(OpenRegularFile(path, O_RDONLY | O_NOFOLLOW, 0, &error));
  std::array<char, 2048> text;
  const ssize_t size = read(file.get(), text.data(), text.size());
  struct stat now {};
  const bool is_abandoned =
      size > 0 &&
      absl::StrContains(std::string_view(text.data(), static_cast<std::size_t>(size)),
                        BootLabel(boot)) &&
      flock(file.get(), LOCK_SH | LOCK_NB) == 0 &&
      // No other file has replaced it meanwhile.
      lstat(path.c_str(), &now) == 0 && FileIdentity{now.st_dev, now.st_ino} == file.identity();
  file.Close();
  return is_abandoned;
}

}  // namespace

std::string ServiceTargets(const std::string& address, int port, bool https,
                           const std::string& boot) {
  if (port == 0) return "[]\n";
  const std::string host = HostName();
  const bool everywhere =
      absl::StartsWith(address, "[::]:") || absl::StartsWith(address, "0.0.0.0:");
  // Neither a host name nor an address contains a character that JSON would escape.
  return absl::StrCat("[{\"targets\": [\"", everywhere ? absl::StrCat(host, ":", port) : address,
                      "\"], \"labels\": {\"__scheme__\": \"", https ? "https" : "http",
                      "\", \"__meta_nccl_pulse_host\": \"", host, "\"",
                      boot.empty() ? "" : absl::StrCat(", ", BootLabel(boot)), "}}]\n");
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

bool ServiceFile::Write(const std::string& address, int port, bool https, std::string* error) {
  if (directory_.empty() || port == 0) return true;
  address_ = address;
  port_ = port;
  is_https_ = https;
  const std::string name = absl::StrCat(directory_, "/", NamePrefix(), port);
  const std::string temporary = absl::StrCat(name, ".", getpid(), ".tmp");
  path_ = name + ".json";
  file_.Close();
  // The folder may be writable by others: never opens a file that they put at this name.
  unlink(temporary.c_str());
  std::string problem;
  file_.Set(OpenRegularFile(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644, &problem));
  // A file that cannot be locked must not be removed by others, so it has no boot id.
  const bool is_locked = flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
  const std::string text =
      ServiceTargets(address, port, https, is_locked ? BootId() : std::string());
  if (problem.empty()) {
    if (write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        rename(temporary.c_str(), path_.c_str()) == 0) {
      RemoveAbandoned();
      return true;
    }
    problem = ErrorText(errno);
    unlink(temporary.c_str());
  }
  FailToWrite(path_, problem, error);
  path_.clear();
  file_.Close();
  return false;
}

bool ServiceFile::Restore(std::string* error) {
  struct stat now {};
  if (path_.empty() || lstat(path_.c_str(), &now) == 0 || errno != ENOENT) return true;
  return Write(std::string(address_), port_, is_https_, error);
}

void ServiceFile::RemoveAbandoned() const {
  DIR* folder = directory_.empty() ? nullptr : opendir(directory_.c_str());
  if (folder == nullptr) return;
  const std::string prefix = NamePrefix();
  const std::string boot = BootId();
  while (const dirent* entry = readdir(folder)) {
    std::string_view port = entry->d_name;
    if (!absl::ConsumePrefix(&port, prefix)) continue;
    // "9410.json", or "9410.4711.tmp" of a process killed while writing.
    const std::size_t digits = port.find_first_not_of("0123456789");
    if (digits == 0 || digits == port.npos || port[digits] != '.') continue;
    const std::string path = absl::StrCat(directory_, "/", entry->d_name);
    if (!boot.empty() && IsAbandoned(path, boot)) unlink(path.c_str());
  }
  closedir(folder);
}

void ServiceFile::Remove() {
  struct stat now {};
  if (!path_.empty() && lstat(path_.c_str(), &now) == 0 &&
      FileIdentity{now.st_dev, now.st_ino} == file_.identity()) {
    unlink(path_.c_str());
  }
  path_.clear();
  file_.Close();
}

}  // namespace nccl_pulse
