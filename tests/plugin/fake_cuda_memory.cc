// The driver's functions for memory of the GPU, its mappings and its copies.
#include <algorithm>
#include <cstring>

#include "tests/plugin/fake_cuda_simulation.h"

namespace nccl_pulse::fake_cuda {
namespace {

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;

uint64_t AddressOf(const MemoryState& memory) {
  // A multiple of 512, as NCCL's are.
  return (reinterpret_cast<uint64_t>(memory.bytes.get()) + 511) & ~uint64_t{511};
}

}  // namespace

char* Simulation::AllocateMemory(bool can_map) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memories_.push_back(std::make_unique<MemoryState>());
  MemoryState& memory = *memories_.back();
  memory.bytes = std::make_unique<char[]>(kMemoryBytes + 512);
  memory.can_map = can_map;
  return reinterpret_cast<char*>(AddressOf(memory));
}

void Simulation::FreeMemory(char* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  MemoryAt(reinterpret_cast<uint64_t>(memory))->is_freed = true;
}

void Simulation::HoldCopies(bool hold) {
  const std::lock_guard<std::mutex> lock(mutex_);
  holds_copies_ = hold;
}

void Simulation::SlowCopies(int queries) {
  const std::lock_guard<std::mutex> lock(mutex_);
  copy_queries_ = queries;
}

uint64_t Simulation::MemoryHeld() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t held = mappings_.size();
  for (const auto& memory : memories_) held += memory->retained;
  return held;
}

MemoryState* Simulation::MemoryAt(uint64_t address) {
  for (const auto& memory : memories_) {
    if (!memory->is_freed && address - AddressOf(*memory) < kMemoryBytes) return memory.get();
  }
  return nullptr;
}

int Simulation::PointerGetAttribute(void* value, uint64_t address) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuPointerGetAttribute", current_context, &lock)) return error;
  if (MemoryAt(address) == nullptr) return kInvalidValue;
  *static_cast<unsigned*>(value) = 2;
  return kSuccess;
}

int Simulation::GetAddressRange(uint64_t* base, size_t* bytes, uint64_t address) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemGetAddressRange_v2", current_context, &lock)) return error;
  *base = AddressOf(*MemoryAt(address));
  *bytes = kMemoryBytes;
  return kSuccess;
}

int Simulation::RetainAllocation(uint64_t* allocation, uint64_t address) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemRetainAllocationHandle", current_context, &lock)) return error;
  MemoryState* const memory = MemoryAt(address);
  if (memory == nullptr || !memory->can_map) return kInvalidValue;
  ++memory->retained;
  *allocation = reinterpret_cast<uint64_t>(memory);
  return kSuccess;
}

int Simulation::ReleaseAllocation(uint64_t allocation) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemRelease", nullptr, &lock)) return error;
  --reinterpret_cast<MemoryState*>(allocation)->retained;
  return kSuccess;
}

int Simulation::ReserveAddresses(uint64_t* address, size_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemAddressReserve", nullptr, &lock)) return error;
  *address = next_address_;
  next_address_ += bytes;
  mappings_[*address] = nullptr;
  return kSuccess;
}

int Simulation::FreeAddresses(uint64_t address) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemAddressFree", nullptr, &lock)) return error;
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second != nullptr) return kInvalidValue;
  mappings_.erase(found);
  return kSuccess;
}

int Simulation::Map(uint64_t address, size_t bytes, uint64_t allocation) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemMap", nullptr, &lock)) return error;
  if (bytes != kMemoryBytes || mappings_.count(address) == 0) return kInvalidValue;
  mappings_[address] = reinterpret_cast<MemoryState*>(allocation);
  return kSuccess;
}

int Simulation::Unmap(uint64_t address) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemUnmap", nullptr, &lock)) return error;
  // A copy under way would fault the context.
  if (holds_copies_) ++wrong_copies_;
  mappings_[address] = nullptr;
  return kSuccess;
}

int Simulation::SetAccess() {
  std::unique_lock<std::mutex> lock(mutex_);
  return Enter("cuMemSetAccess", nullptr, &lock);
}

int Simulation::HostAllocate(void** memory, size_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemHostAlloc", current_context, &lock)) return error;
  InvalidateCapturesUnlessRelaxed();
  *memory = calloc(1, bytes);
  return *memory != nullptr ? kSuccess : kOutOfMemory;
}

int Simulation::StreamCreate(void** stream) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuStreamCreate", current_context, &lock)) return error;
  InvalidateCapturesUnlessRelaxed();
  *stream = this;  // not one of the application's
  return kSuccess;
}

int Simulation::StreamQuery() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuStreamQuery", current_context, &lock)) return error;
  if (InvalidateCapturesUnlessRelaxed()) return kCaptureUnsupported;
  if (holds_copies_ || copy_queries_left_ > 0) {
    --copy_queries_left_;
    return kNotReady;
  }
  return kSuccess;
}

int Simulation::CopyToHost(void* to, uint64_t from, size_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemcpyDtoHAsync_v2", current_context, &lock)) return error;
  if (InvalidateCapturesUnlessRelaxed()) return kCaptureUnsupported;
  copy_queries_left_ = copy_queries_;
  const auto after = mappings_.upper_bound(from);
  const auto found = after == mappings_.begin() ? mappings_.end() : std::prev(after);
  if (found == mappings_.end() || found->second == nullptr ||
      from + bytes > found->first + kMemoryBytes) {
    ++wrong_copies_;
    return kIllegalAddress;
  }
  const auto* source =
      reinterpret_cast<const char*>(AddressOf(*found->second)) + from - found->first;
  // Word by word: the test goes on to write words, as a GPU does.
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word =
        __atomic_load_n(reinterpret_cast<const uint64_t*>(source + at), __ATOMIC_RELAXED);
    std::memcpy(static_cast<char*>(to) + at, &word, std::min(sizeof(word), bytes - at));
  }
  return kSuccess;
}

}  // namespace nccl_pulse::fake_cuda
