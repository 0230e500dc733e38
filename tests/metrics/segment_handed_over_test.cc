// What another process can do with a segment that was handed to it, and what a reader makes of
// another layout.
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "gtest/gtest.h"
#include "metrics/segment.h"
#include "metrics/segment_reader.h"

namespace nccl_pulse {
namespace {

constexpr int kSealFutureWrite = 0x0010;  // linux/fcntl.h, Linux 5.1

bool KernelKnowsTheSeal() {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "probe", MFD_ALLOW_SEALING));
  const bool knows = fcntl(fd, F_ADD_SEALS, kSealFutureWrite) == 0;
  close(fd);
  return knows;
}

TEST(SegmentHandedOver, CannotBeWrittenToThroughItsDescriptor) {
  if (!KernelKnowsTheSeal()) GTEST_SKIP() << "a kernel before 5.1";
  std::string warning;
  const std::unique_ptr<Segment> segment = Segment::Create(Segment::Options(), &warning);
  ASSERT_NE(segment, nullptr);
  ASSERT_GE(segment->memory().get(), 0) << warning;
  const char byte = 1;
  EXPECT_EQ(pwrite(segment->memory().get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(mmap(nullptr, segment->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
                 segment->memory().get(), 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  // Nor can it be opened for writing anew.
  const std::string path = "/proc/self/fd/" + std::to_string(segment->memory().get());
  const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) {
    EXPECT_EQ(pwrite(again, &byte, 1, 0), -1);
    close(again);
  }
  // This process' own view is as writable as before.
  segment->WritableHeader().series_used.fetch_add(1);
}

TEST(SegmentHandedOver, OfAnotherVersionIsRefusedOlderOrNewer) {
  std::string warning;
  const std::unique_ptr<Segment> segment = Segment::Create(Segment::Options(), &warning);
  ASSERT_NE(segment, nullptr);
  ProcessSnapshot snapshot;
  std::string error;
  for (const uint32_t version :
       {uint32_t{0}, kSegmentVersion - 1, kSegmentVersion + 1, ~uint32_t{0}}) {
    segment->WritableHeader().version = version;
    EXPECT_FALSE(ReadSegment(segment->base(), segment->bytes(), &snapshot, &error)) << version;
    EXPECT_EQ(error, "segment version " + std::to_string(version) + ", this reader knows " +
                         std::to_string(kSegmentVersion));
  }
  segment->WritableHeader().version = kSegmentVersion;
  EXPECT_TRUE(ReadSegment(segment->base(), segment->bytes(), &snapshot, &error)) << error;
}

}  // namespace
}  // namespace nccl_pulse
