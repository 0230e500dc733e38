#include "bench/replay/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "plugin/abi/common.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

std::string Reason() { return std::generic_category().message(errno); }

// Why a line is not a callback. Caught in ParseTrace; never leaves this file.
class BrokenLine : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns one pointer for equal strings, valid until the process ends. NCCL passes literals of
// libnccl as names of functions, data types, algorithms and protocols: a plugin may rely on one
// pointer for each.
const char* Intern(std::string_view text) {
  // Never destroyed: the plugin's threads may outlive main.
  static auto& mutex = *new std::mutex;
  static auto& strings = *new std::unordered_set<std::string>;  // nodes never move
  std::lock_guard<std::mutex> lock(mutex);
  return strings.emplace(text).first->c_str();
}

const Json& Field(const Json& line, const char* key) {
  const auto it = line.find(key);
  if (it == line.end()) throw BrokenLine(absl::StrCat("field \"", key, "\" is missing"));
  return *it;
}

template <typename Integer>
Integer Number(const Json& line, const char* key) {
  const Json& value = Field(line, key);
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<Integer>::max())) {
      return static_cast<Integer>(number);
    }
  } else if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (std::numeric_limits<Integer>::is_signed &&
        number >= static_cast<int64_t>(std::numeric_limits<Integer>::min())) {
      return static_cast<Integer>(number);
    }
  } else {
    throw BrokenLine(absl::StrCat("field \"", key, "\" is not an integer"));
  }
  throw BrokenLine(absl::StrCat("field \"", key, "\" is out of range"));
}

template <typename Integer>
Integer NumberOr(const Json& line, const char* key, Integer otherwise) {
  return line.contains(key) ? Number<Integer>(line, key) : otherwise;
}

const char* Text(const Json& line, const char* key) {
  const Json& value = Field(line, key);
  if (!value.is_string()) throw BrokenLine(absl::StrCat("field \"", key, "\" is not a string"));
  return Intern(value.get_ref<const std::string&>());
}

uint64_t Hexadecimal(const Json& line, const char* key) {
  const char* text = Text(line, key);
  uint64_t value = 0;
  if (!absl::SimpleHexAtoi(text, &value)) {
    throw BrokenLine(absl::StrCat("field \"", key, "\" is not a hexadecimal number"));
  }
  return value;
}

uint32_t TypeOf(const Json& line) {
  static const auto& types = *new std::unordered_map<std::string_view, uint32_t>{
      {"group", abi::kEventGroup},
      {"coll", abi::kEventColl},
      {"p2p", abi::kEventP2p},
      {"proxyOp", abi::kEventProxyOp},
      {"proxyStep", abi::kEventProxyStep},
      {"proxyCtrl", abi::kEventProxyCtrl},
      {"kernelCh", abi::kEventKernelCh},
      {"netPlugin", abi::kEventNetPlugin},
      {"groupApi", abi::kEventGroupApi},
      {"collApi", abi::kEventCollApi},
      {"p2pApi", abi::kEventP2pApi},
      {"kernelLaunch", abi::kEventKernelLaunch},
  };
  const char* name = Text(line, "type");
  const auto it = types.find(name);
  if (it == types.end()) throw BrokenLine(absl::StrCat("unknown event type \"", name, "\""));
  return it->second;
}

// Parses an address in printf's %p format; glibc writes "(nil)" for NULL.
uint64_t Address(const Json& line, const char* key) {
  return std::string_view(Text(line, key)) == "(nil)" ? 0 : Hexadecimal(line, key);
}

// Maps recorded numbers to dense ones, in order of appearance.
class Numbering {
 public:
  explicit Numbering(uint32_t first) : next_(first) {}
  // Introduces `number`. False if it is already known.
  bool Add(uint64_t number) {
    if (!dense_.emplace(number, next_).second) return false;
    ++next_;
    return true;
  }
  const uint32_t* Find(uint64_t number) const {
    const auto it = dense_.find(number);
    return it == dense_.end() ? nullptr : &it->second;
  }
  uint32_t next() const { return next_; }

 private:
  uint32_t next_;
  std::unordered_map<uint64_t, uint32_t> dense_;
};

