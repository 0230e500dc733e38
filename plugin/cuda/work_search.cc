#include "plugin/cuda/work_search.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "plugin/cuda/work_proof.h"

namespace nccl_pulse {
namespace {

constexpr uintptr_t kReach = 16384;
constexpr uintptr_t kStep = 2048;     // on the stack; a step never crosses a page
constexpr uint64_t kAlignment = 512;  // of what NCCL allocates on a GPU
constexpr uint64_t kLowestAddress = 1ull << 32;
constexpr uint64_t kHighestAddress = 1ull << 57;
constexpr size_t kLargestAllocation = 64 << 20;

bool IsKnown(const WorkCandidates& found, CudaAddress at) {
  return std::any_of(found.candidate, found.candidate + found.count,
                     [at](const WorkCandidate& each) { return each.at == at; });
}

void Consider(const WorkDriver& work, CudaAddress at, WorkCandidates* found) {
  if (at % kAlignment != 0 || at < kLowestAddress || at >= kHighestAddress || IsKnown(*found, at)) {
    return;
  }
  unsigned type = 0;
  if (work.pointer_get_attribute(&type, kCudaMemoryType, at) != kCudaSuccess ||
      type != kCudaDeviceMemory) {
    return;
  }
  WorkCandidate candidate{kCudaNoAllocation, 0, 0, at};
  CudaAddress base = 0;
  if (work.get_address_range(&base, &candidate.bytes, at) != kCudaSuccess ||
      candidate.bytes > kLargestAllocation || at - base + kWorkBlockBytes > candidate.bytes) {
    return;
  }
  candidate.offset = at - base;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a device address is a number to the driver's others
  if (work.retain_allocation(&candidate.allocation, reinterpret_cast<void*>(at)) != kCudaSuccess) {
    found->is_other_memory = true;
    return;
  }
  found->candidate[found->count++] = candidate;
}

// Checks the words in front of `end` as pointers to the block, nearest first, until a word cannot
// be read.
void SearchBefore(const WorkDriver& work, int memory, uintptr_t end, WorkCandidates* found) {
  const uintptr_t begin = end > kReach ? end - kReach : 0;
  uint64_t words[kStep / sizeof(uint64_t)];
  for (uintptr_t to = end; to > begin;) {
    const uintptr_t from = std::max(begin, (to - 1) & ~(kStep - 1));
    const size_t bytes = to - from;
    if (pread(memory, words, bytes, static_cast<off_t>(from)) != static_cast<ssize_t>(bytes)) {
      return;
    }
    for (size_t i = bytes / sizeof(uint64_t); i-- > 0;) {
      if (found->count == kWorkCandidates) return;
      Consider(work, words[i], found);
    }
    to = from;
  }
}

}  // namespace

void FindWorkCandidates(const CudaDriver& driver, const WorkDriver& work, const void* context_at,
                        WorkCandidates* found) {
  *found = {};
  if (driver.context_get_current(&found->context) != kCudaSuccess || found->context == nullptr ||
      driver.context_get_id(found->context, &found->context_id) != kCudaSuccess) {
    return;
  }
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (memory < 0) return;
  SearchBefore(work, memory, reinterpret_cast<uintptr_t>(context_at) & ~uintptr_t{7}, found);
  close(memory);
}

}  // namespace nccl_pulse
