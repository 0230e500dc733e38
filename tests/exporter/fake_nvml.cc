// libnvidia-ml.so.1 without a GPU. The test sets what it says through FakeNvml.
#include "tests/exporter/fake_nvml.h"

#include <thread>

namespace {
nccl_pulse::FakeNvml g_fake;
nccl_pulse::FakeNvmlHangs g_hangs{false};
}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVML's names.
extern "C" {
nccl_pulse::FakeNvml* NcclPulseFakeNvml() { return &g_fake; }
nccl_pulse::FakeNvmlHangs* NcclPulseFakeNvmlHangs() { return &g_hangs; }
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = &g_fake;
  return g_fake.uuid == uuid ? 0 : 6;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &g_fake;
  return index == 0 ? 0 : 2;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count,
                                            nccl_pulse::FakeNvml::Process* infos) {
  const unsigned room = infos == nullptr ? 0 : *count;
  *count = g_fake.processes;
  if (g_fake.processes > room) return 7;
  for (unsigned i = 0; i < g_fake.processes; ++i) infos[i].pid = 1000 + i;
  return 0;
}
int nvmlDeviceGetSamples(void*, int type, unsigned long long since_us, int*, unsigned* count,
                         nccl_pulse::FakeNvml::Sample* samples) {
  while (g_hangs) std::this_thread::yield();
  g_fake.asked += static_cast<int>(type == 1);
  unsigned used = 0;
  for (const auto& sample : type == 2 ? g_fake.memory : g_fake.samples) {
    if (sample.time_us >= since_us && used < *count) samples[used++] = sample;
  }
  *count = used;
  return (type == 1 || type == 2) && used != 0 ? 0 : 6;
}
}
// NOLINTEND(readability-identifier-naming)
