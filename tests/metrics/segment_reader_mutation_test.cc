// Attacks the segment reader with tens of thousands of damaged segments. The seed is fixed, so a
// failure comes back; each says which mutation it was.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/segment_layout.h"
#include "metrics/segment_reader.h"
#include "tests/metrics/hostile_segment.h"

namespace nccl_pulse {
namespace {

constexpr size_t kRecordsOffset = kHeaderBytes + kNamesBytes;

// Where a wrong number could send the reader: the geometry, states, keys and chunk indices.
std::vector<size_t> InterestingOffsets() {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < offsetof(SegmentHeader, plugin_version); at += 4) offsets.push_back(at);
  offsets.push_back(offsetof(SegmentHeader, realtime_offset_ns));
  for (size_t id = 0; id < kMaxNames; id += 7) {
    offsets.push_back(kHeaderBytes + id * sizeof(NameEntry));
  }
  for (size_t index = 0; index < kSmallCommunicators; ++index) {
    const size_t record = kRecordsOffset + index * kRecordStride;
    for (size_t at = 0; at < offsetof(CommunicatorRecord, name); at += 4) {
      offsets.push_back(record + at);
    }
    for (size_t chunk = 0; chunk < kLastCallChunks; ++chunk) {
      offsets.push_back(record + offsetof(CommunicatorRecord, last_call_chunks) + chunk * 2);
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      offsets.push_back(record + offsetof(CommunicatorRecord, lanes) + lane * sizeof(Lane) +
                        offsetof(Lane, counter_chunk));
    }
    for (size_t i = 0; i < kSeriesPerCommunicator; ++i) {
      const size_t series = record + offsetof(CommunicatorRecord, series) + i * sizeof(SeriesEntry);
      offsets.push_back(series);
      offsets.push_back(series + 4);
      for (size_t lane = 0; lane < kLanes; ++lane) offsets.push_back(series + 8 + lane * 2);
    }
    const auto add_calls = [&](size_t first, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        const size_t call = record + first + i * sizeof(TimedCall);
        offsets.push_back(call);
        offsets.push_back(call + sizeof(uint64_t));  // its key
      }
    };
    add_calls(offsetof(CommunicatorRecord, timed_calls), kTimedCalls);
    add_calls(offsetof(CommunicatorRecord, calls_of_moments), kMoments);
  }
  return offsets;
}

class Mutator {
 public:
  Mutator()
      : honest_(MakeSmallSegment()), memory_(kSmallBytes), interesting_(InterestingOffsets()) {}

  // A copy of the first `bytes` of the honest segment, before the guard.
  uint8_t* Fresh(size_t bytes = kSmallBytes) {
    segment_ = memory_.Place(bytes);
    bytes_ = bytes;
    memcpy(segment_, honest_.data(), bytes);
    return segment_;
  }

  uint64_t Random() { return random_(); }
  size_t Below(size_t limit) { return random_() % limit; }
  size_t InterestingPlace() { return interesting_[Below(interesting_.size())]; }

  uint64_t InterestingValue() {
    switch (Below(9)) {
      case 0:
        return 0;
      case 1:
        return Below(4);
      case 2:
        return UINT64_MAX - Below(3);
      case 3:
        return kSmallChunks - 1 + Below(3);
      case 4:
        return uint64_t{1} << Below(64);
      case 5:
        return (uint64_t{1} << Below(64)) - 1;
      case 6:
        return SeriesKey::Pack(static_cast<SeriesKind>(Below(9)), static_cast<uint32_t>(Random()),
                               static_cast<uint32_t>(Random()), static_cast<uint32_t>(Below(10)),
                               static_cast<uint32_t>(Random()));
      case 7:
        return kSmallBytes - 2048 + Below(4096);
      default:
        return Random();
    }
  }

  // Writes the low `width` bytes of a value, if there is room.
  void Put(size_t offset, uint64_t value, size_t width) {
    if (offset + width <= bytes_) memcpy(segment_ + offset, &value, width);
  }

  std::string Check() const { return ReadAndCheck(segment_, bytes_); }
  const std::vector<uint8_t>& honest() const { return honest_; }

 private:
  std::vector<uint8_t> honest_;
  GuardedMemory memory_;
  std::vector<size_t> interesting_;
  std::mt19937_64 random_{20240229};
  uint8_t* segment_ = nullptr;
  size_t bytes_ = 0;
};

struct SegmentReaderMutation : testing::Test {
  Mutator mutator;
};

