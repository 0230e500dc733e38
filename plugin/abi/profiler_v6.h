// NCCL profiler plugin API, version 6: symbol ncclProfiler_v6, known to NCCL since 2.29.2.
// Against the version before: v5 with the copy-engine collectives (CeColl, CeSync, CeBatch); the
// state arguments are v5's. Source of the layout: NCCL 2.29.2, its header of the profiler plugin
// API (see common.h).
//
// Thread: plain data. Cost: none.
#ifndef PLUGIN_ABI_PROFILER_V6_H_
#define PLUGIN_ABI_PROFILER_V6_H_

#include <cstddef>
#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/abi/profiler_v5.h"

namespace nccl_pulse::abi::v6 {

// NOLINTBEGIN(readability-identifier-naming): members keep NCCL's names.

struct Descriptor {
  using GroupApi = v5::Descriptor::GroupApi;
  using CollApi = v5::Descriptor::CollApi;
  using P2pApi = v5::Descriptor::P2pApi;
  using KernelLaunch = v5::Descriptor::KernelLaunch;
  using Coll = v5::Descriptor::Coll;
  using P2p = v5::Descriptor::P2p;
  struct CeColl {
    uint64_t seqNumber;
    const char* func;
    const void* sendBuff;
    void* recvBuff;
    size_t count;
    int root;
    const char* datatype;
    const char* syncStrategy;
    bool intraBatchSync;
    uint32_t batchSize;
    uint32_t numBatches;
    uint32_t ceSeqNum;
    void* stream;
  };
  struct CeCollSync {
    bool isComplete;
    int nRanks;
  };
  struct CeCollBatch {
    int numOps;
    size_t totalBytes;
    bool useIntraSync;
  };

