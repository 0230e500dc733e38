#include "exporter/node/peers/peer_segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "exporter/exposition/page_share.h"
#include "metrics/segment_layout.h"
#include "metrics/segment_reader.h"

namespace nccl_pulse {
namespace {

// The largest segment that Segment::Create makes, including its rounding.
constexpr uint64_t kMaxSegmentBytes =
    kHeaderBytes + kNamesBytes + kMaxCommunicators * kRecordStride + uint64_t{2} * kChunkBytes +
    uint64_t{kMaxSegmentChunks} * kChunkBytes + 65536;
constexpr uint64_t kMinSegmentBytes = kHeaderBytes + kNamesBytes;

uint64_t OffsetOrEnd(off_t offset, uint64_t end) {
  return offset < 0 ? end : static_cast<uint64_t>(offset);
}

SegmentExtents FindExtents(int fd, uint64_t bytes) {
  SegmentExtents extents;
  // SEEK_DATA fails with ENXIO if only a hole follows. SEEK_HOLE finds the end at the latest.
  extents.first_end = lseek(fd, 0, SEEK_DATA) == 0 ? OffsetOrEnd(lseek(fd, 0, SEEK_HOLE), 0) : 0;
  const auto first_end = static_cast<off_t>(extents.first_end);
  extents.second_begin = OffsetOrEnd(lseek(fd, first_end, SEEK_DATA), bytes);
  const auto second_begin = static_cast<off_t>(extents.second_begin);
  extents.second_end = OffsetOrEnd(lseek(fd, second_begin, SEEK_HOLE), extents.second_begin);
  return extents;
}

}  // namespace

bool PeerSegment::Map(SharedDescriptor* memory, ProcessSnapshot* snapshot, Rejection* reason,
                      std::string* error) {
  Close();
  memory_.TakeFrom(memory);
  const auto refuse = [&](Rejection why, const std::string& text) {
    *reason = why;
    *error = text;
    Close();
    return false;
  };
  const int fd = memory_.get();
  struct stat status {};
  struct statfs system {};
  if (fd < 0) return refuse(Rejection::kNotMemory, "no memory was handed over");
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || fstatfs(fd, &system) != 0 ||
      system.f_type != TMPFS_MAGIC) {
    return refuse(Rejection::kNotMemory, "the descriptor that was handed over is not a memfd");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kNeeded) != kNeeded) {
    return refuse(Rejection::kUnsealed, "the memory is not sealed against shrinking and growing");
  }
  // Sealed, so the size cannot change.
  bytes_ = static_cast<std::size_t>(status.st_size);
  const std::string size = std::to_string(bytes_) + " bytes";
  if (bytes_ < kMinSegmentBytes || bytes_ > kMaxSegmentBytes) {
    return refuse(Rejection::kBadSize, "a segment cannot have " + size);
  }
  if (FindExtents(fd, bytes_).first_end < kMinSegmentBytes) {
    return refuse(Rejection::kBadLayout, "the segment has no header");
  }
  void* base = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    return refuse(Rejection::kNoRoom,
                  "mapping the memory failed with error " + std::to_string(errno));
  }
  base_ = base;
  madvise(base, bytes_, MADV_DONTFORK);
  if (!Read(snapshot, reason, error)) return refuse(*reason, std::string(*error));
  const uint64_t claimed = ClaimedSegmentBytes(base_);
  if (claimed != bytes_) {
    return refuse(Rejection::kBadSize, "the segment claims " + std::to_string(claimed) +
                                           " bytes, its memory has " + size);
  }
  return true;
}

bool PeerSegment::Read(ProcessSnapshot* snapshot, Rejection* reason, std::string* error,
                       const ReadWish& wish) const {
  SnapshotLimit limit{kMaxProcessBytes};
  const bool is_read =
      ReadSegment(base_, bytes_, snapshot, error, FindExtents(memory_.get(), bytes_), &limit, wish);
  // Gives back the peer's memory, which counts as this process' while its page tables refer to it.
  madvise(const_cast<void*>(base_), bytes_, MADV_DONTNEED);
  if (!is_read && !limit.exceeded) {
    *reason = Rejection::kBadLayout;
    return false;
  }
  if (is_read && PageBytes(*snapshot) <= kMaxProcessBytes) return true;
  *snapshot = ProcessSnapshot{};
  *reason = Rejection::kTooLarge;
  *error = "its measurements would take more than the " + std::to_string(kMaxProcessBytes >> 20) +
           " MiB that a process may have on a page of several";
  return false;
}

void PeerSegment::Close() {
  if (base_ != nullptr) munmap(const_cast<void*>(base_), bytes_);
  base_ = nullptr;
  memory_.Close();
}

}  // namespace nccl_pulse
