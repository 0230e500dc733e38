#include "tests/fleet/hostile_dump.h"

#include <utility>
#include <vector>

#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/job_verdict.h"
#include "exporter/flight_recorder/dump.h"
#include "exporter/flight_recorder/pickle.h"
#include "exporter/flight_recorder/snapshots.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::ordered_json;

Json Entry(int64_t record, const char* group, int64_t collective, int64_t peer,
           const std::string& name, const char* state) {
  const int64_t time_ns = 1760000000000000000 + record * 1000000;
  const bool is_completed = std::string_view(state) == "completed";
  return {{"record_id", record},
          {"pg_id", group[0] - '0'},
          {"process_group", {group, "a group"}},
          {"collective_seq_id", collective},
          {"p2p_seq_id", peer},
          {"profiling_name", "nccl:" + name},
          {"input_sizes", {{4, 1024}}},
          {"input_dtypes", {"BFloat16"}},
          {"output_sizes", {{4, 1024}}},
          {"output_dtypes", {"BFloat16"}},
          {"state", state},
          {"is_p2p", peer != 0},
          {"time_created_ns", time_ns},
          {"time_discovered_started_ns", nullptr},
          {"time_discovered_completed_ns", is_completed ? Json(time_ns + 1000) : Json(nullptr)},
          {"timeout_ms", 600000}};
}

Json HonestDump(int rank) {
  Json entries = Json::array();
  const auto add = [&entries](const char* group, int64_t collective, int64_t peer,
                              const std::string& name, const char* state) {
    entries.push_back(
        Entry(static_cast<int64_t>(entries.size()), group, collective, peer, name, state));
  };
  for (int i = 1; i <= 4; ++i) add("0", i, 0, "all_reduce", "completed");
  add("0", 5, 0, "all_reduce", "scheduled");
  add("0", 5, 0, "all_reduce", "scheduled");
  add("0", 5, 0, "coalesced", "completed");
  const std::string peers = rank < 2 ? "send 0->1" : "recv 1<-0";
  add("1", 0, 1, peers, rank == 3 ? "completed" : "scheduled");
  if (rank != 2) add("0", 6, 0, "all_to_all", "scheduled");
  return {
      {"version", "2.10"},
      {"pg_config",
       {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1, 2, 3]"}}},
        {"1", {{"name", "1"}, {"desc", "pairs"}, {"ranks", rank % 2 == 0 ? "[0, 2]" : "[1, 3]"}}}}},
      {"pg_status", {{"0", {{"last_enqueued_collective", 6}, {"last_completed_collective", 5}}}}},
      {"entries", std::move(entries)}};
}

void Write(const Json& json, Pickle* pickle) {
  if (json.is_object()) {
    pickle->BeginDict();
    for (const auto& [key, value] : json.items()) Write(value, &pickle->Key(key));
    pickle->EndDict();
  } else if (json.is_array()) {
    pickle->BeginList();
    for (const Json& value : json) Write(value, pickle);
    pickle->EndList();
  } else if (json.is_string()) {
    pickle->Text(json.get<std::string>());
  } else if (json.is_boolean()) {
    pickle->Bool(json.get<bool>());
  } else if (json.is_number()) {
    pickle->Integer(json.get<int64_t>());
  } else {
    pickle->None();
  }
}

}  // namespace

std::string HonestPickle(int rank) {
  Pickle pickle;
  Write(HonestDump(rank), &pickle);
  return pickle.Finish();
}

std::string HonestJson(int rank) { return HonestDump(rank).dump(); }

std::string ReadAndCheck(std::string_view bytes) {
  flight_recorder::Common common;
  std::vector<flight_recorder::Dump> dumps(1);
  std::string error;
  const auto parsed = flight_recorder::ParseDump(bytes, &common, &dumps.front(), &error);
  if ((parsed == flight_recorder::Parsed::kDamaged) == error.empty()) {
    return "it is damaged without a reason, or the other way about";
  }
  if (parsed != flight_recorder::Parsed::kDump) return "";
  const flight_recorder::Dump& dump = dumps.front();
  for (const flight_recorder::Membership& each : dump.groups) {
    if (each.collectives.size() > flight_recorder::kMostCalls) return "more calls than are read";
  }
  const int64_t now_ns = dump.newest_ns + 20'000'000'000;
  const auto snapshots = flight_recorder::MakeSnapshots(dumps, now_ns, common);
  for (const ProcessSnapshot& process : snapshots.set.processes) {
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.launches_completed > communicator.launches) return "completed, not launched";
      if (communicator.rank < 0 || communicator.rank >= communicator.nranks) return "no such rank";
      if (communicator.call_order.calls.size() > CallOrderSnapshot::kMostCalls) return "long order";
    }
  }
  const DiagnosisResult diagnosis = Diagnosis().Update(snapshots.set, now_ns);
  JudgeJob(snapshots.set, diagnosis, now_ns);
  return "";
}

}  // namespace nccl_pulse
