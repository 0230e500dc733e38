#include "exporter/exposition/families.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "exporter/diagnosis/rank_activity.h"
#include "exporter/diagnosis/usual_wait.h"
#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/page_share.h"
#include "metrics/histogram_geometry.h"
#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

using prometheus::ClientMetric;
using LabelValues = std::initializer_list<std::string_view>;

constexpr std::size_t kClassicBuckets = kClassicExponents.size();
static_assert(kClassicExponents.front() >= kMinExponent && kClassicExponents.back() <= kMaxExponent,
              "a classic bucket ends where a cell does");

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

bool IsLabelName(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (name.empty() || !is_letter(name[0]) || name.substr(0, 2) == "__") return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<ClientMetric::Label> UsableLabels(const StaticLabels& labels) {
  std::vector<ClientMetric::Label> usable;
  for (const auto& [name, value] : labels) {
    const bool repeated = std::any_of(usable.begin(), usable.end(),
                                      [&name = name](const auto& l) { return l.name == name; });
    if (value.empty() || repeated || !IsLabelName(name) || IsReservedLabel(name)) continue;
    if (usable.size() == kMaxStaticLabels) break;
    usable.push_back({name, value});
  }
  return usable;
}

// "name=value,name=value", as a segment holds them; what is not of this form is left out.
void SplitLabels(std::string_view text, StaticLabels* labels) {
  while (!text.empty()) {
    const std::string_view label = text.substr(0, text.find(','));
    text.remove_prefix(std::min(label.size() + 1, text.size()));
    const std::size_t equals = label.find('=');
    if (equals == label.npos) continue;
    labels->emplace_back(label.substr(0, equals), label.substr(equals + 1));
  }
}

// Adds `from` to the count, the sum and, where they are wanted, the classic buckets of `to`.
void AddHistogram(const HistogramSnapshot& from, bool classic, ClientMetric::Histogram* to) {
  to->sample_sum += Seconds(from.sum_ns);
  if (!classic) {
    to->sample_count += from.Count();
    return;
  }
  to->bucket.resize(kClassicBuckets);
  uint64_t cumulative = 0;
  int cell = 0;  // the first that is not counted yet
  for (std::size_t i = 0; i < kClassicBuckets; ++i) {
    // The cell whose upper bound is the bucket's.
    const int last_cell = (kClassicExponents[i] - kMinExponent) * kBucketsPerOctave;
    while (cell <= last_cell) cumulative += from.cells[cell++];
    to->bucket[i].upper_bound = std::ldexp(1.0, kClassicExponents[i]);
    to->bucket[i].cumulative_count += cumulative;
  }
  while (cell < kHistogramCells) cumulative += from.cells[cell++];
  to->sample_count += cumulative;
}

void AddCells(const HistogramSnapshot& from, HistogramSnapshot* to) {
  for (int cell = 0; cell < kHistogramCells; ++cell) to->cells[cell] += from.cells[cell];
  to->sum_ns += from.sum_ns;
}

// The families of one page while it is filled.
class FamilySet {
 public:
  // `scopes`: how many there will be, about; a family has a series or more of each.
  FamilySet(const StaticLabels& static_labels, const Exposition& exposition, PageFormat format,
            std::size_t scopes)
      : labels_of_all_(static_labels), exposition_(exposition), format_(format), scopes_(scopes) {}

  // The user's labels on the following series.
  void SetStaticLabels(const std::string& text) {
    StaticLabels labels = labels_of_all_;
    SplitLabels(text, &labels);
    static_labels_ = UsableLabels(labels);
  }

  // The labels of the scope that the following series belong to.
  void SetScope(MetricScope scope, LabelValues values) {
    scope_ = scope;
    scope_labels_.clear();
    AppendLabels(ScopeLabels(scope), values, &scope_labels_);
    key_.clear();
    AppendKey(values, &key_);
    // A number stands for it in keys: most are then short enough to need no allocation.
    const auto number = static_cast<uint32_t>(
        numbers_of_scopes_.try_emplace(key_, numbers_of_scopes_.size()).first->second);
    scope_key_.assign(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  void Counter(MetricId id, LabelValues values, uint64_t value) {
    Find(id, values)->counter.value += static_cast<double>(value);
  }

  // Absent until there is something to count: for what most processes never see. A rule for which
  // the first event matters has to look for a new series, too.
  void SeenCounter(MetricId id, LabelValues values, uint64_t value) {
    if (value != 0) Counter(id, values, value);
  }

  void SecondsCounter(MetricId id, LabelValues values, uint64_t ns) {
    Find(id, values)->counter.value += Seconds(ns);
  }

  void RealCounter(MetricId id, LabelValues values, double seconds) {
    Find(id, values)->counter.value += seconds;
  }

  void Gauge(MetricId id, LabelValues values, double value) {
    Find(id, values)->gauge.value = value;
  }

  // A gauge that is there, and 1, while something is true of the newest with these labels.
  void Flag(MetricId id, bool value) {
    flags_.set(static_cast<std::size_t>(id));
    Gauge(id, {}, value ? 1 : 0);
  }

  void Histogram(MetricId id, LabelValues values, const HistogramSnapshot& value) {
    Histogram(id, values, value, exposition_.HasClassic(id));
  }

  void NetworkDuration(LabelValues values, const HistogramSnapshot& value) {
    Histogram(MetricId::kOperationDuration, values, value,
              exposition_.NetworkDurationsHaveClassic());
  }

  void Histogram(MetricId id, LabelValues values, const HistogramSnapshot& value,
                 bool has_classic) {
    if (exposition_.IsDropped(id)) return;
    Collected& family = families_[static_cast<std::size_t>(id)];
    ClientMetric* metric = Find(id, values);
    AddHistogram(value, has_classic, &metric->histogram);
    if (!exposition_.HasNative(id, format_)) return;
    const auto index = static_cast<std::size_t>(metric - family.metrics.data());
    if (index == family.native.size()) {
      family.native.push_back(value);
    } else {
      AddCells(value, &family.native[index]);
    }
  }

  void Summary(MetricId id, LabelValues values, uint64_t count, double sum) {
    ClientMetric::Summary& summary = Find(id, values)->summary;
    summary.sample_count += count;
    summary.sample_sum += sum;
  }

  // A gauge that is 1 and says what it says in its labels: one per scope, the newest.
  void Info(MetricId id, LabelValues values) {
    key_ = scope_key_;
    ClientMetric* metric = FindKey(id);
    SetLabels(id, values, metric);
    metric->gauge.value = 1;
  }

  std::vector<Family> Take() && {
    std::vector<Family> families;
    families.reserve(kMetrics);
    for (int i = 0; i < kMetrics; ++i) {
      if (flags_[i]) RemoveZeros(&families_[i].metrics);
      if (families_[i].metrics.empty()) continue;
      const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
      Family& family = families.emplace_back();
      family.name = entry.name;
      family.help = entry.help;
      family.type = entry.type;
      family.metric = std::move(families_[i].metrics);
      family.unit = entry.unit;
      family.native = std::move(families_[i].native);
    }
    return families;
  }

 private:
  struct Collected {
    std::vector<ClientMetric> metrics;
    std::vector<HistogramSnapshot> native;
    absl::flat_hash_map<std::string, std::size_t> index_of_key;
  };

  static void RemoveZeros(std::vector<ClientMetric>* metrics) {
    const auto is_zero = [](const ClientMetric& metric) { return metric.gauge.value == 0; };
    metrics->erase(std::remove_if(metrics->begin(), metrics->end(), is_zero), metrics->end());
  }

  // 0xff is no part of UTF-8, so no two lists of values give the same key.
  static void AppendKey(LabelValues values, std::string* key) {
    for (std::string_view value : values) key->append(value).push_back('\xff');
  }

  static void AppendLabels(const LabelNames& names, LabelValues values,
                           std::vector<ClientMetric::Label>* labels) {
    assert(values.size() == names.size);
    const std::string_view* name = names.begin();
    for (std::string_view value : values) {
      // To Prometheus an empty label is an absent one.
      if (!value.empty()) labels->push_back({std::string(*name), std::string(value)});
      ++name;
    }
  }

  void SetLabels(MetricId id, LabelValues values, ClientMetric* metric) {
    metric->label.clear();
    metric->label.reserve(scope_labels_.size() + values.size() + static_labels_.size());
    metric->label.insert(metric->label.end(), scope_labels_.begin(), scope_labels_.end());
    AppendLabels(CatalogueEntry(id).labels, values, &metric->label);
    metric->label.insert(metric->label.end(), static_labels_.begin(), static_labels_.end());
  }

  ClientMetric* FindKey(MetricId id) {
    assert(CatalogueEntry(id).scope == scope_);
    if (exposition_.IsDropped(id)) return &dropped_;
    Collected& family = families_[static_cast<std::size_t>(id)];
    if (family.metrics.empty()) {
      family.metrics.reserve(scopes_);
      family.index_of_key.reserve(scopes_);
    }
    const auto [it, is_new] = family.index_of_key.try_emplace(key_, family.metrics.size());
    if (is_new) family.metrics.emplace_back();
    return &family.metrics[it->second];
  }

  ClientMetric* Find(MetricId id, LabelValues values) {
    key_ = scope_key_;
    AppendKey(values, &key_);
    ClientMetric* metric = FindKey(id);
    if (metric->label.empty()) SetLabels(id, values, metric);
    return metric;
  }

  const StaticLabels labels_of_all_;
  std::vector<ClientMetric::Label> static_labels_;
  MetricScope scope_ = MetricScope::kServer;
  std::vector<ClientMetric::Label> scope_labels_;
  std::string scope_key_;  // four bytes
  absl::flat_hash_map<std::string, std::size_t> numbers_of_scopes_;
  std::string key_;  // reused, so that a key costs no allocation
  const Exposition exposition_;
  const PageFormat format_;
  const std::size_t scopes_;
  ClientMetric dropped_;  // what is not shown is written here
  std::array<Collected, kMetrics> families_;
  std::bitset<kMetrics> flags_;
};

void AddLatency(const LatencySnapshot& latency, FamilySet* set) {
  const std::string_view size = SizeClassName(latency.size_class);
  switch (latency.kind) {
    case LatencyKind::kDurationStream:
    case LatencyKind::kDurationGraph:
    case LatencyKind::kDurationKernel: {
      const std::string_view timing = latency.kind == LatencyKind::kDurationStream  ? "stream"
                                      : latency.kind == LatencyKind::kDurationGraph ? "graph"
                                                                                    : "kernel";
      const LabelValues labels = {latency.op, size, timing};
      set->Histogram(MetricId::kOperationDuration, labels, latency.histogram);
      set->Counter(MetricId::kTimedBusBytes, labels, latency.bus_bytes);
      break;
    }
    case LatencyKind::kDurationNetwork:
      set->NetworkDuration({latency.op, size, "network"}, latency.histogram);
      break;
    case LatencyKind::kCompletionProxy:
      set->Histogram(MetricId::kOperationCompletion, {latency.op, size, "proxy"},
                     latency.histogram);
      break;
    case LatencyKind::kCompletionKernel:
      set->Histogram(MetricId::kOperationCompletion, {latency.op, size, "kernel"},
                     latency.histogram);
      break;
  }
}

// A number as a label value.
class Digits {
 public:
  explicit Digits(int64_t value) {
    size_ =
        std::to_chars(buffer_.data(), buffer_.data() + buffer_.size(), value).ptr - buffer_.data();
  }
  operator std::string_view() const {  // NOLINT(google-explicit-constructor)
    return {buffer_.data(), size_};
  }

 private:
  std::array<char, 24> buffer_;
  std::size_t size_;
};

std::string Hex(uint64_t value, std::size_t width) {
  std::array<char, 16> buffer;
  const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, 16).ptr;
  std::string digits(buffer.data(), end - buffer.data());
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

// What is known of launches that have been made. What is not known is absent, never zero.
void AddActivity(const ProcessSnapshot& process, const CommunicatorSnapshot& comm, int64_t now_ns,
                 int64_t stands_after_ns, FamilySet* set) {
  set->Flag(MetricId::kCaptured, comm.captured);
  const RankActivity activity = ActivityOf(process, comm, now_ns, stands_after_ns);
  const bool is_looked_at = activity.reason != UnknownReason::kPollerNotStarted &&
                            activity.reason != UnknownReason::kPollerStands;
  if (comm.operations_source != CompletionSource::kNone && is_looked_at) {
    set->Gauge(MetricId::kOldestInflightOperation,
               {comm.operations_source == CompletionSource::kProxy ? "proxy" : "kernel"},
               Seconds(comm.oldest_operation_realtime_ns));
  }
  if (activity.is_unknown() && !comm.finalized && process.end == ProcessEnd::kLive) {
    set->Gauge(MetricId::kActivityUnknown, {UnknownReasonName(activity.reason)}, 1);
  }
  for (const LongestWaitSnapshot& wait : comm.longest_waits) {
    if (wait.longest_ns < kLeastLongWaitNs) continue;
    set->Gauge(MetricId::kLongestWait, {wait.op}, Seconds(wait.longest_ns));
  }
  if (!comm.has_heartbeat) return;
  set->Counter(MetricId::kLaunchesCompleted, {}, comm.launches_completed);
  if (activity.is_unknown()) return;
  // The two were not read at the same moment.
  const uint64_t in_flight =
      comm.launches > comm.launches_completed ? comm.launches - comm.launches_completed : 0;
  set->Gauge(MetricId::kInflightLaunches, {}, static_cast<double>(in_flight));
  set->Gauge(MetricId::kOldestInflightLaunch, {},
             activity.is_in_flight() ? Seconds(activity.since_realtime_ns) : 0);
}

// All directions and reasons once there is one: a series that comes later would break rate().
void AddNetwork(const CommunicatorSnapshot& comm, FamilySet* set) {
  const auto is_zero = [](uint64_t value) { return value == 0; };
  if (std::all_of(comm.network_bytes.begin(), comm.network_bytes.end(), is_zero) &&
      std::all_of(comm.network_wait_ns.begin(), comm.network_wait_ns.end(), is_zero)) {
    return;
  }
  for (int i = 0; i < kNetworkDirections; ++i) {
    set->Counter(MetricId::kNetworkBytes, {NetworkDirectionName(static_cast<NetworkDirection>(i))},
                 comm.network_bytes[i]);
  }
  for (int i = 0; i < kNetworkWaits; ++i) {
    const auto wait = static_cast<NetworkWait>(i);
    set->SecondsCounter(MetricId::kNetworkWait,
                        {NetworkDirectionName(NetworkWaitDirection(wait)), NetworkWaitReason(wait)},
                        comm.network_wait_ns[i]);
  }
}

// Two containers behind one endpoint may both have a process 7 of rank 0.
std::string PidNamespace(const ProcessSnapshot& process) {
  return process.pid_namespace == 0 ? "" : std::to_string(process.pid_namespace);
}

// What replays did. Nothing where none was seen: there may have been some all the same.
void AddGraphs(const CommunicatorSnapshot& comm, FamilySet* set) {
  if (comm.graph_replays == 0) return;
  set->Counter(MetricId::kGraphReplays, {}, comm.graph_replays);
  set->Gauge(MetricId::kGraphReplaysInFlight, {},
             static_cast<double>(comm.graph_replays_in_flight));
  set->Gauge(MetricId::kGraphProgress, {}, Seconds(comm.graph_moved_realtime_ns));
  for (const ReplayedCallsSnapshot& replayed : comm.replayed) {
    const std::string_view size = SizeClassName(replayed.size_class);
    set->Counter(MetricId::kGraphOperations, {replayed.op, size}, replayed.operations);
    set->Counter(MetricId::kGraphOperationBytes, {replayed.op, size}, replayed.bytes);
  }
}

void AddCommunicator(const ProcessSnapshot& process, const CommunicatorSnapshot& comm,
                     int64_t now_ns, int64_t stands_after_ns, FamilySet* set) {
  set->SetScope(MetricScope::kCommunicator, {Hex(comm.comm_id, 16), Digits(comm.rank)});
  set->Info(MetricId::kCommunicatorInfo,
            {comm.name, Digits(comm.nranks), Digits(comm.nnodes), process.global_rank,
             process.local_rank, process.job_id, Digits(comm.index), Digits(process.pid),
             PidNamespace(process), process.hostname, comm.gpu, comm.uuid, comm.pci_bus_id});
  set->Flag(MetricId::kCommunicatorFinalized, comm.finalized);
  for (const CallCountSnapshot& call : comm.calls) {
    const std::string_view size = SizeClassName(call.size_class);
    set->Counter(MetricId::kOperations,
                 {call.op, size, call.datatype, call.captured ? "true" : "false"}, call.calls);
    // Over all datatypes, captured or not: equal labels are added up.
    set->Counter(MetricId::kOperationBytes, {call.op, size}, call.bytes);
  }
  for (const AlgorithmCountSnapshot& count : comm.algorithms) {
    set->Counter(MetricId::kAlgorithmOperations, {count.op, count.algo, count.proto},
                 count.operations);
  }
  set->Counter(MetricId::kLaunches, {}, comm.launches);
  AddActivity(process, comm, now_ns, stands_after_ns, set);
  for (const LatencySnapshot& latency : comm.latencies) AddLatency(latency, set);
  for (const UntimedSnapshot& untimed : comm.untimed) {
    set->Counter(MetricId::kUntimedOperations, {untimed.op, UntimedReasonName(untimed.reason)},
                 untimed.operations);
  }
  for (const UncompletedSnapshot& uncompleted : comm.uncompleted) {
    set->Counter(MetricId::kUncompletedOperations, {uncompleted.op}, uncompleted.operations);
  }
  if (comm.last_launch_realtime_ns != 0) {
    set->Gauge(MetricId::kLastLaunchTimestamp, {}, Seconds(comm.last_launch_realtime_ns));
  }
  if (comm.last_completion_realtime_ns != 0) {
    set->Gauge(MetricId::kLastCompletionTimestamp, {}, Seconds(comm.last_completion_realtime_ns));
  }
  AddNetwork(comm, set);
  AddGraphs(comm, set);
  if (process.timing == "kernel") {
    // Both reasons, always: a series that appears only with the failure cannot be compared to
    // before.
    set->Gauge(MetricId::kKernelTimingUntrusted, {"self_send"},
               comm.kernel_trust == TrustState::kSelfSend ? 1 : 0);
    set->Gauge(MetricId::kKernelTimingUntrusted, {"checks_failed"},
               comm.kernel_trust == TrustState::kChecksFailed ? 1 : 0);
  }
  set->SeenCounter(MetricId::kOverflowedOperations, {}, comm.overflowed_operations);
}

void AddProcess(const ProcessSnapshot& process, FamilySet* set) {
  set->SetScope(MetricScope::kProcess,
                {Digits(process.pid), PidNamespace(process), process.global_rank});
  set->Info(MetricId::kBuildInfo,
            {process.plugin_version, Digits(process.nccl_api_version), process.timing,
             process.duration_source, process.completion_source, "0x" + Hex(process.event_mask, 1),
             process.shared_memory ? "shared" : "private"});
  set->Gauge(MetricId::kProcessUp, {}, process.end == ProcessEnd::kLive ? 1 : 0);
  if (process.end != ProcessEnd::kLive) {
    set->Gauge(MetricId::kProcessEnd, {ProcessEndName(process.end)},
               Seconds(process.end_realtime_ns));
  }
  set->Gauge(MetricId::kStartTimestamp, {}, Seconds(process.start_realtime_ns));
  if (process.last_poll_realtime_ns != 0) {
    set->Gauge(MetricId::kLastPollTimestamp, {}, Seconds(process.last_poll_realtime_ns));
  }
  if (process.sampling_exponent >= 0) {
    set->Gauge(MetricId::kSamplingExponent, {}, process.sampling_exponent);
  }
  set->SeenCounter(MetricId::kEventMaskChanges, {}, process.event_mask_changes);
  if (process.event_mask_changes != 0) {
    set->Info(MetricId::kForeignEventMask, {"0x" + Hex(process.foreign_event_mask, 1)});
  }
  if (process.network_observed_ns != 0) {
    set->SecondsCounter(MetricId::kNetworkObserved, {}, process.network_observed_ns);
  }
  for (int i = 0; i < kCaptureFates; ++i) {
    set->SeenCounter(MetricId::kGraphCaptures, {CaptureFateName(static_cast<CaptureFate>(i))},
                     process.graph_captures[i]);
  }
  for (int i = 0; i < kCallbackKinds; ++i) {
    set->SeenCounter(MetricId::kCallbacks, {CallbackKindName(static_cast<CallbackKind>(i))},
                     process.callbacks[i]);
  }
  set->Summary(MetricId::kCallbackDuration, {}, process.sampled_callbacks,
               Seconds(process.sampled_callback_ns));
  for (int i = 0; i < kIgnoredReasons; ++i) {
    set->SeenCounter(MetricId::kIgnoredEvents, {IgnoredReasonName(static_cast<IgnoredReason>(i))},
                     process.ignored[i]);
  }
  set->Gauge(MetricId::kSeriesUsed, {}, static_cast<double>(process.series_used));
  set->Gauge(MetricId::kSeriesLimit, {}, static_cast<double>(process.series_limit));
  set->Gauge(MetricId::kCommunicatorsUsed, {}, static_cast<double>(process.communicators_used));
  set->Gauge(MetricId::kCommunicatorsLimit, {}, static_cast<double>(process.communicator_limit));
  set->SeenCounter(MetricId::kRecycledCommunicators, {}, process.recycled_communicators);
  for (const RecycledCallsSnapshot& recycled : process.recycled_calls) {
    set->Counter(MetricId::kRecycledOperations, {recycled.op}, recycled.calls);
    set->Counter(MetricId::kRecycledOperationBytes, {recycled.op}, recycled.bytes);
  }
}

// As many series for one hang; more suspects than that say the same.
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
  if (hang.is_usual) set->Gauge(MetricId::kHangUsual, {comm}, 1);
}

bool IsQueued(const DiagnosisResult& diagnosis, const CommunicatorSnapshot& communicator) {
  const auto found = std::find_if(
      diagnosis.begin(), diagnosis.end(),
      [&communicator](const auto& each) { return each.comm_id == communicator.comm_id; });
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

// The newest last, so that its gauges are the ones that stay. Process id and index make the order
// the same at every scrape when the times are equal.
std::vector<const ProcessSnapshot*> OldestFirst(const std::vector<ProcessSnapshot>& processes) {
  std::vector<const ProcessSnapshot*> order;
  order.reserve(processes.size());
  for (const ProcessSnapshot& process : processes) order.push_back(&process);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->start_realtime_ns, a->pid) < std::tie(b->start_realtime_ns, b->pid);
  });
  return order;
}