TEST_F(SegmentReaderMutation, TheHonestOneIsReadInFull) {
  mutator.Fresh();
  EXPECT_EQ(mutator.Check(), "");
  ProcessSnapshot snapshot;
  std::string error;
  const ReadWish wish{ReadWish::LastCalls::kOfUnfinished, 0, INT64_MAX};
  ASSERT_TRUE(ReadSegment(mutator.Fresh(), kSmallBytes, &snapshot, &error, {}, nullptr, wish))
      << error;
  ASSERT_EQ(snapshot.communicators.size(), kSmallCommunicators);
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    EXPECT_EQ(communicator.calls.size(), 1u);
    EXPECT_EQ(communicator.algorithms.size(), 1u);
    EXPECT_EQ(communicator.untimed.size(), 1u);
    EXPECT_EQ(communicator.uncompleted.size(), 1u);
    EXPECT_EQ(communicator.sequences.size(), 1u);
    EXPECT_EQ(communicator.latencies.size(), 2u);
    EXPECT_EQ(communicator.timed_calls.size(), static_cast<size_t>(kTimedCalls));
    EXPECT_EQ(communicator.picked_calls.size(), static_cast<size_t>(kMoments));
    ASSERT_NE(communicator.last_calls, nullptr);
    EXPECT_EQ(communicator.last_calls->size(), 20u);
    EXPECT_EQ(communicator.peer_calls.size(), 2u);
  }
}

TEST_F(SegmentReaderMutation, BitFlips) {
  for (int round = 0; round < 6000; ++round) {
    uint8_t* segment = mutator.Fresh();
    for (size_t flips = mutator.Below(16) + 1; flips > 0; --flips) {
      // Half of them where it may hurt.
      const size_t at = mutator.Below(2) == 0 ? mutator.InterestingPlace() + mutator.Below(4)
                                              : mutator.Below(kSmallBytes);
      segment[at] ^= static_cast<uint8_t>(1u << mutator.Below(8));
    }
    ASSERT_EQ(mutator.Check(), "") << "round " << round;
  }
}

TEST_F(SegmentReaderMutation, WordsInInterestingPlaces) {
  for (int round = 0; round < 12000; ++round) {
    mutator.Fresh();
    for (size_t words = mutator.Below(8) + 1; words > 0; --words) {
      const size_t width = size_t{1} << mutator.Below(4);
      mutator.Put(mutator.InterestingPlace(), mutator.InterestingValue(), width);
    }
    ASSERT_EQ(mutator.Check(), "") << "round " << round;
  }
}

TEST_F(SegmentReaderMutation, EveryInterestingPlaceWithEveryExtreme) {
  for (const size_t place : InterestingOffsets()) {
    if (place >= kRecordsOffset + kRecordStride) continue;  // the other records are alike
    for (const uint64_t value : {uint64_t{0}, uint64_t{kSmallChunks}, UINT64_MAX}) {
      for (const size_t width : {2u, 8u}) {
        mutator.Fresh();
        mutator.Put(place, value, width);
        ASSERT_EQ(mutator.Check(), "") << "value " << value << " at " << place;
      }
    }
  }
}

// A wholly different body behind a header that is in order: everything the reader finds is random.
TEST_F(SegmentReaderMutation, RandomBodies) {
  for (int round = 0; round < 1500; ++round) {
    uint8_t* segment = mutator.Fresh();
    for (size_t at = kHeaderBytes; at < kSmallBytes; at += 8) {
      // Mostly zeroes and small numbers get past more checks than noise does.
      const uint64_t value = mutator.Below(3) == 0 ? mutator.Random() : mutator.InterestingValue();
      memcpy(segment + at, &value, sizeof(value));
    }
    for (uint32_t index = 0; index < kSmallCommunicators; ++index) {
      const uint32_t live = 1;
      memcpy(segment + kRecordsOffset + index * kRecordStride, &live, sizeof(live));
    }
    ASSERT_EQ(mutator.Check(), "") << "round " << round;
  }
}

