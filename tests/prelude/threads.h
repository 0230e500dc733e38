// Threads that all do the same work.
#ifndef TESTS_PRELUDE_THREADS_H_
#define TESTS_PRELUDE_THREADS_H_

#include <thread>
#include <vector>

namespace nccl_pulse {

// `count` threads, which call `work` with 0, 1, ...; joined at the latest when this goes.
class Threads {
 public:
  template <typename Work>
  Threads(int count, const Work& work) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([work, i] { work(i); });
  }
  ~Threads() { Join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace nccl_pulse

#endif  // TESTS_PRELUDE_THREADS_H_
