#include "metrics/segment_geometry.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

bool HasMemory(const SegmentExtents& extents, uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;  // both are far below the largest number
  return end <= extents.first_end || (offset >= extents.second_begin && end <= extents.second_end);
}

}  // namespace

const CommunicatorRecord* SegmentGeometry::Record(uint32_t index) const {
  const uint64_t offset = kHeaderBytes + kNamesBytes + index * kRecordStride;
  if (!HasMemory(extents, offset, kRecordStride)) return nullptr;
  return reinterpret_cast<const CommunicatorRecord*>(base + offset);
}

const void* SegmentGeometry::Page(uint16_t page) const {
  if (page == kNoPage || page >= pages) return nullptr;
  const uint64_t offset = pages_offset + uint64_t{page} * kPageBytes;
  return HasMemory(extents, offset, kPageBytes) ? base + offset : nullptr;
}

bool CheckGeometry(const void* base, size_t bytes, const SegmentExtents& extents,
                   SegmentGeometry* geometry, std::string* error) {
  if (bytes < kHeaderBytes + kNamesBytes || extents.first_end < kHeaderBytes + kNamesBytes) {
    *error = "segment of " + std::to_string(bytes) + " bytes is too small for a header";
    return false;
  }
  const auto& header = *static_cast<const SegmentHeader*>(base);
  if (__atomic_load_n(&header.magic, __ATOMIC_ACQUIRE) != kSegmentMagic) {
    *error = "not a segment: wrong magic number";
    return false;
  }
  const uint32_t version = ReadOnce(header.version);
  if (version != kSegmentVersion) {
    *error = "segment version " + std::to_string(version) + ", this reader knows " +
             std::to_string(kSegmentVersion);
    return false;
  }
  const uint64_t communicators = ReadOnce(header.communicator_count);
  const uint64_t pages = ReadOnce(header.page_count);
  const uint64_t pages_offset = ReadOnce(header.pages_offset);
  const uint64_t records_end = kHeaderBytes + kNamesBytes + communicators * kRecordStride;
  if (ReadOnce(header.communicators_offset) != kHeaderBytes + kNamesBytes ||
      ReadOnce(header.names_offset) != kHeaderBytes ||
      ReadOnce(header.communicator_bytes) != kRecordStride ||
      ReadOnce(header.page_bytes) != kPageBytes || ReadOnce(header.name_count) != kMaxNames ||
      communicators > kMaxCommunicators || pages > kMaxSegmentPages ||
      pages_offset % kPageBytes != 0 || pages_offset < records_end || pages_offset > bytes ||
      pages * kPageBytes > bytes - pages_offset) {
    *error = "segment geometry does not fit its version or its " + std::to_string(bytes) + " bytes";
    return false;
  }
  const uint64_t present = header.records_present.acquire();  // pairs with PopulateRecord
  *geometry = {static_cast<const uint8_t*>(base),
               static_cast<uint32_t>(communicators),
               static_cast<uint32_t>(std::min(present, communicators)),
               static_cast<uint32_t>(pages),
               pages_offset,
               extents};
  return true;
}

}  // namespace nccl_pulse
