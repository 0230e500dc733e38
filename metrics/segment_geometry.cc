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

const void* SegmentGeometry::Chunk(uint16_t chunk) const {
  if (chunk == kNoChunk || chunk >= chunks) return nullptr;
  const uint64_t offset = chunks_offset + uint64_t{chunk} * kChunkBytes;
  return HasMemory(extents, offset, kChunkBytes) ? base + offset : nullptr;
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
  const uint64_t chunks = ReadOnce(header.chunk_count);
  const uint64_t chunks_offset = ReadOnce(header.chunks_offset);
  const uint64_t records_end = kHeaderBytes + kNamesBytes + communicators * kRecordStride;
  if (ReadOnce(header.communicators_offset) != kHeaderBytes + kNamesBytes ||
      ReadOnce(header.names_offset) != kHeaderBytes ||
      ReadOnce(header.communicator_bytes) != kRecordStride ||
      ReadOnce(header.chunk_bytes) != kChunkBytes || ReadOnce(header.name_count) != kMaxNames ||
      communicators > kMaxCommunicators || chunks > kMaxSegmentChunks ||
      chunks_offset % kChunkBytes != 0 || chunks_offset < records_end || chunks_offset > bytes ||
      chunks * kChunkBytes > bytes - chunks_offset) {
    *error = "segment geometry does not fit its version or its " + std::to_string(bytes) + " bytes";
    return false;
  }
  const uint64_t present = header.records_present.acquire();  // pairs with PopulateRecord
  *geometry = {static_cast<const uint8_t*>(base),
               static_cast<uint32_t>(communicators),
               static_cast<uint32_t>(std::min(present, communicators)),
               static_cast<uint32_t>(chunks),
               chunks_offset,
               extents};
  return true;
}

}  // namespace nccl_pulse
