#include "exporter/base/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"

namespace nccl_pulse {
namespace {

bool FailToExist(const std::string& path, std::string* error) {
  *error = absl::StrCat(path, " exists already, and is kept; choose another --out");
  return false;
}

int WriteAll(int fd, const std::string& content) {
  std::size_t written = 0;
  while (written < content.size()) {
    const ssize_t n = write(fd, content.data() + written, content.size() - written);
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) written += static_cast<std::size_t>(n);
  }
  // A pipe cannot be synced.
  return fsync(fd) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
}

}  // namespace

bool CanCreate(const std::string& path, std::string* error) {
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) return FailToExist(path, error);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    *error = absl::StrCat("there is no folder ", folder, "; create it");
    return false;
  }
  if (access(folder.c_str(), W_OK | X_OK) == 0) return true;
  *error = absl::StrCat("cannot write into ", folder, ": ", ErrorText(errno));
  return false;
}

bool WriteWhole(const std::string& path, const std::string& content, std::string* error) {
  const std::string partial = PartialName(path);
  if (WriteNewFile(partial, content, error) && Publish(partial, path, error)) return true;
  unlink(partial.c_str());
  return false;
}

std::string PartialName(const std::string& path) {
  return absl::StrCat(path, ".partial-", getpid());
}

bool WriteNewFile(const std::string& path, const std::string& content, std::string* error) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return WriteAndClose(fd, path, content, error);
}

bool WriteAndClose(int fd, const std::string& path, const std::string& content,
                   std::string* error) {
  int failure = fd < 0 ? errno : WriteAll(fd, content);
  if (fd >= 0 && close(fd) != 0 && failure == 0) failure = errno;
  return failure == 0 || FailToWrite(path, ErrorText(failure), error);
}

bool Publish(const std::string& partial, const std::string& path, std::string* error) {
  if (renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
    return true;
  }
  // The file system does not support such a rename.
  if ((errno == EINVAL || errno == ENOSYS) && access(path.c_str(), F_OK) != 0 &&
      rename(partial.c_str(), path.c_str()) == 0) {
    return true;
  }
  if (errno == EEXIST) return FailToExist(path, error);
  *error = absl::StrCat("cannot name it ", path, ": ", ErrorText(errno));
  return false;
}

}  // namespace nccl_pulse
