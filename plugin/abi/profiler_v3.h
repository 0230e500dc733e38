// NCCL profiler plugin API, version 3: symbol ncclProfiler_v3, known to NCCL since 2.26.2.
// Differences from v2: trafficBytes is gone; KernelCh (without times) and NetPlugin are new.
// Source of the layout: NCCL 2.26.2, its header of the profiler plugin API (see common.h).
//
// Thread: plain data. Cost: none.
#ifndef PLUGIN_ABI_PROFILER_V3_H_
#define PLUGIN_ABI_PROFILER_V3_H_

#include <cstddef>
#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/abi/profiler_v2.h"

namespace nccl_pulse::abi::v3 {

// NOLINTBEGIN(readability-identifier-naming): members keep NCCL's names.

struct Descriptor {
  struct Coll {
    const char* name;
    uint64_t commHash;
    uint64_t seqNumber;
    const char* func;
    const void* sendBuff;
    void* recvBuff;
    size_t count;
    int root;
    const char* datatype;
    uint8_t nMaxChannels;  // requested maximum, not the number of channels used
    uint8_t nWarps;
    const char* algo;
    const char* proto;
  };
  using P2p = v2::Descriptor::P2p;
  struct KernelCh {
    uint8_t channelId;
  };

  uint8_t type;     // exactly one kEvent* bit
  void* parentObj;  // handle of the parent event, from startEvent; may be NULL
  int rank;         // 0 and meaningless for ProxyCtrl, KernelCh
  union {
    Coll coll;
    P2p p2p;
    KernelCh kernelCh;
    ProxyOpDetails proxyOp;
    ProxyStepDetails proxyStep;
    NetPluginDetails netPlugin;
  };
};
static_assert(sizeof(Descriptor) == 120);
static_assert(offsetof(Descriptor, type) == 0);
static_assert(sizeof(Descriptor::type) == 1);
static_assert(offsetof(Descriptor, parentObj) == 8);
static_assert(offsetof(Descriptor, rank) == 16);
static_assert(sizeof(Descriptor::Coll) == 96);
static_assert(offsetof(Descriptor, coll) == kDetailsOffset);
static_assert(offsetof(Descriptor, coll.name) == 24);
static_assert(offsetof(Descriptor, coll.commHash) == 32);
static_assert(offsetof(Descriptor, coll.seqNumber) == 40);
static_assert(offsetof(Descriptor, coll.func) == 48);
static_assert(offsetof(Descriptor, coll.sendBuff) == 56);
static_assert(offsetof(Descriptor, coll.recvBuff) == 64);
static_assert(offsetof(Descriptor, coll.count) == 72);
static_assert(offsetof(Descriptor, coll.root) == 80);
static_assert(offsetof(Descriptor, coll.datatype) == 88);
static_assert(offsetof(Descriptor, coll.nMaxChannels) == 96);
static_assert(offsetof(Descriptor, coll.nWarps) == 97);
static_assert(offsetof(Descriptor, coll.algo) == 104);
static_assert(offsetof(Descriptor, coll.proto) == 112);
static_assert(sizeof(Descriptor::KernelCh) == 1);
static_assert(offsetof(Descriptor, kernelCh.channelId) == 24);

using StateArgs = v2::StateArgs;

using Init = int(void** context, int* mask);
using Profiler = ProfilerTable<Init, Descriptor, StateArgs>;

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v3

#endif  // PLUGIN_ABI_PROFILER_V3_H_
