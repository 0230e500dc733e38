// Declarations shared by all versions of NCCL's profiler plugin API: event bits, states, the
// logger, unchanged member structures, and the numeric enumerations of version 1.
//
// These are this project's own declarations of a binary interface. NCCL's headers are neither
// needed nor included: the plugin must build on machines without NCCL, and support versions that no
// single release of NCCL declares. Each profiler_vN.h declares one version in namespace abi::vN:
//
//   Descriptor   argument of startEvent; `type` determines the valid member of the union
//   StateArgs    argument of recordEventState; the state determines the valid member
//   Profiler     the exported symbol ncclProfiler_vN
//
// Members keep the names that they have in NCCL, so that a fact can be looked up by name.
//
// Source of the facts: NCCL 2.23.4 to 2.31.2, src/include/plugin/profiler/profiler_v1.h ...
// profiler_v7.h (2.23 to 2.25: src/include/nccl_profiler.h), src/include/nccl_common.h (logger) and
// src/plugin/profiler.cc (which states are emitted). Offsets were computed by compiling probes
// against the headers of each release for x86-64; they hold for every LP64 ABI, aarch64 included.
//
// Thread: plain data. Cost: none. Errors: a layout that differs does not compile.
#ifndef PLUGIN_ABI_COMMON_H_
#define PLUGIN_ABI_COMMON_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace nccl_pulse::abi {

// NOLINTBEGIN(readability-identifier-naming): members keep NCCL's names.

static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8 && sizeof(int) == 4 && sizeof(bool) == 1,
              "the layouts are those of an LP64 machine");

// The only return value of the callbacks (ncclResult_t). NCCL ignores it for start, stop and
// record. An error from init would harm the job (2.30 and later: reference counts go wrong).
inline constexpr int kSuccess = 0;

// Event types: the bits of the activation mask and the values of Descriptor::type.
inline constexpr uint32_t kEventGroup = 1u << 0;          // since v1
inline constexpr uint32_t kEventColl = 1u << 1;           // since v1
inline constexpr uint32_t kEventP2p = 1u << 2;            // since v1
inline constexpr uint32_t kEventProxyOp = 1u << 3;        // since v1
inline constexpr uint32_t kEventProxyStep = 1u << 4;      // since v1
inline constexpr uint32_t kEventProxyCtrl = 1u << 5;      // since v1
inline constexpr uint32_t kEventKernelCh = 1u << 6;       // since v3
inline constexpr uint32_t kEventNetPlugin = 1u << 7;      // since v3
inline constexpr uint32_t kEventGroupApi = 1u << 8;       // since v5
inline constexpr uint32_t kEventCollApi = 1u << 9;        // since v5
inline constexpr uint32_t kEventP2pApi = 1u << 10;        // since v5
inline constexpr uint32_t kEventKernelLaunch = 1u << 11;  // since v5
inline constexpr uint32_t kEventCeColl = 1u << 12;        // since v6
inline constexpr uint32_t kEventCeSync = 1u << 13;        // since v6
inline constexpr uint32_t kEventCeBatch = 1u << 14;       // since v6
inline constexpr uint32_t kEventKernelPhase = 1u << 15;   // since v7

// The newest declared version.
inline constexpr int kNewestVersion = 7;
template <typename T>
using ByVersion = std::array<T, kNewestVersion + 1>;  // index 0 is unused

// Event types that exist in API version 1 to kNewestVersion.
constexpr uint32_t EventsOfVersion(int version) {
  return version >= 7   ? 0xffff
         : version == 6 ? 0x7fff
         : version == 5 ? 0xfff
         : version >= 3 ? 0xff
                        : 0x3f;
}

// States (enum of NCCL; passed as an int). 0 to 7 were emitted by 2.23 to 2.26 only.
inline constexpr int kStateProxyOpSendPosted = 0;
inline constexpr int kStateProxyOpSendRemFifoWait = 1;
inline constexpr int kStateProxyOpSendTransmitted = 2;
inline constexpr int kStateProxyOpSendDone = 3;
inline constexpr int kStateProxyOpRecvPosted = 4;
inline constexpr int kStateProxyOpRecvReceived = 5;
inline constexpr int kStateProxyOpRecvTransmitted = 6;
inline constexpr int kStateProxyOpRecvDone = 7;
inline constexpr int kStateProxyStepSendGpuWait = 8;
inline constexpr int kStateProxyStepSendWait = 9;  // posted: proxyStep.transSize is valid (v4+)
inline constexpr int kStateProxyStepRecvWait = 10;
inline constexpr int kStateProxyStepRecvFlushWait = 11;  // proxyStep.transSize is valid (v4+)
inline constexpr int kStateProxyStepRecvGpuWait = 12;
inline constexpr int kStateProxyCtrlIdle = 13;
inline constexpr int kStateProxyCtrlActive = 14;
inline constexpr int kStateProxyCtrlSleep = 15;
inline constexpr int kStateProxyCtrlWakeup = 16;
inline constexpr int kStateProxyCtrlAppend = 17;
inline constexpr int kStateProxyCtrlAppendEnd = 18;     // proxyCtrl.appendedProxyOps is valid
inline constexpr int kStateProxyOpInProgress = 19;      // since v4
inline constexpr int kStateProxyStepSendPeerWait = 20;  // since v4, repeated on each poll
inline constexpr int kStateNetPluginUpdate = 21;        // since v4
inline constexpr int kStateKernelChStop = 22;           // since v4, kernelCh.pTimer is valid
inline constexpr int kStateGroupStartApiStop = 23;      // since v5, arguments pointer NULL
inline constexpr int kStateGroupEndApiStart = 24;       // since v5, arguments pointer NULL
inline constexpr int kStateKernelPhaseStop = 31;        // since v7, kernelCh.pTimer is valid

