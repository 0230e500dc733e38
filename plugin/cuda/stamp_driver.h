// StampDriver holds the CUDA driver's functions for stamps (graph_stamps.h), found as in
// cuda_driver.h. There are no stamps if the driver lacks one of them (before CUDA 12.0).
//
// Thread: Load from init; the functions: see their callers. NCCL's callbacks call capture_info and
// launch_kernel; for the first stamp of a capture, also the functions for user objects and graphs.
#ifndef PLUGIN_CUDA_STAMP_DRIVER_H_
#define PLUGIN_CUDA_STAMP_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

using CudaFunction = void*;
using CudaGraph = void*;
using CudaGraphNode = void*;
using CudaModule = void*;
using CudaUserObject = void*;

inline constexpr int kCudaCaptureActive = 1;           // CU_STREAM_CAPTURE_STATUS_ACTIVE
inline constexpr int kCudaFunctionRegisters = 4;       // CU_FUNC_ATTRIBUTE_NUM_REGS
inline constexpr unsigned kCudaRegisterDeviceMap = 2;  // CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr unsigned kCudaNoDestructorSync = 1;   // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
inline constexpr unsigned kCudaMoveReference = 1;      // CU_GRAPH_USER_OBJECT_MOVE

// CUDA_KERNEL_NODE_PARAMS_v2
struct CudaKernelNode {
  CudaFunction function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;         // used if `function` is null
  CudaContext context;  // null: the current context
};
static_assert(sizeof(CudaKernelNode) == 72 && offsetof(CudaKernelNode, parameters) == 40);

struct StampDriver {
  int (*capture_info)(CudaStream stream, int* status, uint64_t* id, CudaGraph* graph,
                      const void** dependencies, size_t* dependency_count);
  int (*module_load_data)(CudaModule* module, const void* image);
  int (*module_get_function)(CudaFunction* function, CudaModule module, const char* name);
  int (*function_get_attribute)(int* value, int attribute, CudaFunction function);
  int (*host_register)(void* memory, size_t bytes, unsigned flags);
  int (*host_get_device_pointer)(uint64_t* address, void* memory, unsigned flags);
  int (*launch_kernel)(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CudaStream stream, void** parameters, void** extra);
  // `count`: in, the capacity of `nodes`; out, the number of roots.
  int (*graph_get_root_nodes)(CudaGraph graph, CudaGraphNode* nodes, size_t* count);
  int (*graph_add_kernel_node)(CudaGraphNode* node, CudaGraph graph,
                               const CudaGraphNode* dependencies, size_t dependency_count,
                               const CudaKernelNode* kernel);
  int (*graph_add_dependencies)(CudaGraph graph, const CudaGraphNode* from, const CudaGraphNode* to,
                                size_t count);
  int (*user_object_create)(CudaUserObject* object, void* argument, void (*destroy)(void*),
                            unsigned references, unsigned flags);
  int (*user_object_release)(CudaUserObject object, unsigned references);
  int (*graph_retain_user_object)(CudaGraph graph, CudaUserObject object, unsigned references,
                                  unsigned flags);

  // Returns null if the driver library lacks a function. The result never changes.
  static const StampDriver* Load();
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STAMP_DRIVER_H_
