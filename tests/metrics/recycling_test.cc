// Records that go from one communicator to the next while they are written and read: a reader gets
// the one or the other whole, or none, never a mixture. Everything here is written by the plugin's
// own writers.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/lane_writer.h"
#include "metrics/record_writer.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

std::string NameOf(uint64_t identity) { return "comm" + std::to_string(identity); }

// What a communicator counts says which one it is.
void CountAs(TestSegment& test, uint32_t index, LaneWriter& lane, uint64_t identity) {
  lane.lane().callbacks[0].publish_sum(1);
  lane.lane().launches.publish_sum(identity);
  lane.Count(SeriesKey::Calls(kAllReduceName, 1, kNoName, false), 1, identity);
  lane.Observe(LatencyKey(kAllReduceName, 1, LatencyKind::kCompletionProxy), 5000, identity, 0);
  test.Record(index).AppendTimedCall({kAllReduceName, LatencyKind::kCompletionProxy, 1,
                                      static_cast<uint32_t>(identity), identity, 5000, 1});
}

void ExpectUnmixed(const CommunicatorSnapshot& read) {
  const uint64_t identity = read.comm_id;
  ASSERT_NE(identity, 0u);
  EXPECT_EQ(static_cast<uint64_t>(read.rank), identity);
  EXPECT_EQ(read.name, NameOf(identity));
  EXPECT_EQ(read.launches % identity, 0u);
  EXPECT_LE(read.calls.size(), 1u);
  for (const CallCountSnapshot& calls : read.calls) {
    EXPECT_GE(calls.bytes, calls.calls * identity);
    EXPECT_EQ(calls.bytes % identity, 0u);
  }
  EXPECT_LE(read.latencies.size(), 1u);
  for (const LatencySnapshot& latency : read.latencies) {
    EXPECT_GE(latency.bytes, latency.histogram.Count() * identity);
    EXPECT_EQ(latency.bytes % identity, 0u);
    EXPECT_EQ(latency.histogram.cells[CellIndex(5000)], latency.histogram.Count());
  }
  for (const TimedCallSnapshot& call : read.timed_calls) {
    EXPECT_EQ(call.bytes, identity);
    EXPECT_EQ(call.call_number, identity);
  }
}

// ---- a race -------------------------------------------------------------------------------------

// More communicators than places, as the tracker uses them: the one that was finalized longest ago
// gives its place up.
class Places {
 public:
  static constexpr uint32_t kPlaces = 3;

  explicit Places(TestSegment& test) : test_(test) {
    for (uint32_t i = 0; i < kPlaces; ++i) Next();
  }

  void Next() {
    const auto index = static_cast<uint32_t>(made_ % kPlaces);
    const uint64_t identity = ++made_;
    if (made_ > kPlaces) test_.Record(index).Finalize(made_);
    // Generation and identity together: a writer takes both at once.
    const uint32_t generation =
        test_.AddCommunicator(index, identity, static_cast<int>(identity), NameOf(identity));
    current_[index].store(generation | identity << 32, std::memory_order_release);
  }

  uint64_t current(uint32_t index) const { return current_[index].load(std::memory_order_acquire); }
  uint64_t made() const { return made_; }

 private:
  TestSegment& test_;
  std::atomic<uint64_t> made_{0};
  std::atomic<uint64_t> current_[kPlaces]{};
};

