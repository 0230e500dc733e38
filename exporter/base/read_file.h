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

// Returns up to `most` bytes of the file `name` in the folder with descriptor `folder`; does not
// follow links. Holds no ForkGuard, because reading may block: a child that is forked meanwhile
// inherits the descriptor. If the file cannot be opened, errno has the reason.
std::string ReadFileAt(int folder, const char* name, std::size_t most);

// Returns up to `most` bytes of an open file, from its offset.
std::string ReadUpTo(int fd, std::size_t most);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_READ_FILE_H_
