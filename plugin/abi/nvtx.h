// What a library that makes NVTX 3 events and a tool that listens to them ("injection") agree on.
//
// Facts, in our own words, from NVIDIA/NVTX release v3.1.0, c/include/nvtx3: the variable, the
// entry point and what it returns in nvtxDetail/nvtxInit.h; modules, slots and export tables in
// nvtxDetail/nvtxTypes.h; the sizes of the tables in nvtxDetail/nvtxImpl.h; the attributes of an
// event in nvToolsExt.h.
//
//   who makes events                              the tool's library
//      | ---- InitializeInjectionNvtx2(get) ---------> |   not 0: it listens
//      | <--- get(1): NvtxCallbacks ------------------ |
//      | <--- GetModuleFunctionTable(module, ...) ---- |   the tool writes its functions through
//      | ---- the functions that it wrote -----------> |   the table: *table[slot] = function
//
// Each library with NVTX in it does this for itself, with tables of its own.
#ifndef PLUGIN_ABI_NVTX_H_
#define PLUGIN_ABI_NVTX_H_

#include <cstddef>
#include <cstdint>

namespace nccl_pulse::abi {

// Names the tool's library, on 64-bit systems. Tools set it where they start a program.
inline constexpr char kNvtxLibraryVariable[] = "NVTX_INJECTION64_PATH";
inline constexpr char kNvtxEntryPoint[] = "InitializeInjectionNvtx2";

inline constexpr uint32_t kNvtxVersion = 3;

// Any of the functions; cast to its own type before it is called.
using NvtxFunction = void (*)();
// Slot n is the address of the function of slot n; slot 0 is null.
using NvtxTable = NvtxFunction**;

// Export tables.
inline constexpr uint32_t kNvtxExportCallbacks = 1;
inline constexpr uint32_t kNvtxExportVersion = 3;

struct NvtxCallbacks {
  size_t struct_size;
  // 0: there is no such module. `size` counts slots, with slot 0.
  int (*GetModuleFunctionTable)(int module, NvtxTable* table, unsigned* size);
};

struct NvtxVersionInfo {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  void (*SetInjectionNvtxVersion)(uint32_t version);
};

using NvtxGetExportTable = const void* (*)(uint32_t table);
using NvtxInitialize = int (*)(NvtxGetExportTable get);

// Modules, by number, and how many slots each has. Names for things of CUDA and OpenCL are not ours
// to give, but tools look for the tables.
inline constexpr int kNvtxCore = 1, kNvtxCuda = 2, kNvtxOpenCl = 3, kNvtxCudaRuntime = 4;
inline constexpr int kNvtxCore2 = 5, kNvtxSync = 6;
inline constexpr int kNvtxModules = 7;
inline constexpr unsigned kNvtxSlots[kNvtxModules] = {0, 16, 9, 15, 7, 16, 7};

// Slots of CORE2: events in a domain of one's own.
inline constexpr unsigned kNvtxDomainMarkEx = 1, kNvtxDomainRangePushEx = 4;
inline constexpr unsigned kNvtxDomainRangePop = 5, kNvtxDomainCreateA = 12;

inline constexpr int32_t kNvtxMessageAscii = 1;

// The tool reads it, and the message, within the call.
struct NvtxEventAttributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};
static_assert(offsetof(NvtxEventAttributes, payload) == 24);
static_assert(offsetof(NvtxEventAttributes, message_type) == 32);
static_assert(offsetof(NvtxEventAttributes, message) == 40);
static_assert(sizeof(NvtxEventAttributes) == 48);

using NvtxDomainCreate = void* (*)(const char* name);
using NvtxDomainMark = void (*)(void* domain, const NvtxEventAttributes* event);
// The level that it has, from 0; negative: none.
using NvtxDomainPush = int (*)(void* domain, const NvtxEventAttributes* event);
using NvtxDomainPop = int (*)(void* domain);

}  // namespace nccl_pulse::abi

#endif  // PLUGIN_ABI_NVTX_H_
