// NCCL profiler plugin API, version 6: symbol ncclProfiler_v6, known to NCCL since 2.29.2.
// Differences from v5: events for copy-engine collectives (CeColl, CeSync, CeBatch). init and the
// state arguments are unchanged. Source: NCCL 2.29.2 (see common.h).
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
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // members of a base have offsets, too

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
  void* parentObj;  // handle of the parent event, from startEvent; may be NULL
  int rank;         // 0 and meaningless for ProxyCtrl, KernelCh, KernelLaunch and the API events
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
static_assert(offsetof(Descriptor, groupApi) == kDetailsOffset);
static_assert(sizeof(Descriptor::CeColl) == 88);
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
static_assert(offsetof(Descriptor, ceCollSync.isComplete) == 24);
static_assert(offsetof(Descriptor, ceCollSync.nRanks) == 28);
static_assert(sizeof(Descriptor::CeCollBatch) == 24);
static_assert(offsetof(Descriptor, ceCollBatch.numOps) == 24);
static_assert(offsetof(Descriptor, ceCollBatch.totalBytes) == 32);
static_assert(offsetof(Descriptor, ceCollBatch.useIntraSync) == 40);
#pragma GCC diagnostic pop

using StateArgs = v5::StateArgs;
using Init = v5::Init;
using Profiler = ProfilerTable<Init, Descriptor, StateArgs>;

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v6

#endif  // PLUGIN_ABI_PROFILER_V6_H_
