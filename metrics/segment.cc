#include "metrics/segment.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace nccl_pulse {
namespace {

// From Linux 5.14; number from the kernel's uapi/asm-generic/mman-common.h (missing in glibc 2.34).
constexpr int kMadvPopulateWrite = 23;

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Returns the text for errno. Thread-safe, unlike strerror.
std::string ErrorText() {
  const int error = errno;
  const char* text = strerrordesc_np(error);
  return text != nullptr ? text : "error " + std::to_string(error);
}

// From the kernel's uapi/linux/memfd.h (Linux 6.3) and uapi/linux/fcntl.h (Linux 5.1). Missing in
// older headers.
constexpr unsigned kMfdNoexecSeal = 0x0008;
constexpr int kSealFutureWrite = 0x0010;

// Makes a memfd of `bytes` that can neither shrink nor grow. On failure leaves `memory` empty and
// sets `why`.
void MakeSealedMemory(size_t bytes, SharedDescriptor* memory, std::string* why) {
  // Beyond this limit the kernel ends the process with SIGXFSZ.
  rlimit file_size{};
  if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur < bytes) {
    *why = "the limit on file sizes (ulimit -f) is below " + std::to_string(bytes) + " bytes";
    return;
  }
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Hardened systems (vm.memfd_noexec=2) refuse memory that could become executable. Kernels before
  // 6.3 do not know the flag.
  {
    const ForkGuard guard;
    int fd = static_cast<int>(syscall(SYS_memfd_create, "nccl-pulse", kFlags | kMfdNoexecSeal));
    if (fd < 0 && errno == EINVAL) {
      fd = static_cast<int>(syscall(SYS_memfd_create, "nccl-pulse", kFlags));
    }
    if (fd < 0) *why = std::string("memfd_create: ") + ErrorText();
    memory->Set(fd);
  }
  const int fd = memory->get();
  if (fd < 0) return;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    *why = std::string("ftruncate of the memfd: ") + ErrorText();
  } else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    *why = std::string("sealing the memfd: ") + ErrorText();
  } else {
    return;
  }
  memory->Close();
}

// Prevents later holders of the descriptor from writing, so no other process changes the indices
// that callbacks read back. Call after mapping the memory. Kernels before 5.1 do not have this
// seal; the plugin measures there, too.
void SealAgainstOtherWriters(int fd) {
  fcntl(fd, F_ADD_SEALS, kSealFutureWrite);
  fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
}

// Allocates the file's range from `begin` to `end`, so that a refusal is an errno here, not SIGBUS
// at the first access.
bool Reserve(int fd, uint64_t begin, uint64_t end) {
  int result = 0;
  do {
    result = fallocate(fd, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

std::unique_ptr<Segment> Segment::Create(const Options& options, std::string* warning) {
  const uint64_t wanted_chunks = options.series_limit * 2 + uint64_t{kLanes} * kMaxCommunicators +
                                 (options.last_calls != 0 ? kMostLastCallChunks : 0);
  const auto chunk_count =
      static_cast<uint32_t>(std::min<uint64_t>(wanted_chunks, kMaxSegmentChunks));
  const uint64_t chunks_offset =
      RoundUp(kRecordsOffset + kMaxCommunicators * kRecordStride, uint64_t{kChunkBytes} * 2);
  const size_t bytes = RoundUp(chunks_offset + uint64_t{chunk_count} * kChunkBytes, 65536);

  std::string why = "switched off";
  SharedDescriptor memory;
  if (options.allow_shared) MakeSealedMemory(bytes, &memory, &why);
  std::unique_ptr<Segment> segment;
  if (const int fd = memory.get(); fd >= 0) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
      why = std::string("mapping the memfd: ") + ErrorText();
      memory.Close();
    } else {
      SealAgainstOtherWriters(fd);
      segment.reset(new Segment(static_cast<uint8_t*>(base), bytes, chunk_count));
      segment->memory_.TakeFrom(&memory);
    }
  }
  if (segment != nullptr && !segment->Populate(0, kRecordsOffset)) {
    why = std::string("populating the memfd: ") + ErrorText();
    segment.reset();
  }
  if (segment == nullptr) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      *warning = std::string("no memory for measurements (mmap: ") + ErrorText() + ")";
      return nullptr;
    }
    *warning = "shared memory is not available (" + why +
               "): measurements are kept in private memory, which cannot be handed to the node's "
               "server; this process serves them itself, on the next free port if need be";
    segment.reset(new Segment(static_cast<uint8_t*>(base), bytes, chunk_count));
    if (!segment->Populate(0, kRecordsOffset)) {
      *warning = std::string("no memory for measurements (") + ErrorText() + ")";
      return nullptr;
    }
  }

  SegmentHeader& header = segment->WritableHeader();
  header.version = kSegmentVersion;
  header.header_bytes = sizeof(SegmentHeader);
  header.total_bytes = bytes;
  header.names_offset = kHeaderBytes;
  header.communicators_offset = kRecordsOffset;
  header.chunks_offset = chunks_offset;
  header.communicator_bytes = kRecordStride;
  header.communicator_count = kMaxCommunicators;
  header.chunk_bytes = kChunkBytes;
  header.chunk_count = chunk_count;
  header.name_count = kMaxNames;
  header.shared_memory = segment->memory_.get() >= 0 ? 1 : 0;
  header.series_limit = options.series_limit;
  header.last_calls = options.last_calls;
  segment->names().Initialize();
  // Last: a reader that sees the magic also sees the geometry.
  __atomic_store_n(&header.magic, kSegmentMagic, __ATOMIC_RELEASE);
  return segment;
}

