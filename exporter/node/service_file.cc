#include "exporter/node/service_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// Without ForkGuard: the file system may be slow, and a child that keeps this open does no harm.
bool WriteWhole(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return false;
  const ssize_t written = write(file, text.data(), text.size());
  close(file);
  return written == static_cast<ssize_t>(text.size());
}

}  // namespace

std::string ServiceTargets(const std::string& address, int port, bool https) {
  if (port == 0) return "[]\n";
  const std::string host = HostName();
  const bool everywhere =
      absl::StartsWith(address, "[::]:") || absl::StartsWith(address, "0.0.0.0:");
  // Neither a host name nor an address contains a character that JSON would escape.
  return absl::StrCat("[{\"targets\": [\"", everywhere ? absl::StrCat(host, ":", port) : address,
                      "\"], \"labels\": {\"__scheme__\": \"", https ? "https" : "http",
                      "\", \"__meta_nccl_pulse_host\": \"", host, "\"}}]\n");
}

bool ServiceFile::Write(const std::string& address, int port, bool https, std::string* error) {
  if (directory_.empty() || port == 0) return true;
  const std::string name = absl::StrCat(directory_, "/nccl-pulse-", HostName(), "-", port);
  const std::string temporary = absl::StrCat(name, ".", getpid(), ".tmp");
  path_ = name + ".json";
  if (WriteWhole(temporary, ServiceTargets(address, port, https)) &&
      rename(temporary.c_str(), path_.c_str()) == 0) {
    return true;
  }
  std::array<char, 128> buffer;
  *error =
      absl::StrCat("cannot write ", path_, ": ", strerror_r(errno, buffer.data(), buffer.size()));
  unlink(temporary.c_str());
  path_.clear();
  return false;
}

void ServiceFile::Remove() {
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
}

}  // namespace nccl_pulse
