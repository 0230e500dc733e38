// Identifies this process and its GPU, for the labels that dashboards join on.
//
// Thread: init, under its lock. Cost: microseconds. Errors: unknown facts are "", never guessed.
#ifndef PLUGIN_RUNTIME_IDENTITY_H_
#define PLUGIN_RUNTIME_IDENTITY_H_

#include <string>

#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

struct ProcessIdentity {
  std::string hostname;
  std::string global_rank;  // RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID
  std::string local_rank;  // LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID
  std::string job_id;      // SLURM_JOB_ID, TORCHELASTIC_RUN_ID, PBS_JOBID, LSB_JOBID
};
ProcessIdentity FindProcessIdentity();

struct GpuIdentity {
  std::string index;       // on the node, as nvidia-smi and dcgm-exporter count GPUs
  std::string uuid;        // "GPU-..."
  std::string pci_bus_id;  // "00000000:18:00.0"
};
// Returns the GPU of the calling thread's current CUDA context, which is set during NCCL's init.
// All fields are "" without a context. `driver` may be null.
GpuIdentity FindCurrentGpu(const CudaDriver* driver);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_IDENTITY_H_
