// The least that a profiler plugin must do to know when each launch ends: it records an event
// behind every one, and nothing else. No counter, no clock, no look at what is recorded. What any
// plugin costs that sees each launch's end lies above it; what it costs lies above the empty plugin
// (empty_plugin.cc).
//
//   FLOOR_PLUGIN_ASKS=1   asks first whether the stream is in capture, as one that may be used must
//
// Only for collective_overhead: without the question it records into CUDA graphs. API v5 and v6.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"

namespace {

namespace abi = nccl_pulse::abi;

constexpr int kMask = 0xe0e;                 // as the real one by default
constexpr unsigned kEventWithoutTiming = 2;  // cuda.h 13.0

struct Communicator {
  void* event;
  void* stream;  // of the launch that is being made
};

struct Driver {
  int (*event_create)(void** event, unsigned flags);
  int (*event_record)(void* event, void* stream);
  int (*is_capturing)(void* stream, int* status);
};

Driver driver;
bool asks = false;

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

int Init(void** context, uint64_t /*comm_id*/, int* mask, const char* /*comm_name*/, int /*nnodes*/,
         int /*nranks*/, int /*rank*/, abi::DebugLogger /*logger*/) {
  *context = nullptr;
  *mask = kMask;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || !Find(library, "cuEventCreate", &driver.event_create) ||
      !Find(library, "cuEventRecord", &driver.event_record) ||
      !Find(library, "cuStreamIsCapturing", &driver.is_capturing)) {
    return abi::kSuccess;
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the program that loads it sets nothing meanwhile.
  asks = std::getenv("FLOOR_PLUGIN_ASKS") != nullptr;
  auto* communicator = new (std::nothrow) Communicator{};
  if (communicator != nullptr &&
      driver.event_create(&communicator->event, kEventWithoutTiming) == 0) {
    *context = communicator;  // for as long as the process lives
  }
  return abi::kSuccess;
}

template <typename Descriptor>
int Start(void* context, void** handle, Descriptor* descriptor) {
  *handle = nullptr;
  if (context == nullptr || descriptor->type != abi::kEventKernelLaunch) return abi::kSuccess;
  auto* communicator = static_cast<Communicator*>(context);
  communicator->stream = descriptor->kernelLaunch.stream;
  *handle = communicator;
  return abi::kSuccess;
}

int Stop(void* handle) {
  const auto* communicator = static_cast<const Communicator*>(handle);
  int capturing = 0;
  if (asks && (driver.is_capturing(communicator->stream, &capturing) != 0 || capturing != 0)) {
    return abi::kSuccess;
  }
  driver.event_record(communicator->event, communicator->stream);
  return abi::kSuccess;
}

template <typename StateArgs>
int Record(void* /*handle*/, int /*state*/, StateArgs* /*args*/) {
  return abi::kSuccess;
}
int Finalize(void* /*context*/) { return abi::kSuccess; }

}  // namespace

extern "C" {
__attribute__((visibility("default")))
abi::v5::Profiler ncclProfiler_v5 = {"Floor", Init, Start, Stop, Record, Finalize};
__attribute__((visibility("default")))
abi::v6::Profiler ncclProfiler_v6 = {"Floor", Init, Start, Stop, Record, Finalize};
}  // extern "C"