TEST(Recycling, ARecycledRecordIsAbsentNeverMixed) {
  TestSegment test;
  Places places(test);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> counted{0};
  std::atomic<uint64_t> bytes_counted{0};
  std::vector<std::thread> writers;
  for (LaneRole role : {LaneRole::kLaunch, LaneRole::kProgress}) {
    writers.emplace_back([&, role] {
      uint64_t made = 0;
      uint64_t bytes = 0;
      for (uint32_t turn = 0; !stop; ++turn) {
        const uint32_t index = turn % Places::kPlaces;
        const uint64_t now = places.current(index);
        LaneWriter lane = test.Writer(index, static_cast<uint32_t>(now), role);
        if (!lane.ok() || turn % 64 == 0) {  // recycled, or to let others run
          std::this_thread::yield();
          continue;
        }
        CountAs(test, index, lane, now >> 32);
        ++made;
        bytes += now >> 32;
      }
      counted += made;
      bytes_counted += bytes;
    });
  }
  std::thread recycling([&] {
    while (!stop) {
      for (int i = 0; i < 20; ++i) std::this_thread::yield();
      places.Next();
    }
  });

  int seen = 0;
  uint64_t newest = 0;
  // Until it has met enough of them.
  while ((seen < 1000 || places.made() < 60) && !::testing::Test::HasFailure()) {
    const ProcessSnapshot process = Read(test.segment());
    EXPECT_LE(process.communicators.size(), size_t{Places::kPlaces});
    uint64_t latest = 0;
    for (const CommunicatorSnapshot& read : process.communicators) {
      ExpectUnmixed(read);
      latest = std::max(latest, read.comm_id);
      ++seen;
    }
    if (process.communicators.size() == Places::kPlaces) {
      EXPECT_GE(latest, newest) << "an older communicator came back";
      newest = latest;
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  recycling.join();

  // Nothing is lost to the process' sums, whatever was recycled.
  const ProcessSnapshot process = Read(test.segment());
  uint64_t calls = 0;
  uint64_t bytes = 0;
  for (const RecycledCallsSnapshot& recycled : process.recycled_calls) {
    EXPECT_EQ(recycled.op, "AllReduce");
    calls += recycled.calls;
    bytes += recycled.bytes;
  }
  for (const CommunicatorSnapshot& read : process.communicators) {
    for (const CallCountSnapshot& series : read.calls) {
      calls += series.calls;
      bytes += series.bytes;
    }
  }
  EXPECT_EQ(calls, counted);
  EXPECT_EQ(bytes, bytes_counted);
  EXPECT_EQ(process.callbacks[0], counted);
  EXPECT_EQ(process.recycled_communicators, places.made() - Places::kPlaces);
}

// ---- at a known moment --------------------------------------------------------------------------

// A reader's own mapping of a segment, as the node's server has it, with a page that it may not
// read: what it does there runs `on_touch` first.
class TouchedMapping {
 public:
  explicit TouchedMapping(Segment& segment)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(segment.bytes()) {
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, segment.memory().get(), 0));
    if (base_ == MAP_FAILED) abort();
    active_ = this;
    struct sigaction action {};
    action.sa_sigaction = &TouchedMapping::OnSignal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_);
  }
  ~TouchedMapping() {
    sigaction(SIGSEGV, &before_, nullptr);
    active_ = nullptr;
    munmap(base_, bytes_);
  }
  TouchedMapping(const TouchedMapping&) = delete;
  TouchedMapping& operator=(const TouchedMapping&) = delete;

  const uint8_t* base() const { return base_; }
  size_t bytes() const { return bytes_; }

  // The next read of the page with this number runs `action`, which may watch another.
  void Watch(size_t page, void (*action)(TouchedMapping*)) {
    watched_ = base_ + page * page_;
    on_touch_ = action;
    if (mprotect(watched_, page_, PROT_NONE) != 0) abort();
  }

 private:
  static void OnSignal(int signal, siginfo_t* info, void* /*context*/) {
    TouchedMapping* const self = active_;
    auto* const at = static_cast<uint8_t*>(info->si_addr);
    if (self == nullptr || at < self->watched_ || at >= self->watched_ + self->page_) {
      sigaction(signal, &self->before_, nullptr);  // a fault of somebody else's
      return;
    }
    mprotect(self->watched_, self->page_, PROT_READ);
    self->on_touch_(self);
  }

  static inline TouchedMapping* active_ = nullptr;
  const size_t page_;
  const size_t bytes_;
  uint8_t* base_;
  uint8_t* watched_ = nullptr;
  void (*on_touch_)(TouchedMapping*) = nullptr;
  struct sigaction before_ {};
};

