// A profiler plugin that writes down every call it gets, to check the replay with.
//
// Exports ncclProfiler_v1 ... v7. Every call appends a line to the file named by
// RECORDING_PLUGIN_FILE (with the process id appended), in the order of the calls. Handles are
// numbers 1, 2, 3 ...
//
//   RECORDING_PLUGIN_MASK     event mask to ask for (default 0xfff)
//   RECORDING_PLUGIN_NULL     event type for which startEvent returns NULL (default none)
//   RECORDING_PLUGIN_IGNORE   event type for which startEvent does not write the handle (default
//   none) RECORDING_PLUGIN_ABORT    abort at this many calls (default never)
//
// Lines: "THREAD CLOCK_MONOTONIC_NS init COMM_ID NAME NNODES NRANKS RANK", "... start HANDLE
// CONTEXT TYPE PARENT ...", "... stop HANDLE", "... state HANDLE STATE VALUE", "... finalize
// CONTEXT".
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>

#include "plugin/abi/profiler_v1.h"
#include "plugin/abi/profiler_v2.h"
#include "plugin/abi/profiler_v3.h"
#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"
#include "plugin/abi/profiler_v7.h"

namespace nccl_pulse::abi {
namespace {

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
}

class Recorder {
 public:
  // `format` and its arguments make the line, without thread and time.
  template <typename... Arguments>
  void Write(const char* format, Arguments... arguments) {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::lock_guard<std::mutex> lock(mutex_);
    if (file_ == nullptr) {
      const char* name = std::getenv("RECORDING_PLUGIN_FILE");
      const std::string path =
          std::string(name == nullptr ? "/dev/null" : name) + "." + std::to_string(getpid());
      file_ = std::fopen(path.c_str(), "ae");
      if (file_ == nullptr) std::abort();
    }
    std::fprintf(file_, "%d %" PRId64 " ", gettid(),
                 static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
    std::fprintf(file_, format, arguments...);  // NOLINT(clang-diagnostic-format-security)
    std::fputc('\n', file_);
    std::fflush(file_);
    if (++calls_ == abort_at_) std::abort();
  }

  void* NextHandle() { return reinterpret_cast<void*>(++handles_); }

  const int mask = static_cast<int>(Setting("RECORDING_PLUGIN_MASK", 0xfff));
  const uint64_t null_type = Setting("RECORDING_PLUGIN_NULL", 0);
  const uint64_t ignored_type = Setting("RECORDING_PLUGIN_IGNORE", 0);

 private:
  const uint64_t abort_at_ = Setting("RECORDING_PLUGIN_ABORT", 0);
  std::mutex mutex_;
  FILE* file_ = nullptr;
  uint64_t calls_ = 0;
  std::atomic<uint64_t> handles_{0};
};

// Not destroyed: threads may outlive the library's destructors.
Recorder& recorder = *new Recorder;

uint64_t Number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

int Initialize(void** context, int* mask, uint64_t comm_id, const char* name, int nnodes,
               int nranks, int rank) {
  *context = recorder.NextHandle();
  *mask = recorder.mask;
  recorder.Write("init %" PRIx64 " %s %d %d %d %" PRIu64, comm_id, name == nullptr ? "-" : name,
                 nnodes, nranks, rank, Number(*context));
  return kSuccess;
}

int InitV1(void** context, int* mask) { return Initialize(context, mask, 0, nullptr, 0, 0, 0); }

int InitV4(void** context, int* mask, const char* comm_name, uint64_t comm_hash, int nnodes,
           int nranks, int rank, DebugLogger logger) {
  logger(kLogWarn, kSubsystemProfile, __FILE__, __LINE__, "recording at http://%s:%d/", "nowhere",
         1);
  return Initialize(context, mask, comm_hash, comm_name, nnodes, nranks, rank);
}

int InitV5(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
           int nranks, int rank, DebugLogger logger) {
  return InitV4(context, mask, comm_name, comm_id, nnodes, nranks, rank, logger);
}

std::string Text(const char* text) { return text == nullptr ? "-" : text; }
std::string Text(uint8_t number) { return std::to_string(number); }

template <typename Descriptor, int Version>
std::string Details(const Descriptor& d) {
  std::string text;
  const auto add = [&text](const std::string& item) { text += " " + item; };
  const auto add_number = [&](uint64_t number) { add(std::to_string(number)); };
  if (d.type == kEventColl) {
    add(Text(d.coll.func));
    add_number(d.coll.count);
    add(Text(d.coll.datatype));
    add(Text(d.coll.algo));
    add(Text(d.coll.proto));
    add_number(d.coll.seqNumber);
    if constexpr (Version >= 4) {
      add_number(d.coll.nChannels);
    } else {
      add_number(d.coll.nMaxChannels);
      add(Text(d.coll.name));
      add_number(d.coll.commHash);
    }
    if constexpr (Version >= 5) add_number(Number(d.coll.parentGroup));
  } else if (d.type == kEventP2p) {
    add(Text(d.p2p.func));
    add_number(d.p2p.count);
    add(Text(d.p2p.datatype));
    add_number(static_cast<uint64_t>(d.p2p.peer));
    if constexpr (Version >= 4) add_number(d.p2p.nChannels);
    if constexpr (Version >= 5) add_number(Number(d.p2p.parentGroup));
  } else if (d.type == kEventProxyOp) {
    add_number(static_cast<uint64_t>(d.proxyOp.pid));
  }
  if constexpr (Version >= 4) {
    if (d.type == kEventKernelCh) {
      add_number(d.kernelCh.channelId);
      add_number(d.kernelCh.pTimer);
    }
  }
  if constexpr (Version >= 5) {
    if (d.type == kEventCollApi) {
      add(Text(d.collApi.func));
      add_number(d.collApi.count);
      add_number(static_cast<uint64_t>(d.collApi.graphCaptured));
    }
  }
  return text;
}

template <typename Descriptor, int Version>
int Start(void* context, void** handle, Descriptor* descriptor) {
  if (descriptor->type == recorder.null_type) {
    *handle = nullptr;
  } else if (descriptor->type != recorder.ignored_type) {
    *handle = recorder.NextHandle();
  }
  recorder.Write("start %" PRIu64 " %" PRIu64 " %#x %" PRIu64 " %d%s", Number(*handle),
                 Number(context), static_cast<unsigned>(descriptor->type),
                 Number(descriptor->parentObj), descriptor->rank,
                 Details<Descriptor, Version>(*descriptor).c_str());
  return kSuccess;
}

int Stop(void* handle) {
  recorder.Write("stop %" PRIu64, Number(handle));
  return kSuccess;
}

template <typename StateArgs>
int Record(void* handle, int state, StateArgs* args) {
  uint64_t value = 0;
  if (args != nullptr && state >= kStateProxyCtrlIdle && state <= kStateProxyCtrlAppendEnd) {
    value = static_cast<uint64_t>(args->proxyCtrl.appendedProxyOps);
  } else if (args != nullptr) {
    value = *reinterpret_cast<const uint64_t*>(args);
  }
  recorder.Write("state %" PRIu64 " %d %s%" PRIu64, Number(handle), state,
                 args == nullptr ? "null " : "", value);
  return kSuccess;
}

int Finalize(void* context) {
  recorder.Write("finalize %" PRIu64, Number(context));
  return kSuccess;
}

}  // namespace
}  // namespace nccl_pulse::abi

#define RECORDING_PROFILER(version, init_function)                              \
  extern "C" {                                                                  \
  __attribute__((visibility("default")))                                        \
  nccl_pulse::abi::v##version::Profiler ncclProfiler_v##version = {             \
      "recording",                                                              \
      nccl_pulse::abi::init_function,                                           \
      nccl_pulse::abi::Start<nccl_pulse::abi::v##version::Descriptor, version>, \
      nccl_pulse::abi::Stop,                                                    \
      nccl_pulse::abi::Record<nccl_pulse::abi::v##version::StateArgs>,          \
      nccl_pulse::abi::Finalize};                                               \
  }

RECORDING_PROFILER(1, InitV1)
RECORDING_PROFILER(2, InitV1)
RECORDING_PROFILER(3, InitV1)
RECORDING_PROFILER(4, InitV4)
RECORDING_PROFILER(5, InitV5)
RECORDING_PROFILER(6, InitV5)
RECORDING_PROFILER(7, InitV5)
