#include "exporter/cli/status/status_table.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "exporter/base/json_field.h"
#include "exporter/cli/status/status_words.h"
#include "exporter/diagnosis/words/words.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

constexpr char kRed[] = "\033[1;31m";
constexpr char kYellow[] = "\033[1;33m";
constexpr char kGreen[] = "\033[32m";
constexpr char kBold[] = "\033[1m";
constexpr char kDim[] = "\033[2m";
constexpr char kReset[] = "\033[0m";

// A page older than this shows its age.
constexpr double kOldSeconds = 3;

// ---- the page -----------------------------------------------------------------------------------

// The operation whose latencies are shown for all ranks: that with the most time on the
// communicator.
struct Shown {
  std::string op, size, measure, source;
  bool empty() const { return op.empty(); }
};

Shown MostTime(const Json& comm) {
  std::map<std::vector<std::string>, double> seconds;
  for (const Json& rank : List(At(comm, "ranks"))) {
    for (const Json& latency : List(At(rank, "latencies"))) {
      // Durations before completion times, which include waiting for earlier work.
      const std::string measure = Text(At(latency, "measure"));
      seconds[{measure == "duration" ? "1" : "0", Text(At(latency, "op")),
               Text(At(latency, "size")), measure, Text(At(latency, "source"))}] +=
          Number(At(latency, "count")) * Number(At(latency, "mean"));
    }
  }
  const auto most = std::max_element(seconds.begin(), seconds.end(), [](auto& a, auto& b) {
    return std::make_pair(a.first[0], a.second) < std::make_pair(b.first[0], b.second);
  });
  if (most == seconds.end()) return {};
  return {most->first[1], most->first[2], most->first[3], most->first[4]};
}

// Includes calls finished by replays of CUDA graphs, where they are counted.
double Calls(const Json& rank) {
  double calls = Number(At(At(rank, "work"), "operations"));
  for (const Json& operation : List(At(rank, "operations")))
    calls += Number(At(operation, "calls"));
  return calls;
}

// As PidCell (exporter/diagnosis/words/words.h): unique among a host's processes.
std::string Pid(const Json& process) {
  const std::string own = Text(At(process, "pid"));
  std::string seen = Text(At(process, "seen_pid"));
  if (!seen.empty()) return seen;
  const Json& in = At(process, "pid_namespace");
  return Number(in) > 0 ? absl::StrCat(own, "@", Text(in)) : own;
}

// Identifies a rank across pages.
std::string Key(const Json& comm, const Json& rank) {
  return absl::StrCat(Text(At(comm, "comm")), " ", Text(At(rank, "rank")), " ",
                      Pid(At(rank, "process")));
}

// Text is aligned left, numbers right.
struct Column {
  const char* title;
  bool is_text = false;
};
constexpr Column kColumns[] = {
    {"", true},          {"RANK"},  {"PID"},     {"GPU"}, {"STATE", true}, {"FOR"},
    {"LAST CALL", true}, {"CALLS"}, {"CALLS/S"}, {"P50"}, {"P99"},         {"BUS"}};

struct Cell {
  std::string text;
  const char* color = "";
};

class TableMaker {
 public:
  TableMaker(const Json& page, const Json* before, const StatusOptions& options)
      : page_(page), options_(options), now_(Number(At(page, "time"))) {
    if (before == nullptr) return;
    seconds_before_ = now_ - Number(At(*before, "time"));
    for (const Json& comm : List(At(*before, "communicators"))) {
      for (const Json& rank : List(At(comm, "ranks"))) calls_before_[Key(comm, rank)] = Calls(rank);
    }
  }

