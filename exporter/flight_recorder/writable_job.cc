#include "exporter/flight_recorder/writable_job.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/json_field.h"
#include "exporter/flight_recorder/names.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse::flight_recorder {
namespace {

// Returns communicators with all ranks, if every rank is known.
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
  return absl::StrCat(TextAt(rank, "hostname"), " ", NumberAt(rank, "pid"), " ",
                      NumberAt(rank, "pid_namespace"));
}

// Returns every process' rank in the job.
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

// Returns the largest of the ranks' first collectives.
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

// Finds collectives to leave out of all dumps: if the call of some rank cannot be written, or if
// states differ only because one rank's completions become known later. torchfrtrace reports any
// two different states as an error. Returns the number of collectives whose states differ.
int64_t FindSkipped(Communicator* communicator) {
  struct Known {
    bool completed = false;
    bool unsure = false;  // may have completed
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
      // Completions may be known only up to a later marker: calls before the newest one may have
      // completed.
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

}  // namespace

bool IsWritten(const Json& call) {
  const Operation* operation = FindOperation(TextAt(call, "op"));
  if (NumberAt(call, "collective") <= 0 || operation == nullptr) return false;
  // If torchfrtrace compares the two sizes, a missing one would count as wrong.
  const bool is_compared = operation->input_of_all && !operation->output_of_all;
  return !is_compared || FindDataType(TextAt(call, "datatype")) != nullptr;
}

std::map<std::string, Communicator> FindCommunicators(const std::vector<Json>& pages,
                                                      std::vector<std::string>* left_out) {
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
      left_out->push_back(absl::StrCat("communicator ", communicator.id,
                                       ": the global rank is known for ", known, " of ",
                                       communicator.nranks, " ranks"));
      it = communicators.erase(it);
      continue;
    }
    if (!HasAllCalls(communicator)) {
      left_out->push_back(absl::StrCat(
          "communicator ", communicator.id,
          ": some of its ranks have no last calls, and torchfrtrace would report them as missing"));
      it = communicators.erase(it);
      continue;
    }
    communicator.first = FirstOfAll(communicator);
    const int64_t differing = FindSkipped(&communicator);
    if (differing > 0) {
      left_out->push_back(absl::StrCat(
          differing, " collectives of communicator ", communicator.id,
          ": some ranks have completed them, and the state on others is not known yet"));
    }
    ++it;
  }
  return communicators;
}

}  // namespace nccl_pulse::flight_recorder
