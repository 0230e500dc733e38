// Driver and Nccl load the CUDA driver and NCCL with dlopen: the program builds on any machine, and
// reports what is missing.
//
// The declarations are our own; facts from nccl.h of NCCL 2.28.9 and cuda.h of CUDA 13.0. The
// loaded symbols are the ones to which cuda.h's macros expand (cuMemAlloc is cuMemAlloc_v2 and so
// on). All exist since CUDA 11.4. The driver API suffices: NCCL uses the current primary context.
//
// Thread: Load once; then any thread. Errors: a sentence; empty is success.
#ifndef BENCH_COLLECTIVE_OVERHEAD_LIBRARIES_H_
#define BENCH_COLLECTIVE_OVERHEAD_LIBRARIES_H_

#include <cstddef>
#include <string>

namespace nccl_pulse::overhead {

using Error = std::string;

// NOLINTBEGIN(readability-identifier-naming): members are named like the symbols.

using CudaContext = void*;
using CudaStream = void*;
using CudaGraph = void*;
using CudaGraphExecutable = void*;
using CudaModule = void*;
using CudaFunction = void*;
using CudaPointer = unsigned long long;

inline constexpr unsigned kCudaStreamNonBlocking = 1;
// A capture that other threads' calls cannot invalidate: all ranks may be threads of one process.
inline constexpr int kCudaCaptureThreadLocal = 1;
inline constexpr int kCudaMultiprocessorCount = 16;

struct Driver {
  int (*cuInit)(unsigned flags);
  int (*cuGetErrorString)(int error, const char** text);
  int (*cuDriverGetVersion)(int* version);
  int (*cuDeviceGetCount)(int* count);
  int (*cuDeviceGet)(int* device, int ordinal);
  int (*cuDeviceGetName)(char* name, int size, int device);
  int (*cuDeviceGetPCIBusId)(char* id, int size, int device);
  int (*cuDeviceGetAttribute)(int* value, int attribute, int device);
  int (*cuDevicePrimaryCtxRetain)(CudaContext* context, int device);
  int (*cuCtxSetCurrent)(CudaContext context);
  int (*cuCtxSynchronize)();
  int (*cuMemAlloc)(CudaPointer* memory, std::size_t bytes);
  int (*cuMemFree)(CudaPointer memory);
  int (*cuMemcpyHtoD)(CudaPointer to, const void* from, std::size_t bytes);
  int (*cuMemcpyDtoH)(void* to, CudaPointer from, std::size_t bytes);
  int (*cuMemsetD32)(CudaPointer to, unsigned value, std::size_t count);
  int (*cuStreamCreate)(CudaStream* stream, unsigned flags);
  int (*cuStreamSynchronize)(CudaStream stream);
  int (*cuStreamBeginCapture)(CudaStream stream, int mode);
  int (*cuStreamEndCapture)(CudaStream stream, CudaGraph* graph);
  int (*cuGraphInstantiate)(CudaGraphExecutable* executable, CudaGraph graph,
                            unsigned long long flags);
  int (*cuGraphLaunch)(CudaGraphExecutable executable, CudaStream stream);
  int (*cuGraphExecDestroy)(CudaGraphExecutable executable);
  int (*cuGraphDestroy)(CudaGraph graph);
  int (*cuModuleLoadData)(CudaModule* module, const void* image);
  int (*cuModuleGetFunction)(CudaFunction* function, CudaModule module, const char* name);
  int (*cuLaunchKernel)(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CudaStream stream, void** parameters, void** extra);

  Error Load();
  // `what`: name of the call, for the error.
  Error Check(int result, const char* what) const;
};

using NcclComm = void*;
struct NcclUniqueId {
  char bytes[128];
};
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclSum = 0;

struct Nccl {
  int (*ncclGetVersion)(int* version);
  const char* (*ncclGetErrorString)(int result);
  const char* (*ncclGetLastError)(NcclComm comm);
  int (*ncclGetUniqueId)(NcclUniqueId* id);
  int (*ncclCommInitRank)(NcclComm* comm, int nranks, NcclUniqueId id, int rank);
  int (*ncclCommDestroy)(NcclComm comm);
  int (*ncclAllReduce)(const void* send, void* recv, std::size_t count, int type, int op,
                       NcclComm comm, CudaStream stream);
  int (*ncclAllGather)(const void* send, void* recv, std::size_t count, int type, NcclComm comm,
                       CudaStream stream);
  int (*ncclReduceScatter)(const void* send, void* recv, std::size_t count, int type, int op,
                           NcclComm comm, CudaStream stream);
  int (*ncclBroadcast)(const void* send, void* recv, std::size_t count, int type, int root,
                       NcclComm comm, CudaStream stream);
  int (*ncclSend)(const void* send, std::size_t count, int type, int peer, NcclComm comm,
                  CudaStream stream);
  int (*ncclRecv)(void* recv, std::size_t count, int type, int peer, NcclComm comm,
                  CudaStream stream);
  int (*ncclGroupStart)();
  int (*ncclGroupEnd)();

  Error Load(const std::string& path);
  Error Check(int result, const char* what, NcclComm comm) const;
};

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_LIBRARIES_H_
