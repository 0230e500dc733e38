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
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // members of a base have offsets, too

struct Descriptor {
  using GroupApi = v5::Descriptor::GroupApi;
  struct CollApi : v5::Descriptor::CollApi {
    uint64_t userTag;  // 0: none
  };
  struct P2pApi : v5::Descriptor::P2pApi {
    uint64_t userTag;  // 0: none
  };
  using KernelLaunch = v5::Descriptor::KernelLaunch;
  // A symmetric-memory kernel has proto "" and, as algo, the part of kernelVariant after its '_'.
  struct Coll : v5::Descriptor::Coll {
    const char* kernelVariant;  // "AllReduce_AGxLL_R"; NULL unless isSymColl
    bool isSymColl;
    uint64_t userTag;  // 0: none
  };
  struct P2p : v5::Descriptor::P2p {
    uint64_t userTag;  // 0: none
  };
  struct CeColl : v6::Descriptor::CeColl {
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
static_assert(offsetof(Descriptor, collApi.userTag) == 72);
static_assert(sizeof(Descriptor::P2pApi) == 48);
static_assert(offsetof(Descriptor, p2pApi.userTag) == 64);
static_assert(sizeof(Descriptor::Coll) == 112);
static_assert(offsetof(Descriptor, coll.kernelVariant) == 112);
static_assert(offsetof(Descriptor, coll.isSymColl) == 120);
static_assert(offsetof(Descriptor, coll.userTag) == 128);
static_assert(sizeof(Descriptor::P2p) == 56);
static_assert(offsetof(Descriptor, p2p.userTag) == 72);
static_assert(sizeof(Descriptor::CeColl) == 96);
static_assert(offsetof(Descriptor, ceColl.userTag) == 112);
static_assert(sizeof(Descriptor::KernelPhase) == 24);
static_assert(offsetof(Descriptor, kernelPhase.channelId) == 24);
static_assert(offsetof(Descriptor, kernelPhase.phaseId) == 25);
static_assert(offsetof(Descriptor, kernelPhase.phaseName) == 32);
static_assert(offsetof(Descriptor, kernelPhase.pTimer) == 40);
#pragma GCC diagnostic pop

using StateArgs = v5::StateArgs;
using Init = v5::Init;
using Profiler = ProfilerTable<Init, Descriptor, StateArgs>;

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v7

#endif  // PLUGIN_ABI_PROFILER_V7_H_