class Parser {
 public:
  void AddLine(std::string_view text) {
    const Json line = Json::parse(text.begin(), text.end());
    if (!line.is_object()) throw BrokenLine("not a JSON object");
    TraceEvent event = {};
    event.t_ns = Number<int64_t>(line, "t");
    const auto tid = Number<uint64_t>(line, "tid");
    threads_.Add(tid);
    event.thread = *threads_.Find(tid);
    event.context = TraceEvent::kNoContext;
    const std::string_view callback = Text(line, "cb");
    if (callback == "init") {
      event.callback = Callback::kInit;
      ParseInit(line, event);
    } else if (callback == "start") {
      event.callback = Callback::kStart;
      ParseStart(line, event);
    } else if (callback == "stop") {
      event.callback = Callback::kStop;
      event.handle = Handle(line, "h");
      event.type = types_[event.handle];
    } else if (callback == "state") {
      event.callback = Callback::kState;
      event.handle = Handle(line, "h");
      event.type = types_[event.handle];
      event.state.state = Number<int32_t>(line, "state");
      event.state.appended = NumberOr<int32_t>(line, "appended", 0);
      event.state.p_timer_ns = NumberOr<uint64_t>(line, "pTimer", 0);
      event.state.trans_bytes = NumberOr<uint64_t>(line, "transSize", 0);
    } else if (callback == "finalize") {
      event.callback = Callback::kFinalize;
      event.context = Context(line);
    } else {
      throw BrokenLine(absl::StrCat("unknown callback \"", callback, "\""));
    }
    trace_.events.push_back(event);
  }

  Trace Finish() && {
    trace_.threads = threads_.next();
    trace_.handles = handles_.next();
    return std::move(trace_);
  }

 private:
  void ParseInit(const Json& line, TraceEvent& event) {
    const auto number = Number<uint64_t>(line, "ctx");
    if (!contexts_.Add(number)) throw BrokenLine(absl::StrCat("ctx ", number, " inits twice"));
    event.context = *contexts_.Find(number);
    const char* name = Text(line, "commName");
    trace_.communicators.push_back({Hexadecimal(line, "commId"), *name == '\0' ? nullptr : name,
                                    Number<int32_t>(line, "nNodes"),
                                    Number<int32_t>(line, "nranks"), Number<int32_t>(line, "rank"),
                                    Number<int32_t>(line, "pid")});
  }

  void ParseStart(const Json& line, TraceEvent& event) {
    event.context = Context(line);
    event.type = TypeOf(line);
    event.parent = Handle(line, "parent");
    event.rank = Number<int32_t>(line, "rank");
    ParseDetails(line, event);
    const auto number = Number<uint64_t>(line, "h");
    if (number == 0 || !handles_.Add(number)) {
      throw BrokenLine(absl::StrCat("handle ", number, " starts twice, or is 0"));
    }
    event.handle = *handles_.Find(number);
    types_.push_back(event.type);
  }

  void ParseDetails(const Json& line, TraceEvent& event) {
    switch (event.type) {
      case abi::kEventGroupApi:
        event.group_call = {Number<int32_t>(line, "groupDepth"),
                            Number<int>(line, "graphCaptured") != 0};
        break;
      case abi::kEventCollApi:
      case abi::kEventP2pApi:
        event.call = {Text(line, "func"),
                      Text(line, "datatype"),
                      Number<uint64_t>(line, "count"),
                      Address(line, "stream"),
                      NumberOr<int32_t>(line, "root", 0),
                      Number<int>(line, "graphCaptured") != 0};
        break;
      case abi::kEventKernelLaunch:
        event.launch = {Address(line, "stream")};
        break;
      case abi::kEventColl:
        event.operation = {Text(line, "func"),
                           Text(line, "datatype"),
                           Text(line, "algo"),
                           Text(line, "proto"),
                           Number<uint64_t>(line, "count"),
                           Number<uint64_t>(line, "seqNumber"),
                           Number<uint64_t>(line, "seqNumber"),
                           Handle(line, "parentGroup"),
                           Number<int32_t>(line, "root"),
                           Number<uint8_t>(line, "nChannels"),
                           Number<uint8_t>(line, "nWarps")};
        break;
      case abi::kEventP2p:
        event.operation = {Text(line, "func"),
                           Text(line, "datatype"),
                           nullptr,
                           nullptr,
                           Number<uint64_t>(line, "count"),
                           0,
                           0,
                           Handle(line, "parentGroup"),
                           Number<int32_t>(line, "peer"),
                           Number<uint8_t>(line, "nChannels"),
                           0};
        break;
      case abi::kEventProxyOp:
        event.proxy_op = {Number<int32_t>(line, "pid"),       Number<int32_t>(line, "peer"),
                          Number<int32_t>(line, "nSteps"),    Number<int32_t>(line, "chunkSize"),
                          Number<uint8_t>(line, "channelId"), Number<int>(line, "isSend") != 0};
        break;
      case abi::kEventProxyStep:
        event.proxy_step = {Number<int32_t>(line, "step")};
        break;
      case abi::kEventKernelCh:
        event.kernel_ch = {Number<uint64_t>(line, "pTimer"), Number<uint8_t>(line, "channelId")};
        break;
      default:  // group, proxyCtrl, netPlugin: nothing recorded beyond the common fields
        break;
    }
  }

