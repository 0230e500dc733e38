// Tracker, the part that keeps memory ready for what callbacks will want, and makes room for it.
//
// A callback that finds no page ready loses what it would have counted there, so pages are ready
// before they are wanted:
//   - a reserve, larger than what eight communicators take with sixteen kinds of operations each;
//   - six for each communicator that has not begun (the counters of two lanes and four histograms):
//     a job may make all of them first and then use them at once;
//   - one for each kind of operation that was called and has no histogram yet (two with kernel
//     timing: duration and completion). A kind is called long before the first of its operations
//     has ended;
//   - as many again as callbacks missed: a job that was surprising once will be again.
// The background thread and finalize settle whole communicators; they look before each of them.
#include <algorithm>

#include "plugin/tracker/tracker.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kMostReserve = 1024;
// What settling one communicator can take: each series' page, and the counters of all lanes.
constexpr uint32_t kPagesToSettle = kSeriesPerCommunicator + kLanes;
static_assert(Tracker::kLeastPagesReady > kPagesToSettle);

}  // namespace

// Of one that is live: pages that it will want, as far as can be told. Relaxed: an estimate.
uint32_t Tracker::ExpectedPages(const Communicator& communicator) const {
  const CommunicatorRecord& record = *communicator.record;
  const bool unused =
      std::all_of(std::begin(record.lanes), std::end(record.lanes), [](const Lane& lane) {
        return lane.counter_page.load(std::memory_order_relaxed) == kNoPage;
      });
  if (unused) return kPagesOfNewcomer;
  uint32_t kinds = 0;
  uint32_t histograms = 0;
  for (const SeriesEntry& series : record.series) {
    const uint64_t key = series.key.load(std::memory_order_relaxed);
    if (key == 0) continue;
    if (SeriesKey::Kind(key) == SeriesKind::kCalls) ++kinds;
    if (SeriesKey::Kind(key) != SeriesKind::kLatency) continue;
    histograms += std::any_of(std::begin(series.page), std::end(series.page), [](const auto& page) {
      return page.load(std::memory_order_relaxed) != kNoPage;
    });
  }
  const uint32_t wanted = timing_ == TimingMode::kOff      ? 0
                          : timing_ == TimingMode::kKernel ? 2 * kinds
                                                           : kinds;
  return wanted > histograms ? wanted - histograms : 0;
}

void Tracker::ExpectPages() {
  uint32_t expected = 0;
  const uint32_t used = used_slots_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    // Acquire: its record is there.
    if (slots_[i].context.load(std::memory_order_acquire) == 0) continue;
    expected += ExpectedPages(slots_[i]);
  }
  expected_pages_.store(expected, std::memory_order_relaxed);  // an estimate: stands alone
}

bool Tracker::KeepPagesReady(uint32_t newcomers) {
  // What the kernel has refused it refuses again a moment later: ask now and then, and for less.
  constexpr uint64_t kPauseNs = 1000000000;
  constexpr uint32_t kLessPages = 64;
  const uint64_t now_ns = clock_.NowNs();
  // Relaxed: init and the background thread both ask, and once too often is harmless.
  if (newcomers == 0 && now_ns < refused_until_ns_.load(std::memory_order_relaxed)) return false;
  const uint64_t reserve =
      std::min<uint64_t>(kLeastPagesReady + segment_.pages().missed(), kMostReserve);
  const uint32_t wanted = static_cast<uint32_t>(reserve) +
                          expected_pages_.load(std::memory_order_relaxed) +
                          newcomers * kPagesOfNewcomer;
  if (segment_.PopulatePages(wanted, wanted)) return true;
  refused_until_ns_.store(now_ns + kPauseNs, std::memory_order_relaxed);
  return segment_.PopulatePages(wanted, kLessPages);
}

void Tracker::KeepPagesToSettle() {
  if (segment_.pages().free_pages() < kPagesToSettle) KeepPagesReady(0);
}

}  // namespace nccl_pulse
