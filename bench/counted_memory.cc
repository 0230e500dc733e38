// Extends the stand-in driver of free_cuda.cc with GPU memory that can be mapped twice, which
// reading NCCL's work counter needs. It is ordinary memory of the process.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kBlocks = 256;
constexpr size_t kBlockBytes = 32768;
alignas(512) char blocks[kBlocks][kBlockBytes];
std::atomic<size_t> block_count{0};

// A mapping's address is its number, from 1, shifted by this many bits.
constexpr int kMappingShift = 48;
std::atomic<uint64_t> mapping_count{0};
const char* mapped[kBlocks + 1];

bool IsOfBlock(uint64_t address) {
  const auto begin = reinterpret_cast<uintptr_t>(blocks);
  return address >= begin && address < begin + sizeof(blocks);
}

}  // namespace

extern "C" {  // NOLINTBEGIN(readability-identifier-naming): the driver's names

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  const size_t block = block_count.fetch_add(1, std::memory_order_relaxed);
  if (block >= kBlocks || bytes > kBlockBytes) abort();
  *address = reinterpret_cast<uintptr_t>(blocks[block]);
  return 0;
}
int cuPointerGetAttribute(void* value, int /*attribute*/, uint64_t address) {
  constexpr unsigned kDevice = 2;
  const unsigned type = IsOfBlock(address) ? kDevice : 0;
  std::memcpy(value, &type, sizeof(type));
  return 0;
}
int cuMemGetAddressRange_v2(uint64_t* base, size_t* bytes, uint64_t address) {
  const auto begin = reinterpret_cast<uintptr_t>(blocks);
  *base = begin + (address - begin) / kBlockBytes * kBlockBytes;
  *bytes = kBlockBytes;
  return 0;
}
int cuMemRetainAllocationHandle(uint64_t* allocation, void* address) {
  *allocation = reinterpret_cast<uintptr_t>(address);
  return 0;
}
int cuMemRelease(uint64_t /*allocation*/) { return 0; }
int cuMemAddressReserve(uint64_t* address, size_t /*bytes*/, size_t /*alignment*/,
                        uint64_t /*hint*/, uint64_t /*flags*/) {
  const uint64_t mapping = mapping_count.fetch_add(1, std::memory_order_relaxed) + 1;
  if (mapping > kBlocks) abort();
  *address = mapping << kMappingShift;
  return 0;
}
int cuMemAddressFree(uint64_t /*address*/, size_t /*bytes*/) { return 0; }
int cuMemMap(uint64_t address, size_t /*bytes*/, size_t /*offset*/, uint64_t allocation,
             uint64_t /*flags*/) {
  mapped[address >> kMappingShift] = reinterpret_cast<const char*>(allocation);  // NOLINT
  return 0;
}
int cuMemUnmap(uint64_t /*address*/, size_t /*bytes*/) { return 0; }
int cuMemSetAccess(uint64_t /*address*/, size_t /*bytes*/, const void* /*access*/,
                   size_t /*count*/) {
  return 0;
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  *memory = malloc(bytes);
  return *memory == nullptr ? 2 : 0;
}
int cuStreamCreate(void** stream, unsigned /*flags*/) {
  static int any;
  *stream = &any;
  return 0;
}
int cuStreamQuery(void* /*stream*/) { return 0; }
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* /*stream*/) {
  const char* block = mapped[from >> kMappingShift];
  std::memcpy(to, block + (from & ((uint64_t{1} << kMappingShift) - 1)), bytes);
  return 0;
}

}  // extern "C" NOLINTEND(readability-identifier-naming)
