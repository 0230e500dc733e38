// What the library has measured, read from its segment.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "metrics/segment_reader.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

template <typename Entry>
uint64_t Sum(const std::vector<Entry>& entries, uint64_t Entry::*number) {
  uint64_t sum = 0;
  for (const Entry& entry : entries) sum += entry.*number;
  return sum;
}

}  // namespace

std::vector<int> FindSegments() {
  std::vector<int> segments;
  // By number and not by directory: some tests refuse to open anything.
  constexpr int kMoreThanAnyTestHas = 4096 + 256;  // metrics/shared_descriptor.h: numbers are high
  for (int fd = 0; fd < kMoreThanAnyTestHas; ++fd) {
    // Most are not open, and their names take /proc a hundred times as long to look up.
    if (fcntl(fd, F_GETFD) < 0) continue;
    char target[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t length = readlink(link.c_str(), target, sizeof(target) - 1);
    if (length > 0 && std::string(target).find("memfd:nccl-pulse") != std::string::npos) {
      segments.push_back(fd);
    }
  }
  return segments;
}

ProcessSnapshot ReadSnapshot() {
  ProcessSnapshot snapshot;
  const std::vector<int> segments = FindSegments();
  EXPECT_EQ(segments.size(), 1u) << "segments of this process";
  struct stat status {};
  if (segments.size() != 1 || fstat(segments[0], &status) != 0) return snapshot;
  const auto bytes = static_cast<size_t>(status.st_size);
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, segments[0], 0);
  EXPECT_NE(base, MAP_FAILED);
  if (base == MAP_FAILED) return snapshot;
  std::string error;
  const ReadWish wish{ReadWish::LastCalls::kOfUnfinished, 0, INT64_MAX};
  EXPECT_TRUE(ReadSegment(base, bytes, &snapshot, &error, {}, nullptr, wish)) << error;
  munmap(base, bytes);
  return snapshot;
}

const CommunicatorSnapshot& Find(const ProcessSnapshot& snapshot, uint64_t comm_id) {
  static const CommunicatorSnapshot kNone;
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    if (communicator.comm_id == comm_id) return communicator;
  }
  ADD_FAILURE() << "no communicator " << comm_id;
  return kNone;
}

uint64_t Calls(const CommunicatorSnapshot& communicator) {
  return Sum(communicator.calls, &CallCountSnapshot::calls);
}

uint64_t Bytes(const CommunicatorSnapshot& communicator) {
  return Sum(communicator.calls, &CallCountSnapshot::bytes);
}

uint64_t Operations(const CommunicatorSnapshot& communicator) {
  return Sum(communicator.algorithms, &AlgorithmCountSnapshot::operations);
}

uint64_t Timed(const CommunicatorSnapshot& communicator, LatencyKind kind) {
  uint64_t sum = 0;
  for (const LatencySnapshot& latency : communicator.latencies) {
    if (latency.kind == kind) sum += latency.histogram.Count();
  }
  return sum;
}

uint64_t Untimed(const CommunicatorSnapshot& communicator) {
  return Sum(communicator.untimed, &UntimedSnapshot::operations);
}

uint64_t Untimed(const CommunicatorSnapshot& communicator, UntimedReason reason) {
  uint64_t sum = 0;
  for (const UntimedSnapshot& untimed : communicator.untimed) {
    if (untimed.reason == reason) sum += untimed.operations;
  }
  return sum;
}

uint64_t Uncompleted(const CommunicatorSnapshot& communicator) {
  return Sum(communicator.uncompleted, &UncompletedSnapshot::operations);
}

uint64_t Ignored(const ProcessSnapshot& snapshot) {
  return std::accumulate(snapshot.ignored.begin(), snapshot.ignored.end(), uint64_t{0});
}

uint64_t Ignored(const ProcessSnapshot& snapshot, IgnoredReason reason) {
  return snapshot.ignored[static_cast<size_t>(reason)];
}

std::map<std::string, uint64_t> IgnoredByName(const ProcessSnapshot& snapshot) {
  std::map<std::string, uint64_t> by_name;
  for (int reason = 0; reason < kIgnoredReasons; ++reason) {
    const uint64_t count = snapshot.ignored[static_cast<size_t>(reason)];
    if (count != 0) by_name[IgnoredReasonName(static_cast<IgnoredReason>(reason))] = count;
  }
  return by_name;
}

}  // namespace nccl_pulse