  uint32_t Context(const Json& line) {
    const auto number = Number<uint64_t>(line, "ctx");
    if (number == 0) return TraceEvent::kNoContext;
    const uint32_t* context = contexts_.Find(number);
    if (context == nullptr)
      throw BrokenLine(absl::StrCat("ctx ", number, " was never initialized"));
    return *context;
  }

  uint32_t Handle(const Json& line, const char* key) {
    const auto number = Number<uint64_t>(line, key);
    if (number == 0) return 0;
    const uint32_t* handle = handles_.Find(number);
    if (handle == nullptr) {
      throw BrokenLine(
          absl::StrCat("\"", key, "\" names handle ", number, ", which never started"));
    }
    return *handle;
  }

  Trace trace_;
  Numbering threads_{0};
  Numbering contexts_{0};
  Numbering handles_{1};
  std::vector<uint32_t> types_ = {0};  // by handle
};

}  // namespace

std::optional<Trace> ParseTrace(std::string_view name, std::string_view text, ReplayError* error) {
  const auto fail = [&](const auto&... reason) {
    *error = {kReplayBrokenTrace, absl::StrCat(name, ":", reason...)};
    return std::nullopt;
  };
  Parser parser;
  bool any = false;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    any = true;
    try {
      parser.AddLine(line);
    } catch (const BrokenLine& problem) {
      return fail(number, ": ", problem.what());
    } catch (const Json::exception& problem) {
      return fail(number, ": ", problem.what());
    }
  }
  if (!any) return fail(" holds no callback");
  return std::move(parser).Finish();
}

std::optional<std::string> ReadTraceText(const std::string& path, ReplayError* error) {
  const bool is_packed = absl::EndsWith(path, ".xz");
  const std::string unpack =
      absl::StrCat("exec xz -dc <'", absl::StrReplaceAll(path, {{"'", "'\\''"}}), "'");
  FILE* file = is_packed ? popen(unpack.c_str(), "re") : std::fopen(path.c_str(), "rbe");
  if (file == nullptr) {
    *error = {kReplayNoFolder, absl::StrCat("cannot open ", path, ": ", Reason())};
    return std::nullopt;
  }
  std::string content;
  char buffer[1 << 16];
  size_t size;
  while ((size = std::fread(buffer, 1, sizeof(buffer), file)) > 0) content.append(buffer, size);
  const bool is_broken = std::ferror(file) != 0;
  if (is_packed && pclose(file) != 0) {
    *error = {kReplayBrokenTrace, absl::StrCat(path, ": not a whole xz file, or there is no xz")};
    return std::nullopt;
  }
  if (!is_packed) std::fclose(file);
  if (is_broken) {
    *error = {kReplayNoFolder, absl::StrCat("cannot read ", path, ": ", Reason())};
    return std::nullopt;
  }
  return content;
}

std::optional<std::vector<std::string>> ListTraceFiles(const std::string& folder,
                                                       ReplayError* error) {
  std::vector<std::string> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string& path = entry.path().native();
    if (absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".jsonl.xz")) files.push_back(path);
  }
  if (problem) {
    *error = {kReplayNoFolder,
              absl::StrCat("cannot open the trace folder ", folder, ": ", problem.message())};
    return std::nullopt;
  }
  if (files.empty()) {
    *error = {kReplayNoTrace, absl::StrCat("no *.jsonl or *.jsonl.xz file in ", folder)};
    return std::nullopt;
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace nccl_pulse
