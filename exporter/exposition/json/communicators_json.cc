#include "exporter/exposition/json/communicators_json.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_text.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/facts/same_ids.h"
#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/waits/hang.h"
#include "exporter/diagnosis/waits/usual_wait.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/exposition/captured_kind.h"
#include "exporter/exposition/json/latency_json.h"
#include "metrics/driver_error.h"
#include "metrics/size_class.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::ordered_json;

Json TimeOrNull(int64_t realtime_ns) {
  return realtime_ns == 0 ? Json(nullptr) : Json(SecondsToMicrosecond(realtime_ns));
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json ProcessJson(const ProcessSnapshot& process) {
  return {{"pid", process.pid},
          {"state", ProcessEndName(process.end)},
          {"ended", TimeOrNull(process.end_realtime_ns)},
          {"hostname", TextOrNull(process.hostname)},
          {"pid_namespace", process.pid_namespace},
          {"seen_pid", process.seen_pid > 0 ? Json(process.seen_pid) : Json(nullptr)},
          {"user", process.user >= 0 ? Json(process.user) : Json(nullptr)},
          {"host_pid", HostPid(process) > 0 ? Json(HostPid(process)) : Json(nullptr)},
          {"global_rank", TextOrNull(process.global_rank)},
          {"local_rank", TextOrNull(process.local_rank)},
          {"job_id", TextOrNull(process.job_id)},
          {"last_poll", TimeOrNull(process.last_poll_realtime_ns)},
          {"poller_started", process.poller != PollerState::kNotStarted},
          {"run_state", process.run_state == RunState::kUnknown
                            ? Json(nullptr)
                            : Json(RunStateName(process.run_state))},
          {"event_mask_changes", process.event_mask_changes},
          {"foreign_event_mask",
           process.event_mask_changes == 0
               ? Json(nullptr)
               : Json(absl::StrCat("0x", absl::Hex(process.foreign_event_mask)))}};
}

// Returns the last call. Its number is the count of such calls in this size.
Json LastCallJson(const CommunicatorSnapshot& comm) {
  if (comm.last_call_op.empty()) return nullptr;
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : comm.calls) {
    if (call.op == comm.last_call_op && call.size_class == comm.last_call_size_class) {
      calls += call.calls;
    }
  }
  return {{"op", comm.last_call_op},
          {"size", SizeClassName(comm.last_call_size_class)},
          {"calls", calls}};
}

// Same values as on /metrics.
Json LaunchesJson(const CommunicatorSnapshot& comm, const RankActivity& activity) {
  Json json = {{"made", comm.launches},
               {"completed", nullptr},
               {"in_flight", nullptr},
               {"in_flight_since", nullptr}};
  if (!comm.has_heartbeat) return json;
  json["completed"] = comm.launches_completed;
  const std::optional<uint64_t> in_flight = LaunchesInFlight(comm, activity);
  if (!in_flight) return json;
  json["in_flight"] = *in_flight;
  if (activity.is_in_flight())
    json["in_flight_since"] = SecondsToMicrosecond(activity.since_realtime_ns);
  return json;
}

Json BegunJson(const RankActivity& activity) {
  if (activity.oldest_launch == OldestLaunch::kUnknown) return nullptr;
  return activity.oldest_launch == OldestLaunch::kBegun;
}

// Returns what stamps show of the communicator's graph replays.
Json ReplaysJson(const CommunicatorSnapshot& comm) {
  const GraphPosition& position = comm.graph_position;
  if (position.followed == 0) return nullptr;
  Json last = nullptr;
  if (position.graph != 0) {
    last = {{"graph", position.graph},
            {"stamp", position.passed},
            {"stamps", position.stamps},
            {"calls_before", position.calls_before},
            {"calls_until", position.calls_until},
            {"calls", position.calls},
            {"passed", TimeOrNull(comm.graph_moved_realtime_ns)}};
  }
  return {{"graphs", position.captures},
          {"followed", position.followed},
          {"begun", comm.graph_replays},
          {"in_flight", comm.graph_replays_in_flight},
          {"last", std::move(last)}};
}

