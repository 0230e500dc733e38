// NCCL profiler plugin API, version 7: symbol ncclProfiler_v7, known to NCCL since 2.31.2.
// Differences from v6: calls and operations have a user tag at the end; Coll names the
// symmetric-memory kernel if one executes it (isSymColl, kernelVariant); KernelPhase is new. Members
// of v6 keep their offsets. init and the state arguments are unchanged. Source: NCCL 2.31.2 (see
// common.h).
//
// Thread: plain data. Cost: none.
#ifndef PLUGIN_ABI_PROFILER_V7_H_
#define PLUGIN_ABI_PROFILER_V7_H_

#include <cstddef>
#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"

namespace nccl_pulse::abi::v7 {

// NOLINTBEGIN(readability-identifier-naming): members keep NCCL's names.

struct Descriptor {
  using GroupApi = v5::Descriptor::GroupApi;
  struct CollApi {
    const char* func;
    size_t count;
    const char* datatype;
    int root;
    void* stream;
    bool graphCaptured;
    uint64_t userTag;  // 0: none
  };
  struct P2pApi {
    const char* func;
    size_t count;
    const char* datatype;
    void* stream;
    bool graphCaptured;
    uint64_t userTag;  // 0: none
  };
  using KernelLaunch = v5::Descriptor::KernelLaunch;
  struct Coll {
    uint64_t seqNumber;
    const char* func;
    const void* sendBuff;
    void* recvBuff;
    size_t count;
    int root;
    const char* datatype;
    uint8_t nChannels;
    uint8_t nWarps;
    const char* algo;   // for a symmetric-memory kernel: the part of kernelVariant after its '_'
    const char* proto;  // for a symmetric-memory kernel: ""
    void* parentGroup;
    const char* kernelVariant;  // "AllReduce_AGxLL_R"; NULL unless isSymColl
    bool isSymColl;
    uint64_t userTag;  // 0: none
  };
  struct P2p {
    const char* func;
    void* buff;
    const char* datatype;
    size_t count;
    int peer;
    uint8_t nChannels;
    void* parentGroup;
    uint64_t userTag;  // 0: none
  };
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
    uint64_t userTag;  // 0: none
  };
  using CeCollSync = v6::Descriptor::CeCollSync;
  using CeCollBatch = v6::Descriptor::CeCollBatch;
  struct KernelPhase {
    uint8_t channelId;
    uint8_t phaseId;
    const char* phaseName;
    uint64_t pTimer;  // GPU's global timer, ns
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
    KernelPhase kernelPhase;
  };
};
static_assert(sizeof(Descriptor) == 136);
static_assert(offsetof(Descriptor, type) == 0);
static_assert(sizeof(Descriptor::type) == 8);
static_assert(offsetof(Descriptor, parentObj) == 8);
static_assert(offsetof(Descriptor, rank) == 16);
static_assert(offsetof(Descriptor, groupApi) == kDetailsOffset);
static_assert(sizeof(Descriptor::CollApi) == 56);
static_assert(offsetof(Descriptor, collApi.func) == 24);
static_assert(offsetof(Descriptor, collApi.count) == 32);
static_assert(offsetof(Descriptor, collApi.datatype) == 40);
static_assert(offsetof(Descriptor, collApi.root) == 48);
static_assert(offsetof(Descriptor, collApi.stream) == 56);
static_assert(offsetof(Descriptor, collApi.graphCaptured) == 64);
static_assert(offsetof(Descriptor, collApi.userTag) == 72);
static_assert(sizeof(Descriptor::P2pApi) == 48);
static_assert(offsetof(Descriptor, p2pApi.func) == 24);
static_assert(offsetof(Descriptor, p2pApi.count) == 32);
static_assert(offsetof(Descriptor, p2pApi.datatype) == 40);
static_assert(offsetof(Descriptor, p2pApi.stream) == 48);
static_assert(offsetof(Descriptor, p2pApi.graphCaptured) == 56);
static_assert(offsetof(Descriptor, p2pApi.userTag) == 64);
static_assert(sizeof(Descriptor::Coll) == 112);
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
static_assert(offsetof(Descriptor, coll.kernelVariant) == 112);
static_assert(offsetof(Descriptor, coll.isSymColl) == 120);
static_assert(offsetof(Descriptor, coll.userTag) == 128);
static_assert(sizeof(Descriptor::P2p) == 56);
static_assert(offsetof(Descriptor, p2p.func) == 24);
static_assert(offsetof(Descriptor, p2p.buff) == 32);
static_assert(offsetof(Descriptor, p2p.datatype) == 40);
static_assert(offsetof(Descriptor, p2p.count) == 48);
static_assert(offsetof(Descriptor, p2p.peer) == 56);
static_assert(offsetof(Descriptor, p2p.nChannels) == 60);
static_assert(offsetof(Descriptor, p2p.parentGroup) == 64);
static_assert(offsetof(Descriptor, p2p.userTag) == 72);
static_assert(sizeof(Descriptor::CeColl) == 96);
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
static_assert(offsetof(Descriptor, ceColl.userTag) == 112);
static_assert(sizeof(Descriptor::KernelPhase) == 24);
static_assert(offsetof(Descriptor, kernelPhase.channelId) == 24);
static_assert(offsetof(Descriptor, kernelPhase.phaseId) == 25);
static_assert(offsetof(Descriptor, kernelPhase.phaseName) == 32);
static_assert(offsetof(Descriptor, kernelPhase.pTimer) == 40);

using StateArgs = v5::StateArgs;

// comm_name may be NULL and is the user's own memory: copy it.
using Init = int(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
                 int nranks, int rank, DebugLogger logger);
using Profiler = ProfilerTable<Init, Descriptor, StateArgs>;

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v7

#endif  // PLUGIN_ABI_PROFILER_V7_H_