  std::string Make() {
    std::vector<Json> shown;
    std::size_t ended = 0;
    std::set<std::string> processes;  // a set: a process has a rank in several communicators
    std::set<std::string> hosts;
    for (const Json& comm : List(At(page_, "communicators"))) {
      const std::vector<Json> list = List(At(comm, "ranks"));
      const bool in_use = std::any_of(list.begin(), list.end(),
                                      [](const Json& rank) { return At(rank, "active") == true; });
      for (const Json& rank : list) hosts.insert(Text(At(At(rank, "process"), "hostname")));
      if (!in_use && !options_.all) {
        ++ended;
        continue;
      }
      for (const Json& rank : list) {
        const Json& process = At(rank, "process");
        processes.insert(absl::StrCat(Text(At(process, "hostname")), " ", Pid(process)));
      }
      shown.push_back(comm);
    }
    // Trouble first, then by id, as on the page.
    std::stable_sort(shown.begin(), shown.end(),
                     [](const Json& a, const Json& b) { return Trouble(a) > Trouble(b); });
    Header(hosts, shown.size(), processes.size());
    Health();
    Problems(shown);
    for (const Json& comm : shown) Communicator(comm);
    if (ended > 0) {
      absl::StrAppend(
          &out_, "\n",
          Paint(absl::StrCat(Plural(ended, "ended communicator"), " not shown (--all)."), kDim),
          "\n");
    }
    if (const std::string lines = WithoutPluginLines(At(page_, "without_plugin"), now_);
        !lines.empty()) {
      absl::StrAppend(&out_, "\n", lines);
    }
    return std::move(out_);
  }

 private:
  static int Trouble(const Json& comm) {
    if (!At(comm, "hang").is_null()) return 2;
    return At(comm, "straggler").is_null() ? 0 : 1;
  }

  std::string Paint(const std::string& text, const char* color) const {
    return options_.color && *color != '\0' && !text.empty() ? absl::StrCat(color, text, kReset)
                                                             : text;
  }

  void Header(const std::set<std::string>& hosts, std::size_t communicators,
              std::size_t processes) {
    std::string host = hosts.empty() ? "" : *hosts.begin();
    if (hosts.size() > 1) host = Plural(hosts.size(), "host");
    absl::StrAppend(&out_, Paint(host.empty() ? "NCCL Pulse" : host, kBold), "  ",
                    absl::FormatTime("%Y-%m-%d %H:%M:%S UTC",
                                     absl::FromUnixMillis(static_cast<int64_t>(now_ * 1e3)),
                                     absl::UTCTimeZone()),
                    Age(), "  ", Plural(communicators, "communicator"), ", ",
                    Plural(processes, "process"), "\n");
  }

  // Returns the age of a cached page; the command adds it.
  std::string Age() const {
    const double age = Number(At(page_, "age_seconds"));
    if (age < kOldSeconds) return "";
    return Paint(absl::StrCat("  as of ", static_cast<int64_t>(age), " s ago"), kYellow);
  }

  // Lost, stopped and unseen processes come before suspicions.
  void Health() {
    const Json& health = At(page_, "health");
    if (!health.is_object()) {
      absl::StrAppend(&out_,
                      "The endpoint has another version, and does not report how much it sees.\n");
      return;
    }
    const std::string status = Text(At(health, "status"));
    const char* color = status == "ok" ? kGreen : status == "incomplete" ? kYellow : "";
    for (const Json& note : List(At(health, "notes"))) {
      out_ += PaintLines(Wrap(Text(note), 0, options_.width), kYellow);
    }
    const std::string summary = Text(At(health, "summary"));
    if (!summary.empty()) out_ += PaintLines(Wrap(summary, 0, options_.width), color);
  }

  std::string PaintLines(const std::string& lines, const char* color) const {
    std::string out;
    for (const std::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
      absl::StrAppend(&out, Paint(std::string(line), color), "\n");
    }
    return out;
  }

  void Problems(const std::vector<Json>& communicators) {
    for (const Json& comm : communicators) {
      if (!At(comm, "hang").is_null()) Hang(comm, At(comm, "hang"));
      const Json& straggler = At(comm, "straggler");
      if (straggler.is_null()) continue;
      std::vector<std::string> late;
      for (const Json& rank : List(At(straggler, "ranks"))) late.push_back(Text(rank));
      Finding("SLOW", kYellow, straggler,
              absl::StrCat("Communicator ", CommunicatorName(comm), " waits for ",
                           late.size() == 1 ? "rank " : "ranks ", absl::StrJoin(late, ", "), "."));
    }
  }

  void Hang(const Json& comm, const Json& hang) {
    const bool usual = At(hang, "usual") == true;
    Finding(usual ? "WAIT" : "HANG", usual ? kYellow : kRed, hang,
            absl::StrCat("Communicator ", CommunicatorName(comm), " has made no progress for ",
                         SecondsWords(now_ - Number(At(hang, "since"))),
                         usual ? ": an expected wait." : "."));
  }

