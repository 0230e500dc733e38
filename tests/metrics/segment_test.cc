#include "metrics/segment.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/child_process.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

constexpr int kMadvPopulateWrite = 23;  // linux/mman.h, Linux 5.14

std::unique_ptr<Segment> Make(std::string* warning, bool allow_shared = true) {
  Segment::Options options;
  options.allow_shared = allow_shared;
  return Segment::Create(options, warning);
}

// Whether one can measure with it: "usable", or what is wrong.
std::string Use(Segment& segment) {
  if (!segment.PopulateChunks(8, 8)) return "no chunks";
  if (!segment.PopulateRecord(0)) return "no record";
  CommunicatorRecord& record = segment.record(0);
  RecordWriter writer(segment, record);
  const uint32_t generation = writer.Prepare({});
  writer.Publish(CompletionSource::kNone);
  const uint64_t calls = SeriesKey::Calls(kAllReduceName, 3, kNoName, false);
  const uint64_t latency = SeriesKey::Latency(kAllReduceName, 3, LatencyKind::kCompletionProxy);
  {
    LaneWriter lane(segment, record, generation, LaneRole::kLaunch);
    if (!lane.ok()) return "no lane";
    lane.Count(calls, 2, 200);
    lane.Observe(latency, 5000, 100, 150);
  }
  ProcessSnapshot snapshot;
  std::string error;
  if (!ReadSegment(segment.base(), segment.bytes(), &snapshot, &error)) return error;
  if (snapshot.communicators.size() != 1) return "no communicator";
  const CommunicatorSnapshot& communicator = snapshot.communicators[0];
  if (communicator.calls.size() != 1 || communicator.calls[0].bytes != 200) return "no calls";
  if (communicator.latencies.size() != 1 || communicator.latencies[0].histogram.Count() != 1) {
    return "no latency";
  }
  return "usable";
}

TEST(Segment, HeaderSaysTheGeometry) {
  std::string warning;
  const std::unique_ptr<Segment> segment = Make(&warning);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(warning, "");
  const SegmentHeader& header = segment->header();
  EXPECT_EQ(header.magic, kSegmentMagic);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(&header.magic), 8), "NCCLULS1");
  EXPECT_EQ(header.version, kSegmentVersion);
  EXPECT_EQ(header.header_bytes, sizeof(SegmentHeader));
  EXPECT_EQ(header.total_bytes, segment->bytes());
  EXPECT_EQ(header.names_offset, 4096u);
  EXPECT_EQ(header.communicators_offset, 8192u);
  EXPECT_EQ(header.communicator_bytes, sizeof(CommunicatorRecord));
  EXPECT_EQ(header.communicator_count, kMaxCommunicators);
  EXPECT_EQ(header.name_count, static_cast<uint32_t>(kMaxNames));
  EXPECT_EQ(header.chunk_bytes, kChunkBytes);
  EXPECT_GE(header.chunks_offset,
            header.communicators_offset + kMaxCommunicators * sizeof(CommunicatorRecord));
  EXPECT_LE(header.chunks_offset + uint64_t{header.chunk_count} * kChunkBytes, segment->bytes());
  EXPECT_EQ(header.shared_memory, 1u);
  EXPECT_EQ(header.series_limit, 2048u);
  EXPECT_EQ(header.records_present, 0u);
  const auto* base = static_cast<const uint8_t*>(segment->base());
  EXPECT_EQ(reinterpret_cast<const uint8_t*>(&segment->record(2)) - base,
            static_cast<ptrdiff_t>(8192 + 2 * sizeof(CommunicatorRecord)));
  EXPECT_EQ(reinterpret_cast<const uint8_t*>(&segment->histogram(7)) - base,
            static_cast<ptrdiff_t>(header.chunks_offset + uint64_t{7} * kChunkBytes));
}