constexpr bool IsProxyStepState(int state) {
  return (state >= kStateProxyStepSendGpuWait && state <= kStateProxyStepRecvGpuWait) ||
         state == kStateProxyStepSendPeerWait;
}

// ncclDebugLogger_t: formats like printf; `level` is one of kLog*, `flags` a mask of subsystems.
using DebugLogger = void (*)(int level, unsigned long flags, const char* file, int line,
                             const char* format, ...);
inline constexpr int kLogNone = 0;
inline constexpr int kLogVersion = 1;
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr int kLogAbort = 4;
inline constexpr int kLogTrace = 5;
inline constexpr unsigned long kSubsystemInit = 0x1;
inline constexpr unsigned long kSubsystemEnv = 0x80;
inline constexpr unsigned long kSubsystemProfile = 0x4000;

// Members of Descriptor's union whose layout is the same in every version that has them. Offsets
// here are relative to the member; the union is at offset 24 of every Descriptor.
inline constexpr size_t kDetailsOffset = 24;

struct ProxyOpDetails {
  int32_t pid;  // process that enqueued the operation: with PXN another one than this
  uint8_t channelId;
  int peer;
  int nSteps;
  int chunkSize;  // bytes
  int isSend;
};
static_assert(sizeof(ProxyOpDetails) == 24);
static_assert(offsetof(ProxyOpDetails, pid) == 0);
static_assert(offsetof(ProxyOpDetails, channelId) == 4);
static_assert(offsetof(ProxyOpDetails, peer) == 8);
static_assert(offsetof(ProxyOpDetails, nSteps) == 12);
static_assert(offsetof(ProxyOpDetails, chunkSize) == 16);
static_assert(offsetof(ProxyOpDetails, isSend) == 20);

struct ProxyStepDetails {
  int step;
};
static_assert(sizeof(ProxyStepDetails) == 4);

struct NetPluginDetails {  // since v3
  int64_t id;
  void* data;
};
static_assert(sizeof(NetPluginDetails) == 16);
static_assert(offsetof(NetPluginDetails, id) == 0);
static_assert(offsetof(NetPluginDetails, data) == 8);

struct KernelChDetails {  // since v4; v3 has channelId alone
  uint8_t channelId;
  uint64_t pTimer;  // GPU's global timer, ns
};
static_assert(sizeof(KernelChDetails) == 16);
static_assert(offsetof(KernelChDetails, channelId) == 0);
static_assert(offsetof(KernelChDetails, pTimer) == 8);

// The symbol that a plugin exports. Each API version has its own Init, Descriptor and StateArgs.
template <typename Init, typename Descriptor, typename StateArgs>
struct ProfilerTable {
  const char* name;
  Init* init;
  int (*startEvent)(void* context, void** handle, Descriptor* descriptor);
  int (*stopEvent)(void* handle);
  int (*recordEventState)(void* handle, int state, StateArgs* args);
  int (*finalize)(void* context);
};
using AnyProfiler = ProfilerTable<int(), void, void>;
static_assert(sizeof(AnyProfiler) == 48);
static_assert(offsetof(AnyProfiler, name) == 0);
static_assert(offsetof(AnyProfiler, init) == 8);
static_assert(offsetof(AnyProfiler, startEvent) == 16);
static_assert(offsetof(AnyProfiler, stopEvent) == 24);
static_assert(offsetof(AnyProfiler, recordEventState) == 32);
static_assert(offsetof(AnyProfiler, finalize) == 40);

// Names of the numbers that version 1 passes instead of strings. Functions: ncclFunc_t of
// src/include/nccl_common.h; algorithms and protocols: NCCL_ALGO_*, NCCL_PROTO_* of
// src/include/device.h; data types: ncclDataType_t of nccl.h (2.23.4).
inline constexpr const char* kFunctionNames[] = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"};
inline constexpr const char* kAlgorithmNames[] = {
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
inline constexpr const char* kProtocolNames[] = {"LL", "LL128", "SIMPLE"};
inline constexpr const char* kDatatypeNames[] = {
    "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
    "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
    "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi

#endif  // PLUGIN_ABI_COMMON_H_
