// Enumerations that the plugin writes as small numbers into a segment (the memory that holds a
// process' measurements). If their values are also label values, a function here returns their
// names. A number never changes its meaning; new ones are appended.
//
// Thread: plain data, pure functions. Includes nothing, to stay cheap to include.
#ifndef METRICS_KINDS_H_
#define METRICS_KINDS_H_

#include <cstdint>

namespace nccl_pulse {

// Bits of NCCL's profiler event mask (ncclProfile* in nccl/profiler.h; plugin/abi/common.h): events
// by which calls and launches are counted. If another tool clears them, calls are missed, and the
// diagnosis takes the rank's state as unknown.
inline constexpr uint32_t kCallEvents = 1u << 9 | 1u << 10;  // CollApi, P2pApi: since v5
inline constexpr uint32_t kLaunchEvents =
    1u << 11 | 1u << 12;  // KernelLaunch, since v5; CeColl, v6

// How a latency was obtained: the `timing` label of nccl_operation_duration_seconds, or the
// `source` label of nccl_operation_completion_seconds.
enum class LatencyKind : uint8_t {
  kDurationKernel = 1,    // timing="kernel": GPU timestamps of KernelCh
  kCompletionProxy = 2,   // source="proxy": enqueue to the last ProxyOp stop
  kCompletionKernel = 3,  // source="kernel": enqueue to the last KernelCh stop, no network traffic
  kDurationStream = 4,    // timing="stream": CUDA events around a sample of the launches
  // timing="network": first network step that moved data to the last ProxyOp stop
  kDurationNetwork = 5,
  kDurationGraph = 6,  // timing="graph": stamps (one-thread kernels) around launches in CUDA graphs
};
inline constexpr int kLatencyKinds = 7;  // one past the last

// Why an operation has no duration (label `reason` of nccl_operations_without_duration_total).
enum class UntimedReason : uint8_t {
  kNotTimed = 1,     // no timing source was selected for this operation
  kCaptured = 2,     // issued into a CUDA graph; NCCL does not report replays
  kOverlap = 3,      // the channels' intervals do not all overlap: attribution has drifted
  kBackwards = 4,    // a timestamp runs backwards on its channel: NCCL's ring was overwritten
  kUntrusted = 5,    // the communicator's GPU timestamps are no longer trusted
  kLost = 6,         // stops or CUDA events are missing, or no slot was free
  kInvisible = 7,    // NCCL makes no callback that could time it
  kNotSampled = 8,   // its launch was not sampled
  kGrouped = 9,      // its launch was timed as a whole, with other operations
  kUnreported = 10,  // NCCL reports only the call, and no CUDA event follows it alone
};
inline constexpr int kUntimedReasons = 11;  // one past the last
const char* UntimedReasonName(UntimedReason reason);

// Why a communicator's GPU timestamps are not trusted (0: trusted, or not requested).
enum class TrustState : uint8_t { kTrusted = 0, kSelfSend = 1, kChecksFailed = 2 };

// Source that detects which work of a communicator is complete.
enum class CompletionSource : uint8_t {
  kNone = 0,    // completion is not detected
  kStream = 1,  // CUDA events behind the launches: all work that NCCL reports as launched
  kProxy = 2,   // ProxyOps: operations with network traffic
  kKernel = 3,  // KernelCh: operations with GPU timestamps
};

// State of the oldest launch in flight.
enum class OldestLaunch : uint8_t {
  kUnknown = 0,
  kBegun = 1,     // the GPU has reached it: all earlier work on its stream is done
  kNotBegun = 2,  // the GPU has not reached it
  kUntold = 3     // may be complete: it has no event, and NCCL's work counter is not usable
};

// State of the background thread, which detects the end of work.
enum class PollerState : uint8_t {
  kUnknown = 0,
  kRunning = 1,
  kNotStarted = 2,
  kEnded = 3,  // the process is in exit()
};

// Result of capturing CUDA graphs (label `fate` of nccl_pulse_graph_captures_total). The plugin
// follows a graph by adding one-thread kernels (stamps) that report its replays.
enum class CaptureFate : uint8_t {
  kSeen = 0,        // all graphs into which calls were captured
  kFollowed = 1,    // replays are counted
  kNoRoom = 2,      // replays are not counted: too many graphs are followed
  kIncomplete = 3,  // replays are counted, but some of the graph's calls are not
  kRefused = 4,     // the driver refused a stamp; no further stamps are made
};
inline constexpr int kCaptureFates = 5;
const char* CaptureFateName(CaptureFate fate);

// State of the search for NCCL's private counter of finished work in a communicator's device memory
// (label `state` of nccl_pulse_work_counters; plugin/cuda/work_proof.h).
enum class WorkState : uint8_t {
  kOff = 0,          // not requested, or not supported by the driver
  kUnknown = 1,      // not begun: the communicator has launched nothing
  kLocated = 2,      // candidate addresses were found
  kCalibrating = 3,  // the memory block was found; its words are compared with completed launches
  kProven = 4,       // one word of the block is the counter
  kRefuted = 5,      // no usable counter (WorkRefutal); final for this communicator
  kGone = 6,         // the communicator has ended
  kStuck = 7,        // a copy or the driver does not return; the count is unknown
};
inline constexpr int kWorkStates = 8;
inline constexpr uint64_t kWorkStuckNs = 2000000000;  // kStuck after this time without an answer
const char* WorkStateName(WorkState state);

// Why NCCL's work counter is not used (label `reason` of nccl_pulse_work_counters).
enum class WorkRefutal : uint8_t {
  kNone = 0,
  kNotFound = 1,      // no pointer found near NCCL's profiler context leads to the block
  kNotMapped = 2,     // the driver gives no mapping of the block (NCCL_CUMEM_ENABLE=0)
  kMoved = 3,         // the block no longer begins with the communicator's rank and size
  kDiffers = 4,       // no word of the block equals the work of completed launches
  kBehind = 5,        // the counter lacks completed launches
  kAhead = 6,         // the counter exceeds the launched work
  kSteppedBack = 7,   // the counter decreased
  kCopyFailed = 8,    // the driver refused to copy the block
  kPointToPoint = 9,  // the communicator used Send or Recv, and how these are counted is not known
  kUncounted = 10,    // an operation's kernel may not count, or its number of channels is not known
  kNoEvents = 11,     // no CUDA events follow its launches, so completion is not known
};
inline constexpr int kWorkRefutals = 12;
const char* WorkRefutalName(WorkRefutal refutal);

// How a GPU was used over some time, according to NVML.
enum class GpuUse : uint8_t {
  kUnknown = 0,  // not queried, or not available
  kIdle = 1,     // ran nothing
  kBusy = 2,     // always ran a kernel, with no memory traffic: like a kernel that waits for data
  kMixed = 3,    // neither idle nor busy; it may compute
  kShared = 4,   // other processes use it too, and may cause the activity
};
inline constexpr int kGpuUses = 5;
const char* GpuUseName(GpuUse use);

// Why a callback was ignored (label `reason` of nccl_pulse_ignored_events_total). A handle is the
// integer that NCCL got from startEvent in place of a pointer.
enum class IgnoredReason : uint8_t {
  kNullHandle = 0,        // stopEvent or recordEventState with a null handle
  kStaleHandle = 1,       // handle of an operation that ended long ago; its slot was reused
  kForeignHandle = 2,     // not a handle of this process (another process', or random bits)
  kRepeatedStop = 3,      // a handle was stopped again
  kStopWithoutStart = 4,  // a channel stopped that had not started
  kStaleContext = 5,      // event with the context of a finalized communicator
  kForeignContext = 6,    // event with a context that this process never gave out
  kForeignProcess = 7,    // proxy operation of another process (PXN)
  kUnknownType = 8,       // event type this version does not know
  kUnrequestedType = 9,   // event type that was not requested and is not used
  kUnknownState = 10,     // recordEventState with an unknown state, or out of order
  kMissingArgument = 11,  // recordEventState without arguments, or startEvent without descriptor
  kNoRoom = 12,           // no slot or lane (set of cells) was free, or a number exceeds its limit
  kAfterClose = 13,       // event after its operation or communicator was closed
  // Network step of a proxy operation that the plugin does not track: of another process (PXN), or
  // of a CUDA graph captured while steps were watched.
  kUnfollowedStep = 14,
};
inline constexpr int kIgnoredReasons = 15;
const char* IgnoredReasonName(IgnoredReason reason);

// Settings that can change while a process runs, named like the variables NCCL_PULSE_* without that
// prefix (label `setting` of nccl_pulse_setting_changed).
enum class LiveSetting : uint8_t {
  kTimedLaunches = 0,
  kNetworkWindow = 1,
  kHangSeconds = 2,
  kLogLevel = 3,
};
inline constexpr int kLiveSettings = 4;
const char* LiveSettingName(LiveSetting setting);

// At most one launch in 2^kMostSamplingExponent is timed. A hostile segment or message may claim
// more.
inline constexpr int kMostSamplingExponent = 24;

// Outcome of a command to a process (label `result` of nccl_pulse_commands_total).
enum class CommandResult : uint8_t {
  kDone = 0,
  kRefused = 1,      // unknown setting, invalid value, or invalid message
  kForeignUser = 2,  // sender is neither the process' own user nor root
  kAbandoned = 3,    // the sender left before it was read; nothing was done
};
inline constexpr int kCommandResults = 4;
const char* CommandResultName(CommandResult result);

// Callbacks that the plugin counts (label `callback` of nccl_pulse_callbacks_total).
enum class CallbackKind : uint8_t {
  kApi = 0,
  kLaunch = 1,
  kOperation = 2,
  kProxy = 3,
  kKernel = 4,
  kStep = 5
};
inline constexpr int kCallbackKinds = 6;
const char* CallbackKindName(CallbackKind kind);

// Direction in which network steps move data (label `direction`).
enum class NetworkDirection : uint8_t { kSend = 0, kReceive = 1 };
inline constexpr int kNetworkDirections = 2;
const char* NetworkDirectionName(NetworkDirection direction);

// Causes of waits of network steps (labels `direction` and `reason` of
// nccl_network_wait_seconds_total).
enum class NetworkWait : uint8_t {
  kSendGpu = 0,       // the GPU to produce the data
  kSendPeer = 1,      // the peer to be ready, until the network accepts the data
  kSendWire = 2,      // the network to confirm the send
  kReceiveWire = 3,   // the data to arrive
  kReceiveFlush = 4,  // the data to be visible to the GPU
  kReceiveGpu = 5,    // the GPU to consume the data
};
inline constexpr int kNetworkWaits = 6;
NetworkDirection NetworkWaitDirection(NetworkWait wait);
const char* NetworkWaitReason(NetworkWait wait);

}  // namespace nccl_pulse

#endif  // METRICS_KINDS_H_
