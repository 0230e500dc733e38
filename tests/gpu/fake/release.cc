#include "tests/gpu/fake/release.h"

#include <cstdlib>
#include <cstring>

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

}  // namespace nccl_pulse::fake
