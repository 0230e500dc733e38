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

// Returns up to `most` bytes of a file in this folder; does not follow links. Reading may block, so
// no ForkGuard is held: a child of a fork may inherit the descriptor. If the file cannot be opened,
// errno has the reason.
std::string ReadFileAt(int folder, const char* name, std::size_t most);

// Returns up to `most` bytes of an open file, from its offset.
std::string ReadUpTo(int fd, std::size_t most);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_READ_FILE_H_
