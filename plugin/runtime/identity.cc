#include "plugin/runtime/identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "absl/strings/match.h"

namespace nccl_pulse {
namespace {

// What launchers say that know no id: torchrun without --rdzv-id says "none".
bool IsPlaceholder(const char* value) {
  for (const char* placeholder : {"", "none", "null", "default", "n/a", "unknown"}) {
    if (absl::EqualsIgnoreCase(value, placeholder)) return true;
  }
  return false;
}

std::string FirstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = getenv(name);
    if (value != nullptr && !IsPlaceholder(value)) return value;
  }
  return "";
}

std::string FormatUuid(const unsigned char (&uuid)[16]) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[3];
    snprintf(byte, sizeof(byte), "%02x", uuid[i]);
    text += byte;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// The kernel driver's number of the device ("Device Minor"). As a rule it is also the index that
// nvidia-smi and DCGM use, which sort by PCI bus id. The UUID is the label to join on. The CUDA
// ordinal is no substitute: CUDA_VISIBLE_DEVICES renumbers it.
std::string FindNodeIndex(const std::string& short_pci_bus_id) {
  std::string path = "/proc/driver/nvidia/gpus/" + short_pci_bus_id + "/information";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[2048];
  const ssize_t length = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (length <= 0) return "";
  text[length] = '\0';
  const char* line = strstr(text, "Device Minor:");
  if (line == nullptr) return "";
  line += strlen("Device Minor:");
  while (*line == ' ' || *line == '\t') ++line;
  std::string minor;
  while (isdigit(static_cast<unsigned char>(*line)) != 0) minor.push_back(*line++);
  return minor;
}

}  // namespace

ProcessIdentity FindProcessIdentity() {
  ProcessIdentity identity;
  char hostname[256] = {};
  if (gethostname(hostname, sizeof(hostname) - 1) == 0) identity.hostname = hostname;
  identity.global_rank =
      FirstSet({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  identity.local_rank = FirstSet({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"});
  identity.job_id = FirstSet({"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PBS_JOBID", "LSB_JOBID"});
  return identity;
}

GpuIdentity FindCurrentGpu(const CudaDriver* driver) {
  GpuIdentity gpu;
  int device = 0;
  unsigned char uuid[16] = {};
  char bus_id[32] = {};
  if (driver == nullptr || driver->context_get_device(&device) != kCudaSuccess) return gpu;
  if (driver->device_get_uuid(uuid, device) == kCudaSuccess) gpu.uuid = FormatUuid(uuid);
  if (driver->device_get_pci_bus_id(bus_id, sizeof(bus_id), device) == kCudaSuccess) {
    std::string text = bus_id;  // "0000:18:00.0"
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(tolower(c)); });
    gpu.index = FindNodeIndex(text);
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(toupper(c)); });
    // dcgm-exporter writes the domain with eight digits.
    if (text.find(':') == 4) text.insert(0, "0000");
    gpu.pci_bus_id = text;
  }
  return gpu;
}

}  // namespace nccl_pulse
