#include "exporter/flight_recorder/dump.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "exporter/base/plain_text.h"
#include "exporter/flight_recorder/entries.h"
#include "exporter/flight_recorder/names.h"
#include "exporter/flight_recorder/values.h"

namespace nccl_pulse::flight_recorder {
namespace {

// No counter gets this far, and sums of such numbers do not overflow.
constexpr int64_t kMostNumber = int64_t{1} << 53;
// Per dump: a pickle can repeat one long list very often.
constexpr std::size_t kMostSteps = 100'000'000;
constexpr std::size_t kMostText = 256;
constexpr std::size_t kBytesOfMembership = 1024;  // mostly the rank's snapshot
constexpr char kTooMuch[] = "it and the dumps before it take too much memory";

std::string Printable(std::string_view text) { return PlainText(text, kMostText); }

// "[0, 4, 8]"
bool ParseRanks(std::string_view text, std::vector<int32_t>* ranks) {
  if (!absl::ConsumePrefix(&text, "[") || !absl::ConsumeSuffix(&text, "]")) return false;
  for (const std::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    int32_t rank = 0;
    if (!absl::SimpleAtoi(part, &rank) || rank < 0) return false;
    ranks->push_back(rank);
  }
  return !ranks->empty();
}

class Reader {
 public:
  Reader(const Values& values, Common* common, Dump* dump, std::string* error)
      : values_(values), common_(common), dump_(dump), error_(error) {}

  bool Read(Value root) {
    if (root.kind != Value::Kind::kDict || values_.TextOf(values_.At(root, "version")).empty() ||
        values_.At(root, "pg_config").kind != Value::Kind::kDict) {
      return Fail("it is not a dump of PyTorch's Flight Recorder");
    }
    version_ = Printable(values_.TextOf(values_.At(root, "version")));
    dump_->written_ns = TimeOf(values_.At(root, kWrittenKey));
    if (!ReadGroups(values_.At(root, "pg_config"))) return false;
    const std::vector<Value>& entries = values_.ItemsOf(values_.At(root, "entries"));
    if (entries.size() > kMostCalls) {
      return Fail(absl::StrCat("it has more than ", kMostCalls, " calls"));
    }
    for (const Value entry : entries) {
      if (!ReadEntry(entry)) return false;
    }
    const Value status = values_.At(root, "pg_status");
    const bool has_begun = !values_.ItemsOf(status).empty();
    dump_->is_only_open = has_gaps_ || (!has_completed_ && first_record_.value_or(1) != 0);
    if (entries.empty()) dump_->is_only_open = has_begun;
    dump_->is_from_first = has_completed_ ? !has_gaps_ && first_record_ == 0 : !has_begun;
    ReadStatus(status);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      ReopenUnreturned(dump_->groups[i], &entries_[i]);
      AddEntries(entries_[i], dump_->is_only_open, common_, &dump_->groups[i]);
    }
    return true;
  }

 private:
  bool Fail(std::string what) {
    *error_ = std::move(what);
    return false;
  }

  bool Spend(std::size_t steps) {
    steps_ += steps;
    return steps_ <= kMostSteps || Fail("the same values are in it too often");
  }

  bool ReadGroups(Value config) {
    const std::vector<Value>& items = values_.ItemsOf(config);
    if (items.size() / 2 > kMostGroups) return Fail("it has too many process groups");
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string name = Printable(values_.TextOf(items[i]));
      const std::string_view ranks = values_.TextOf(values_.At(items[i + 1], "ranks"));
      if (!Spend(ranks.size())) return false;
      const Group* group = common_->FindGroup(
          name, Printable(values_.TextOf(values_.At(items[i + 1], "desc"))), ranks);
      if (group == nullptr) return Fail(absl::StrCat("it lacks the ranks of process group ", name));
      group_indices_.emplace(name, dump_->groups.size());
      dump_->groups.emplace_back().group = group;
      common_->Count(kBytesOfMembership);
      if (common_->is_full()) return Fail(kTooMuch);
    }
    entries_.resize(dump_->groups.size());
    return true;
  }

  struct Fields {
    std::string_view name, state;
    std::string group;
    std::optional<int64_t> record, pg_id, collective, point_to_point;
    int64_t created = 0, started = 0, completed = 0, timeout_ms = 0;
    bool is_point_to_point = false;
    bool is_retired = true;
    Value input_sizes, output_sizes, input_types, output_types;
  };

