#include "plugin/identity.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nccl_pulse {
namespace {

std::string FirstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = getenv(name);
    if (value != nullptr && value[0] != '\0') return value;
  }
  return "";
}

// The few driver calls that identify a device. Types as in cuda.h 13.0: CUresult and CUdevice are
// int, CUuuid is 16 bytes.
struct Driver {
  int (*get_device)(int* device) = nullptr;                             // cuCtxGetDevice
  int (*get_uuid)(unsigned char* uuid, int device) = nullptr;           // cuDeviceGetUuid_v2
  int (*get_pci_bus_id)(char* text, int length, int device) = nullptr;  // cuDeviceGetPCIBusId

  bool Load() {
    // Never closed: it is the job's own driver library.
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    get_device = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuCtxGetDevice"));
    void* uuid = dlsym(library, "cuDeviceGetUuid_v2");
    if (uuid == nullptr) uuid = dlsym(library, "cuDeviceGetUuid");
    get_uuid = reinterpret_cast<int (*)(unsigned char*, int)>(uuid);
    get_pci_bus_id =
        reinterpret_cast<int (*)(char*, int, int)>(dlsym(library, "cuDeviceGetPCIBusId"));
    return get_device != nullptr && get_uuid != nullptr && get_pci_bus_id != nullptr;
  }
};

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

// The kernel driver's number of the device ("Device Minor"), which nvidia-smi and DCGM order by.
// The CUDA ordinal is no substitute: CUDA_VISIBLE_DEVICES renumbers it.
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

GpuIdentity FindCurrentGpu() {
  // Looked for once. Init's lock makes this safe; a guarded static would not survive a fork in
  // here. And a fork while another thread is in dlopen leaves a child that must not call it.
  static Driver driver;
  static bool looked = false;
  static bool found = false;
  if (!looked) found = driver.Load();
  looked = true;
  GpuIdentity gpu;
  int device = 0;
  unsigned char uuid[16] = {};
  char bus_id[32] = {};
  if (!found || driver.get_device(&device) != 0) return gpu;
  if (driver.get_uuid(uuid, device) == 0) gpu.uuid = FormatUuid(uuid);
  if (driver.get_pci_bus_id(bus_id, sizeof(bus_id), device) == 0) {
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
