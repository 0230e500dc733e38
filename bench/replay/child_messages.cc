#include "bench/replay/child_messages.h"

#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "plugin/abi/common.h"

namespace nccl_pulse {
namespace {

int message_pipe = -1;

}  // namespace

void SetMessagePipe(int fd) {
  message_pipe = fd;
  fcntl(message_pipe, F_SETFL, O_NONBLOCK);
}

void SendMessage(char kind, std::string_view text) {
  std::string line = absl::StrCat(std::string_view(&kind, 1), text.substr(0, PIPE_BUF - 2));
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.push_back('\n');
  while (write(message_pipe, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

bool ShowInformation() {
  static const bool kShow = [] {
    // No other thread of this process changes the environment by now.
    const char* level = std::getenv("NCCL_DEBUG");
    return level != nullptr && (strcasecmp(level, "INFO") == 0 || strcasecmp(level, "TRACE") == 0);
  }();
  return kShow;
}

void LogToParent(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
                 const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (level <= abi::kLogWarn || ShowInformation() || std::strstr(text, "http://") != nullptr) {
    SendMessage(kLogMessage, text);
  }
}

}  // namespace nccl_pulse
