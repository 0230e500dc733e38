#include "exporter/timeline/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

bool Fail(const std::string& path, int reason, std::string* error) {
  *error = absl::StrCat("cannot write ", path, ": ",
                        std::error_code(reason, std::generic_category()).message());
  return false;
}

bool IsSpecial(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

// Returns 0 or an errno.
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

bool IsStandardOutput(const std::string& path) {
  struct stat there {
  }, output{};
  return stat(path.c_str(), &there) == 0 && fstat(STDOUT_FILENO, &output) == 0 &&
         there.st_dev == output.st_dev && there.st_ino == output.st_ino;
}

bool CanWriteWhole(const std::string& path, std::string* error) {
  if (IsStandardOutput(path)) return true;
  if (IsSpecial(path)) return access(path.c_str(), W_OK) == 0 || Fail(path, errno, error);
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) {
    *error = absl::StrCat(path, " exists already, and is kept; choose another --out");
    return false;
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    *error = absl::StrCat("there is no folder ", folder, "; create it");
    return false;
  }
  return access(folder.c_str(), W_OK | X_OK) == 0 || Fail(path, errno, error);
}

bool WriteWhole(const std::string& path, const std::string& content, std::string* error) {
  if (IsStandardOutput(path)) {
    const int failure = WriteAll(STDOUT_FILENO, content);
    return failure == 0 || Fail(path, failure, error);
  }
  const bool is_special = IsSpecial(path);
  const std::string target = is_special ? path : absl::StrCat(path, ".partial-", getpid());
  const int fd =
      open(target.c_str(),
           is_special ? O_WRONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Fail(path, errno, error);
  int failure = WriteAll(fd, content);
  if (close(fd) != 0 && failure == 0) failure = errno;
  if (is_special) return failure == 0 || Fail(path, failure, error);
  // A link, unlike a rename, fails if the target exists by now.
  if (failure == 0 && link(target.c_str(), path.c_str()) != 0) {
    failure = errno;
    // A file system without links; the errno varies.
    const bool has_no_links =
        failure == EPERM || failure == ENOSYS || failure == EOPNOTSUPP || failure == EMLINK;
    if (has_no_links && access(path.c_str(), F_OK) != 0) {
      failure = rename(target.c_str(), path.c_str()) == 0 ? 0 : errno;
    }
  }
  unlink(target.c_str());
  return failure == 0 || Fail(path, failure, error);
}

}  // namespace nccl_pulse