Segment::Segment(uint8_t* base, size_t bytes, uint32_t chunk_count)
    : base_(base),
      bytes_(bytes),
      chunks_offset_(
          RoundUp(kRecordsOffset + kMaxCommunicators * kRecordStride, uint64_t{kChunkBytes} * 2)),
      links_(new ChunkPool::Link[chunk_count]()),
      pool_(std::make_unique<ChunkPool>(links_.get(), chunk_count)) {}

Segment::~Segment() { AbandonAfterFork(); }

void Segment::AbandonAfterFork() {
  if (base_ != nullptr) munmap(base_, bytes_);
  base_ = nullptr;
  memory_.Close();
}

bool Segment::Populate(uint64_t offset, uint64_t bytes) {
  const auto unit = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = offset / unit * unit;
  const uint64_t end = RoundUp(offset + bytes, unit);
  if (madvise(base_ + begin, end - begin, kMadvPopulateWrite) != 0) {
    if (errno != EINVAL) return false;  // EINVAL: a kernel before 5.14
    if (memory_.is_open() && !Reserve(memory_.get(), begin, end)) return false;
    for (uint64_t at = begin; at < end; at += unit) {
      // Faults the page in without changing it: adds 0 to a byte that other threads may be using.
      __atomic_fetch_add(base_ + at, 0, __ATOMIC_RELAXED);
    }
  }
  populated_bytes_.fetch_add(bytes);  // only for display
  return true;
}

bool Segment::PopulateRecord(uint32_t index) {
  const std::lock_guard<std::mutex> lock(populate_mutex_);
  Ordered<uint32_t>& present = WritableHeader().records_present;
  const uint32_t first = present.load();  // written under this lock only
  if (index < first) return true;
  // Also all records before this one, so that one number says which records may be touched.
  if (!Populate(kRecordsOffset + first * kRecordStride, (index + 1 - first) * kRecordStride)) {
    return false;
  }
  present.publish(index + 1);  // a reader that sees the number touches populated memory
  return true;
}

bool Segment::PopulateChunks(uint32_t reserve, uint32_t step) {
  const std::lock_guard<std::mutex> lock(populate_mutex_);
  const uint32_t free_chunks = pool_->free_chunks();
  if (free_chunks >= reserve) return true;
  const uint32_t left = pool_->chunk_count() - next_unpopulated_chunk_;
  const uint32_t count = std::min({reserve - free_chunks, step, left});
  if (count == 0) return true;  // hard limit reached, which the budget reports; not a refusal
  if (!Populate(chunks_offset_ + uint64_t{next_unpopulated_chunk_} * kChunkBytes,
                uint64_t{count} * kChunkBytes)) {
    return false;
  }
  for (uint32_t i = 0; i < count; ++i)
    pool_->Free(static_cast<uint16_t>(next_unpopulated_chunk_++));
  return true;
}

void Segment::RecycleChunk(uint16_t chunk) {
  auto* cells = reinterpret_cast<Cell*>(ChunkAt(chunk));
  for (size_t i = 0; i < kChunkBytes / sizeof(Cell); ++i) {
    cells[i].store(0);  // released by Free, which pushes the chunk
  }
  pool_->Free(chunk);
}

uint16_t Segment::TakeRingChunk() {
  if (free_ring_chunks_ > 0) return ring_chunks_[--free_ring_chunks_];
  if (!PopulateChunks(pool_->free_chunks() + 1, 1)) return kNoChunk;
  return pool_->Allocate();
}

void Segment::GiveRingChunkBack(uint16_t chunk) {
  // Never more than header().last_call_chunks_used.
  if (chunk == kNoChunk || free_ring_chunks_ == kMostLastCallChunks) return;
  for (LastCallEntry& entry : last_calls(chunk).entries) entry.Reset();
  ring_chunks_[free_ring_chunks_++] = chunk;
}

}  // namespace nccl_pulse
