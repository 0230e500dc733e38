#include "exporter/flight_recorder/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/descriptor.h"
#include "exporter/base/error_text.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse::flight_recorder {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSecondNs = 1000000000;

struct Named {
  int32_t rank;
  std::string file;
};

// "nccl_trace_rank_3", "3.json"
std::optional<int32_t> RankOf(std::string_view name) {
  if (const std::size_t dot = name.rfind('.'); dot != name.npos && dot > 0) {
    name = name.substr(0, dot);
  }
  std::size_t begin = name.size();
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(name[begin - 1]))) --begin;
  int32_t rank = 0;
  if (!absl::SimpleAtoi(name.substr(begin), &rank)) return std::nullopt;
  return rank;
}

bool FindFiles(const fs::path& path, std::vector<Named>* files, std::string* error) {
  std::error_code problem;
  const bool is_folder = fs::is_directory(path, problem);
  const fs::path folder = is_folder                ? path
                          : path.has_parent_path() ? path.parent_path()
                                                   : fs::path(".");
  const std::string prefix = is_folder ? "" : path.filename().string();
  auto entry = fs::directory_iterator(folder, problem);
  for (; !problem && entry != fs::directory_iterator(); entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    const std::optional<int32_t> rank = RankOf(name);
    if (!rank || !absl::StartsWith(name, prefix)) continue;
    if (files->size() == kMostFiles) {
      *error = absl::StrCat(folder.string(), " has more than ", kMostFiles, " files of such names");
      return false;
    }
    files->push_back({*rank, entry->path().string()});
  }
  if (problem) {
    *error = absl::StrCat("cannot read ", folder.string(), ": ", problem.message());
    return false;
  }
  std::sort(files->begin(), files->end(), [](const Named& a, const Named& b) {
    return std::tie(a.rank, a.file) < std::tie(b.rank, b.file);
  });
  return true;
}

// Returns "" or an error. `is_dump`: false for a file that only has a dump's name.
std::string ReadBytes(const std::string& file, std::string* bytes, int64_t* modified_ns,
                      bool* is_dump) {
  *is_dump = true;
  // O_NONBLOCK: a pipe of that name must not block.
  const Descriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (opened.get() < 0 || fstat(opened.get(), &status) != 0) return ErrorText(errno);
  *is_dump = S_ISREG(status.st_mode);
  if (!*is_dump) return "";
  *modified_ns = status.st_mtim.tv_sec * kSecondNs + status.st_mtim.tv_nsec;
  if (status.st_size == 0) return "it is empty: the rank ended while it wrote the file";
  if (static_cast<uint64_t>(status.st_size) > kMostFileBytes) {
    return absl::StrCat("it has more than ", kMostFileBytes >> 20, " MiB, and is not read");
  }
  bytes->resize(static_cast<std::size_t>(status.st_size));
  std::size_t read_bytes = 0;
  while (read_bytes < bytes->size()) {
    const ssize_t got = read(opened.get(), bytes->data() + read_bytes, bytes->size() - read_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrorText(errno);
    if (got == 0) break;
    read_bytes += static_cast<std::size_t>(got);
  }
  bytes->resize(read_bytes);
  return "";
}

// Reads and parses one file. Returns "" or the error, as ReadBytes does.
std::string ReadFile(const std::string& file, Common* common, Dump* dump, bool* is_dump) {
  std::string bytes;
  int64_t modified_ns = 0;
  std::string error = ReadBytes(file, &bytes, &modified_ns, is_dump);
  if (!error.empty() || !*is_dump) return error;
  *is_dump = ParseDump(bytes, common, dump, &error) != Parsed::kSomethingElse;
  // If the file is much newer than its calls, the rank had stalled, or the file is a copy.
  const bool is_of_moving_rank =
      modified_ns >= dump->newest_ns && modified_ns - dump->newest_ns < dump->timeout_ns;
  if (dump->written_ns == 0 && is_of_moving_rank) dump->written_ns = modified_ns;
  return error;
}

// Keeps the newest dumps that belong together.
class Sorter {
 public:
  explicit Sorter(Folder* folder) : folder_(folder) {}

  void KeepOneJob() {
    std::vector<Dump>& dumps = folder_->dumps;
    std::stable_sort(dumps.begin(), dumps.end(),
                     [](const Dump& a, const Dump& b) { return a.newest_ns > b.newest_ns; });
    LeaveOut([this](const Dump& dump) { return WhyOfAnotherJob(dump); });
  }

  // Returns true if a dump was left out.
  bool KeepOneMoment(const Common& common) {
    Reasons older;
    for (const GroupCalls& group : FindGroupCalls(folder_->dumps)) {
      FindOlder(group, common, &older);
      FindEarlierAttempt(group, common, &older);
    }
    LeaveOut([&older](const Dump& dump) {
      const auto found = older.find(&dump);
      return found == older.end() ? "" : found->second;
    });
    return !older.empty();
  }

 private:
  using Reasons = std::map<const Dump*, std::string>;

  template <typename Why>
  void LeaveOut(const Why& why) {
    std::vector<Dump> kept;
    for (Dump& dump : folder_->dumps) {
      std::string reason = why(dump);
      if (reason.empty()) {
        kept.push_back(std::move(dump));
      } else {
        folder_->left_out[std::move(reason)].push_back(dump.file);
      }
    }
    folder_->dumps = std::move(kept);
  }

  std::string WhyOfAnotherJob(const Dump& dump) {
    for (const Membership& membership : dump.groups) {
      const Group& group = *membership.group;
      const auto words = [&group] {
        return absl::StrCat("process group ", group.name, group.desc.empty() ? "" : " (",
                            group.desc, group.desc.empty() ? "" : ")");
      };
      if (std::find(group.ranks.begin(), group.ranks.end(), dump.rank) == group.ranks.end()) {
        return absl::StrCat("by its name it is of rank ", dump.rank, ", which its ", words(),
                            " does not have");
      }
      if (files_.count(&group) != 0) continue;  // already kept
      const auto& owners = owners_[group.name];
      for (const int32_t rank : group.ranks) {
        const auto owner = owners.find(rank);
        if (owner == owners.end()) continue;
        return absl::StrCat("its ", words(), " has ", group.ranks.size(), " ranks, and in ",
                            files_[owner->second], " others, ", owner->second->ranks.size(),
                            ": they are of different jobs");
      }
    }
    for (const Membership& membership : dump.groups) {
      if (!files_.emplace(membership.group, dump.file).second) continue;
      auto& owners = owners_[membership.group->name];
      for (const int32_t rank : membership.group->ranks) owners.emplace(rank, membership.group);
    }
    return "";
  }

  // Finds the older dump of each contradicting pair.
  static void FindOlder(const GroupCalls& group, const Common& common, Reasons* older) {
    const RankCalls* ahead = nullptr;
    uint64_t most = 0;
    for (const RankCalls& calls : group.ranks) {
      for (const Collective& each : calls.membership->collectives) {
        const bool counts = each.number <= calls.completed && each.number > most &&
                            WaitsForAll(common.KindOf(each.kind).op);
        if (!counts) continue;
        most = each.number;
        ahead = &calls;
      }
    }
    for (const RankCalls& calls : group.ranks) {
      if (!calls.is_known || calls.called >= most) continue;
      older->emplace(calls.dump->newest_ns <= ahead->dump->newest_ns ? calls.dump : ahead->dump,
                     "it lacks calls that its rank has completed according to newer dumps: it is "
                     "older, or from another run");
    }
  }

  // Finds dumps whose rank completed a collective long before another rank called it. The earlier
  // attempt may have ended at the same call, so that numbers do not differ.
  static void FindEarlierAttempt(const GroupCalls& group, const Common& common, Reasons* older) {
    constexpr int64_t kClocksDiffer = 30'000'000'000;
    std::map<uint64_t, int64_t> called_ns;  // by number: when a rank last called it or one before
    for (const RankCalls& calls : group.ranks) {
      for (const Collective& each : calls.membership->collectives) {
        if (!WaitsForAll(common.KindOf(each.kind).op)) continue;
        int64_t& last_ns = called_ns[each.number];
        last_ns = std::max(last_ns, each.created_ns);
      }
    }
    int64_t last_ns = 0;
    for (auto& [number, ns] : called_ns) ns = last_ns = std::max(last_ns, ns);
    for (const RankCalls& calls : group.ranks) {
      const int64_t completed_ns = calls.membership->last_completion_ns;
      const auto behind = called_ns.upper_bound(calls.completed);
      if (!calls.is_known || completed_ns == 0 || behind == called_ns.begin()) continue;
      if (ElapsedNs(std::prev(behind)->second, completed_ns) < kClocksDiffer) continue;
      older->emplace(calls.dump,
                     "it has completed calls before other ranks made them: it is from an earlier "
                     "attempt");
    }
  }

  Folder* const folder_;
  // Groups of the kept dumps, by names and ranks, and the first file of each.
  std::map<std::string, std::unordered_map<int32_t, const Group*>> owners_;
  std::map<const Group*, std::string> files_;
};

}  // namespace

