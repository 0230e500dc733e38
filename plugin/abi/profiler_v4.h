// NCCL profiler plugin API, version 4: symbol ncclProfiler_v4, known to NCCL since 2.27.3.
// Differences from v3: init describes the communicator; operations have the number of channels used
// instead of the requested maximum; KernelCh has times. Source: NCCL 2.27.3 (see common.h).
//
// Thread: plain data. Cost: none.
#ifndef PLUGIN_ABI_PROFILER_V4_H_
#define PLUGIN_ABI_PROFILER_V4_H_

#include <cstddef>
#include <cstdint>

#include "plugin/abi/common.h"

namespace nccl_pulse::abi::v4 {

// NOLINTBEGIN(readability-identifier-naming): members keep NCCL's names.

struct Descriptor {
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
    const char* algo;
    const char* proto;
  };
  struct P2p {
    const char* func;
    void* buff;
    const char* datatype;
    size_t count;
    int peer;
    uint8_t nChannels;
  };

  uint8_t type;     // exactly one kEvent* bit
  void* parentObj;  // handle of the parent event, from startEvent; may be NULL
  int rank;         // 0 and meaningless for ProxyCtrl, KernelCh
  union {
    Coll coll;
    P2p p2p;
    ProxyOpDetails proxyOp;
    ProxyStepDetails proxyStep;
    KernelChDetails kernelCh;
    NetPluginDetails netPlugin;
  };
};
static_assert(sizeof(Descriptor) == 104);
static_assert(offsetof(Descriptor, type) == 0);
static_assert(sizeof(Descriptor::type) == 1);
static_assert(offsetof(Descriptor, parentObj) == 8);
static_assert(offsetof(Descriptor, rank) == 16);
static_assert(sizeof(Descriptor::Coll) == 80);
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
static_assert(sizeof(Descriptor::P2p) == 40);
static_assert(offsetof(Descriptor, p2p.func) == 24);
static_assert(offsetof(Descriptor, p2p.buff) == 32);
static_assert(offsetof(Descriptor, p2p.datatype) == 40);
static_assert(offsetof(Descriptor, p2p.count) == 48);
static_assert(offsetof(Descriptor, p2p.peer) == 56);
static_assert(offsetof(Descriptor, p2p.nChannels) == 60);

union StateArgs {
  struct {
    size_t transSize;  // bytes; valid only with the states for which common.h says so
  } proxyStep;
  struct {
    int appendedProxyOps;
  } proxyCtrl;
  struct {
    void* data;
  } netPlugin;
  struct {
    uint64_t pTimer;  // GPU's global timer, ns
  } kernelCh;
};
static_assert(sizeof(StateArgs) == 8);
static_assert(offsetof(StateArgs, proxyStep.transSize) == 0);
static_assert(offsetof(StateArgs, proxyCtrl.appendedProxyOps) == 0);
static_assert(offsetof(StateArgs, netPlugin.data) == 0);
static_assert(offsetof(StateArgs, kernelCh.pTimer) == 0);

// comm_name may be NULL and is the user's own memory: copy it.
using Init = int(void** context, int* mask, const char* comm_name, uint64_t comm_hash, int nnodes,
                 int nranks, int rank, DebugLogger logger);
using Profiler = ProfilerTable<Init, Descriptor, StateArgs>;

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v4

#endif  // PLUGIN_ABI_PROFILER_V4_H_