// Returns NCCL's own counter of finished work.
Json WorkJson(const CommunicatorSnapshot& comm) {
  const WorkSnapshot& work = comm.work;
  if (work.state == WorkState::kOff) return nullptr;
  const CapturedKind kind = work.are_operations_known ? CapturedKindOf(comm) : CapturedKind();
  Json reason = nullptr;
  if (work.state == WorkState::kRefuted) reason = WorkRefutalName(work.refutal);
  return {
      {"state", WorkStateName(work.state)},
      {"reason", std::move(reason)},
      {"operations", work.are_operations_known ? Json(work.operations) : Json(nullptr)},
      {"op", TextOrNull(std::string(kind.op))},
      {"size", kind.has_size() ? Json(SizeClassName(kind.size_class)) : Json(nullptr)},
      {"moved", TimeOrNull(work.moved_realtime_ns)},
      {"longest_pause", Seconds(work.longest_pause_ns)},
      {"gpu", work.gpu_use == GpuUse::kUnknown ? Json(nullptr) : Json(GpuUseName(work.gpu_use))}};
}

Json UnknownJson(const RankActivity& activity) {
  return activity.is_unknown() ? Json(UnknownReasonName(activity.reason)) : Json(nullptr);
}

Json LongestWaitsJson(const CommunicatorSnapshot& comm) {
  Json json = Json::array();
  for (const LongestWaitSnapshot& wait : comm.longest_waits) {
    if (wait.longest_ns < kLeastLongWaitNs) continue;
    json.push_back({{"op", wait.op},
                    {"size", SizeClassName(wait.size_class)},
                    {"seconds", Seconds(wait.longest_ns)},
                    {"until", TimeOrNull(wait.counts_until_realtime_ns)}});
  }
  return json;
}

Json DriverErrorJson(const CommunicatorSnapshot& comm) {
  if (comm.driver_error == 0) return nullptr;
  const char* name = DriverErrorName(comm.driver_error);
  return {{"code", comm.driver_error},
          {"name", name == nullptr ? Json(nullptr) : Json(name)},
          {"since", TimeOrNull(comm.driver_error_realtime_ns)}};
}

Json LastTimedJson(const CommunicatorSnapshot& comm) {
  const auto last = std::max_element(comm.timed_calls.begin(), comm.timed_calls.end(),
                                     [](const TimedCallSnapshot& a, const TimedCallSnapshot& b) {
                                       return a.end_realtime_ns < b.end_realtime_ns;
                                     });
  if (last == comm.timed_calls.end()) return nullptr;
  return {{"op", last->op},
          {"size", SizeClassName(last->size_class)},
          {"bytes", last->bytes},
          {"seconds", Seconds(last->duration_ns)},
          {"ended", TimeOrNull(last->end_realtime_ns)},
          {"call", last->call_number}};
}

Json OperationsJson(const CommunicatorSnapshot& comm) {
  struct Sum {
    uint64_t calls = 0;
    uint64_t bytes = 0;
    Json sequence = nullptr;
  };
  std::map<std::string, Sum> by_op;
  for (const CallCountSnapshot& call : comm.calls) {
    by_op[call.op].calls += call.calls;
    by_op[call.op].bytes += call.bytes;
  }
  for (const SequenceSnapshot& sequence : comm.sequences) {
    by_op[sequence.op].sequence = sequence.sequence;
  }
  Json json = Json::array();
  for (const auto& [op, sum] : by_op) {
    json.push_back(
        {{"op", op}, {"calls", sum.calls}, {"bytes", sum.bytes}, {"sequence", sum.sequence}});
  }
  return json;
}

