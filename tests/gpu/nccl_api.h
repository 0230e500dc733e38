// The part of NCCL's and the CUDA runtime's C interfaces that these programs use: own declarations,
// because the build must need neither.
//
// Source of the facts: nccl.h of NCCL 2.28.9 (types, numbers, ncclConfig_t) and driver_types.h and
// cuda_runtime_api.h of CUDA 13.0. The numbers have not changed since NCCL 2.18 and CUDA 12.0.
#ifndef TESTS_GPU_NCCL_API_H_
#define TESTS_GPU_NCCL_API_H_

#include <climits>
#include <cstddef>

namespace nccl_pulse {

using NcclResult = int;
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclInvalidArgument = 4;
inline constexpr NcclResult kNcclInProgress = 7;

enum NcclDatatype : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

inline constexpr int kSum = 0;  // ncclSum

using NcclComm = void*;

struct NcclUniqueId {
  char internal[128];
};

// ncclConfig_t as of 2.28. NCCL copies `size` bytes at most (src/init.cc, parseCommConfig), so
// later releases, which append members, take it too.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22800;
  int blocking = INT_MIN;  // INT_MIN and null: not set
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};
static_assert(offsetof(NcclConfig, blocking) == 16);
static_assert(offsetof(NcclConfig, net_name) == 32);
static_assert(offsetof(NcclConfig, split_share) == 40);
static_assert(offsetof(NcclConfig, comm_name) == 48);
static_assert(offsetof(NcclConfig, nvlink_centric_sched) == 76);
static_assert(sizeof(NcclConfig) == 80);

using CudaError = int;
using CudaStream = void*;
using CudaGraph = void*;
using CudaGraphExec = void*;
inline constexpr int kCopyDefault = 4;             // cudaMemcpyDefault
inline constexpr unsigned kStreamNonBlocking = 1;  // cudaStreamNonBlocking
inline constexpr int kCaptureModeGlobal = 0;       // the strictest

// Name and signature of every function, for who loads them and for who fakes them.
#define NCCL_PULSE_NCCL_FUNCTIONS(X)                                                              \
  X(ncclGetVersion, (int* version))                                                               \
  X(ncclGetUniqueId, (NcclUniqueId * id))                                                         \
  X(ncclCommInitRank, (NcclComm * comm, int nranks, NcclUniqueId id, int rank))                   \
  X(ncclCommInitRankConfig,                                                                       \
    (NcclComm * comm, int nranks, NcclUniqueId id, int rank, NcclConfig* config))                 \
  X(ncclCommSplit, (NcclComm comm, int color, int key, NcclComm* child, NcclConfig* config))      \
  X(ncclCommUserRank, (NcclComm comm, int* rank))                                                 \
  X(ncclCommCount, (NcclComm comm, int* count))                                                   \
  X(ncclCommFinalize, (NcclComm comm))                                                            \
  X(ncclCommDestroy, (NcclComm comm))                                                             \
  X(ncclCommAbort, (NcclComm comm))                                                               \
  X(ncclCommGetAsyncError, (NcclComm comm, NcclResult * result))                                  \
  X(ncclGroupStart, ())                                                                           \
  X(ncclGroupEnd, ())                                                                             \
  X(ncclAllReduce, (const void* send, void* recv, size_t count, int datatype, int operation,      \
                    NcclComm comm, CudaStream stream))                                            \
  X(ncclAllGather,                                                                                \
    (const void* send, void* recv, size_t count, int datatype, NcclComm comm, CudaStream stream)) \
  X(ncclReduceScatter, (const void* send, void* recv, size_t count, int datatype, int operation,  \
                        NcclComm comm, CudaStream stream))                                        \
  X(ncclBroadcast, (const void* send, void* recv, size_t count, int datatype, int root,           \
                    NcclComm comm, CudaStream stream))                                            \
  X(ncclReduce, (const void* send, void* recv, size_t count, int datatype, int operation,         \
                 int root, NcclComm comm, CudaStream stream))                                     \
  X(ncclSend,                                                                                     \
    (const void* send, size_t count, int datatype, int peer, NcclComm comm, CudaStream stream))   \
  X(ncclRecv, (void* recv, size_t count, int datatype, int peer, NcclComm comm, CudaStream stream))

#define NCCL_PULSE_CUDA_FUNCTIONS(X)                                                          \
  X(cudaSetDevice, (int device))                                                              \
  X(cudaGetDeviceCount, (int* count))                                                         \
  X(cudaMalloc, (void** memory, size_t bytes))                                                \
  X(cudaFree, (void* memory))                                                                 \
  X(cudaMemcpyAsync, (void* to, const void* from, size_t bytes, int kind, CudaStream stream)) \
  X(cudaMemsetAsync, (void* memory, int value, size_t bytes, CudaStream stream))              \
  X(cudaStreamCreateWithFlags, (CudaStream * stream, unsigned flags))                         \
  X(cudaStreamSynchronize, (CudaStream stream))                                               \
  X(cudaStreamDestroy, (CudaStream stream))                                                   \
  X(cudaStreamBeginCapture, (CudaStream stream, int mode))                                    \
  X(cudaStreamEndCapture, (CudaStream stream, CudaGraph * graph))                             \
  X(cudaGraphInstantiateWithFlags,                                                            \
    (CudaGraphExec * exec, CudaGraph graph, unsigned long long flags))                        \
  X(cudaGraphLaunch, (CudaGraphExec exec, CudaStream stream))                                 \
  X(cudaGraphExecDestroy, (CudaGraphExec exec))                                               \
  X(cudaGraphDestroy, (CudaGraph graph))

}  // namespace nccl_pulse

#endif  // TESTS_GPU_NCCL_API_H_
