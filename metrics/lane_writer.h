// LaneWriter adds a callback's numbers to the communicator's record: it claims a lane (one of the
// record's four sets of cells), adds to its cells, and releases it. The threads that call and launch
// write to lane kLaunch without a claim: each of its cells has one writer at a time (visit.h).
//
//   LaneWriter lane(segment, record, generation, LaneRole::kOther);
//   if (lane.ok()) lane.Count(SeriesKey::Calls(...), 1, bytes);
//
// While a LaneWriter lives, its thread is the lane's only writer. So an addition is a relaxed load
// and a plain store, never a read-modify-write. Each role prefers a lane of its own. In steady
// state no other role uses that lane, and its cache lines stay on one core.
//
// Thread: any. Cost: one compare-and-swap and one store for the claim; //bench:count_instructions
// counts the instructions of whole callbacks. No lock, allocation, system call or wait. A held lane
// is skipped. If all are held, ok() is false: the caller counts the event as not measured.
#ifndef METRICS_LANE_WRITER_H_
#define METRICS_LANE_WRITER_H_

#include <cstdint>

#include "metrics/histogram_geometry.h"
#include "metrics/segment.h"
#include "metrics/size_class.h"

namespace nccl_pulse {

// Adds a latency to a histogram. `bus_bytes`: bytes by nccl-tests' bus bandwidth convention.
inline void RecordInChunk(HistogramChunk& chunk, uint64_t duration_ns, uint64_t bytes,
                          uint64_t bus_bytes) {
  // All loads before all stores: a load that waits for the address of an earlier store (the
  // bucket's) would double the cost.
  Cell& bucket = chunk.cells[CellIndex(duration_ns)];
  const uint64_t sum_ns = chunk.sum_ns.load() + duration_ns;
  const uint64_t sum_bytes = chunk.bytes.load() + bytes;
  const uint64_t sum_bus_bytes = chunk.bus_bytes.load() + bus_bytes;
  const uint64_t count = bucket.load() + 1;
  chunk.sum_ns.store(sum_ns);
  chunk.bytes.store(sum_bytes);
  chunk.bus_bytes.store(sum_bus_bytes);
  // The bucket last: a reader that counts an operation finds its seconds and bytes in the sums.
  bucket.publish(count);
}

// Returns how many of the process' `series_limit` series are reserved for overflow series, which
// count operations that get no series of their own.
constexpr uint64_t SeriesForOverflow(uint64_t series_limit) { return (series_limit + 15) / 16; }

// Activity of a thread; each role prefers its own lane. kLaunch: calling, launching and reporting
// operations, without a claim. kOther: the same threads, with a claim. kProgress: reporting
// the progress and end of operations. kBackground: polling.
enum class LaneRole : int { kLaunch = 0, kProgress = 1, kBackground = 2, kOther = 3 };

class LaneWriter {
 public:
  // Claims a lane of `record` if the record still has `generation` (record_life.h).
  LaneWriter(Segment& segment, CommunicatorRecord& record, uint32_t generation, LaneRole role)
      : segment_(segment), record_(record), lane_(&record.lanes[static_cast<int>(role)]) {
    if (__builtin_expect(!lane_->claim.TryClaim(), 0)) lane_ = ClaimOther(static_cast<int>(role));
    // Checked while holding the lane. A recycler holds all lanes when it changes the generation. So
    // either it waits for this object, or this thread sees the new generation (through the lane's
    // claim).
    if (__builtin_expect(ok() && !record.life.IsOf(generation), 0)) Release();
  }

  ~LaneWriter() { Release(); }
  LaneWriter(const LaneWriter&) = delete;
  LaneWriter& operator=(const LaneWriter&) = delete;

  bool ok() const { return lane_ != nullptr; }

  // The lane's fixed counters. Only when ok().
  Lane& lane() { return *lane_; }

  // Returns the cells of a counter series in lane kLaunch, for a thread that then adds to them
  // without a claim. Null if there is no room for them; use Count then. The cells stay valid until
  // the record is recycled. Only when ok().
  CounterPair* CellsOfLaunches(uint64_t key) {
    const int series = OwnSeries(key);
    return series < 0 ? nullptr
                      : CountersIn(record_.lanes[static_cast<int>(LaneRole::kLaunch)], series);
  }

