#include "plugin/runtime/query_table.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "exporter/exposition/json/latency_json.h"
#include "metrics/agreed_call.h"
#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

constexpr std::string_view kOperations[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                            "Reduce"};

QueryTable g_queries;

struct Sum {
  HistogramSnapshot histogram;
  const TimedCallSnapshot* agreed = nullptr;
};

}  // namespace

QueryTable& Queries() { return g_queries; }

uint64_t QueryTable::KeyOf(uint64_t comm_id, std::string_view op, int size_class) {
  const auto* const found = std::find(std::begin(kOperations), std::end(kOperations), op);
  if (found == std::end(kOperations)) return 0;
  const auto row = static_cast<uint32_t>(found - std::begin(kOperations));
  return KindSeed(CallSeed(comm_id), row, static_cast<uint32_t>(size_class)) | 1;
}

int QueryTable::Ask(uint64_t key, ncclPulseDurations_v1_t* durations) {
  if (key == 0) return ncclPulseBadArgument;
  for (std::size_t i = 0; i < kProbes; ++i) {
    Slot& slot = slots_[(key / 2 + i) % kSlots];
    // Relaxed: only the key is read here; the sequence orders the fields.
    uint64_t at = slot.key.load(std::memory_order_relaxed);
    if (at == 0 && slot.key.compare_exchange_strong(at, key, std::memory_order_relaxed)) {
      is_used_.store(true);
      return ncclPulseNotYet;
    }
    if (at != key) continue;
    // Acquire: sees the fields of this sequence, or later ones.
    const uint32_t before = slot.sequence.load(std::memory_order_acquire);
    if (before == 0 || before % 2 != 0) return ncclPulseNotYet;
    std::array<uint64_t, kFields> fields;
    for (std::size_t field = 0; field < kFields; ++field) fields[field] = slot.fields[field];
    // If a field is of a later answer, the sequence read after this fence has changed.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.sequence.load(std::memory_order_relaxed) != before) return ncclPulseNotYet;
    *durations = {fields[0],
                  fields[1],
                  fields[2],
                  fields[3],
                  static_cast<int64_t>(fields[4]),
                  fields[5],
                  fields[6],
                  static_cast<int64_t>(fields[7])};
    return ncclPulseOk;
  }
  return ncclPulseNoRoom;
}

QueryTable::Slot* QueryTable::Find(uint64_t key) {
  for (std::size_t i = 0; i < kProbes; ++i) {
    Slot& slot = slots_[(key / 2 + i) % kSlots];
    if (slot.key.load(std::memory_order_relaxed) == key) return &slot;  // as in Ask
  }
  return nullptr;
}

void QueryTable::Write(const ncclPulseDurations_v1_t& durations, Slot* slot) {
  const uint32_t sequence = slot->sequence.load(std::memory_order_relaxed);  // its only writer
  slot->sequence.store(sequence + 1, std::memory_order_relaxed);
  // Release: a reader that sees a new field sees the odd sequence, or a later one.
  std::atomic_thread_fence(std::memory_order_release);
  const uint64_t fields[kFields] = {durations.calls,
                                    durations.mean_ns,
                                    durations.p50_ns,
                                    durations.p99_ns,
                                    static_cast<uint64_t>(durations.updated_ns),
                                    durations.agreed_call,
                                    durations.agreed_ns,
                                    static_cast<uint64_t>(durations.agreed_end_ns)};
  for (std::size_t field = 0; field < kFields; ++field) slot->fields[field].store(fields[field]);
  slot->sequence.store(sequence + 2, std::memory_order_release);  // publishes the fields
}

void QueryTable::Renew(const ProcessSnapshot& snapshot, int64_t now_realtime_ns) {
  const int64_t agreed_before_ns = (now_realtime_ns / kMomentNs - 1) * kMomentNs;
  std::map<Slot*, Sum> sums;
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    const auto sum_of = [&](const std::string& op, int size_class) -> Sum* {
      const uint64_t key = KeyOf(communicator.comm_id, op, size_class);
      Slot* const slot = key == 0 ? nullptr : Find(key);
      return slot == nullptr ? nullptr : &sums[slot];
    };
    for (const LatencySnapshot& latency : communicator.latencies) {
      if (!IsAgreedKind(latency.kind)) continue;
      Sum* const sum = sum_of(latency.op, latency.size_class);
      if (sum != nullptr) sum->histogram += latency.histogram;
    }
    for (const auto* calls : {&communicator.picked_calls, &communicator.timed_calls}) {
      for (const TimedCallSnapshot& call : *calls) {
        if (!IsAgreedKind(call.kind) || call.end_realtime_ns >= agreed_before_ns) continue;
        Sum* const sum = sum_of(call.op, call.size_class);
        if (sum == nullptr) continue;
        const bool is_newer = sum->agreed == nullptr || call.call_number > sum->agreed->call_number;
        if (is_newer) sum->agreed = &call;
      }
    }
  }
  for (const auto& [slot, sum] : sums) {
    ncclPulseDurations_v1_t durations{};
    durations.calls = sum.histogram.Count();
    if (durations.calls == 0) continue;
    durations.mean_ns = sum.histogram.sum_ns / durations.calls;
    durations.p50_ns = static_cast<uint64_t>(HistogramQuantile(sum.histogram, 0.5) * 1e9);
    durations.p99_ns = static_cast<uint64_t>(HistogramQuantile(sum.histogram, 0.99) * 1e9);
    durations.updated_ns = now_realtime_ns;
    if (sum.agreed != nullptr) {
      durations.agreed_call = sum.agreed->call_number;
      durations.agreed_ns = sum.agreed->duration_ns;
      durations.agreed_end_ns = sum.agreed->end_realtime_ns;
    }
    Write(durations, slot);
  }
}

}  // namespace nccl_pulse

extern "C" __attribute__((visibility("default"))) int ncclPulseQuery_v1(
    uint64_t comm, const char* op, uint64_t bytes, ncclPulseDurations_v1_t* durations) {
  if (op == nullptr || durations == nullptr) return ncclPulseBadArgument;
  using nccl_pulse::QueryTable;
  return nccl_pulse::Queries().Ask(QueryTable::KeyOf(comm, op, nccl_pulse::SizeClassOf(bytes)),
                                   durations);
}
