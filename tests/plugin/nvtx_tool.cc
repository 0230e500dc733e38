// A tool that listens to NVTX, as its interface says (NVIDIA/NVTX v3.1.0, c/include/nvtx3): numbers
// and layouts are written out here, apart from those of the plugin. It keeps what it is told in an
// array: no lock, no allocation.
#include "tests/plugin/nvtx_tool.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

using Function = void (*)();

struct Callbacks {
  size_t struct_size;
  int (*get_table)(int module, Function*** table, unsigned* size);
};
struct Version {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  void (*set_tool_version)(uint32_t version);
};
struct Attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};

NvtxToolEvent g_events[kNvtxToolEvents];
std::atomic<uint32_t> g_count{0};
char g_domain[64];
thread_local int g_depth __attribute__((tls_model("initial-exec"))) = 0;

void Keep(char kind, void* domain, const Attributes* event) {
  const uint32_t place = g_count.fetch_add(1);
  if (place >= kNvtxToolEvents) return;
  NvtxToolEvent& kept = g_events[place];
  kept.kind = kind;
  kept.thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
  kept.depth = g_depth;
  if (domain != g_domain) kept.kind = '?';
  if (event == nullptr) return;
  if (event->version != 3 || event->size != 48 || event->message_type != 1) kept.kind = '?';
  std::strncpy(kept.name, event->message, sizeof(kept.name) - 1);
}

void* CreateDomain(const char* name) {
  if (getenv("NVTX_TOOL_WITHOUT_DOMAINS") != nullptr) return nullptr;
  std::strncpy(g_domain, name, sizeof(g_domain) - 1);
  return g_domain;
}
void Mark(void* domain, const Attributes* event) { Keep('.', domain, event); }
int Push(void* domain, const Attributes* event) {
  Keep('(', domain, event);
  return g_depth++;
}
int Pop(void* domain) {
  --g_depth;
  Keep(')', domain, nullptr);
  return g_depth;
}

template <typename F>
void Attach(Function** table, unsigned slot, F function) {
  *table[slot] = reinterpret_cast<Function>(function);
}

void Unwanted() {}

}  // namespace

extern "C" {

const NvtxToolEvent* NvtxToolEvents(uint32_t* count, const char** domain) {
  *count = g_count.load() < kNvtxToolEvents ? g_count.load() : kNvtxToolEvents;
  *domain = g_domain;
  return g_events;
}

int InitializeInjectionNvtx2(const void* (*get_export_table)(uint32_t)) {
  if (getenv("NVTX_TOOL_DECLINES") != nullptr) return 0;
  const auto* version = static_cast<const Version*>(get_export_table(3));
  const auto* callbacks = static_cast<const Callbacks*>(get_export_table(1));
  if (version == nullptr || version->struct_size < sizeof(Version) || version->version != 3 ||
      callbacks == nullptr || callbacks->struct_size < sizeof(Callbacks) ||
      get_export_table(2) != nullptr) {
    return 0;
  }
  version->set_tool_version(3);
  // As large as NVTX' own, and every slot but the first can be written.
  constexpr unsigned kSizes[] = {0, 16, 9, 15, 7, 16, 7};
  for (int module = 0; module <= 8; ++module) {
    Function** table = nullptr;
    unsigned size = 0;
    const int found = callbacks->get_table(module, &table, &size);
    if ((found != 0) != (module >= 1 && module <= 6)) return 0;
    if (found == 0) continue;
    if (size != kSizes[module] || table[0] != nullptr) return 0;
    for (unsigned slot = 1; slot < size; ++slot) Attach(table, slot, Unwanted);
  }
  Function** core2 = nullptr;
  unsigned size = 0;
  callbacks->get_table(5, &core2, &size);
  Attach(core2, 1, Mark);
  if (getenv("NVTX_TOOL_WITHOUT_RANGES") != nullptr) {
    *core2[4] = nullptr;
  } else {
    Attach(core2, 4, Push);
  }
  Attach(core2, 5, Pop);
  Attach(core2, 12, CreateDomain);
  return 1;
}

}  // extern "C"