Json RankJson(const ProcessSnapshot& process, const CommunicatorSnapshot& comm,
              const CommunicatorDiagnosis* diagnosis, int64_t now_realtime_ns) {
  const RankActivity activity = ActivityOf(process, comm, now_realtime_ns);
  Json loss = nullptr;
  bool waits = false;
  if (diagnosis != nullptr) {
    if (diagnosis->hang) {
      const std::vector<int32_t>& waiting = diagnosis->hang->waiting;
      waits = std::binary_search(waiting.begin(), waiting.end(), comm.rank);
    }
    for (const RankLoss& each : diagnosis->losses) {
      if (each.rank == comm.rank) loss = each.seconds;
    }
  }
  const RankState state =
      StateOf(process, comm, activity, IsStopped(process, now_realtime_ns), waits);
  Json latencies = Json::array();
  for (const LatencySnapshot& latency : comm.latencies) {
    if (latency.histogram.Count() == 0) continue;
    Json json = {{"op", latency.op}, {"size", SizeClassName(latency.size_class)}};
    if (!latency.user_tag.empty()) json["user_tag"] = latency.user_tag;
    json.update(LatencyJson(latency.kind, latency.histogram, latency.bus_bytes));
    latencies.push_back(std::move(json));
  }
  return {{"rank", comm.rank},
          {"index", comm.index},
          {"active", !comm.finalized && process.end == ProcessEnd::kLive},
          {"state", state.name},
          {"state_word", state.word},
          {"state_since", TimeOrNull(state.since_realtime_ns)},
          {"unknown", UnknownJson(activity)},
          {"unknown_because",
           activity.is_unknown() ? Json(UnknownReasonWords(activity.reason)) : Json(nullptr)},
          {"in_flight_since", TimeOrNull(activity.is_in_flight() ? activity.since_realtime_ns : 0)},
          {"begun", BegunJson(activity)},
          {"process", ProcessJson(process)},
          {"gpu",
           {{"index", TextOrNull(comm.gpu)},
            {"uuid", TextOrNull(comm.uuid)},
            {"pci_bus_id", TextOrNull(comm.pci_bus_id)}}},
          {"driver_error", DriverErrorJson(comm)},
          {"captured", comm.captured},
          {"replays", ReplaysJson(comm)},
          {"work", WorkJson(comm)},
          {"launches", LaunchesJson(comm, activity)},
          {"unreported_calls", comm.unreported_calls},
          {"unreported_since", TimeOrNull(comm.unreported_since_realtime_ns)},
          {"longest_waits", LongestWaitsJson(comm)},
          {"last_call", LastCallJson(comm)},
          {"straggler_seconds", std::move(loss)},
          {"last_launch", TimeOrNull(comm.last_launch_realtime_ns)},
          {"last_completion", TimeOrNull(comm.last_completion_realtime_ns)},
          {"last_timed_operation", LastTimedJson(comm)},
          {"operations", OperationsJson(comm)},
          {"latencies", std::move(latencies)}};
}

Json HangJson(const CommunicatorDiagnosis* diagnosis) {
  if (diagnosis == nullptr || !diagnosis->hang) return nullptr;
  const Hang& hang = *diagnosis->hang;
  Json replay = nullptr;
  if (hang.replay.graph != 0) {
    replay = {{"graph", hang.replay.graph},
              {"calls_before", hang.replay.before},
              {"calls_until", hang.replay.until},
              {"calls", hang.replay.calls}};
  }
  Json circle = Json::array();
  for (const CircleStep& step : hang.circle) {
    circle.push_back({{"comm", CommunicatorText(step.comm_id)}, {"rank", step.rank}});
  }
  return {{"verdict", HangVerdictName(hang.verdict)},
          {"meaning", EntryOf(hang.verdict).meaning},
          {"since", SecondsToMicrosecond(hang.since_realtime_ns)},
          {"op", TextOrNull(hang.op)},
          {"suspects", hang.suspects},
          {"waiting", hang.waiting},
          {"circle", std::move(circle)},
          {"replay", std::move(replay)},
          {"longest_wait_before", Seconds(hang.longest_wait_before_ns)},
          {"usual", hang.is_usual},
          {"text", hang.text},
          {"first_step", hang.first_step}};
}

Json QueuedJson(const CommunicatorDiagnosis* diagnosis) {
  if (diagnosis == nullptr || !diagnosis->queued) return nullptr;
  const Queued& queued = *diagnosis->queued;
  return {{"since", SecondsToMicrosecond(queued.since_realtime_ns)},
          {"op", TextOrNull(queued.op)},
          {"ranks", queued.ranks},
          {"text", queued.text}};
}

Json StragglerJson(const CommunicatorDiagnosis* diagnosis) {
  if (diagnosis == nullptr || !diagnosis->has_named_straggler()) return nullptr;
  const Straggler& straggler = *diagnosis->straggler;
  return {{"rank", straggler.rank},
          {"ranks", straggler.ranks},
          {"seconds_per_second", straggler.seconds_per_second},
          {"window_seconds", straggler.window_seconds},
          {"mean_seconds", straggler.mean_seconds},
          {"late_share", straggler.late_share},
          {"matched_calls", straggler.matched_calls},
          {"text", straggler.text},
          {"first_step", straggler.first_step}};
}

Json HealthJson(const Health& health) {
  return {{"status", HealthStatusName(health.status)},
          {"lost_processes", health.lost_processes},
          {"stopped_processes", health.stopped_processes},
          {"failed_gpus", health.failed_gpus},
          {"ranks", health.ranks},
          {"unknown_ranks", health.unknown_ranks},
          {"missing_ranks", health.missing_ranks},
          {"unmeasured_communicators", health.unmeasured_communicators},
          {"idle_since", health.idle_since_realtime_ns == 0
                             ? Json(nullptr)
                             : Json(SecondsToMillisecond(health.idle_since_realtime_ns))},
          {"communicators", health.communicators},
          {"blind_communicators", health.blind_communicators},
          {"notes", health.notes},
          {"summary", health.summary}};
}

