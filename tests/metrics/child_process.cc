#include "tests/metrics/child_process.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <vector>

namespace nccl_pulse {

std::string RunInChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  fflush(nullptr);  // what is buffered would be written twice
  const pid_t child = fork();
  if (child < 0) return "no fork";
  if (child == 0) {
    close(ends[0]);
    const std::string result = body();
    const ssize_t written = write(ends[1], result.data(), result.size());
    _exit(written == static_cast<ssize_t>(result.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string result;
  char buffer[512];
  ssize_t got;
  while ((got = read(ends[0], buffer, sizeof(buffer))) > 0) {
    result.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "no child";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "exit " + std::to_string(WEXITSTATUS(status));
  return result;
}

bool Refuse(const Refusal& refusal) {
  const auto load = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, nr)),
      // Another call: to the end, which is one instruction further without a condition.
      {BPF_JMP | BPF_JEQ | BPF_K, 0,
       static_cast<uint8_t>(refusal.when == Refusal::When::kAlways ? 1 : 3),
       static_cast<uint32_t>(refusal.number)},
  };
  if (refusal.when != Refusal::When::kAlways) {
    // Little-endian: the low half comes first.
    program.push_back(load(offsetof(seccomp_data, args) +
                           static_cast<size_t>(refusal.argument) * sizeof(uint64_t)));
    const int compare = refusal.when == Refusal::When::kArgumentIs ? BPF_JEQ : BPF_JGT;
    program.push_back({static_cast<uint16_t>(BPF_JMP | compare | BPF_K), 0, 1, refusal.value});
  }
  program.push_back(
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (static_cast<uint32_t>(refusal.error) & 0xffff)});
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace nccl_pulse
