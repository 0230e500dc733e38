// NCCL profiler plugin API, version 2: symbol ncclProfiler_v2, known to NCCL since 2.24.3.
// Differences from v1: strings instead of numbers; op, isCollnet and isNvls are gone.
// Source of the layout: NCCL 2.24.3, its header of the profiler plugin API (see common.h).
//
// Thread: plain data. Cost: none.
#ifndef PLUGIN_ABI_PROFILER_V2_H_
#define PLUGIN_ABI_PROFILER_V2_H_

#include <cstddef>
#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/abi/profiler_v1.h"

namespace nccl_pulse::abi::v2 {

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
    size_t trafficBytes;
    uint8_t nMaxChannels;  // requested maximum, not the number of channels used
    uint8_t nWarps;
    const char* algo;
    const char* proto;
  };
  struct P2p {
    const char* name;
    uint64_t commHash;
    const char* func;
    void* buff;
    const char* datatype;
    size_t count;
    int peer;
  };

  uint8_t type;     // exactly one kEvent* bit
  void* parentObj;  // handle of the parent event, from startEvent; may be NULL
  int rank;         // 0 and meaningless for ProxyCtrl
  union {
    Coll coll;
    P2p p2p;
    ProxyOpDetails proxyOp;
    ProxyStepDetails proxyStep;
  };
};
static_assert(sizeof(Descriptor) == 128);
static_assert(offsetof(Descriptor, type) == 0);
static_assert(sizeof(Descriptor::type) == 1);
static_assert(offsetof(Descriptor, parentObj) == 8);
static_assert(offsetof(Descriptor, rank) == 16);
static_assert(sizeof(Descriptor::Coll) == 104);
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
static_assert(offsetof(Descriptor, coll.trafficBytes) == 96);
static_assert(offsetof(Descriptor, coll.nMaxChannels) == 104);
static_assert(offsetof(Descriptor, coll.nWarps) == 105);
static_assert(offsetof(Descriptor, coll.algo) == 112);
static_assert(offsetof(Descriptor, coll.proto) == 120);
static_assert(sizeof(Descriptor::P2p) == 56);
static_assert(offsetof(Descriptor, p2p.name) == 24);
static_assert(offsetof(Descriptor, p2p.commHash) == 32);
static_assert(offsetof(Descriptor, p2p.func) == 40);
static_assert(offsetof(Descriptor, p2p.buff) == 48);
static_assert(offsetof(Descriptor, p2p.datatype) == 56);
static_assert(offsetof(Descriptor, p2p.count) == 64);
static_assert(offsetof(Descriptor, p2p.peer) == 72);

using StateArgs = v1::StateArgs;

using Init = int(void** context, int* mask);
using Profiler = ProfilerTable<Init, Descriptor, StateArgs>;

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v2

#endif  // PLUGIN_ABI_PROFILER_V2_H_
