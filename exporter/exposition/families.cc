#include "exporter/exposition/families.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "exporter/base/time.h"
#include "exporter/diagnosis/facts/same_ids.h"
#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/classic_buckets.h"
#include "exporter/exposition/communicator_series.h"
#include "exporter/exposition/family_set.h"

namespace nccl_pulse {
namespace {

// Limit of series for one hang. More suspects say nothing new.
constexpr std::size_t kMostSuspects = 16;

void AddHang(const CommunicatorDiagnosis& diagnosis, FamilySet* set) {
  const Hang& hang = *diagnosis.hang;
  const std::string comm = Hex(diagnosis.comm_id, 16);
  const char* verdict = HangVerdictName(hang.verdict);
  const double since = Seconds(hang.since_realtime_ns);
  if (hang.suspects.empty()) set->Gauge(MetricId::kHangStart, {comm, verdict, "", hang.op}, since);
  for (std::size_t i = 0; i < std::min(hang.suspects.size(), kMostSuspects); ++i) {
    set->Gauge(MetricId::kHangStart, {comm, verdict, Digits(hang.suspects[i]), hang.op}, since);
  }
}

// Hangs of communicators with one id are usual only if all of them are.
void AddUsual(const DiagnosisResult& diagnosis, FamilySet* set) {
  std::map<uint64_t, bool> are_usual;
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (each.hang) are_usual.try_emplace(each.comm_id, true).first->second &= each.hang->is_usual;
  }
  for (const auto& [comm_id, is_usual] : are_usual) {
    if (is_usual) set->Gauge(MetricId::kHangUsual, {Hex(comm_id, 16)}, 1);
  }
}

struct CommunicatorOfProcess {
  const ProcessSnapshot* process;
  const CommunicatorSnapshot* communicator;
};

bool IsLive(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator) {
  return process.end == ProcessEnd::kLive && !communicator.finalized;
}

bool IsQueued(const DiagnosisResult& diagnosis, const CommunicatorSnapshot& communicator,
              uint32_t number) {
  const auto found = std::find_if(diagnosis.begin(), diagnosis.end(), [&](const auto& each) {
    return each.comm_id == communicator.comm_id && each.number == number;
  });
  if (found == diagnosis.end() || !found->queued) return false;
  const std::vector<int32_t>& ranks = found->queued->ranks;
  return std::find(ranks.begin(), ranks.end(), communicator.rank) != ranks.end();
}

void AddLosses(const CommunicatorDiagnosis& diagnosis, FamilySet* set) {
  for (const RankLoss& loss : diagnosis.losses) {
    set->SetStaticLabels(loss.static_labels);
    set->SetScope(MetricScope::kCommunicator, {Hex(diagnosis.comm_id, 16), Digits(loss.rank)});
    set->RealCounter(MetricId::kStragglerSeconds, {}, loss.seconds);
  }
}

// Newest last, so that its gauges remain. Process id and index keep the order stable across scrapes
// if the times are equal.
std::vector<const ProcessSnapshot*> OldestFirst(const std::vector<ProcessSnapshot>& processes) {
  std::vector<const ProcessSnapshot*> order;
  order.reserve(processes.size());
  for (const ProcessSnapshot& process : processes) {
    // Without the plugin there are verdicts, and no numbers.
    if (!process.is_from_outside) order.push_back(&process);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->start_realtime_ns, a->pid) < std::tie(b->start_realtime_ns, b->pid);
  });
  return order;
}

std::vector<CommunicatorOfProcess> CommunicatorsOldestFirst(
    const std::vector<const ProcessSnapshot*>& processes) {
  std::vector<CommunicatorOfProcess> order;
  for (const ProcessSnapshot* process : processes) {
    for (const CommunicatorSnapshot& communicator : process->communicators) {
      order.push_back({process, &communicator});
    }
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.communicator->init_realtime_ns, a.communicator->index) <
           std::tie(b.communicator->init_realtime_ns, b.communicator->index);
  });
  return order;
}

void AddProcessUse(const ProcessUse& use, FamilySet* set) {
  const auto add = [set](MetricId id, double value) {
    if (value != 0) set->Gauge(id, {}, value);
  };
  add(MetricId::kServerStart, use.start_seconds);
  if (use.cpu_seconds != 0) set->RealCounter(MetricId::kServerCpu, {}, use.cpu_seconds);
  add(MetricId::kServerResident, use.resident_bytes);
  add(MetricId::kServerVirtual, use.virtual_bytes);
  add(MetricId::kServerOpenFiles, use.open_files);
  add(MetricId::kServerMostFiles, use.most_files);
}

}  // namespace

std::vector<Family> BuildFamilies(const SnapshotSet& snapshots, const StaticLabels& static_labels,
                                  const ScrapeStats& stats, const Exposition& exposition,
                                  PageFormat format, const DiagnosisResult& diagnosis,
                                  int64_t now_realtime_ns) {
  const std::vector<const ProcessSnapshot*> processes = OldestFirst(snapshots.processes);
  const std::vector<CommunicatorOfProcess> communicators = CommunicatorsOldestFirst(processes);
  FamilySet set(static_labels, exposition, format,
                std::max(processes.size(), communicators.size()));
  for (const ProcessSnapshot* process : processes) {
    set.SetStaticLabels(process->static_labels);
    AddProcess(*process, &set);
  }
  const SameIds same_ids(snapshots);
  for (const auto& [process, communicator] : communicators) {
    set.SetStaticLabels(process->static_labels);
    AddCommunicator(*process, *communicator, now_realtime_ns, &set);
    if (!IsLive(*process, *communicator)) continue;
    if (IsQueued(diagnosis, *communicator, same_ids.NumberOf(*communicator)))
      set.Gauge(MetricId::kActivityQueued, {}, 1);
  }
  for (const CommunicatorDiagnosis& each : diagnosis) AddLosses(each, &set);
  set.SetStaticLabels(snapshots.server_labels);
  set.SetScope(MetricScope::kServer, {});
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (each.hang) AddHang(each, &set);
  }
  AddUsual(diagnosis, &set);
  set.Summary(MetricId::kScrapeDuration, {}, stats.pages, stats.seconds);
  set.Gauge(MetricId::kProcesses, {}, static_cast<double>(processes.size()));
  set.Counter(MetricId::kSegmentsRead, {}, stats.segments_read);
  for (int i = 0; i < kRejections; ++i) {
    set.SeenCounter(MetricId::kSegmentsRejected, {RejectionName(static_cast<Rejection>(i))},
                    snapshots.rejected[i]);
  }
  AddProcessUse(stats.process, &set);
  return std::move(set).Take();
}

}  // namespace nccl_pulse
