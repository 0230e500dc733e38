#include "exporter/http/wake.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

namespace nccl_pulse {
namespace {

std::set<int> Descriptors() {
  std::set<int> descriptors;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) descriptors.insert(std::atoi(entry->d_name));
  closedir(folder);
  return descriptors;
}

bool IsReadable(const Wake& wake) {
  pollfd polled = {wake.fd(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

TEST(Wake, IsReadableFromSignalToClear) {
  Wake wake;
  ASSERT_TRUE(wake.Open());
  EXPECT_FALSE(IsReadable(wake));
  for (int i = 0; i < 1000; ++i) wake.Signal();
  EXPECT_TRUE(IsReadable(wake));
  wake.Clear();
  EXPECT_FALSE(IsReadable(wake));
}

// Else the thread that waits for it would take all of a core.
TEST(Wake, ItsEndIsNothingToWakeFor) {
  const std::set<int> before = Descriptors();
  Wake wake;
  ASSERT_TRUE(wake.Open());
  for (const int fd : Descriptors()) {
    if (before.count(fd) == 0 && fd != wake.fd()) close(fd);
  }
  EXPECT_FALSE(IsReadable(wake));
  wake.Signal();
  close(wake.fd());
  EXPECT_FALSE(IsReadable(wake));
  wake.Clear();
}

}  // namespace
}  // namespace nccl_pulse
