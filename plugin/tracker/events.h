// Events are descriptors in a form that is the same for all versions of NCCL's profiler API. Each
// kind of event has one small structure, which an ABI adapter fills. Fields that a version lacks
// have neutral values.
//
// Thread: plain data. The strings are NCCL's, and are valid only during the callback.
#ifndef PLUGIN_TRACKER_EVENTS_H_
#define PLUGIN_TRACKER_EVENTS_H_

#include <cstdint>

namespace nccl_pulse {

// The first version of the API with calls and launches (NCCL 2.28.3).
inline constexpr int kFirstVersionWithLaunches = 5;

// The user's call (CollApi, P2pApi; v5 and later).
struct CallEvent {
  const char* func;
  const char* datatype;
  uint64_t count;         // elements, as the user passed it
  bool captured;          // into a CUDA graph
  uint64_t parent;        // ticket of the group, 0: none
  void* stream;           // cudaStream_t argument of the call
  uint64_t user_tag = 0;  // set by the user; 0: none, or before v7
  int32_t root = 0;       // of a collective; -1: Send or Recv
};

// A kernel launch (KernelLaunch; v5 and later).
struct LaunchEvent {
  void* stream;
  uint64_t parent;  // ticket of the group, 0: none
};

// A collective that the copy engines execute, without a kernel (CeColl; v6 and later).
struct CopyEngineEvent {
  const char* func;
  const char* datatype;
  uint64_t count;   // elements of `datatype`; NCCL gives bytes for AllGather
  void* stream;     // of its copies
  uint64_t parent;  // ticket of the call, 0: none
};

// OperationEvent::proto of a symmetric-memory kernel. Compared by address.
inline constexpr const char* kSymmetricProtocol = "SYMMETRIC";

// An operation as NCCL enqueues it (Coll, P2p).
struct OperationEvent {
  const char* func;
  const char* datatype;
  const char* algo;  // null: none (P2p)
  const char* proto;
  uint64_t count;        // elements of `datatype`; NCCL gives bytes for AllGather and Broadcast
  uint64_t sequence;     // number among the communicator's collectives of this function, from 0
  uint64_t parent;       // ticket of the call; 0: none, or before v5
  int32_t root_or_peer;  // root of a Coll; peer of a P2p
  int rank;              // in the communicator
  uint8_t channels;      // 0: not known
  bool is_collective;
  bool counts_as_call;  // true in v1 to v4, which have no CallEvent
  // Identity of the communicator in v1 to v3, whose init has none. 0 and null in later versions.
  uint64_t comm_hash;
  const char* comm_name;
};

// A network operation of the proxy thread (ProxyOp).
struct ProxyOpEvent {
  uint64_t parent;  // ticket of the operation, 0: none
  int32_t pid;      // of the operation's process, which may be another one (PXN)
};

// One channel of an operation's kernel (KernelCh).
struct KernelChannelEvent {
  uint64_t parent;  // ticket of the operation, 0: none
  uint64_t gpu_ns;  // start by the GPU's clock; 0: not known
  uint8_t channel;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_EVENTS_H_
