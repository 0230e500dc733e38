#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <ctime>
#include <vector>

#include "exporter/base/proc.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

TEST(ProcessUse, StartedOnce) {
  const ProcessUse use = ReadProcessUse();
  const auto now = static_cast<double>(time(nullptr));
  EXPECT_GT(use.start_seconds, now - 3600);
  EXPECT_LE(use.start_seconds, now + 1);
  EXPECT_EQ(ReadProcessUse().start_seconds, use.start_seconds);
}

TEST(ProcessUse, CpuTimeGrows) {
  const double before = ReadProcessUse().cpu_seconds;
  const clock_t begin = clock();
  while (clock() - begin < CLOCKS_PER_SEC / 20) {
  }
  EXPECT_GE(ReadProcessUse().cpu_seconds, before + 0.05);
}

TEST(ProcessUse, MemoryAndFilesAreCounted) {
  const ProcessUse before = ReadProcessUse();
  std::vector<int> files;
  for (int i = 0; i < 20; ++i) files.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  constexpr std::size_t kBytes = 64 << 20;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const ProcessUse use = ReadProcessUse();
  EXPECT_EQ(use.open_files, before.open_files + 20);
  EXPECT_GE(use.most_files, use.open_files);
  EXPECT_GE(use.resident_bytes, before.resident_bytes + 0.9 * kBytes);
  EXPECT_GE(use.virtual_bytes, before.virtual_bytes + 0.9 * kBytes);
  munmap(memory, kBytes);
  for (const int file : files) close(file);
}

}  // namespace
}  // namespace nccl_pulse
