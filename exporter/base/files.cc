#include "exporter/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/base/patient_thread.h"

namespace nccl_pulse {
namespace {

// Limit of threads that wait for a file system. Target files are read again every 10 s.
constexpr int kMostStuck = 4;
std::atomic<int> reading{0};

struct Reading {
  std::string path;
  std::size_t limit = 0;
  std::string text, error;
};

void Read(Reading& reading) {
  const int fd = OpenRegularFile(reading.path, O_RDONLY, 0, &reading.error);
  if (fd < 0) return;
  char buffer[65536];
  while (reading.error.empty()) {
    const ssize_t size = read(fd, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) reading.error = ErrorText(errno);
    if (size <= 0) break;
    reading.text.append(buffer, static_cast<std::size_t>(size));
    if (reading.text.size() > reading.limit) {
      reading.error = reading.limit >= 1 << 20
                          ? absl::StrCat("it is larger than ", reading.limit >> 20, " MiB")
                          : absl::StrCat("it is larger than ", reading.limit, " bytes");
    }
  }
  close(fd);
}

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

int OpenRegularFile(const std::string& path, int flags, mode_t mode, std::string* error) {
  const int fd = open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) {
    *error = ErrorText(errno);
  } else if (!S_ISREG(status.st_mode)) {
    *error = S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a regular file";
  } else {
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

bool ReadRegularFile(const std::string& path, std::size_t limit, std::string* text,
                     std::string* error) {
  text->clear();
  auto state = std::make_shared<Reading>();
  state->path = path;
  state->limit = limit;
  const int problem = RunWithin(kFilePatience, &reading, kMostStuck, [state] { Read(*state); });
  if (problem == EBUSY) {
    *error = "other files do not answer; is a file system gone?";
  } else if (problem == ETIMEDOUT) {
    *error = absl::StrCat("it did not answer within ", kFilePatience.count(),
                          " s; is its file system gone?");
  } else {
    *error = problem == 0 ? std::move(state->error) : ErrorText(problem);
  }
  if (error->empty()) *text = std::move(state->text);
  return error->empty();
}

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
