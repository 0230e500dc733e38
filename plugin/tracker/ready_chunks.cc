#include "plugin/tracker/ready_chunks.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

constexpr uint32_t kMostReserve = 1024;
// Most chunks that settling one communicator takes: one for each series in the settling thread's
// lane, and one for each lane's counters.
constexpr uint32_t kChunksToSettle = kSeriesPerCommunicator + kLanes;
static_assert(ReadyChunks::kLeast > kChunksToSettle);

}  // namespace

// Returns how many chunks a live communicator is expected to need. Relaxed: an estimate.
uint32_t ReadyChunks::ExpectedOf(const Communicator& communicator) const {
  const CommunicatorRecord& record = *communicator.record;
  const bool unused =
      std::all_of(std::begin(record.lanes), std::end(record.lanes),
                  [](const Lane& lane) { return lane.counter_chunk.load() == kNoChunk; });
  if (unused) return kOfNewcomer;
  uint32_t kinds = 0;
  uint32_t histograms = 0;
  for (const SeriesEntry& series : record.series) {
    const uint64_t key = series.key.load();
    if (key == 0) continue;
    if (SeriesKey::Kind(key) == SeriesKind::kCalls) ++kinds;
    if (SeriesKey::Kind(key) != SeriesKind::kLatency) continue;
    histograms += std::any_of(std::begin(series.chunk), std::end(series.chunk),
                              [](const auto& chunk) { return chunk.load() != kNoChunk; });
  }
  const uint32_t wanted = instruments_.timing == TimingMode::kOff ? 0
                          : instruments_.times_kernels()          ? 2 * kinds
                                                                  : kinds;
  return wanted > histograms ? wanted - histograms : 0;
}

void ReadyChunks::Expect(CommunicatorTable& communicators) {
  uint32_t expected = 0;
  for (const Communicator& communicator : communicators) {
    if (communicator.is_live()) expected += ExpectedOf(communicator);  // live: its record is there
  }
  expected_.store(expected);
}

bool ReadyChunks::Keep(uint32_t newcomers) {
  // If the kernel refuses memory, fewer chunks are requested at once, and more after a pause.
  constexpr uint64_t kPauseNs = 1000000000;
  constexpr uint32_t kLessChunks = 64;
  const uint64_t now_ns = instruments_.clock.NowNs();
  if (newcomers == 0 && now_ns < refused_until_ns_.load()) return false;
  const uint64_t reserve =
      std::min<uint64_t>(kLeast + instruments_.segment.chunks().missed(), kMostReserve);
  const uint32_t wanted =
      static_cast<uint32_t>(reserve) + expected_.load() + newcomers * kOfNewcomer;
  if (instruments_.segment.PopulateChunks(wanted, wanted)) return true;
  refused_until_ns_.store(now_ns + kPauseNs);
  return instruments_.segment.PopulateChunks(wanted, kLessChunks);
}

void ReadyChunks::KeepToSettle() {
  if (instruments_.segment.chunks().free_chunks() < kChunksToSettle) Keep(0);
}

}  // namespace nccl_pulse