  uint64_t type;    // exactly one kEvent* bit
  void* parentObj;  // what startEvent returned for the parent; NULL possible
  int rank;         // 0 and meaningless for ProxyCtrl, KernelCh and the API events
  union {
    GroupApi groupApi;
    CollApi collApi;
    P2pApi p2pApi;
    KernelLaunch kernelLaunch;
    Coll coll;
    P2p p2p;
    CeColl ceColl;
    CeCollSync ceCollSync;
    CeCollBatch ceCollBatch;
    ProxyOpDetails proxyOp;
    ProxyStepDetails proxyStep;
    KernelChDetails kernelCh;
    NetPluginDetails netPlugin;
  };
};
static_assert(sizeof(Descriptor) == 112);
static_assert(offsetof(Descriptor, type) == 0);
static_assert(sizeof(Descriptor::type) == 8);
static_assert(offsetof(Descriptor, parentObj) == 8);
static_assert(offsetof(Descriptor, rank) == 16);
static_assert(sizeof(Descriptor::GroupApi) == 8);
static_assert(offsetof(Descriptor, groupApi) == kDetailsOffset);
static_assert(offsetof(Descriptor, groupApi.graphCaptured) == 24);
static_assert(offsetof(Descriptor, groupApi.groupDepth) == 28);
static_assert(sizeof(Descriptor::CollApi) == 48);
static_assert(offsetof(Descriptor, collApi) == kDetailsOffset);
static_assert(offsetof(Descriptor, collApi.func) == 24);
static_assert(offsetof(Descriptor, collApi.count) == 32);
static_assert(offsetof(Descriptor, collApi.datatype) == 40);
static_assert(offsetof(Descriptor, collApi.root) == 48);
static_assert(offsetof(Descriptor, collApi.stream) == 56);
static_assert(offsetof(Descriptor, collApi.graphCaptured) == 64);
static_assert(sizeof(Descriptor::P2pApi) == 40);
static_assert(offsetof(Descriptor, p2pApi) == kDetailsOffset);
static_assert(offsetof(Descriptor, p2pApi.func) == 24);
static_assert(offsetof(Descriptor, p2pApi.count) == 32);
static_assert(offsetof(Descriptor, p2pApi.datatype) == 40);
static_assert(offsetof(Descriptor, p2pApi.stream) == 48);
static_assert(offsetof(Descriptor, p2pApi.graphCaptured) == 56);
static_assert(sizeof(Descriptor::KernelLaunch) == 8);
static_assert(offsetof(Descriptor, kernelLaunch) == kDetailsOffset);
static_assert(offsetof(Descriptor, kernelLaunch.stream) == 24);
static_assert(sizeof(Descriptor::Coll) == 88);
static_assert(offsetof(Descriptor, coll) == kDetailsOffset);
static_assert(offsetof(Descriptor, coll.seqNumber) == 24);
static_assert(offsetof(Descriptor, coll.func) == 32);
static_assert(offsetof(Descriptor, coll.sendBuff) == 40);
static_assert(offsetof(Descriptor, coll.recvBuff) == 48);
static_assert(offsetof(Descriptor, coll.count) == 56);
static_assert(offsetof(Descriptor, coll.root) == 64);
static_assert(offsetof(Descriptor, coll.datatype) == 72);
static_assert(offsetof(Descriptor, coll.nChannels) == 80);
static_assert(offsetof(Descriptor, coll.nWarps) == 81);
static_assert(offsetof(Descriptor, coll.algo) == 88);
static_assert(offsetof(Descriptor, coll.proto) == 96);
static_assert(offsetof(Descriptor, coll.parentGroup) == 104);
static_assert(sizeof(Descriptor::P2p) == 48);
static_assert(offsetof(Descriptor, p2p) == kDetailsOffset);
static_assert(offsetof(Descriptor, p2p.func) == 24);
static_assert(offsetof(Descriptor, p2p.buff) == 32);
static_assert(offsetof(Descriptor, p2p.datatype) == 40);
static_assert(offsetof(Descriptor, p2p.count) == 48);
static_assert(offsetof(Descriptor, p2p.peer) == 56);
static_assert(offsetof(Descriptor, p2p.nChannels) == 60);
static_assert(offsetof(Descriptor, p2p.parentGroup) == 64);
static_assert(sizeof(Descriptor::CeColl) == 88);
static_assert(offsetof(Descriptor, ceColl) == kDetailsOffset);
static_assert(offsetof(Descriptor, ceColl.seqNumber) == 24);
static_assert(offsetof(Descriptor, ceColl.func) == 32);
static_assert(offsetof(Descriptor, ceColl.sendBuff) == 40);
static_assert(offsetof(Descriptor, ceColl.recvBuff) == 48);
static_assert(offsetof(Descriptor, ceColl.count) == 56);
static_assert(offsetof(Descriptor, ceColl.root) == 64);
static_assert(offsetof(Descriptor, ceColl.datatype) == 72);
static_assert(offsetof(Descriptor, ceColl.syncStrategy) == 80);
static_assert(offsetof(Descriptor, ceColl.intraBatchSync) == 88);
static_assert(offsetof(Descriptor, ceColl.batchSize) == 92);
static_assert(offsetof(Descriptor, ceColl.numBatches) == 96);
static_assert(offsetof(Descriptor, ceColl.ceSeqNum) == 100);
static_assert(offsetof(Descriptor, ceColl.stream) == 104);
static_assert(sizeof(Descriptor::CeCollSync) == 8);
static_assert(offsetof(Descriptor, ceCollSync) == kDetailsOffset);
static_assert(offsetof(Descriptor, ceCollSync.isComplete) == 24);
static_assert(offsetof(Descriptor, ceCollSync.nRanks) == 28);
static_assert(sizeof(Descriptor::CeCollBatch) == 24);
static_assert(offsetof(Descriptor, ceCollBatch) == kDetailsOffset);
static_assert(offsetof(Descriptor, ceCollBatch.numOps) == 24);
static_assert(offsetof(Descriptor, ceCollBatch.totalBytes) == 32);
static_assert(offsetof(Descriptor, ceCollBatch.useIntraSync) == 40);
static_assert(offsetof(Descriptor, proxyOp) == kDetailsOffset);
static_assert(offsetof(Descriptor, proxyStep) == kDetailsOffset);
static_assert(offsetof(Descriptor, kernelCh) == kDetailsOffset);
static_assert(offsetof(Descriptor, netPlugin) == kDetailsOffset);

using StateArgs = v5::StateArgs;
static_assert(sizeof(StateArgs) == 8);

struct Profiler {
  const char* name;
  // Not v4's order of arguments. comm_name may be NULL and is the user's own memory: copy it.
  int (*init)(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
              int nranks, int rank, DebugLogger logger);
  int (*startEvent)(void* context, void** handle, Descriptor* descriptor);
  int (*stopEvent)(void* handle);
  int (*recordEventState)(void* handle, int state, StateArgs* args);
  int (*finalize)(void* context);
};
static_assert(sizeof(Profiler) == 48);
static_assert(offsetof(Profiler, name) == 0);
static_assert(offsetof(Profiler, init) == 8);
static_assert(offsetof(Profiler, startEvent) == 16);
static_assert(offsetof(Profiler, stopEvent) == 24);
static_assert(offsetof(Profiler, recordEventState) == 32);
static_assert(offsetof(Profiler, finalize) == 40);

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v6

#endif  // PLUGIN_ABI_PROFILER_V6_H_