  // Adds to the two cells of a counter series (SeriesKey says what they count). Calls for which
  // there is no series go to the lane's overflow. Only when ok().
  void Count(uint64_t key, uint64_t a, uint64_t b) {
    CounterPair* pair = FindCounters(key);
    if (__builtin_expect(pair == nullptr, 0)) return CountWithoutSeries(key, a, b);
    // As in RecordInChunk: a reader that counts the calls finds their bytes.
    if (__builtin_expect(b != 0, 1)) pair->b.add(b);
    pair->a.publish_sum(a);
  }

  // Adds one to cell a and stores `sequence` in cell b. Only when ok().
  void CountSequenced(uint64_t key, uint64_t sequence) {
    if (CounterPair* pair = FindCounters(key)) {
      pair->b.store(sequence);  // before a, as in Count
      pair->a.publish_sum(1);
    }
  }

  // Records one latency. Only when ok().
  void Observe(uint64_t key, uint64_t duration_ns, uint64_t bytes, uint64_t bus_bytes) {
    const int series = FindSeries(key);
    if (series < 0) return;
    Ordered<uint16_t>& slot = record_.series[series].chunk[lane_ - record_.lanes];
    uint16_t chunk = slot.load();  // written only by this lane's holders
    if (chunk == kNoChunk) {
      chunk = segment_.chunks().Allocate();
      if (chunk == kNoChunk) return CountUnlessCounted(series, key);
      slot.publish(chunk);  // a reader that sees the chunk sees its zeroes
    }
    RecordInChunk(segment_.histogram(chunk), duration_ns, bytes, bus_bytes);
  }

 private:
  // Claims a lane other than kLaunch, `lane` last; null if all are held.
  [[gnu::cold, gnu::noinline]] Lane* ClaimOther(int lane);

  void Release() {
    if (ok()) lane_->claim.Release();
    lane_ = nullptr;
  }

  void CountOverflow() { lane().overflowed_operations.publish_sum(1); }
  [[gnu::cold, gnu::noinline]] void CountWithoutSeries(uint64_t key, uint64_t a, uint64_t b);

  // Called if no chunk is free, so no series counts the operation. Operations redirected to an
  // overflow series were counted as overflowed before.
  void CountUnlessCounted(int series, uint64_t key) {
    if (record_.series[series].key.load() == key) CountOverflow();
  }

  CounterPair* FindCounters(uint64_t key) {
    const int series = FindSeries(key);
    if (__builtin_expect(series < 0, 0)) return nullptr;
    CounterPair* const pair = CountersIn(*lane_, series);
    if (__builtin_expect(pair == nullptr, 0)) CountUnlessCounted(series, key);
    return pair;
  }
  // Null if no chunk is free.
  CounterPair* CountersIn(Lane& lane, int series) {
    uint16_t chunk = lane.counter_chunk.load();
    if (__builtin_expect(chunk == kNoChunk, 0)) {
      chunk = AddCounterChunk(lane);
      if (chunk == kNoChunk) return nullptr;
    }
    return &segment_.counters(chunk).series[series];
  }
  [[gnu::cold, gnu::noinline]] uint16_t AddCounterChunk(Lane& lane);

  static uint32_t Hash(uint64_t key) {
    return static_cast<uint32_t>(key * 0x9e3779b97f4a7c15ULL >>
                                 57);  // 7 bits: kSeriesPerCommunicator
  }

  // Returns the index of the key's entry. If the budget of series is used up, counts the operation
  // as overflowed and returns the index of an overflow entry, or -1 if the kind has none.
  int FindSeries(uint64_t key) {
    uint32_t at = Hash(key);
    // Relaxed: an entry's key never changes once set, and no other data depends on it.
    const uint64_t found = record_.series[at].key.load();
    if (__builtin_expect(found == key, 1)) return static_cast<int>(at);
    return FindOrAddSeries(key);
  }

  [[gnu::cold, gnu::noinline]] int FindOrAddSeries(uint64_t key);
  // Returns the index of the key's own entry; -1 if there is no room for it.
  int OwnSeries(uint64_t key);
  bool ReserveSeries(bool is_overflow);

  Segment& segment_;
  CommunicatorRecord& record_;
  Lane* lane_;  // null: no lane held
};

}  // namespace nccl_pulse

#endif  // METRICS_LANE_WRITER_H_
