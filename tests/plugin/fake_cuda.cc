// The driver's names.
#include "tests/plugin/fake_cuda.h"

#include <poll.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/plugin/fake_cuda_simulation.h"

namespace nccl_pulse::fake_cuda {

Simulation& Driver() {
  static auto* simulation = new Simulation;  // never destroyed: threads may poll at exit
  return *simulation;
}

// Else a child inherits the mutex from a thread that was in a call, and nobody to unlock it.
Simulation::Simulation() {
  const auto unlock = [] { Driver().mutex_.unlock(); };
  pthread_atfork([] { Driver().mutex_.lock(); }, unlock, unlock);
}

void Simulation::EndAtExit() {
  atexit([] {
    Driver().End();
    // Not nanosleep, which tests replace: many times a poller's pause.
    poll(nullptr, 0, 100);
  });
}

}  // namespace nccl_pulse::fake_cuda

using nccl_pulse::fake_cuda::Driver;

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
extern "C" {

nccl_pulse::FakeCuda* NcclPulseGetFakeCuda() { return &Driver(); }

int cuCtxGetCurrent(void** context) { return Driver().GetCurrent(context); }
int cuCtxSetCurrent(void* context) { return Driver().SetCurrent(context); }
int cuCtxGetId(void* context, unsigned long long* id) { return Driver().GetId(context, id); }
int cuCtxGetDevice(int* device) { return Driver().GetDevice(device); }
int cuDeviceGetUuid(unsigned char* uuid, int device) {
  memset(uuid, device, 16);
  return Driver().Identify("cuDeviceGetUuid");
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int /*device*/) {  // of a MIG instance
  memset(uuid, 0xee, 16);
  return Driver().Identify("cuDeviceGetUuid_v2");
}
int cuDeviceGetPCIBusId(char* text, int length, int device) {
  snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return Driver().Identify("cuDeviceGetPCIBusId");
}
int cuEventCreate(void** event, unsigned flags) { return Driver().EventCreate(event, flags); }
int cuEventDestroy_v2(void* event) { return Driver().EventDestroy(event); }
int cuEventRecord(void* event, void* stream) { return Driver().EventRecord(event, stream); }
int cuEventQuery(void* event) { return Driver().EventQuery(event); }
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return Driver().ElapsedTime(milliseconds, begin, end);
}
int cuStreamIsCapturing(void* stream, int* status) { return Driver().IsCapturing(stream, status); }
int cuStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id, void** graph,
                              const void***, size_t*) {
  return Driver().CaptureInfo(stream, status, id, graph);
}
int cuModuleLoadData(void** module, const void* image) {
  return Driver().ModuleLoadData(module, image);
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return Driver().ModuleGetFunction(function, module, name);
}
int cuFuncGetAttribute(int* value, int, void* function) {
  return Driver().FuncGetAttribute(value, function);
}
int cuMemHostRegister_v2(void*, size_t, unsigned) { return Driver().HostRegister(); }
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* memory, unsigned) {
  *address = reinterpret_cast<uintptr_t>(memory);
  return Driver().Identify("cuMemHostGetDevicePointer_v2");
}
int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void* stream, void** parameters, void**) {
  return Driver().LaunchKernel(function, stream, parameters);
}
int cuGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
  return Driver().GraphGetRootNodes(graph, nodes, count);
}
// CUDA_KERNEL_NODE_PARAMS_v2 as far as it is looked at.
struct KernelNodeParams {
  void* function;
  unsigned sizes[7];
  void** parameters;
};
int cuGraphAddKernelNode_v2(void** node, void* graph, void* const*, size_t dependencies,
                            const KernelNodeParams* kernel) {
  return Driver().GraphAddKernelNode(node, graph, dependencies, kernel->function,
                                     kernel->parameters);
}
int cuGraphAddDependencies(void* graph, void* const* from, void* const* to, size_t count) {
  return Driver().GraphAddDependencies(graph, from, to, count);
}
int cuUserObjectCreate(void** object, void* argument, void (*destroy)(void*), unsigned references,
                       unsigned) {
  return Driver().UserObjectCreate(object, argument, destroy, references);
}
int cuUserObjectRelease(void* object, unsigned references) {
  return Driver().UserObjectRelease(object, references);
}
int cuGraphRetainUserObject(void* graph, void* object, unsigned, unsigned) {
  return Driver().GraphRetainUserObject(graph, object);
}
int cuPointerGetAttribute(void* value, int, uint64_t address) {
  return Driver().PointerGetAttribute(value, address);
}
int cuMemGetAddressRange_v2(uint64_t* base, size_t* bytes, uint64_t address) {
  return Driver().GetAddressRange(base, bytes, address);
}
int cuMemRetainAllocationHandle(uint64_t* allocation, void* address) {
  return Driver().RetainAllocation(allocation, reinterpret_cast<uint64_t>(address));
}
int cuMemRelease(uint64_t allocation) { return Driver().ReleaseAllocation(allocation); }
int cuMemAddressReserve(uint64_t* address, size_t bytes, size_t, uint64_t, uint64_t) {
  return Driver().ReserveAddresses(address, bytes);
}
int cuMemAddressFree(uint64_t address, size_t) { return Driver().FreeAddresses(address); }
int cuMemMap(uint64_t address, size_t bytes, size_t, uint64_t allocation, uint64_t) {
  return Driver().Map(address, bytes, allocation);
}
int cuMemUnmap(uint64_t address, size_t) { return Driver().Unmap(address); }
int cuMemSetAccess(uint64_t, size_t, const void*, size_t) { return Driver().SetAccess(); }
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  return Driver().HostAllocate(memory, bytes);
}
int cuStreamCreate(void** stream, unsigned) { return Driver().StreamCreate(stream); }
int cuStreamQuery(void*) { return Driver().StreamQuery(); }
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  return Driver().CopyToHost(to, from, bytes);
}
int cuThreadExchangeStreamCaptureMode(int* mode) { return Driver().ExchangeCaptureMode(mode); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
