#include "exporter/fleet/flight_recorder.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/fleet/pickle.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

const Json& At(const Json& object, const char* key) {
  static const Json* const nothing = new Json(nullptr);
  if (!object.is_object()) return *nothing;
  const auto found = object.find(key);
  return found == object.end() ? *nothing : *found;
}
std::string TextAt(const Json& object, const char* key) {
  const Json& value = At(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}
int64_t NumberAt(const Json& object, const char* key, int64_t otherwise = 0) {
  const Json& value = At(object, key);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

// NCCL's names, and what PyTorch and the tool call the same (types.py, COLLECTIVES).
struct Operation {
  const char* nccl;
  const char* torch;
  bool input_of_all, output_of_all;  // as many elements as all ranks pass together
  bool input_known, output_known;    // on every rank: else on the root alone
};
constexpr Operation kOperations[] = {
    {"AllReduce", "all_reduce", false, false, true, true},
    {"AllGather", "_all_gather_base", false, true, true, true},
    {"ReduceScatter", "_reduce_scatter_base", true, false, true, true},
    {"Broadcast", "broadcast", false, false, true, true},
    {"Reduce", "reduce", false, false, true, true},
    {"AlltoAll", "all_to_all", true, true, true, true},
    {"Gather", "gather", false, true, true, false},
    {"Scatter", "scatter", true, false, false, true},
};
const Operation* FindOperation(const std::string& name) {
  for (const Operation& each : kOperations) {
    if (name == each.nccl) return &each;
  }
  return nullptr;
}

// nccl.h's types by the names of c10::ScalarType, and their bytes.
struct DataType {
  const char* nccl;
  const char* torch;
  int64_t bytes;
};
constexpr DataType kDataTypes[] = {
    {"ncclInt8", "Char", 1},
    {"ncclUint8", "Byte", 1},
    {"ncclInt32", "Int", 4},
    {"ncclUint32", "UInt32", 4},
    {"ncclInt64", "Long", 8},
    {"ncclUint64", "UInt64", 8},
    {"ncclFloat16", "Half", 2},
    {"ncclFloat32", "Float", 4},
    {"ncclFloat64", "Double", 8},
    {"ncclBfloat16", "BFloat16", 2},
    {"ncclFloat8e4m3", "Float8_e4m3fn", 1},
    {"ncclFloat8e5m2", "Float8_e5m2", 1},
};
const DataType* FindDataType(const std::string& name) {
  for (const DataType& each : kDataTypes) {
    if (name == each.nccl) return &each;
  }
  return nullptr;
}

struct Communicator {
  std::string id, name;
  int64_t nranks = 0;
  std::map<int64_t, Json> ranks;  // what was said of each
  std::map<int64_t, int> global;  // ... and its number in the job
  int64_t first = 1;              // collective from which on all ranks have theirs
  std::set<int64_t> skipped;      // collectives that no rank's dump has
  std::set<int64_t> unsure;       // ... of which it is not known everywhere whether they have begun
};

// As the tool's ast.literal_eval reads it.
std::string RanksText(const Communicator& communicator) {
  std::string text = "[";
  std::set<int> ranks;
  for (const auto& [rank, global] : communicator.global) ranks.insert(global);
  for (const int rank : ranks) absl::StrAppend(&text, text.size() > 1 ? ", " : "", rank);
  return text + "]";
}

// All ranks, where every one of them is known.
std::map<std::string, Communicator> Gather(const std::vector<Json>& pages) {
  std::map<std::string, Communicator> communicators;
  for (const Json& page : pages) {
    const std::string id = TextAt(page, "comm");
    if (id.empty()) continue;
    Communicator& communicator = communicators[id];
    communicator.id = id;
    if (communicator.name.empty()) communicator.name = TextAt(page, "name");
    communicator.nranks = std::max(communicator.nranks, NumberAt(page, "nranks"));
    const Json& ranks = At(page, "ranks");
    if (!ranks.is_array()) continue;
    for (const Json& rank : ranks) {
      const int64_t number = NumberAt(rank, "rank", -1);
      if (number >= 0 && number < communicator.nranks) communicator.ranks.emplace(number, rank);
    }
  }
  return communicators;
}

std::string ProcessOf(const Json& rank) {
  return absl::StrCat(TextAt(rank, "hostname"), " ", NumberAt(rank, "pid"));
}

// Every process' number in the job.
std::map<std::string, int> NumberProcesses(
    const std::map<std::string, Communicator>& communicators) {
  std::map<std::string, int> numbers;
  std::set<std::string> processes;
  for (const auto& [id, communicator] : communicators) {
    for (const auto& [number, rank] : communicator.ranks) {
      processes.insert(ProcessOf(rank));
      int global = 0;
      if (absl::SimpleAtoi(TextAt(rank, "global_rank"), &global) && global >= 0) {
        numbers[ProcessOf(rank)] = global;
      }
    }
  }
  if (!numbers.empty()) return numbers;
  for (const auto& [id, communicator] : communicators) {
    std::map<std::string, int> of_this;
    for (const auto& [number, rank] : communicator.ranks) {
      of_this[ProcessOf(rank)] = static_cast<int>(number);
    }
    const bool has_all =
        of_this.size() == processes.size() && of_this.size() == communicator.ranks.size();
    if (has_all) return of_this;
  }
  return numbers;
}

bool IsWritten(const Json& call) {
  const Operation* operation = FindOperation(TextAt(call, "op"));
  if (NumberAt(call, "collective") <= 0 || operation == nullptr) return false;
  // Where the tool compares the two sizes with each other, none would be taken for a wrong one.
  const bool is_compared = operation->input_of_all && !operation->output_of_all;
  return !is_compared || FindDataType(TextAt(call, "datatype")) != nullptr;
}

// The largest of the first collectives of the ranks that have some.
int64_t FirstOfAll(const Communicator& communicator) {
  int64_t first = 1;
  for (const auto& [number, rank] : communicator.ranks) {
    const Json& calls = At(rank, "calls");
    if (!calls.is_array()) continue;
    const auto found = std::find_if(calls.begin(), calls.end(), IsWritten);
    if (found != calls.end()) first = std::max(first, NumberAt(*found, "collective"));
  }
  return first;
}

// The tool takes any two states of a collective that differ for an error. What differs only because
// one rank's completions are known later than another's is therefore in no dump, and neither is
// what cannot be written for some rank: it would be missing there. Returns how many states differed.
int64_t FindSkipped(Communicator* communicator) {
  struct Known {
    bool completed = false;
    bool unsure = false;  // it may have completed
    bool begun_unknown = false;
  };
  std::map<int64_t, Known> collectives;
  std::set<int64_t> not_written;
  for (const auto& [number, rank] : communicator->ranks) {
    const Json& calls = At(rank, "calls");
    for (const Json& call : calls) {
      const int64_t collective = NumberAt(call, "collective");
      if (collective <= 0) continue;
      if (!IsWritten(call)) not_written.insert(collective);
      Known& known = collectives[collective];
      const Json& begun = At(call, "begun");
      if (TextAt(call, "state") == "completed") {
        known.completed = true;
        continue;
      }
      if (!begun.is_boolean()) known.begun_unknown = true;
      // Completions may be known to a marker behind it alone: what was called before the newest call
      // can have completed.
      const bool is_known =
          TextAt(call, "state") == "in_flight" && begun.is_boolean() && &call == &calls.back();
      if (!is_known) known.unsure = true;
    }
  }
  int64_t differing = 0;
  for (const auto& [collective, known] : collectives) {
    if (collective < communicator->first) continue;
    const bool is_differing = known.completed && known.unsure;
    if (is_differing) ++differing;
    if (is_differing || not_written.count(collective) != 0) {
      communicator->skipped.insert(collective);
    } else if (known.begun_unknown) {
      communicator->unsure.insert(collective);
    }
  }
  return differing;
}

bool HasAllCalls(const Communicator& communicator) {
  return std::all_of(communicator.ranks.begin(), communicator.ranks.end(),
                     [](const auto& each) { return At(each.second, "calls").is_array(); });
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

std::string WriteDump(const std::vector<const Communicator*>& groups, std::vector<Entry> entries) {
  Pickle out;
  out.BeginDict();
  out.Key("version").Text("2.4");
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
  // As they were launched; those without a time stay behind the one that their rank called before.
  out.Key("entries").BeginList();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    WriteEntry(&out, entries[i], static_cast<int64_t>(i));
  }
  out.EndList();
  out.EndDict();
  return out.Finish();
}

// In the order of their launches, those of one communicator in theirs.
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

FlightRecorderDumps WriteFlightRecorder(const std::vector<Json>& pages) {
  FlightRecorderDumps dumps;
  std::map<std::string, Communicator> communicators = Gather(pages);
  const std::map<std::string, int> numbers = NumberProcesses(communicators);
  for (auto it = communicators.begin(); it != communicators.end();) {
    Communicator& communicator = it->second;
    std::set<int> distinct;
    for (const auto& [number, rank] : communicator.ranks) {
      const auto found = numbers.find(ProcessOf(rank));
      if (found == numbers.end()) continue;
      communicator.global[number] = found->second;
      distinct.insert(found->second);
    }
    const auto known = static_cast<int64_t>(distinct.size());
    if (known != communicator.nranks || communicator.nranks <= 0) {
      dumps.left_out.push_back(
          absl::StrCat("communicator ", communicator.id, ": of its ", communicator.nranks,
                       " ranks the number in the job is known of ", known, " alone"));
      it = communicators.erase(it);
      continue;
    }
    if (!HasAllCalls(communicator)) {
      dumps.left_out.push_back(
          absl::StrCat("communicator ", communicator.id,
                       ": not all of its ranks have last calls, and the tool would take those "
                       "without for missing in each"));
      it = communicators.erase(it);
      continue;
    }
    communicator.first = FirstOfAll(communicator);
    const int64_t differing = FindSkipped(&communicator);
    if (differing > 0) {
      dumps.left_out.push_back(absl::StrCat(
          differing, " collectives of communicator ", communicator.id,
          ", on all ranks: some ranks have completed them, of others it is not known yet"));
    }
    ++it;
  }
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
        if (!IsWritten(call)) {
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
  for (auto& [rank, of_rank] : groups) {
    Sort(&entries[rank]);
    dumps.by_rank[rank] = WriteDump(of_rank, entries[rank]);
  }
  return dumps;
}

}  // namespace nccl_pulse
