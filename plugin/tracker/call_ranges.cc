#include "plugin/tracker/call_ranges.h"

#include <dlfcn.h>

#include <cstdlib>

namespace nccl_pulse {
namespace {

using abi::kNvtxModules;
using abi::kNvtxSlots;
using abi::NvtxFunction;
using abi::NvtxTable;

constexpr unsigned kMostSlots = 16;

// What the tool has written, and the tables through which it does.
NvtxFunction g_functions[kNvtxModules][kMostSlots];
NvtxFunction* g_tables[kNvtxModules][kMostSlots + 1];

int GetModuleFunctionTable(int module, NvtxTable* table, unsigned* size) {
  if (module <= 0 || module >= kNvtxModules) return 0;
  if (table != nullptr) *table = g_tables[module];
  if (size != nullptr) *size = kNvtxSlots[module];
  return 1;
}

const void* GetExportTable(uint32_t table) {
  static constexpr abi::NvtxCallbacks kCallbacks = {sizeof(kCallbacks), GetModuleFunctionTable};
  static constexpr abi::NvtxVersionInfo kVersion = {sizeof(kVersion), abi::kNvtxVersion, 0,
                                                    [](uint32_t) {}};
  if (table == abi::kNvtxExportCallbacks) return &kCallbacks;
  return table == abi::kNvtxExportVersion ? &kVersion : nullptr;
}

std::string Introduce() {
  // Under the lock of init, as all settings are read.
  const char* path = std::getenv(abi::kNvtxLibraryVariable);  // NOLINT(concurrency-mt-unsafe)
  if (path == nullptr || *path == '\0') {
    return std::string(abi::kNvtxLibraryVariable) + " is not set: no tool listens";
  }
  // Never closed: what it was told of must stay.
  void* library = dlopen(path, RTLD_LAZY);
  if (library == nullptr) return dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
  const auto initialize =
      reinterpret_cast<abi::NvtxInitialize>(dlsym(library, abi::kNvtxEntryPoint));
  if (initialize == nullptr) return std::string(path) + " has no " + abi::kNvtxEntryPoint;
  for (int module = 1; module < kNvtxModules; ++module) {
    for (unsigned slot = 1; slot < kNvtxSlots[module]; ++slot) {
      g_tables[module][slot] = &g_functions[module][slot];
    }
  }
  if (initialize(GetExportTable) == 0) return std::string(path) + " did not want to listen";
  return "";
}

template <typename Function>
Function Written(unsigned slot) {
  return reinterpret_cast<Function>(g_functions[abi::kNvtxCore2][slot]);
}

// A text in a buffer: what does not fit is left out.
class Name {
 public:
  Name& Add(const char* text) {
    if (text == nullptr) text = "Unknown";
    while (*text != '\0') Put(*text++);
    return *this;
  }
  Name& AddBytes(uint64_t bytes) {
    constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB"};
    int unit = 0;
    for (; unit < 3 && bytes >= 1024 && bytes % 1024 == 0; ++unit) bytes /= 1024;
    char digits[20];
    int count = 0;
    do {
      digits[count++] = static_cast<char>('0' + bytes % 10);
    } while ((bytes /= 10) != 0);
    while (count > 0) Put(digits[--count]);
    return Add(kUnits[unit]);
  }
  // By its name, or else by its id, as pages have it.
  Name& AddCommunicator(const CommunicatorRecord& record) {
    Add(" on ");
    const int begin = size_;
    for (const char& shared : record.name) {
      // Another thread may write it just now (API v1 to v3). Relaxed: it is text, and bounded.
      const char c = __atomic_load_n(&shared, __ATOMIC_RELAXED);
      if (c == '\0') break;
      Put(c);
    }
    if (size_ > begin) return *this;
    const uint64_t id = record.comm_id.load();
    for (int shift = 60; shift >= 0; shift -= 4) Put("0123456789abcdef"[id >> shift & 15]);
    return *this;
  }
  // Valid as long as this.
  abi::NvtxEventAttributes Event() {
    text_[size_] = '\0';
    abi::NvtxEventAttributes event{};
    event.version = abi::kNvtxVersion;
    event.size = sizeof(event);
    event.message_type = abi::kNvtxMessageAscii;
    event.message = text_;
    return event;
  }

 private:
  void Put(char c) {
    if (size_ < kMost) text_[size_++] = c;
  }
  static constexpr int kMost = 255;
  char text_[kMost + 1];
  int size_ = 0;
};

}  // namespace

std::string CallRanges::Load() {
  // Once, and no guarded static: see CudaDriver::Load.
  static bool looked = false;
  static CallRanges loaded;
  static std::string* problem = nullptr;
  if (!looked) {
    problem = new std::string(Introduce());
    loaded.mark_ = Written<abi::NvtxDomainMark>(abi::kNvtxDomainMarkEx);
    loaded.push_ = Written<abi::NvtxDomainPush>(abi::kNvtxDomainRangePushEx);
    loaded.pop_ = Written<abi::NvtxDomainPop>(abi::kNvtxDomainRangePop);
    const auto create = Written<abi::NvtxDomainCreate>(abi::kNvtxDomainCreateA);
    if (problem->empty() &&
        (create == nullptr || loaded.push_ == nullptr || loaded.pop_ == nullptr)) {
      *problem = "the tool takes no ranges in domains";
    }
    if (problem->empty()) loaded.domain_ = create("NCCL Pulse");
    // Null is the domain of everybody, where an end that is missing would end the application's.
    if (problem->empty() && loaded.domain_ == nullptr) *problem = "the tool made us no domain";
    looked = true;
  }
  *this = loaded;
  return *problem;
}

void CallRanges::PushGroup(bool is_one_call, const CommunicatorRecord& record) const {
  Name name;
  name.Add(is_one_call ? "one call" : "group, begun").AddCommunicator(record);
  const abi::NvtxEventAttributes event = name.Event();
  push_(domain_, &event);
}

void CallRanges::PushCall(const char* op, uint64_t bytes, const CommunicatorRecord& record) const {
  Name name;
  name.Add(op).Add(" ").AddBytes(bytes).AddCommunicator(record);
  const abi::NvtxEventAttributes event = name.Event();
  push_(domain_, &event);
}

void CallRanges::MarkCall(const char* op, uint64_t bytes, const CommunicatorRecord& record) const {
  if (mark_ == nullptr) return;
  Name name;
  name.Add(op).Add(" ").AddBytes(bytes).AddCommunicator(record);
  const abi::NvtxEventAttributes event = name.Event();
  mark_(domain_, &event);
}

}  // namespace nccl_pulse
