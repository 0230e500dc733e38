#include "tests/plugin/next_profiler.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v7.h"

#if NEXT_VERSION == 4
namespace abi_version = nccl_pulse::abi::v4;
#elif NEXT_VERSION == 7
namespace abi_version = nccl_pulse::abi::v7;
#else
namespace abi_version = nccl_pulse::abi::v5;
#endif

extern "C" {
nccl_pulse::NextNotes next_notes;
}

namespace nccl_pulse {
namespace {

std::mutex g_mutex;
char g_places[1 << 20];
std::atomic<uint32_t> g_next{0};

void Note(const NextCall& call) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++next_notes.count;
  if (!next_notes.is_quiet) next_notes.calls.push_back(call);
}

void* NewHandle() { return &g_places[g_next++ % sizeof(g_places)]; }

int Begin(void** context, int* mask) {
  if (next_notes.manner == NextManner::kFailsInit) return 3;
  if (next_notes.manner == NextManner::kThrows) throw std::runtime_error("init");
  *context = NewHandle();
  __atomic_store_n(mask, next_notes.mask, __ATOMIC_RELAXED);  // callbacks read it meanwhile
  Note({NextCall::kInit, *context});
  const std::lock_guard<std::mutex> lock(g_mutex);
  next_notes.its_mask = mask;
  return 0;
}

#if NEXT_VERSION == 4
int Init(void** context, int* mask, const char* /*name*/, uint64_t /*hash*/, int /*nnodes*/,
         int /*nranks*/, int /*rank*/, abi::DebugLogger /*logger*/) {
  return Begin(context, mask);
}
#else
int Init(void** context, uint64_t /*hash*/, int* mask, const char* /*name*/, int /*nnodes*/,
         int /*nranks*/, int /*rank*/, abi::DebugLogger /*logger*/) {
  return Begin(context, mask);
}
#endif

int Start(void* context, void** handle, abi_version::Descriptor* descriptor) {
  void* made = NewHandle();
  if (next_notes.manner == NextManner::kStrangeHandles) {
    made = reinterpret_cast<void*>(0xfff8123456789abcULL + g_next);  // NOLINT
  }
  if (next_notes.manner == NextManner::kNoHandles) made = nullptr;
  Note({NextCall::kStart, context, made, descriptor->type, descriptor->parentObj});
  if (next_notes.manner == NextManner::kScribbles) memset(descriptor, 0x5a, sizeof(*descriptor));
  *handle = made;
  return 7;  // NCCL takes no notice
}
int Stop(void* handle) {
  Note({NextCall::kStop, nullptr, handle});
  return 7;
}
int Record(void* handle, int state, abi_version::StateArgs* /*args*/) {
  Note({NextCall::kRecord, nullptr, handle, 0, nullptr, state});
  return 0;
}
int Finalize(void* context) {
  Note({NextCall::kFinalize, context});
  return 0;
}

}  // namespace
}  // namespace nccl_pulse

extern "C" {
#if NEXT_VERSION == 4
abi_version::Profiler ncclProfiler_v4 = {
#elif NEXT_VERSION == 7
abi_version::Profiler ncclProfiler_v7 = {
#else
abi_version::Profiler ncclProfiler_v5 = {
#endif
    "Next",           nccl_pulse::Init,   nccl_pulse::Start,
    nccl_pulse::Stop, nccl_pulse::Record, nccl_pulse::Finalize};
}