TEST_F(SegmentReaderMutation, StringsWithoutAnEnd) {
  for (const uint8_t fill : {0xffu, 0x41u, 0xe2u, 0x1bu, 0xc2u}) {
    uint8_t* segment = mutator.Fresh();
    const auto overwrite = [&](size_t offset, size_t size) {
      memset(segment + offset, static_cast<int>(fill), size);
    };
    overwrite(offsetof(SegmentHeader, plugin_version), 32 + 16 + 256 + 32 + 32 + 128);
    for (size_t id = 0; id < kMaxNames; ++id) {
      overwrite(kHeaderBytes + id * sizeof(NameEntry) + sizeof(uint32_t), sizeof(NameText));
    }
    for (size_t index = 0; index < kSmallCommunicators; ++index) {
      overwrite(kRecordsOffset + index * kRecordStride + offsetof(CommunicatorRecord, name),
                128 + 16 + 48 + 32);
    }
    EXPECT_EQ(mutator.Check(), "") << "filled with " << static_cast<int>(fill);
  }
}

TEST_F(SegmentReaderMutation, CutOff) {
  // Every small size, every one around the ends of the parts, and random ones.
  std::vector<size_t> sizes;
  for (size_t size = 0; size < 300; ++size) sizes.push_back(size);
  for (const size_t end : {kHeaderBytes, kRecordsOffset, kRecordsOffset + kRecordStride,
                           kSmallChunksOffset, kSmallBytes - kChunkBytes, kSmallBytes}) {
    for (size_t size = end - 70; size <= std::min(end + 70, kSmallBytes); ++size) {
      sizes.push_back(size);
    }
  }
  for (int i = 0; i < 500; ++i) sizes.push_back(mutator.Below(kSmallBytes));
  for (const size_t size : sizes) {
    mutator.Fresh(size);
    ASSERT_EQ(mutator.Check(), "") << size;
    // The same with the header claiming that it all fits.
    for (const uint32_t chunks : {0u, 1u, kSmallChunks}) {
      for (const uint32_t communicators : {0u, 1u, kSmallCommunicators}) {
        mutator.Put(offsetof(SegmentHeader, chunk_count), chunks, 4);
        mutator.Put(offsetof(SegmentHeader, communicator_count), communicators, 4);
        ASSERT_EQ(mutator.Check(), "") << size;
      }
    }
  }
}

TEST_F(SegmentReaderMutation, AllOnesAllZeroesAndNoise) {
  for (const size_t size : {size_t{1}, size_t{64}, size_t{4096}, kRecordsOffset, kSmallBytes}) {
    memset(mutator.Fresh(size), 0, size);
    EXPECT_EQ(mutator.Check(), "");
    memset(mutator.Fresh(size), 0xff, size);
    EXPECT_EQ(mutator.Check(), "");
    for (int round = 0; round < 100; ++round) {
      uint8_t* segment = mutator.Fresh(size);
      for (size_t at = 0; at < size; ++at) segment[at] = static_cast<uint8_t>(mutator.Random());
      EXPECT_EQ(mutator.Check(), "");
    }
  }
  // All ones and all zeroes behind an honest header.
  for (const int fill : {0, 0xff}) {
    memset(mutator.Fresh() + kHeaderBytes, fill, kSmallBytes - kHeaderBytes);
    EXPECT_EQ(mutator.Check(), "");
  }
}

// A process that writes while it is read. Both sides use atomic accesses, so this is no data race
// in the language's sense, and runs under ThreadSanitizer too.
TEST_F(SegmentReaderMutation, SegmentThatChangesWhileItIsRead) {
  uint8_t* segment = mutator.Fresh();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::vector<uint8_t>& honest = mutator.honest();
    while (!stop) {
      const size_t at = mutator.Below(4) == 0 ? mutator.Below(kSmallBytes) / 8 * 8
                                              : mutator.InterestingPlace() / 8 * 8;
      auto* word = reinterpret_cast<uint64_t*>(segment + at);
      __atomic_store_n(word, mutator.InterestingValue(), __ATOMIC_RELAXED);
      // Soon put right again, or nothing but a refusal would be left to see.
      if (mutator.Below(3) != 0 || at < kHeaderBytes) {
        uint64_t right;
        memcpy(&right, honest.data() + at, sizeof(right));
        __atomic_store_n(word, right, __ATOMIC_RELAXED);
      }
    }
  });
  int in_full = 0;
  for (int round = 0; round < 4000; ++round) {
    ProcessSnapshot snapshot;
    std::string error;
    if (ReadSegment(segment, kSmallBytes, &snapshot, &error)) ++in_full;
    const std::string wrong = ReadAndCheck(segment, kSmallBytes);
    if (!wrong.empty()) {
      ADD_FAILURE() << wrong;
      break;
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(in_full, 0) << "the attack left nothing to read";
}

}  // namespace
}  // namespace nccl_pulse
