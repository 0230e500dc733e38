// NCCL profiler plugin API, version 5: symbol ncclProfiler_v5, known to NCCL since 2.28.3.
// Differences from v4: events for the user's calls (GroupApi, CollApi, P2pApi) and for kernel
// launches; operations have parentGroup; `type` has 8 bytes; init's arguments are in another order.
// Source: NCCL 2.28.3 (see common.h).
//
// Thread: plain data. Cost: none.
#ifndef PLUGIN_ABI_PROFILER_V5_H_
#define PLUGIN_ABI_PROFILER_V5_H_

#include <cstddef>
#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/abi/profiler_v4.h"

namespace nccl_pulse::abi::v5 {

// NOLINTBEGIN(readability-identifier-naming): members keep NCCL's names.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // members of a base have offsets, too

struct Descriptor {
  struct GroupApi {
    bool graphCaptured;
    int groupDepth;
  };
  struct CollApi {
    const char* func;
    size_t count;
    const char* datatype;
    int root;
    void* stream;
    bool graphCaptured;
  };
  struct P2pApi {
    const char* func;
    size_t count;
    const char* datatype;
    void* stream;
    bool graphCaptured;
  };
  struct KernelLaunch {
    void* stream;
  };
  struct Coll : v4::Descriptor::Coll {
    void* parentGroup;  // handle of the Group event
  };
  struct P2p : v4::Descriptor::P2p {
    void* parentGroup;  // handle of the Group event
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
static_assert(offsetof(Descriptor, collApi.func) == 24);
static_assert(offsetof(Descriptor, collApi.count) == 32);
static_assert(offsetof(Descriptor, collApi.datatype) == 40);
static_assert(offsetof(Descriptor, collApi.root) == 48);
static_assert(offsetof(Descriptor, collApi.stream) == 56);
static_assert(offsetof(Descriptor, collApi.graphCaptured) == 64);
static_assert(sizeof(Descriptor::P2pApi) == 40);
static_assert(offsetof(Descriptor, p2pApi.func) == 24);
static_assert(offsetof(Descriptor, p2pApi.count) == 32);
static_assert(offsetof(Descriptor, p2pApi.datatype) == 40);
static_assert(offsetof(Descriptor, p2pApi.stream) == 48);
static_assert(offsetof(Descriptor, p2pApi.graphCaptured) == 56);
static_assert(sizeof(Descriptor::KernelLaunch) == 8);
static_assert(offsetof(Descriptor, kernelLaunch.stream) == 24);
static_assert(sizeof(Descriptor::Coll) == 88);
static_assert(offsetof(Descriptor, coll.parentGroup) == 104);
static_assert(sizeof(Descriptor::P2p) == 48);
static_assert(offsetof(Descriptor, p2p.parentGroup) == 64);
#pragma GCC diagnostic pop

using StateArgs = v4::StateArgs;

// The order of arguments differs from v4. comm_name may be NULL and is the user's own memory: copy
// it.
using Init = int(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
                 int nranks, int rank, DebugLogger logger);
using Profiler = ProfilerTable<Init, Descriptor, StateArgs>;

// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::abi::v5

#endif  // PLUGIN_ABI_PROFILER_V5_H_
