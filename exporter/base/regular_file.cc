#include "exporter/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/base/patient_thread.h"

namespace nccl_pulse {
namespace {

// Limit of threads that wait for a file system. Target files are read again every 10 s.
constexpr int kMostStuck = 4;
std::atomic<int> reading{0};  // relaxed: a limit that orders nothing else

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
  if (reading.fetch_add(1, std::memory_order_relaxed) >= kMostStuck) {
    reading.fetch_sub(1, std::memory_order_relaxed);
    *error = "other files do not answer; is a file system gone?";
    return false;
  }
  const int late = RunWithin(kFilePatience, [state] {
    Read(*state);
    reading.fetch_sub(1, std::memory_order_relaxed);
  });
  if (late == ETIMEDOUT) {
    *error = absl::StrCat("it did not answer within ", kFilePatience.count(),
                          " s; is its file system gone?");
    return false;
  }
  if (late != 0) {
    reading.fetch_sub(1, std::memory_order_relaxed);
    *error = ErrorText(late);
    return false;
  }
  *error = std::move(state->error);
  if (error->empty()) *text = std::move(state->text);
  return error->empty();
}

}  // namespace nccl_pulse