  // Prints the finding's sentence, which names the rank, behind `word`; then the communicator and
  // the next step.
  void Finding(const std::string& word, const char* color, const Json& finding,
               const std::string& communicator) {
    constexpr std::size_t kIndent = 6;
    const std::string text = Wrap(Text(At(finding, "text")), kIndent, options_.width);
    const std::string step = Text(At(finding, "first_step"));
    absl::StrAppend(
        &out_, "\n", Paint(word, color), text.substr(std::min(word.size(), text.size())),
        Wrap(communicator, kIndent, options_.width),
        step.empty() ? "" : Wrap(absl::StrCat("Next: ", step, "."), kIndent, options_.width));
  }

  void Communicator(const Json& comm) {
    const std::vector<Json> ranks = List(At(comm, "ranks"));
    const auto nranks = static_cast<std::size_t>(std::max(0.0, Number(At(comm, "nranks"))));
    const auto nnodes = static_cast<std::size_t>(std::max(0.0, Number(At(comm, "nnodes"))));
    const Shown shown = MostTime(comm);
    absl::StrAppend(&out_, "\n", Paint(CommunicatorName(comm), kBold), "  ",
                    Plural(nranks, "rank"));
    if (nnodes > 1) absl::StrAppend(&out_, " on ", Plural(nnodes, "node"));
    if (ranks.size() < nranks) absl::StrAppend(&out_, ", ", ranks.size(), " of them here");
    if (!shown.empty()) {
      absl::StrAppend(&out_,
                      Paint(absl::StrCat("; p50, p99, bus: ", shown.op, " ", Size(shown.size), ", ",
                                         shown.measure, " (", shown.source, "), since its start"),
                            kDim));
    }
    out_ += "\n";
    std::vector<std::vector<Cell>> rows(1);
    for (const Column& column : kColumns) rows[0].push_back({column.title, kDim});
    for (const Json& rank : ranks) rows.push_back(Row(comm, rank, shown));
    Table(rows);
    WhyUnknown(ranks);
  }

  // Prints "   unknown: it uses CUDA graphs (rank 0, 1)".
  void WhyUnknown(const std::vector<Json>& ranks) {
    std::map<std::string, std::string> by_reason;
    for (const Json& rank : ranks) {
      const std::string reason = Text(At(rank, "unknown_because"));
      if (Text(At(rank, "state_word")) != "unknown" || reason.empty()) continue;
      std::string& who = by_reason[reason];
      absl::StrAppend(&who, who.empty() ? "" : ", ", Text(At(rank, "rank")));
    }
    for (const auto& [reason, who] : by_reason) {
      out_ += Wrap(absl::StrCat("unknown: ", reason, " (rank ", who, ")"), 3, options_.width);
    }
  }

  std::vector<Cell> Row(const Json& comm, const Json& rank, const Shown& shown) const {
    const Json& hang = At(comm, "hang");
    const Json& straggler = At(comm, "straggler");
    const Json& number = At(rank, "rank");
    const bool suspect = Contains(At(hang, "suspects"), number);
    const bool waits = Contains(At(hang, "waiting"), number);
    const bool late = Contains(At(straggler, "ranks"), number);
    const bool usual = At(hang, "usual") == true;
    const char* color = suspect && !usual ? kRed : suspect || waits || late ? kYellow : "";
    const std::string state = Text(At(rank, "state_word"));
    const Json& since = At(rank, "state_since");
    std::string rate = "-";
    const auto before = calls_before_.find(Key(comm, rank));
    const double calls = Calls(rank);
    if (seconds_before_ > 0 && before != calls_before_.end() && calls >= before->second) {
      rate = Count((calls - before->second) / seconds_before_);
    }
    std::string p50 = "-";
    std::string p99 = "-";
    std::string bus = "-";
    for (const Json& latency : List(At(rank, "latencies"))) {
      if (Text(At(latency, "op")) != shown.op || Text(At(latency, "size")) != shown.size ||
          Text(At(latency, "measure")) != shown.measure ||
          Text(At(latency, "source")) != shown.source) {
        continue;
      }
      p50 = SecondsWords(Number(At(latency, "p50")));
      p99 = SecondsWords(Number(At(latency, "p99")));
      if (const Json& bandwidth = At(latency, "bus_bytes_per_second"); bandwidth.is_number()) {
        bus = ByteRate(Number(bandwidth));
      }
    }
    const Json& last = At(rank, "last_call");
    const std::string call =
        last.is_null() ? "-"
                       : absl::StrCat(Text(At(last, "op")), " ", Size(Text(At(last, "size"))), " #",
                                      Text(At(last, "calls")));
    const std::string gpu = Text(At(At(rank, "gpu"), "index"));
    return {{suspect ? ">>"
             : late  ? ">"
                     : "",
             color},
            {Text(number), color},
            {Pid(At(rank, "process"))},
            {gpu.empty() ? "-" : gpu},
            {state.empty() ? "?" : state, color},
            {since.is_number() ? SecondsWords(now_ - Number(since)) : "-", color},
            {call},
            {Count(calls)},
            {rate},
            {p50},
            {p99},
            {bus}};
  }

