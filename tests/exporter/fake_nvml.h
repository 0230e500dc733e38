#ifndef TESTS_EXPORTER_FAKE_NVML_H_
#define TESTS_EXPORTER_FAKE_NVML_H_

#include <atomic>
#include <string>
#include <vector>

namespace nccl_pulse {

// The stand-in for NVML says this of one GPU.
struct FakeNvml {
  struct Sample {
    unsigned long long time_us;
    unsigned long long value;
  };
  struct Process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
  };
  std::string uuid = "GPU-1";
  unsigned processes = 1;
  std::vector<Sample> samples, memory;
  int asked = 0;
};

// True while the driver hangs: NVML's functions don't return.
using FakeNvmlHangs = std::atomic<bool>;

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_FAKE_NVML_H_