  bool ReadEntry(Value value) {
    Fields entry;
    const std::vector<Value>& items = values_.ItemsOf(value);
    if (value.kind != Value::Kind::kDict) return Fail("an entry is not a dictionary");
    if (!Spend(std::min(items.size(), 2 * Values::kMostFields))) return false;
    for (std::size_t i = 0; i + 1 < items.size() && i < 2 * Values::kMostFields; i += 2) {
      Take(values_.TextOf(items[i]), items[i + 1], &entry);
    }
    if (!entry.collective) {
      return Fail(
          absl::StrCat("its calls have no collective_seq_id: a PyTorch that is too old wrote "
                       "it (its version is ",
                       version_, ")"));
    }
    const auto is_number = [](int64_t number) { return number >= 0 && number <= kMostNumber; };
    if (!is_number(*entry.collective) || !is_number(entry.point_to_point.value_or(0)) ||
        !is_number(entry.record.value_or(0))) {
      return Fail("the number of a call is out of range");
    }
    Follow(entry);
    return AddEntry(entry);
  }

  void Take(std::string_view key, Value value, Fields* entry) {
    const auto integer = [this, value] { return values_.IntegerOf(value); };
    if (key == "record_id") {
      entry->record = integer();
    } else if (key == "pg_id") {
      entry->pg_id = integer();
    } else if (key == "process_group") {
      const std::vector<Value>& pair = values_.ItemsOf(value);
      if (!pair.empty()) entry->group = Printable(values_.TextOf(pair.front()));
    } else if (key == "collective_seq_id") {
      entry->collective = integer();
    } else if (key == "p2p_seq_id") {
      entry->point_to_point = integer();
    } else if (key == "profiling_name") {
      entry->name = values_.TextOf(value);
    } else if (key == "state") {
      entry->state = values_.TextOf(value);
    } else if (key == "is_p2p") {
      entry->is_point_to_point = value.kind == Value::Kind::kBool && value.number != 0;
    } else if (key == "retired") {
      entry->is_retired = value.kind != Value::Kind::kBool || value.number != 0;
    } else if (key == "time_created_ns") {
      entry->created = TimeOf(value);
    } else if (key == "time_discovered_started_ns") {
      entry->started = TimeOf(value);
    } else if (key == "time_discovered_completed_ns") {
      entry->completed = TimeOf(value);
    } else if (key == "timeout_ms") {
      entry->timeout_ms = integer().value_or(0);
    } else if (key == "input_sizes") {
      entry->input_sizes = value;
    } else if (key == "output_sizes") {
      entry->output_sizes = value;
    } else if (key == "input_dtypes") {
      entry->input_types = value;
    } else if (key == "output_dtypes") {
      entry->output_types = value;
    }
  }

  int64_t TimeOf(Value value) const {
    // Half the range, so that differences also fit.
    const int64_t ns = values_.IntegerOf(value).value_or(0);
    return ns > 0 && ns < INT64_MAX / 2 ? ns : 0;
  }

  // PyTorch aborts a communicator, with its kernels, in which a call takes too long.
  static bool IsAborted(const Fields& entry) {
    return entry.timeout_ms > 0 && entry.created != 0 &&
           (entry.completed - entry.created) / 1'000'000 >= entry.timeout_ms;
  }

  // Updates the fields of the dump itself from this entry.
  void Follow(const Fields& entry) {
    dump_->newest_ns = std::max({dump_->newest_ns, entry.created, entry.started, entry.completed});
    if (dump_->oldest_call_ns == 0) dump_->oldest_call_ns = entry.created;
    dump_->has_started |= entry.started != 0 || entry.state == "started";
    has_completed_ |= entry.state == "completed";
    if (entry.state != "completed" && entry.timeout_ms > 0) {
      dump_->timeout_ns = std::min(dump_->timeout_ns / 1'000'000, entry.timeout_ms) * 1'000'000;
    }
    if (!entry.record) return;
    if (!first_record_) first_record_ = entry.record;
    has_gaps_ |= last_record_ && *entry.record != *last_record_ + 1;
    last_record_ = entry.record;
  }