bool ReadFolder(const std::string& path, Common* common, Folder* folder, std::string* error) {
  std::vector<Named> files;
  if (!FindFiles(path, &files, error)) return false;
  std::map<int32_t, std::string> read;
  std::size_t calls = 0;
  for (const Named& each : files) {
    Dump dump;
    dump.rank = each.rank;
    dump.file = each.file;
    bool is_dump = true;
    std::string reason = ReadFile(each.file, common, &dump, &is_dump);
    if (!is_dump) continue;
    ++folder->found;
    for (const Membership& membership : dump.groups) calls += membership.collectives.size();
    if (reason.empty() && calls > kMostCallsOfAll) {
      reason = absl::StrCat("it and those before it have more than ", kMostCallsOfAll,
                            " calls in flight");
    }
    if (!reason.empty()) {
      folder->left_out[std::move(reason)].push_back(each.file);
      continue;
    }
    const auto [other, inserted] = read.emplace(each.rank, each.file);
    if (!inserted) {
      *error = absl::StrCat(
          other->second, " and ", each.file, " are dumps of one rank, ", each.rank,
          ", so the folder has several jobs. Give a folder with the dumps of one job, or "
          "the folder and the beginning of their names");
      return false;
    }
    folder->dumps.push_back(std::move(dump));
  }
  if (folder->found == 0) {
    struct stat status {};
    *error =
        stat(path.c_str(), &status) != 0
            ? absl::StrCat("no file or folder begins with ", path)
            : absl::StrCat(path,
                           " has no dump of PyTorch's Flight Recorder. Dumps are pickle or JSON "
                           "files, named like nccl_trace_rank_0");
    return false;
  }
  Sorter sorter(folder);
  sorter.KeepOneJob();
  while (sorter.KeepOneMoment(*common)) {
  }
  std::sort(folder->dumps.begin(), folder->dumps.end(),
            [](const Dump& a, const Dump& b) { return a.rank < b.rank; });
  return true;
}

}  // namespace nccl_pulse::flight_recorder
