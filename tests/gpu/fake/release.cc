#include "tests/gpu/fake/release.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin/abi/common.h"

namespace nccl_pulse::fake {

int Release() {
  static const int kRelease = [] {
    const char* value = Variable("FAKE_NCCL_VERSION");
    return value != nullptr ? std::atoi(value) : 22809;
  }();
  return kRelease;
}

int ProfilerApi() {
  if (Release() >= 23102) return 7;
  return Release() >= 22902 ? 6 : 5;
}

bool ReportsBroadcast() {
  static const bool kReports = [] {
    const char* enable = Variable("NCCL_ALLGATHERV_ENABLE");
    return Release() < 22902 || (enable != nullptr && std::strcmp(enable, "0") == 0);
  }();
  return kReports;
}

bool Fault(const char* name) {
  static const char* const kFault = Variable("FAKE_NCCL_FAULT");
  return kFault != nullptr && std::strcmp(kFault, name) == 0;
}

void Log(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* format,
         ...) {
  static FILE* const kFile = [] {
    const char* path = Variable("NCCL_DEBUG_FILE");
    FILE* opened = path != nullptr ? std::fopen(path, "a") : nullptr;
    return opened != nullptr ? opened : stderr;
  }();
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::fprintf(kFile, "host:%d:%d [0] NCCL %s %s\n", getpid(), gettid(),
               level == abi::kLogWarn ? "WARN" : "INFO", text);
  std::fflush(kFile);
}

}  // namespace nccl_pulse::fake
