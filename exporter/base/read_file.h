// Reads files of /proc.
//
// Thread: any. Errors: "" if the file cannot be read.
#ifndef EXPORTER_BASE_READ_FILE_H_
#define EXPORTER_BASE_READ_FILE_H_

#include <cstddef>
#include <string>

namespace nccl_pulse {

// Returns up to `most` bytes of the file at `path`.
std::string ReadFile(const std::string& path, std::size_t most = 65536);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_READ_FILE_H_