struct CommunicatorOfProcess {
  const ProcessSnapshot* process;
  const CommunicatorSnapshot* communicator;
};

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
  for (const auto& [process, communicator] : communicators) {
    set.SetStaticLabels(process->static_labels);
    AddCommunicator(*process, *communicator, now_realtime_ns, snapshots.stands_after_ns, &set);
    if (process->end == ProcessEnd::kLive && !communicator->finalized &&
        IsQueued(diagnosis, *communicator)) {
      set.Gauge(MetricId::kActivityQueued, {}, 1);
    }
  }
  for (const CommunicatorDiagnosis& each : diagnosis) AddLosses(each, &set);
  set.SetStaticLabels(snapshots.server_labels);
  set.SetScope(MetricScope::kServer, {});
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (each.hang) AddHang(each, &set);
  }
  set.Summary(MetricId::kScrapeDuration, {}, stats.pages, stats.seconds);
  set.Gauge(MetricId::kProcesses, {}, static_cast<double>(snapshots.processes.size()));
  set.Counter(MetricId::kSegmentsRead, {}, stats.segments_read);
  for (int i = 0; i < kRejections; ++i) {
    set.SeenCounter(MetricId::kSegmentsRejected, {RejectionName(static_cast<Rejection>(i))},
                    snapshots.rejected[i]);
  }
  return std::move(set).Take();
}

}  // namespace nccl_pulse
