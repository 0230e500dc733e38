// libnvidia-ml.so.1 without a GPU. The file SAID_NVML has a line for each GPU: "PERCENT MEMORY_PERCENT PID
// ANOTHER_PID", which has been so for as long as NVML remembers. ANOTHER_PID 0: a single process uses the GPU.
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <vector>

namespace {

struct Said {
  unsigned kernels = 0, memory = 0, pid = 0, other_pid = 0;
};

std::vector<Said> Gpus() {
  const char* path = getenv("SAID_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  std::vector<Said> gpus;
  Said said;
  while (file >> said.kernels >> said.memory >> said.pid >> said.other_pid) gpus.push_back(said);
  return gpus;
}

Said At(void* device) {
  const std::vector<Said> gpus = Gpus();
  const auto index = reinterpret_cast<uintptr_t>(device) - 1;
  return index < gpus.size() ? gpus[index] : Said();
}

struct Sample {
  unsigned long long time_us;
  unsigned value;
};
struct Process {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVML's names.
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char*, void**) { return 6; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Gpus().size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* infos) {
  const unsigned room = infos == nullptr ? 0 : *count;
  const Said said = At(device);
  *count = said.other_pid == 0 ? 1 : 2;
  if (room < *count) return 7;
  infos[0].pid = said.pid;
  if (*count == 2) infos[1].pid = said.other_pid;
  return 0;
}
int nvmlDeviceGetSamples(void* device, int type, unsigned long long since_us, int*, unsigned* count,
                         Sample* samples) {
  const unsigned room = *count;
  const Said said = At(device);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto now_us = static_cast<unsigned long long>(now.tv_sec) * 1000000 +
                      static_cast<unsigned long long>(now.tv_nsec) / 1000;
  *count = 0;
  for (unsigned long long at_us = since_us; at_us < now_us && *count < room; at_us += 200000) {
    samples[(*count)++] = {at_us, type == 1 ? said.kernels : said.memory};
  }
  return 0;
}
}
// NOLINTEND(readability-identifier-naming)
