// The dumps of one job in a folder: finds the files, reads them, and leaves out what is none of
// them.
//
//   names     PREFIX3, PREFIX3.json: the last number is the rank. PyTorch writes nccl_trace_rank_3
//   content   a pickle or JSON; files that are neither are no dumps, whatever their names
//
// A dump is left out, with the reason, if its file cannot be read as one, and if it cannot be of
// the same run and moment as the newest ones: its groups are others, or others have completed with
// it what it has not called.
//
// Thread: any, no state. Memory: one file and its values at a time, and Common::kMostBytes of all.
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
inline constexpr std::size_t kMostCallsOfAll = 20'000'000;  // that are kept

struct Folder {
  std::size_t found = 0;  // files that are, or should be, dumps
  std::vector<Dump> dumps;
  std::map<std::string, std::vector<std::string>> left_out;  // by the reason, the files
};

// `path`: a folder, or a folder and the beginning of the files' names. On failure, also if it has
// no dump at all, returns false, with what is wrong in `error`.
bool ReadFolder(const std::string& path, Common* common, Folder* folder, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_FOLDER_H_