  void Table(const std::vector<std::vector<Cell>>& rows) {
    std::vector<std::size_t> widths(rows[0].size());
    for (const auto& row : rows) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        widths[i] = std::max(widths[i], row[i].text.size());
      }
    }
    widths[0] = 2;
    std::size_t columns = widths.size();
    const auto total = [&] {
      return std::accumulate(widths.begin(), widths.begin() + static_cast<int64_t>(columns),
                             2 * columns - 3);
    };
    const auto fitting = static_cast<std::size_t>(options_.table_width);
    while (fitting > 0 && columns > 6 && total() > fitting) --columns;
    for (const auto& row : rows) {
      std::string line;
      for (std::size_t i = 0; i < columns; ++i) {
        const Cell& cell = row[i];
        const std::string padding(widths[i] - cell.text.size(), ' ');
        if (i > 0) line += i == 1 ? " " : "  ";
        if (!kColumns[i].is_text) line += padding;
        line += Paint(cell.text, cell.color);
        if (kColumns[i].is_text && i + 1 < columns) line += padding;
      }
      absl::StrAppend(&out_, line, "\n");
    }
  }

  const Json& page_;
  const StatusOptions options_;
  const double now_;
  double seconds_before_ = 0;
  std::map<std::string, double> calls_before_;
  std::string out_;
};

}  // namespace

std::string StatusTable(const Json& page, const Json* before, const StatusOptions& options) {
  return TableMaker(page, before, options).Make();
}

std::string WithoutPluginLines(const Json& processes, double now) {
  constexpr std::size_t kMostLines = 64;
  const std::vector<Json> all = List(processes);
  if (all.empty()) return "";
  std::string lines = "Without the plugin (if they hang: pulse diagnose):\n";
  for (std::size_t i = 0; i < std::min(all.size(), kMostLines); ++i) {
    const auto add = [&lines](const char* name, const std::string& value) {
      if (!value.empty()) absl::StrAppend(&lines, name, value);
    };
    add("   pid ", Text(At(all[i], "pid")));
    add(", rank ", Text(At(all[i], "global_rank")));
    for (const Json& gpu : List(At(all[i], "gpus"))) add(", GPU ", Text(gpu));
    add(", NCCL ", Text(At(all[i], "nccl")));
    const Json& since = At(all[i], "since");
    if (since.is_number()) add(", for ", SecondsWords(now - Number(since)));
    add(", is ", Text(At(all[i], "stopped")));
    lines += "\n";
  }
  if (all.size() > kMostLines)
    absl::StrAppend(&lines, "   and ", all.size() - kMostLines, " more\n");
  return lines;
}

Finding FindingOf(const Json& page) {
  const std::vector<Json> communicators = List(At(page, "communicators"));
  const bool hangs = std::any_of(communicators.begin(), communicators.end(), [](const Json& comm) {
    const Json& hang = At(comm, "hang");
    return !hang.is_null() && At(hang, "usual") != true;
  });
  if (hangs) return Finding::kHang;
  return Text(At(At(page, "health"), "status")) == "incomplete" ? Finding::kIncomplete
                                                                : Finding::kNone;
}

}  // namespace nccl_pulse
