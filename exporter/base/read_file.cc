#include "exporter/base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

std::string ReadUpTo(int fd, std::size_t most) {
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < most) {
    const ssize_t size = read(fd, buffer.data(), std::min(buffer.size(), most - text.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return text;
}

std::string ReadFile(const std::string& path, std::size_t most) {
  SharedDescriptor file;
  {
    const ForkGuard guard;
    file.Set(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  std::string text = ReadUpTo(file.get(), most);
  file.Close();
  return text;
}

std::string ReadFileAt(int folder, const char* name, std::size_t most) {
  const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return "";
  std::string text = ReadUpTo(fd, most);
  close(fd);
  return text;
}

}  // namespace nccl_pulse
