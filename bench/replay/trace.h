// Trace is a recorded trace in memory: every profiler callback that NCCL made in one process, in
// order.
//
// A trace file holds one JSON object per line; tests/traces/README.md describes the fields. Lines
// are in the order in which the recorder's lock saw the callbacks; a replay keeps it. `t` was taken
// at entry, so it may step back by a few microseconds across threads.
//
//   Trace
//     communicators[c]   arguments of init; events refer to index c
//     threads            number of OS threads that made callbacks; events use 0 ... threads-1
//     handles            events have handles 1 ... handles-1; 0 is NULL
//     events             the callbacks
//
// Thread: plain data; the functions any. Cost: up to 128 bytes per event, and the whole text.
#ifndef BENCH_REPLAY_TRACE_H_
#define BENCH_REPLAY_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

// Exit statuses of the program.
enum ReplayExit : int {
  kReplayDone = 0,
  kReplayUsage = 1,          // bad flags or arguments
  kReplayNoFolder = 2,       // the trace folder, or a file of it, cannot be read
  kReplayNoTrace = 3,        // the folder holds no trace file
  kReplayBrokenTrace = 4,    // a line of a trace is not a callback, or a file is not xz
  kReplayNoLibrary = 5,      // the library does not load
  kReplayNoSymbol = 6,       // the library does not export the requested API version
  kReplayCrashed = 7,        // a process was killed by a signal, or could not be started
  kReplayInterrupted = 130,  // Ctrl-C or SIGTERM
};

struct ReplayError {
  ReplayExit exit = kReplayDone;
  std::string text;
};

enum class Callback : uint8_t { kInit, kStart, kStop, kState, kFinalize };

// For replays of graphs, whether NCCL makes a callback depends on KernelCh, see reduction.h.
enum class Condition : uint8_t { kNone, kOnlyWithKernelCh, kOnlyWithoutKernelCh };

struct TraceEvent {
  static constexpr uint32_t kNoContext = UINT32_MAX;

  // Strings are interned: equal strings have the same pointer.
  struct Call {  // collApi, p2pApi
    const char* func;
    const char* datatype;
    uint64_t count;
    uint64_t stream;
    int32_t root;
    bool captured;
  };
  struct GroupCall {  // groupApi
    int32_t depth;
    bool captured;
  };
  struct Launch {  // kernelLaunch
    uint64_t stream;
  };
  struct Operation {  // coll, p2p
    const char* func;
    const char* datatype;
    const char* algo;   // coll only
    const char* proto;  // coll only
    uint64_t count;
    uint64_t seq_number;                   // coll only
    uint64_t seq_number_without_kernelch;  // coll only, see reduction.h
    uint32_t parent_group;                 // handle
    int32_t root_or_peer;
    uint8_t channels;
    uint8_t warps;  // coll only
  };
  struct ProxyOp {
    int32_t pid;
    int32_t peer;
    int32_t steps;
    int32_t chunk_bytes;
    uint8_t channel;
    bool is_send;
  };
  struct ProxyStep {
    int32_t step;
  };
  struct KernelCh {
    uint64_t p_timer_ns;
    uint8_t channel;
  };
  struct State {
    int32_t state;
    int32_t appended;      // ProxyCtrl
    uint64_t p_timer_ns;   // KernelCh
    uint64_t trans_bytes;  // ProxyStep
  };

  int64_t t_ns;  // CLOCK_MONOTONIC of the recording machine
  uint32_t thread;
  uint32_t context;  // index into communicators, or kNoContext
  uint32_t handle;   // start, stop, state
  uint32_t parent;   // start
  int32_t rank;      // start; 0 and meaningless for some types
  uint32_t type;     // start, and stop and state by their handle: abi::kEvent*
  Callback callback;
  Condition condition;
  union {  // by type (start) or callback (state)
    Call call;
    GroupCall group_call;
    Launch launch;
    Operation operation;
    ProxyOp proxy_op;
    ProxyStep proxy_step;
    KernelCh kernel_ch;
    State state;
  };
};
static_assert(sizeof(TraceEvent) <= 128);

struct TraceCommunicator {
  uint64_t comm_id;
  const char* name;  // interned; NULL when the recorded name was empty (NCCL's default)
  int32_t nnodes;
  int32_t nranks;
  int32_t rank;
  int32_t pid;  // of the recorded process
};

struct Trace {
  std::vector<TraceCommunicator> communicators;
  uint32_t threads = 0;
  uint32_t handles = 1;
  std::vector<TraceEvent> events;
};

// Parses the text of a trace. `name`: for error messages. Returns nothing, with kReplayBrokenTrace
// and "name:LINE: reason" in `error`, if a line is not a callback or uses an unknown handle or
// context, or if there are no callbacks.
std::optional<Trace> ParseTrace(std::string_view name, std::string_view text, ReplayError* error);

// Returns the text of a .jsonl file, or of a .jsonl.xz file, which the program xz decompresses.
// Returns nothing, with kReplayNoFolder (cannot be read) or kReplayBrokenTrace (not a complete xz
// stream, or no xz program) in `error`, on failure.
std::optional<std::string> ReadTraceText(const std::string& path, ReplayError* error);

// Returns the trace files of a folder (*.jsonl, *.jsonl.xz), sorted by name: one per recorded
// process. Returns nothing, with kReplayNoFolder (not a folder) or kReplayNoTrace (none in it) in
// `error`, on failure.
std::optional<std::vector<std::string>> ListTraceFiles(const std::string& folder,
                                                       ReplayError* error);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_TRACE_H_
