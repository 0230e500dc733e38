#include "exporter/cli/plugin_file.h"

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace nccl_pulse {
namespace {

constexpr std::uintmax_t kMostBytes = 256 << 20;  // far above the plugin's size
constexpr std::string_view kNeeded = "ncclProfiler_v5";

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

// Reads a structure at an offset. Returns false if the file ends before the structure does.
template <typename T>
bool Read(const std::string& file, uint64_t offset, T* value) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return false;
  std::memcpy(value, file.data() + offset, sizeof(T));
  return true;
}

bool HasName(const std::string& file, uint64_t offset) {
  // Includes the terminating zero byte.
  return offset < file.size() &&
         file.compare(offset, kNeeded.size() + 1, kNeeded.data(), kNeeded.size() + 1) == 0;
}

// True if the file's dynamic symbols include all symbols that NCCL needs.
bool Exports(const std::string& file, const Elf64_Ehdr& header) {
  const auto read_section = [&](uint64_t index, Elf64_Shdr* section) {
    return index < header.e_shnum && Read(file, header.e_shoff + index * sizeof(*section), section);
  };
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr symbols;
    Elf64_Shdr names;
    if (!read_section(i, &symbols)) return false;
    if (symbols.sh_type != SHT_DYNSYM || !read_section(symbols.sh_link, &names)) continue;
    Elf64_Sym symbol;
    for (uint64_t at = 0; at + sizeof(symbol) <= symbols.sh_size; at += sizeof(symbol)) {
      if (!Read(file, symbols.sh_offset + at, &symbol)) return false;
      const bool is_defined = symbol.st_shndx != SHN_UNDEF;
      if (is_defined && HasName(file, names.sh_offset + symbol.st_name)) return true;
    }
  }
  return false;
}

}  // namespace

std::string WhyNoPlugin(const std::string& path) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  if (error) return "cannot be read: " + error.message();
  const std::uintmax_t size = is_file ? std::filesystem::file_size(path, error) : 0;
  if (size == 0 || size > kMostBytes) return "is not a shared library";
  std::string file(size, '\0');
  if (!std::ifstream(path, std::ios::binary).read(file.data(), static_cast<int64_t>(size))) {
    return "cannot be read";
  }
  Elf64_Ehdr header;
  if (!Read(file, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_type != ET_DYN) {
    return "is not a shared library";
  }
  if (header.e_machine != kMachine) return "is for another kind of machine";
  if (!Exports(file, header)) {
    return "is not a profiler plugin for NCCL: it does not export " + std::string(kNeeded);
  }
  return "";
}

}  // namespace nccl_pulse