TestSegment* g_test = nullptr;
uint64_t g_identity = 0;

// A record that lies on two pages: identity, lanes and most series on the first, the timed calls on
// the second.
constexpr uint32_t kIndex = 1;
constexpr size_t kRecords = kHeaderBytes + kNamesBytes;
constexpr size_t PageOf(uint32_t index, size_t field) {
  return (kRecords + index * kRecordStride + field) / 4096;
}
constexpr size_t kIdentity = offsetof(CommunicatorRecord, name);
constexpr size_t kTimedCallsAt = offsetof(CommunicatorRecord, timed_calls);
static_assert(PageOf(kIndex, kIdentity) < PageOf(kIndex, kTimedCallsAt));
constexpr size_t kHeaderPage = 0;  // where the reader looks again when it has read all records

void PublishNext() {
  const uint64_t identity = ++g_identity;
  const uint32_t generation =
      g_test->AddCommunicator(kIndex, identity, static_cast<int>(identity), NameOf(identity));
  LaneWriter lane = g_test->Writer(kIndex, generation, LaneRole::kLaunch);
  CountAs(*g_test, kIndex, lane, identity);
}

void WatchRecord(TouchedMapping* mapping);
// In the middle of the record: it gets its next owner. And so at each further attempt.
void RecycleNow(TouchedMapping* mapping) {
  PublishNext();
  mapping->Watch(kHeaderPage, WatchRecord);
}
void WatchRecord(TouchedMapping* mapping) {
  mapping->Watch(PageOf(kIndex, kTimedCallsAt), RecycleNow);
}

// The reader begins again when a record was recycled meanwhile, but not for ever. In its last
// attempt the record's generation alone tells.
TEST(Recycling, ARecordThatChangesHandsAtEveryAttemptIsLeftOut) {
  if (sysconf(_SC_PAGESIZE) != 4096) GTEST_SKIP() << "drawn for pages of 4 KiB";
  TestSegment test;
  g_test = &test;
  g_identity = 0;
  PublishNext();
  test.AddCommunicator(kIndex + 1, 1000000, 1000000, NameOf(1000000));
  TouchedMapping mapping(test.segment());
  WatchRecord(&mapping);
  const ProcessSnapshot process = Read(mapping.base(), mapping.bytes());
  EXPECT_GT(g_identity, 3u) << "it was recycled in the middle, again and again";
  ASSERT_EQ(process.communicators.size(), 1u) << "the other one is there, this one is not";
  EXPECT_EQ(process.communicators[0].comm_id, 1000000u);
  // Left alone it is read.
  const ProcessSnapshot quiet = Read(test.segment());
  ASSERT_EQ(quiet.communicators.size(), 2u);
  ExpectUnmixed(quiet.communicators[0]);
  EXPECT_EQ(quiet.communicators[0].comm_id, g_identity);
  EXPECT_EQ(quiet.communicators[0].calls.size(), 1u);
}

// Once is not often: the second attempt finds the next owner, whole.
TEST(Recycling, AReaderBeginsAgain) {
  if (sysconf(_SC_PAGESIZE) != 4096) GTEST_SKIP() << "drawn for pages of 4 KiB";
  TestSegment test;
  g_test = &test;
  g_identity = 0;
  PublishNext();
  TouchedMapping mapping(test.segment());
  mapping.Watch(PageOf(kIndex, kTimedCallsAt), [](TouchedMapping*) { PublishNext(); });
  const ProcessSnapshot process = Read(mapping.base(), mapping.bytes());
  ASSERT_EQ(process.communicators.size(), 1u);
  EXPECT_EQ(process.communicators[0].comm_id, 2u);
  ExpectUnmixed(process.communicators[0]);
  EXPECT_EQ(process.communicators[0].calls.size(), 1u);
  EXPECT_EQ(process.recycled_communicators, 1u);
  EXPECT_EQ(process.callbacks[0], 2u) << "of both";
}

}  // namespace
}  // namespace nccl_pulse
