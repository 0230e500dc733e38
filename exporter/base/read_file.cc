#include "exporter/base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

std::string ReadFile(const std::string& path, std::size_t most) {
  SharedDescriptor file;
  {
    const ForkGuard guard;
    file.Set(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < most) {
    const ssize_t size =
        read(file.get(), buffer.data(), std::min(buffer.size(), most - text.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  file.Close();
  return text;
}

}  // namespace nccl_pulse
