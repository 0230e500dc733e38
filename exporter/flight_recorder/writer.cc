#include "exporter/flight_recorder/writer.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/json_field.h"
#include "exporter/flight_recorder/names.h"
#include "exporter/flight_recorder/pickle.h"
#include "exporter/flight_recorder/writable_job.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse::flight_recorder {
namespace {

// Returns the job ranks, in the form that torchfrtrace's ast.literal_eval reads.
std::string RanksText(const Communicator& communicator) {
  std::string text = "[";
  std::set<int> ranks;
  for (const auto& [rank, global] : communicator.global) ranks.insert(global);
  for (const int rank : ranks) absl::StrAppend(&text, text.size() > 1 ? ", " : "", rank);
  return text + "]";
}

struct Entry {
  const Communicator* communicator;
  const Json* call;
  int pg_id;
};

void WriteSizes(Pickle* out, const char* key, bool is_known, int64_t elements) {
  out->Key(key).BeginList().BeginList();
  if (is_known) out->Integer(elements);
  out->EndList().EndList();
}

void WriteEntry(Pickle* out, const Entry& entry, int64_t record_id) {
  const Json& call = *entry.call;
  const Operation& operation = *FindOperation(TextAt(call, "op"));
  const DataType* datatype = FindDataType(TextAt(call, "datatype"));
  const int64_t number = NumberAt(call, "number");
  const int64_t collective = NumberAt(call, "collective");
  out->BeginDict();
  out->Key("record_id").Integer(record_id);
  out->Key("pg_id").Integer(entry.pg_id);
  out->Key("process_group")
      .Pair(entry.communicator->id,
            entry.communicator->name.empty() ? "undefined" : entry.communicator->name);
  out->Key("collective_seq_id").Integer(collective);
  out->Key("p2p_seq_id").Integer(number - collective);
  out->Key("op_id").Integer(number);
  out->Key("profiling_name").Text(absl::StrCat("nccl:", operation.torch));
  const Json& launched = At(call, "launched");
  out->Key("time_created_ns");
  if (launched.is_number()) {
    out->Integer(static_cast<int64_t>(launched.get<double>() * 1e6) * 1000);
  } else {
    out->None();
  }
  const int64_t elements = datatype != nullptr ? NumberAt(call, "bytes") / datatype->bytes : 0;
  const bool is_sized = datatype != nullptr;
  const int64_t all = elements * entry.communicator->nranks;
  WriteSizes(out, "input_sizes", is_sized && operation.input_known,
             operation.input_of_all ? all : elements);
  WriteSizes(out, "output_sizes", is_sized && operation.output_known,
             operation.output_of_all ? all : elements);
  for (const char* key : {"input_dtypes", "output_dtypes"}) {
    out->Key(key).BeginList();
    if (datatype != nullptr) out->Text(datatype->torch);
    out->EndList();
  }
  const std::string state = TextAt(call, "state");
  const Json& begun = At(call, "begun");
  const bool has_begun =
      begun.is_boolean() && begun.get<bool>() && entry.communicator->unsure.count(collective) == 0;
  out->Key("state").Text(state == "completed" ? "completed" : has_begun ? "started" : "scheduled");
  out->Key("time_discovered_started_ns").None();
  out->Key("time_discovered_completed_ns").None();
  const Json& seconds = At(call, "seconds");
  if (seconds.is_number()) out->Key("duration_ms").Real(seconds.get<double>() * 1e3);
  out->Key("is_p2p").Bool(false);
  out->EndDict();
}

std::string WriteDump(const std::vector<const Communicator*>& groups, std::vector<Entry> entries,
                      int64_t written_ns) {
  Pickle out;
  out.BeginDict();
  out.Key("version").Text("2.4");
  out.Key(kWrittenKey).Integer(written_ns);
  out.Key("pg_config").BeginDict();
  for (const Communicator* group : groups) {
    out.Key(group->id).BeginDict();
    out.Key("name").Text(group->id);
    out.Key("desc").Text(group->name.empty() ? "undefined" : group->name);
    out.Key("ranks").Text(RanksText(*group));
    out.EndDict();
  }
  out.EndDict();
  out.Key("pg_status").BeginDict();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    int64_t enqueued = -1;
    int64_t completed = -1;
    for (const Entry& entry : entries) {
      if (entry.communicator != groups[i]) continue;
      enqueued = std::max(enqueued, NumberAt(*entry.call, "collective"));
      if (TextAt(*entry.call, "state") != "completed") continue;
      completed = std::max(completed, NumberAt(*entry.call, "collective"));
    }
    out.Key(absl::StrCat(i)).BeginDict();
    if (enqueued >= 0) out.Key("last_enqueued_collective").Integer(enqueued);
    if (completed >= 0) out.Key("last_completed_collective").Integer(completed);
    out.EndDict();
  }
  out.EndDict();
  // In launch order; calls without a time stay behind the previous one of their rank.
  out.Key("entries").BeginList();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    WriteEntry(&out, entries[i], static_cast<int64_t>(i));
  }
  out.EndList();
  out.EndDict();
  return out.Finish();
}

// Sorts by launch time; a communicator's calls keep their order.
void Sort(std::vector<Entry>* entries) {
  std::map<const Communicator*, double> last;
  std::vector<std::pair<double, Entry>> timed;
  for (const Entry& entry : *entries) {
    const Json& launched = At(*entry.call, "launched");
    double& time = last[entry.communicator];
    if (launched.is_number()) time = std::max(time, launched.get<double>());
    timed.emplace_back(time, entry);
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < timed.size(); ++i) (*entries)[i] = timed[i].second;
}

}  // namespace
}  // namespace nccl_pulse::flight_recorder

namespace nccl_pulse {

using flight_recorder::Communicator;
using flight_recorder::Entry;
using flight_recorder::Json;

FlightRecorderDumps WriteFlightRecorder(const std::vector<Json>& pages) {
  FlightRecorderDumps dumps;
  const std::map<std::string, Communicator> communicators =
      flight_recorder::FindCommunicators(pages, &dumps.left_out);
  std::map<int, std::vector<const Communicator*>> groups;
  std::map<int, std::vector<Entry>> entries;
  int64_t others = 0;
  for (const auto& [id, communicator] : communicators) {
    for (const auto& [number, rank] : communicator.ranks) {
      const int global = communicator.global.at(number);
      groups[global].push_back(&communicator);
      const int pg_id = static_cast<int>(groups[global].size()) - 1;
      const Json& calls = At(rank, "calls");
      for (const Json& call : calls) {
        if (!flight_recorder::IsWritten(call)) {
          ++others;
        } else if (const int64_t collective = NumberAt(call, "collective");
                   collective >= communicator.first &&
                   communicator.skipped.count(collective) == 0) {
          entries[global].push_back({&communicator, &call, pg_id});
        }
      }
    }
  }
  if (others > 0) {
    dumps.left_out.push_back(
        absl::StrCat(others,
                     " calls that the tool could not read: Send and Recv without their peer, and "
                     "ReduceScatter of a type that is not known"));
  }
  int64_t written_ns = 0;
  for (const Json& page : pages) written_ns = std::max(written_ns, TimeAt(page, "time"));
  for (auto& [rank, of_rank] : groups) {
    flight_recorder::Sort(&entries[rank]);
    dumps.by_rank[rank] = flight_recorder::WriteDump(of_rank, entries[rank], written_ns);
  }
  return dumps;
}

}  // namespace nccl_pulse
