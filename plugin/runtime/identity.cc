#include "plugin/runtime/identity.h"

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/proc.h"

namespace nccl_pulse {
namespace {

// True for values that launchers write if there is no id. torchrun without --rdzv-id writes "none".
bool IsPlaceholder(std::string_view value) {
  for (const char* placeholder : {"", "none", "null", "default", "n/a", "unknown"}) {
    if (absl::EqualsIgnoreCase(value, placeholder)) return true;
  }
  return false;
}

std::string FirstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = getenv(name);
    if (value == nullptr) continue;
    // A file of variables with the line ends of Windows leaves a carriage return.
    const std::string_view text = absl::StripAsciiWhitespace(value);
    if (!IsPlaceholder(text)) return std::string(text);
  }
  return "";
}

std::string FormatUuid(const unsigned char (&uuid)[16]) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    absl::StrAppend(&text, absl::Hex(uuid[i], absl::kZeroPad2));
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// Returns the kernel driver's number of the device ("Device Minor"). As a rule it is also the index
// of nvidia-smi and DCGM, which sort GPUs by PCI bus id. The UUID is the label to join on. The CUDA
// ordinal is no substitute: CUDA_VISIBLE_DEVICES renumbers it.
std::string FindNodeIndex(const std::string& short_pci_bus_id) {
  const std::string path = "/proc/driver/nvidia/gpus/" + short_pci_bus_id + "/information";
  constexpr std::string_view kField = "Device Minor:";
  const std::string text = ReadFile(path);
  std::size_t at = text.find(kField);
  if (at == text.npos) return "";
  at = text.find_first_not_of(" \t", at + kField.size());
  if (at == text.npos) return "";
  return text.substr(at, text.find_first_not_of("0123456789", at) - at);
}

}  // namespace

ProcessIdentity FindProcessIdentity() {
  ProcessIdentity identity;
  char hostname[256] = {};
  if (gethostname(hostname, sizeof(hostname) - 1) == 0) identity.hostname = hostname;
  // From the innermost launcher to the outermost: what mpirun or torchrun starts inherits Slurm's
  // number of its launcher.
  identity.global_rank =
      FirstSet({"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  identity.local_rank =
      FirstSet({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
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
    if (driver->simulated_device_index == nullptr) {
      gpu.index = FindNodeIndex(absl::AsciiStrToLower(bus_id));
    } else if (driver->simulated_device_index() >= 0) {
      gpu.index = absl::StrCat(driver->simulated_device_index());
    }
    std::string text = absl::AsciiStrToUpper(bus_id);  // "0000:18:00.0"
    // dcgm-exporter writes the domain with eight digits.
    if (text.find(':') == 4) text.insert(0, "0000");
    gpu.pci_bus_id = text;
  }
  return gpu;
}

}  // namespace nccl_pulse
