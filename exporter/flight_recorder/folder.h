// ReadFolder reads the dumps of one job in a folder, leaving out other files.
//
//   names     PREFIX3, PREFIX3.json: the last number is the rank. PyTorch: nccl_trace_rank_3
//   content   a pickle or JSON; other files are no dumps, whatever their names
//
// A dump is left out, with the reason, if it cannot be read, or does not belong to the same run and
// moment as the newest dumps. In that case its groups differ, or it lacks a call that its rank must
// have made, because other ranks completed it, or it completed a call before other ranks made it.
//
// Thread: any, no state. Memory: one file and its values at a time, and Common::kMostBytes in
// total.
#ifndef EXPORTER_FLIGHT_RECORDER_FOLDER_H_
#define EXPORTER_FLIGHT_RECORDER_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exporter/flight_recorder/dump.h"
#include "exporter/flight_recorder/group_calls.h"

namespace nccl_pulse::flight_recorder {

inline constexpr std::size_t kMostFileBytes = std::size_t{128} << 20;
inline constexpr std::size_t kMostFiles = 100'000;
inline constexpr std::size_t kMostCallsOfAll = 20'000'000;  // of all dumps together

struct Folder {
  std::size_t found = 0;  // dumps, including unreadable ones
  std::vector<Dump> dumps;
  std::map<std::string, std::vector<std::string>> left_out;  // files by reason
};

// `path`: a folder, or a folder and the beginning of the files' names. `common` gets the groups and
// call kinds that dumps share. On failure, or without any dump, returns false and sets `error`.
bool ReadFolder(const std::string& path, Common* common, Folder* folder, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_FOLDER_H_
