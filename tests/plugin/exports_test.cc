// The library as a file: what it exports, what it needs, how it is linked. Reads the ELF tables
// itself, so that no tool has to be on the machine.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

class Library {
 public:
  explicit Library(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (bytes_.size() < sizeof(Elf64_Ehdr) || memcmp(bytes_.data(), ELFMAG, SELFMAG) != 0) {
      ADD_FAILURE() << path << " is no ELF file";
      return;
    }
    const auto* header = At<Elf64_Ehdr>(0);
    for (int i = 0; i < header->e_phnum; ++i) {
      const auto* segment = At<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
      if (segment->p_type == PT_TLS) thread_local_bytes = segment->p_memsz;
    }
    for (int i = 0; i < header->e_shnum; ++i) {
      const auto* section = At<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
      if (section->sh_type == SHT_DYNSYM) ReadSymbols(*section);
      if (section->sh_type == SHT_DYNAMIC) ReadDynamic(*section);
      if (section->sh_type == SHT_GNU_verneed) ReadVersions(*section);
    }
  }

  size_t size() const { return bytes_.size(); }
  std::set<std::string> exported, imported, needed, versions;
  uint64_t flags_1 = 0;
  uint64_t thread_local_bytes = 0;

 private:
  template <typename T>
  const T* At(uint64_t offset) const {
    return reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  const char* String(const Elf64_Shdr& table, uint64_t at) const {
    return At<char>(StringsOf(table).sh_offset + at);
  }
  const Elf64_Shdr& StringsOf(const Elf64_Shdr& section) const {
    return *At<Elf64_Shdr>(At<Elf64_Ehdr>(0)->e_shoff + section.sh_link * sizeof(Elf64_Shdr));
  }

  void ReadSymbols(const Elf64_Shdr& section) {
    for (uint64_t at = sizeof(Elf64_Sym); at < section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto* symbol = At<Elf64_Sym>(section.sh_offset + at);
      // The linker for ARM leaves sections there as local symbols without a name; nobody can ask
      // for those.
      if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL) continue;
      const bool is_exported = symbol->st_shndx != SHN_UNDEF;
      (is_exported ? exported : imported).insert(String(section, symbol->st_name));
    }
  }
  void ReadDynamic(const Elf64_Shdr& section) {
    for (uint64_t at = 0; at < section.sh_size; at += sizeof(Elf64_Dyn)) {
      const auto* entry = At<Elf64_Dyn>(section.sh_offset + at);
      if (entry->d_tag == DT_NEEDED) needed.insert(String(section, entry->d_un.d_val));
      if (entry->d_tag == DT_FLAGS_1) flags_1 = entry->d_un.d_val;
    }
  }
  void ReadVersions(const Elf64_Shdr& section) {
    uint64_t file_at = section.sh_offset;
    for (uint32_t file = 0; file < section.sh_info; ++file) {
      const auto* need = At<Elf64_Verneed>(file_at);
      uint64_t at = file_at + need->vn_aux;
      for (int i = 0; i < need->vn_cnt; ++i) {
        const auto* version = At<Elf64_Vernaux>(at);
        versions.insert(String(section, version->vna_name));
        at += version->vna_next;
      }
      file_at += need->vn_next;
    }
  }

  std::vector<char> bytes_;
};

class ExportsTest : public ::testing::Test {
 protected:
  // Read once: the instrumented library of a sanitizer takes half a minute.
  ExportsTest() : library_(Read()) {}
  static const Library& Read() {
    static const auto* const kRead = new Library(kLibrary);
    return *kRead;
  }
  // The compiler says so of two of the three; the third shows in what the library needs.
  bool IsSanitized() const {
    const auto ubsan = library_.needed.lower_bound("libubsan");
    return kSanitized || (ubsan != library_.needed.end() && ubsan->rfind("libubsan", 0) == 0);
  }
  const Library& library_;
};

TEST_F(ExportsTest, TheProfilersAndTheQueryAlone) {
  EXPECT_EQ(library_.exported,
            (std::set<std::string>{"ncclProfiler_v1", "ncclProfiler_v2", "ncclProfiler_v3",
                                   "ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v6",
                                   "ncclProfiler_v7", "ncclPulseQuery_v1"}));
}

// Forks of NCCL read behind the structure.
TEST_F(ExportsTest, ZerosFollowEachProfiler) {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  constexpr int kMembers = 6;
  for (const std::string& name : library_.exported) {
    if (name.rfind("ncclProfiler_", 0) != 0) continue;
    const auto* members = static_cast<void* const*>(dlsym(library, name.c_str()));
    ASSERT_NE(members, nullptr) << name;
    for (int i = 0; i < kMembers; ++i) EXPECT_NE(members[i], nullptr) << name;
    for (int i = kMembers; i < kMembers + 16; ++i) EXPECT_EQ(members[i], nullptr) << name;
  }
}

// The job may have any locale.
TEST_F(ExportsTest, NumbersAndLettersDoNotGoByTheLocale) {
  if (IsSanitized()) GTEST_SKIP() << "a sanitizer's own code";
  for (const char* name : {"strtod",
                           "strtof",
                           "strtold",
                           "atof",
                           "sscanf",
                           "__isoc99_sscanf",
                           "__isoc23_sscanf",
                           "tolower",
                           "toupper",
                           "isalpha",
                           "isalnum",
                           "isdigit",
                           "isspace",
                           "isprint",
                           "__ctype_b_loc",
                           "__ctype_tolower_loc",
                           "__ctype_toupper_loc",
                           "strcoll",
                           "strftime",
                           "setlocale"}) {
    EXPECT_EQ(library_.imported.count(name), 0u) << name;
  }
}

TEST_F(ExportsTest, StaysMappedWhenClosed) { EXPECT_NE(library_.flags_1 & DF_1_NODELETE, 0u); }

// Thread-local memory of a library that comes late is allocated at its first use, in a callback
// then. There is none but the C++ library's record of exceptions in flight, and no callback throws.
TEST_F(ExportsTest, NoThreadLocalMemoryOfItsOwn) {
  if (IsSanitized()) GTEST_SKIP() << "a sanitizer's own code";
  EXPECT_LE(library_.thread_local_bytes, 2 * sizeof(void*));
}

TEST_F(ExportsTest, NeedsGlibcAndLibgccAlone) {
  if (IsSanitized()) GTEST_SKIP() << "sanitizers bring libraries of their own";
  const std::set<std::string> allowed = {"libc.so.6",     "libm.so.6",
                                         "libdl.so.2",    "libpthread.so.0",
                                         "librt.so.1",    "ld-linux-x86-64.so.2",
                                         "libgcc_s.so.1", "ld-linux-aarch64.so.1"};
  for (const std::string& name : library_.needed) {
    EXPECT_EQ(allowed.count(name), 1u) << name;
  }
}

TEST_F(ExportsTest, Glibc234IsEnough) {
  if (IsSanitized()) GTEST_SKIP() << "sanitizers may need more";
  for (const std::string& version : library_.versions) {
    int minor = 0;
    sscanf(version.c_str(), "GLIBC_2.%d", &minor);  // 0 for libgcc's own versions
    EXPECT_LE(minor, 34) << version;
  }
}

TEST_F(ExportsTest, IsSmall) {
  if (IsSanitized()) GTEST_SKIP() << "instrumented code is large";
  EXPECT_LT(library_.size(), size_t{4} << 20);
}

}  // namespace
}  // namespace nccl_pulse
