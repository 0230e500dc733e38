// Explores the executions of a Relacy test, as it is and with one ordering weakened at a time.
#ifndef TESTS_MODEL_EXPLORE_H_
#define TESTS_MODEL_EXPLORE_H_

#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "tests/model/checked_atomics.h"

namespace nccl_pulse {

// Takes the checker's reports. While it reports, memory may be its own or ours, so none is asked
// for: what is too long is cut off.
class ReportBuffer : public std::streambuf {
 public:
  ReportBuffer() { setp(text_, text_ + sizeof(text_)); }
  std::string text() const { return std::string(pbase(), pptr()); }

 private:
  static char text_[1 << 16];
};
inline char ReportBuffer::text_[1 << 16];

// "" when `executions` of them keep what Test asserts; else the history of the one that does not.
template <typename Test>
std::string Explore(int executions) {
  ReportBuffer buffer;
  std::ostream output(&buffer);
  rl::test_params params;
  params.iteration_count = static_cast<rl::iteration_t>(executions);
  params.output_stream = &output;
  params.progress_stream = &output;
  params.progress_output_period = 0xffffffff;
  params.search_type = rl::random_scheduler_type;
  return rl::simulate<Test>(params) ? "" : buffer.text();
}

// Test is sound, and each ordering in it that is stronger than relaxed is found when it is missing:
// otherwise it is not needed, or Test does not show why it is. `unseen` ("name.h: operation", or
// "name.h: Function: operation") are those that the checker, or this test, cannot tell; the caller
// says why.
template <typename Test>
void EachOrderingMatters(const std::vector<std::string>& files, int executions,
                         const std::vector<std::string>& unseen = {}) {
  Sites::Clear();
  ASSERT_EQ(Explore<Test>(executions), "");
  const int sites = Sites::count();
  int weakened = 0;
  for (int i = 0; i < sites; ++i) {
    const Site site = Sites::at(i);
    bool is_of_it = false;
    for (const std::string& file : files) is_of_it |= site.file == file;
    if (!is_of_it) continue;
    bool is_unseen = false;
    const std::string of_file = std::string(site.file) + ": ";
    const std::string of_function = of_file + site.function + ": ";
    for (const std::string& one : unseen) {
      is_unseen |= one == of_file + site.operation || one == of_function + site.operation;
    }
    Sites::Weaken(i);
    const bool found = !Explore<Test>(executions).empty();
    if (is_unseen) {
      EXPECT_FALSE(found) << ToString(site) << " can be told after all";
    } else {
      EXPECT_TRUE(found) << ToString(site) << ": nothing happens without it";
    }
    ++weakened;
  }
  Sites::Clear();
  EXPECT_GT(weakened, 0);
  testing::Test::RecordProperty("orderings_weakened", weakened);
  std::printf("%d orderings weakened, one at a time; %d executions each\n", weakened, executions);
}

}  // namespace nccl_pulse

#endif  // TESTS_MODEL_EXPLORE_H_