using IdAndNumber = std::pair<uint64_t, uint32_t>;

const CommunicatorDiagnosis* FindDiagnosis(const DiagnosisResult& diagnosis,
                                           const IdAndNumber& id) {
  const auto id_of = [](const CommunicatorDiagnosis& each) {
    return IdAndNumber(each.comm_id, each.number);
  };
  const auto found = std::lower_bound(
      diagnosis.begin(), diagnosis.end(), id,
      [&id_of](const auto& each, const IdAndNumber& wanted) { return id_of(each) < wanted; });
  return found != diagnosis.end() && id_of(*found) == id ? &*found : nullptr;
}

struct Rank {
  const ProcessSnapshot* process;
  const CommunicatorSnapshot* communicator;
};

using RanksById = std::map<IdAndNumber, std::vector<Rank>>;

// Adds ranks whose process has ended if others still use their communicator and may wait for them.
void AddEnded(const std::vector<ProcessSnapshot>& ended, const SameIds& same_ids,
              RanksById* by_id) {
  for (const ProcessSnapshot& process : ended) {
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      const auto found = by_id->find({communicator.comm_id, same_ids.NumberOf(communicator)});
      if (communicator.finalized || found == by_id->end()) continue;
      std::vector<Rank>& ranks = found->second;
      const bool in_use = std::any_of(ranks.begin(), ranks.end(), [](const Rank& rank) {
        return !rank.communicator->finalized && rank.process->end == ProcessEnd::kLive;
      });
      const bool known = std::any_of(ranks.begin(), ranks.end(), [&](const Rank& rank) {
        return rank.communicator->rank == communicator.rank;
      });
      if (in_use && !known) ranks.push_back({&process, &communicator});
    }
  }
}

}  // namespace

Json WithoutPluginJson(const std::vector<ProcessWithoutPlugin>& processes) {
  Json json = Json::array();
  for (const ProcessWithoutPlugin& each : processes) {
    json.push_back({{"pid", each.pid},
                    {"user", each.user >= 0 ? Json(each.user) : Json(nullptr)},
                    {"global_rank", TextOrNull(each.global_rank)},
                    {"gpus", each.gpus},
                    {"nccl", TextOrNull(each.nccl_version)},
                    {"stopped", TextOrNull(each.stopped)},
                    {"since", TimeOrNull(each.start_realtime_ns)}});
  }
  return json;
}

std::string CommunicatorsJson(const SnapshotSet& snapshots, int64_t now_realtime_ns,
                              const DiagnosisResult& diagnosis,
                              const std::vector<ProcessWithoutPlugin>* without_plugin) {
  RanksById by_id;
  const SameIds same_ids(snapshots);
  for (const ProcessSnapshot& process : snapshots.processes) {
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      by_id[{communicator.comm_id, same_ids.NumberOf(communicator)}].push_back(
          {&process, &communicator});
    }
  }
  AddEnded(snapshots.ended, same_ids, &by_id);
  Json communicators = Json::array();
  for (auto& [id, ranks] : by_id) {
    std::stable_sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
      return a.communicator->rank < b.communicator->rank;
    });
    const CommunicatorSnapshot& first = *ranks.front().communicator;
    const CommunicatorDiagnosis* found = FindDiagnosis(diagnosis, id);
    Json list = Json::array();
    std::vector<const CommunicatorSnapshot*> snapshots_of_ranks;
    for (const Rank& rank : ranks) {
      snapshots_of_ranks.push_back(rank.communicator);
      list.push_back(RankJson(*rank.process, *rank.communicator, found, now_realtime_ns));
    }
    communicators.push_back({{"comm", CommunicatorText(id.first)},
                             {"name", TextOrNull(first.name)},
                             {"nranks", first.nranks},
                             {"nnodes", first.nnodes},
                             {"hang", HangJson(found)},
                             {"queued", QueuedJson(found)},
                             {"note", found == nullptr ? Json() : TextOrNull(found->note)},
                             {"straggler", StragglerJson(found)},
                             {"operations", OperationsOfAllRanks(snapshots_of_ranks)},
                             {"ranks", std::move(list)}});
  }
  const Json json = {
      {"time", SecondsToMicrosecond(now_realtime_ns)},
      {"health", HealthJson(HealthOf(snapshots, diagnosis, now_realtime_ns))},
      {"communicators", std::move(communicators)},
      {"without_plugin",
       without_plugin == nullptr ? Json(nullptr) : WithoutPluginJson(*without_plugin)}};
  return JsonText(json) + "\n";
}

}  // namespace nccl_pulse
