// A file of /proc, as a whole.
//
// Thread: any. Errors: "" where it cannot be read.
#ifndef EXPORTER_BASE_READ_FILE_H_
#define EXPORTER_BASE_READ_FILE_H_

#include <cstddef>
#include <string>

namespace nccl_pulse {

// At most `most` bytes of it.
std::string ReadFile(const std::string& path, std::size_t most = 65536);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_READ_FILE_H_
