// Callbacks meet the same new names at once, and a reader copies the table meanwhile. A name has
// one entry, an entry has one name, and a reader gets a name whole or not at all.
#include <cstring>

#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

constexpr int kNames = 2;
constexpr int kEntries = 2;

NameText NameOf(int name) {
  NameText text{};
  std::memset(text.text, 'a' + name, sizeof(text.text) - 1);
  return text;
}

struct Names : rl::test_suite<Names, 3> {
  using Entry = BasicNameEntry<CheckedAtomics>;
  ExecutionBegins begins;
  Entry entries[kEntries];

  void thread(unsigned index) {
    if (index == 2) return Read();
    // In opposite orders, so that each is first somewhere.
    for (int i = 0; i < kNames; ++i) Intern(static_cast<int>(index) == 0 ? i : kNames - 1 - i);
  }
  // As NameTable::Intern.
  void Intern(int name) {
    const NameText text = NameOf(name);
    for (Entry& entry : entries) {
      const Entry::Entered entered = entry.Enter(text);
      if (entered == Entry::Entered::kBusy) return;
      if (entered == Entry::Entered::kOther) continue;
      NameText found{};
      RL_ASSERT(entry.Read(&found));
      RL_ASSERT(IsName(found, name));
      return;
    }
    RL_ASSERT(false);  // there is room for all
  }
  void Read() {
    for (Entry& entry : entries) {
      NameText found{};
      if (!entry.Read(&found)) continue;
      RL_ASSERT(IsName(found, 0) || IsName(found, 1));
    }
  }
  void after() {
    int of_name[kNames] = {};
    for (Entry& entry : entries) {
      NameText found{};
      if (!entry.Read(&found)) continue;
      for (int name = 0; name < kNames; ++name) of_name[name] += IsName(found, name) ? 1 : 0;
    }
    for (const int count : of_name) RL_ASSERT(count <= 1);
    RL_ASSERT(of_name[0] + of_name[1] >= 1);
  }
  static bool IsName(const NameText& text, int name) {
    const NameText expected = NameOf(name);
    return std::memcmp(text.text, expected.text, sizeof(text.text)) == 0;
  }
};

TEST(NameTable, ANameHasOneEntry) {
  EachOrderingMatters<Names>({"name_entry.h", "atomic_cell.h"}, 30000);
}

}  // namespace
}  // namespace nccl_pulse