TEST(Segment, ASeriesLimitBeyondTheIndicesIsCut) {
  Segment::Options options;
  options.series_limit = 1000000;
  std::string warning;
  const std::unique_ptr<Segment> segment = Segment::Create(options, &warning);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(segment->header().chunk_count, kMaxSegmentChunks);
}

TEST(Segment, CanNeitherShrinkNorGrowNorBeWrittenByOthers) {
  std::string warning;
  const std::unique_ptr<Segment> segment = Make(&warning);
  ASSERT_NE(segment, nullptr);
  const int fd = segment->memory().get();
  const int seals = fcntl(fd, F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(static_cast<size_t>(status.st_size), segment->bytes());
  EXPECT_EQ(ftruncate(fd, 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(fd, status.st_size + 4096), -1);
  EXPECT_EQ(errno, EPERM);
  void* reading = mmap(nullptr, segment->bytes(), PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(reading, MAP_FAILED);
  ProcessSnapshot snapshot;
  std::string error;
  EXPECT_TRUE(ReadSegment(reading, segment->bytes(), &snapshot, &error)) << error;
  munmap(reading, segment->bytes());
  constexpr int kSealFutureWrite = 0x10;
  if ((seals & kSealFutureWrite) != 0) {  // Linux 5.1
    EXPECT_EQ(mmap(nullptr, segment->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
              MAP_FAILED);
    EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  }
  EXPECT_EQ(Use(*segment), "usable");
}

TEST(Segment, ReadingAllocatesNothing) {
  TestSegment test;
  test.AddCommunicator(2, 0xabc, 1, "three of 1024");
  Segment& segment = test.segment();
  EXPECT_EQ(segment.header().records_present, 3u);
  const int fd = segment.memory().get();
  ASSERT_GE(fd, 0);
  struct stat before {};
  ASSERT_EQ(fstat(fd, &before), 0);
  void* reading = mmap(nullptr, segment.bytes(), PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(reading, MAP_FAILED);
  ProcessSnapshot snapshot;
  std::string error;
  ASSERT_TRUE(ReadSegment(reading, segment.bytes(), &snapshot, &error)) << error;
  EXPECT_EQ(snapshot.communicators.size(), 1u);
  munmap(reading, segment.bytes());
  struct stat after {};
  ASSERT_EQ(fstat(fd, &after), 0);
  // The emulator says that madvise has populated chunks, and populates none.
  if (getenv("TEST_EMULATOR") == nullptr) {
    EXPECT_EQ(after.st_blocks, before.st_blocks);
  }
}

TEST(Segment, PopulatesInSteps) {
  std::string warning;
  const std::unique_ptr<Segment> segment = Make(&warning);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(segment->chunks().Allocate(), kNoChunk) << "nothing is ready before it is populated";
  EXPECT_TRUE(segment->PopulateChunks(100, 30));
  EXPECT_EQ(segment->chunks().free_chunks(), 30u);
  const size_t populated = segment->populated_bytes();
  EXPECT_TRUE(segment->PopulateChunks(20, 30)) << "there are enough";
  EXPECT_EQ(segment->populated_bytes(), populated);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(segment->PopulateChunks(100, 30));
  EXPECT_EQ(segment->chunks().free_chunks(), 100u);
  EXPECT_EQ(segment->populated_bytes(), populated + size_t{70} * kChunkBytes);
}

TEST(Segment, StopsAtItsLastChunk) {
  Segment::Options options;
  options.series_limit = 1;
  std::string warning;
  const std::unique_ptr<Segment> segment = Segment::Create(options, &warning);
  ASSERT_NE(segment, nullptr);
  EXPECT_TRUE(segment->PopulateChunks(1000000, 1000000));
  const uint32_t chunks = segment->header().chunk_count - 1;  // chunk 0 is none
  EXPECT_EQ(segment->chunks().free_chunks(), chunks);
  EXPECT_TRUE(segment->PopulateChunks(1000000, 1000000));
  EXPECT_EQ(segment->chunks().free_chunks(), chunks);
  uint16_t largest = 0;
  for (uint32_t i = 0; i < chunks; ++i) largest = std::max(largest, segment->chunks().Allocate());
  EXPECT_EQ(largest, chunks);
  segment->histogram(largest).bus_bytes.store(1);
  EXPECT_EQ(segment->chunks().Allocate(), kNoChunk);
}

// init and the background thread may both find that chunks are missing.
TEST(Segment, ThreadsPopulateWithoutHandingOutAChunkTwice) {
  std::string warning;
  const std::unique_ptr<Segment> segment = Make(&warning);
  ASSERT_NE(segment, nullptr);
  Threads(3, [&segment](uint32_t t) {
    for (uint32_t i = 1; i <= 50; ++i) {
      EXPECT_TRUE(segment->PopulateChunks(i * 8, 3));
      EXPECT_TRUE(segment->PopulateRecord(i * 3 + t));
    }
  }).Join();
  EXPECT_EQ(segment->header().records_present, 153u);
  std::vector<bool> seen(segment->header().chunk_count);
  while (const uint16_t chunk = segment->chunks().Allocate()) {
    EXPECT_FALSE(seen[chunk]) << chunk;
    seen[chunk] = true;
  }
}

TEST(Segment, RecycledChunkIsZero) {
  TestSegment test(2048, 1);
  Segment& segment = test.segment();
  const uint16_t chunk = segment.chunks().Allocate();
  ASSERT_NE(chunk, kNoChunk);
  RecordInChunk(segment.histogram(chunk), 5000, 1, 2);
  for (auto& pair : segment.counters(chunk).series) pair.a.store(7);
  segment.RecycleChunk(chunk);
  ASSERT_EQ(segment.chunks().Allocate(), chunk);
  for (auto& pair : segment.counters(chunk).series) {
    ASSERT_EQ(pair.a.load() + pair.b.load(), 0u);
  }
}

TEST(Segment, PrivateMemoryOnRequest) {
  std::string warning;
  const std::unique_ptr<Segment> segment = Make(&warning, /*allow_shared=*/false);
  ASSERT_NE(segment, nullptr);
  EXPECT_NE(warning.find("private memory"), std::string::npos) << warning;
  EXPECT_EQ(segment->memory().get(), -1);
  EXPECT_EQ(segment->header().shared_memory, 0u);
  EXPECT_EQ(Use(*segment), "usable");
}

TEST(Segment, ChildThatAbandonsLeavesTheParentAlone) {
  TestSegment test;
  Segment& segment = test.segment();
  EXPECT_EQ(RunInChild([&] {
              segment.AbandonAfterFork();
              return std::string(segment.memory().get() == -1 && segment.base() == nullptr
                                     ? "abandoned"
                                     : "still there");
            }),
            "abandoned");
  EXPECT_EQ(segment.header().magic, kSegmentMagic);
  EXPECT_GE(fcntl(segment.memory().get(), F_GETFD), 0);
  EXPECT_EQ(Use(segment), "usable");
}

// The job closes the memory's descriptor, most likely by closing its own one twice, and opens a
// file of its own, which gets the number. Then more series are measured.
std::string GrowWhereAFileIs(const std::vector<Refusal>& refusals) {
  return RunInChild([&]() -> std::string {
    for (const Refusal& refusal : refusals) {
      if (!Refuse(refusal)) return "no seccomp";
    }
    std::string warning;
    std::unique_ptr<Segment> segment = Make(&warning);
    const int number = segment->memory().get();
    FILE* file = tmpfile();
    if (number < 0 || dup2(fileno(file), number) != number) return "not replaced";
    if (write(number, "header\n", 7) != 7) return "not written";
    const bool grows = segment->PopulateChunks(100, 100) && segment->PopulateRecord(5);
    const std::string use = grows ? Use(*segment) : "full";
    if (segment->memory().get() >= 0) return "would be handed over";
    segment.reset();
    struct stat status {};
    if (fstat(number, &status) != 0) return "the job's file is closed";
    return status.st_size == 7 ? use : "the job's file has " + std::to_string(status.st_size);
  });
}

TEST(Segment, GrowsWithoutItsDescriptor) { EXPECT_EQ(GrowWhereAFileIs({}), "usable"); }

// ---- what the kernel refuses
// ----------------------------------------------------------------------

// Makes and uses a segment in a child in which `refusals` hold. The answer is "usable: " and the
// warning.
std::string UseWhere(const std::vector<Refusal>& refusals) {
  return RunInChild([&]() -> std::string {
    for (const Refusal& refusal : refusals) {
      if (!Refuse(refusal)) return "no seccomp";
    }
    std::string warning;
    const std::unique_ptr<Segment> segment = Make(&warning);
    if (segment == nullptr) return "null: " + warning;
    const bool shared = segment->header().shared_memory != 0;
    if (shared != (segment->memory().get() >= 0)) return "header and descriptor disagree";
    return Use(*segment) + (shared ? ", shared: " : ", private: ") + warning;
  });
}

std::string Private(const std::string& why) {
  return "usable, private: shared memory is not available (" + why +
         "): measurements are kept in private memory, which cannot be handed to the node's server; "
         "this process serves them itself, on the next free port if need be";
}

TEST(SegmentRefusals, Memfd) {
  EXPECT_EQ(UseWhere({{SYS_memfd_create, EPERM}}),
            Private("memfd_create: Operation not permitted"));
  EXPECT_EQ(UseWhere({{SYS_memfd_create, ENOSYS}}),
            Private("memfd_create: Function not implemented"));
}

TEST(SegmentRefusals, MemfdThatKnowsNoNoexec) {
  constexpr uint32_t kMfdNoexecSeal = 8;
  EXPECT_EQ(UseWhere({{SYS_memfd_create, EINVAL, Refusal::When::kArgumentIs, 1,
                       MFD_CLOEXEC | MFD_ALLOW_SEALING | kMfdNoexecSeal}}),
            "usable, shared: ");
}

TEST(SegmentRefusals, Seals) {
  EXPECT_EQ(UseWhere({{SYS_fcntl, EPERM, Refusal::When::kArgumentIs, 1, F_ADD_SEALS}}),
            Private("sealing the memfd: Operation not permitted"));
}

TEST(SegmentRefusals, Size) {
  EXPECT_EQ(UseWhere({{SYS_ftruncate, ENOSPC}}),
            Private("ftruncate of the memfd: No space left on device"));
}

// Before Linux 5.14.
constexpr Refusal kWithoutPopulating{SYS_madvise, EINVAL, Refusal::When::kArgumentIs, 2,
                                     kMadvPopulateWrite};

TEST(SegmentRefusals, MemoryFromTheStart) {
  EXPECT_EQ(UseWhere({kWithoutPopulating, {SYS_fallocate, ENOMEM}}),
            Private("populating the memfd: Cannot allocate memory"));
  EXPECT_EQ(UseWhere({kWithoutPopulating, {SYS_fallocate, EOPNOTSUPP}}),
            Private("populating the memfd: Operation not supported"));
}

TEST(SegmentRefusals, KernelWithoutPopulating) {
  EXPECT_EQ(GrowWhereAFileIs({kWithoutPopulating}), "full") << "it cannot be asked for memory";
  EXPECT_EQ(UseWhere({kWithoutPopulating}), "usable, shared: ");
}

TEST(SegmentRefusals, AddressSpace) {
  const std::string result =
      UseWhere({{SYS_mmap, ENOMEM, Refusal::When::kArgumentAbove, 1, 4 << 20}});
  EXPECT_EQ(result, "null: no memory for measurements (mmap: Cannot allocate memory)");
}

TEST(SegmentRefusals, AllMemory) {
  EXPECT_EQ(UseWhere({{SYS_madvise, ENOMEM, Refusal::When::kArgumentIs, 2, kMadvPopulateWrite}}),
            "null: no memory for measurements (Cannot allocate memory)");
}

TEST(SegmentRefusals, LimitOnFileSizesIsNoSignal) {
  const auto with_limit = [](rlim_t limit) {
    const rlimit limits{limit, RLIM_INFINITY};
    return setrlimit(RLIMIT_FSIZE, &limits) == 0;
  };
  EXPECT_EQ(RunInChild([&]() -> std::string {
              if (!with_limit(0)) return "no limit";
              std::string warning;
              const std::unique_ptr<Segment> segment = Make(&warning);
              if (segment == nullptr) return "null";
              if (warning.find("ulimit -f") == std::string::npos) return warning;
              return Use(*segment) + (segment->memory().get() < 0 ? ", private" : ", shared");
            }),
            "usable, private");
  EXPECT_EQ(RunInChild([&]() -> std::string {
              std::string warning;
              const std::unique_ptr<Segment> segment = Make(&warning);
              if (!with_limit(0)) return "no limit";
              return Use(*segment) + (segment->memory().get() < 0 ? ", private" : ", shared");
            }),
            "usable, shared")
      << "a limit that comes later changes nothing: the file does not grow";
}

// Memory runs out while the job runs: what is there goes on, nothing else happens.
std::string RunOutOfMemory(const std::vector<Refusal>& refusals, bool allow_shared) {
  return RunInChild([&]() -> std::string {
    std::string warning;
    const std::unique_ptr<Segment> segment = Make(&warning, allow_shared);
    if (segment == nullptr) return "null";
    std::string use = Use(*segment);
    if (use != "usable") return use;
    for (const Refusal& refusal : refusals) {
      if (!Refuse(refusal)) return "no seccomp";
    }
    const size_t populated = segment->populated_bytes();
    const uint32_t free_chunks = segment->chunks().free_chunks();
    if (segment->PopulateChunks(1000, 1000)) return "chunks were populated";
    if (segment->PopulateRecord(1)) return "a record was populated";
    if (segment->populated_bytes() != populated) return "populated bytes grew";
    if (segment->chunks().free_chunks() != free_chunks) return "free chunks changed";
    if (segment->header().records_present.load() != 1) return "records present changed";
    if (!segment->PopulateRecord(0)) return "the record that was there is gone";
    // "usable" prepared the record's first generation.
    LaneWriter lane(*segment, segment->record(0), 1, LaneRole::kProgress);
    for (uint32_t size_class = 0; size_class < 11; ++size_class) {
      lane.Observe(SeriesKey::Latency(kAllGatherName, size_class, LatencyKind::kCompletionProxy),
                   1000, 1, 1);
    }
    // Those that found no chunk.
    const uint64_t overflowed = lane.lane().overflowed_operations.load();
    ProcessSnapshot snapshot;
    std::string error;
    if (!ReadSegment(segment->base(), segment->bytes(), &snapshot, &error)) return error;
    uint64_t observed = 0;
    for (const LatencySnapshot& latency : snapshot.communicators.at(0).latencies) {
      if (latency.op == "AllGather") observed += latency.histogram.Count();
    }
    if (observed != free_chunks || observed + overflowed != 11) {
      return std::to_string(observed) + " observed, " + std::to_string(overflowed) + " overflowed";
    }
    return "went on";
  });
}

TEST(SegmentRefusals, MemoryWhileRunning) {
  EXPECT_EQ(RunOutOfMemory({kWithoutPopulating, {SYS_fallocate, ENOSPC}}, true), "went on");
  EXPECT_EQ(RunOutOfMemory({kWithoutPopulating, {SYS_fallocate, ENOMEM}}, true), "went on");
  const Refusal populating{SYS_madvise, ENOMEM, Refusal::When::kArgumentIs, 2, kMadvPopulateWrite};
  EXPECT_EQ(RunOutOfMemory({populating}, true), "went on");
  EXPECT_EQ(RunOutOfMemory({populating}, false), "went on") << "private memory";
}

}  // namespace
}  // namespace nccl_pulse