  bool AddEntry(const Fields& entry) {
    const auto group = group_indices_.find(entry.group);
    if (group == group_indices_.end()) return true;  // the dump does not list this group's ranks
    Entry call;
    call.collective = static_cast<uint64_t>(*entry.collective);
    call.point_to_point = static_cast<uint64_t>(entry.point_to_point.value_or(0));
    call.created_ns = entry.created;
    call.completed_ns = entry.completed;
    call.is_retired = entry.is_retired;
    if (entry.state == "completed" && !IsAborted(entry)) {
      call.state = State::kCompleted;
    } else if (entry.state == "started" || entry.state == "completed") {
      call.state = State::kStarted;
    } else if (entry.state != "scheduled") {
      return Fail(absl::StrCat("a call has the state \"", Printable(entry.state), "\""));
    }
    if (entry.pg_id) group_of_status_.emplace(*entry.pg_id, group->second);
    // "nccl:send 0->3"
    const std::string_view whole = entry.name.substr(entry.name.find(':') + 1);
    const std::pair<std::string_view, std::string_view> parts =
        absl::StrSplit(whole, absl::MaxSplits(' ', 1));
    const auto& [name, peers] = parts;
    const bool is_send = name == "send";
    call.is_point_to_point = entry.is_point_to_point || is_send || name == "recv";
    call.is_closing = name == "coalesced" || absl::EndsWith(name, "_coalesced");
    if (call.is_point_to_point && !call.is_closing) {
      const std::size_t at = peers.find_first_of("<>");  // "0->3", "3<-0"
      if (at != peers.npos && !absl::SimpleAtoi(peers.substr(at + (is_send ? 1 : 2)), &call.peer)) {
        call.peer = -1;
      }
    }
    Common::Kind kind;
    if (!FindKind(entry, name, call, &kind)) return false;
    call.kind = common_->KindIndex(std::move(kind));
    if (common_->is_full()) return Fail(kTooMuch);
    entries_[group->second].push_back(call);
    return true;
  }

  bool FindKind(const Fields& entry, std::string_view name, const Entry& call, Common::Kind* kind) {
    if (call.is_point_to_point) {
      kind->op = name == "send" ? "Send" : "Recv";
      return SumBytes(entry.input_sizes, entry.input_types, kind);
    }
    const TorchOperation* operation = FindTorchOperation(name);
    kind->op = operation == nullptr ? kUnknownCollective : operation->nccl;
    if (operation == nullptr || operation->sizes == TorchOperation::Sizes::kNotAlike) return true;
    return operation->sizes == TorchOperation::Sizes::kInput
               ? SumBytes(entry.input_sizes, entry.input_types, kind)
               : SumBytes(entry.output_sizes, entry.output_types, kind);
  }

  // Returns the bytes of all tensors together; leaves 0 if one is not known.
  bool SumBytes(Value sizes, Value types, Common::Kind* kind) {
    const std::vector<Value>& tensors = values_.ItemsOf(sizes);
    const std::vector<Value>& names = values_.ItemsOf(types);
    if (!names.empty()) {
      const std::string first = Printable(values_.TextOf(names.front()));
      const DataType* known = FindTorchDataType(first);
      kind->datatype = known != nullptr ? known->nccl : first;
    }
    uint64_t sum = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<Value>& dimensions = values_.ItemsOf(tensors[i]);
      if (!Spend(1 + dimensions.size())) return false;
      const DataType* type =
          i < names.size() ? FindTorchDataType(values_.TextOf(names[i])) : nullptr;
      if (type == nullptr) return true;
      auto bytes = static_cast<uint64_t>(type->bytes);
      for (const Value dimension : dimensions) {
        const int64_t elements = values_.IntegerOf(dimension).value_or(-1);
        if (elements < 0 ||
            __builtin_mul_overflow(bytes, static_cast<uint64_t>(elements), &bytes)) {
          return true;
        }
      }
      if (__builtin_add_overflow(sum, bytes, &sum)) return true;
    }
    kind->bytes = sum;
    return true;
  }

  // Assigns each status to its group. The keys of pg_status (`pg_id`) are not group names; calls
  // show the keys of some groups. Names that are numbers count groups in creation order, as pg_id
  // does. So between two groups with known keys, the other groups are assigned in order, if there
  // are as many keys as groups.
  void ReadStatus(Value status) {
    struct Of {
      int64_t pg_id;
      Value values;
    };
    std::vector<Of> statuses;
    const std::vector<Value>& items = values_.ItemsOf(status);
    for (std::size_t i = 0; i + 1 < items.size() && i < 2 * kMostGroups; i += 2) {
      const std::optional<int64_t> pg_id = values_.IntegerOf(items[i]);
      if (pg_id) statuses.push_back({*pg_id, items[i + 1]});
    }
    std::sort(statuses.begin(), statuses.end(),
              [](const Of& a, const Of& b) { return a.pg_id < b.pg_id; });
    std::vector<std::pair<int64_t, std::size_t>> names;  // of numbered groups, and their indices
    bool are_numbers = true;
    for (std::size_t i = 0; i < dump_->groups.size(); ++i) {
      int64_t number = 0;
      are_numbers &= absl::SimpleAtoi(dump_->groups[i].group->name, &number);
      names.emplace_back(number, i);
    }
    std::sort(names.begin(), names.end());
    std::vector<std::size_t> position(names.size());  //  of each group among the names
    for (std::size_t i = 0; i < names.size(); ++i) position[names[i].second] = i;
    std::size_t begin = 0;
    std::size_t begin_name = 0;
    for (std::size_t i = 0; i <= statuses.size(); ++i) {
      std::size_t end_name = names.size();
      if (i < statuses.size()) {
        const auto known = group_of_status_.find(statuses[i].pg_id);
        if (known == group_of_status_.end()) continue;
        SetStatus(statuses[i].values, known->second);
        end_name = position[known->second];
      }
      if (are_numbers && end_name >= begin_name && end_name - begin_name == i - begin) {
        for (std::size_t j = begin; j < i; ++j) {
          SetStatus(statuses[j].values, names[begin_name + j - begin].second);
        }
      }
      begin = i + 1;
      begin_name = end_name + 1;
    }
  }

  // PyTorch records a call before it calls NCCL. After NCCL has returned it enqueues the call for
  // its watchdog, which retires it. While the host is inside NCCL (to connect, for example), the
  // stream is empty. So the event behind the call counts as completed (seen with PyTorch 2.11).
  static void ReopenUnreturned(const Membership& membership, std::vector<Entry>* entries) {
    if (!membership.enqueued || entries->empty()) return;
    const bool are_peers = entries->front().is_point_to_point;
    // With both kinds in a group, it is not known which one the last enqueued number counts.
    if (std::any_of(entries->begin(), entries->end(), [are_peers](const Entry& entry) {
          return entry.is_point_to_point != are_peers;
        })) {
      return;
    }
    for (Entry& entry : *entries) {
      const uint64_t number = are_peers ? entry.point_to_point : entry.collective;
      if (entry.is_retired || static_cast<int64_t>(number) <= *membership.enqueued) continue;
      entry.state = State::kScheduled;
      entry.completed_ns = 0;
    }
  }

  void SetStatus(Value status, std::size_t group) {
    Membership& membership = dump_->groups[group];
    membership.enqueued = values_.IntegerOf(values_.At(status, "last_enqueued_collective"));
    membership.completed = values_.IntegerOf(values_.At(status, "last_completed_collective"));
    const int64_t started =
        values_.IntegerOf(values_.At(status, "last_started_collective")).value_or(-1);
    dump_->has_started |= started >= 0;
    for (std::optional<int64_t>* number : {&membership.enqueued, &membership.completed}) {
      if (*number && (**number < -1 || **number > kMostNumber)) number->reset();
    }
  }

  const Values& values_;
  Common* const common_;
  Dump* const dump_;
  std::string* const error_;
  std::string version_;
  std::size_t steps_ = 0;
  std::unordered_map<std::string, std::size_t> group_indices_;
  std::vector<std::vector<Entry>> entries_;  // by group
  std::unordered_map<int64_t, std::size_t> group_of_status_;
  std::optional<int64_t> first_record_, last_record_;
  bool has_gaps_ = false;  // calls were left out
  bool has_completed_ = false;
};

}  // namespace

uint32_t Common::KindIndex(Kind kind) {
  const auto next = static_cast<uint32_t>(kinds_.size());
  const auto [found, inserted] =
      kind_indices_.try_emplace(std::tuple(kind.op, kind.datatype, kind.bytes), next);
  constexpr std::size_t kBytesOfKind = 384;  // here and in the map, without long names
  if (inserted) {
    Count(kBytesOfKind + 2 * (kind.op.size() + kind.datatype.size()));
    kinds_.push_back(std::move(kind));
  }
  return found->second;
}

const Group* Common::FindGroup(std::string_view name, std::string_view desc,
                               std::string_view ranks) {
  const auto [found, inserted] =
      groups_.try_emplace(std::pair(std::string(name), std::string(ranks)), Group{});
  Group& group = found->second;
  if (inserted) {
    group.name = name;
    group.desc = desc;
    if (!ParseRanks(ranks, &group.ranks)) group.ranks.clear();
    // The verdict copies a group's ranks, and sorts those of all groups into a set.
    constexpr std::size_t kBytesOfGroup = 512, kBytesOfRank = 64;
    Count(kBytesOfGroup + 2 * name.size() + desc.size() + ranks.size() +
          group.ranks.size() * kBytesOfRank);
  }
  return group.ranks.empty() ? nullptr : &group;
}

Parsed ParseDump(std::string_view bytes, Common* common, Dump* dump, std::string* error) {
  Values values;
  Value root;
  bool is_read = false;
  if (absl::StartsWith(bytes, "\x80")) {
    is_read = ReadPickle(bytes, &values, &root, error);
  } else if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(bytes), "{")) {
    is_read = ReadJson(bytes, &values, &root, error);
  } else {
    return Parsed::kSomethingElse;
  }
  return is_read && Reader(values, common, dump, error).Read(root) ? Parsed::kDump
                                                                   : Parsed::kDamaged;
}

}  // namespace nccl_pulse::flight_recorder
