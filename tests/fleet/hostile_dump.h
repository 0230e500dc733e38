// Dumps of PyTorch's Flight Recorder for tests that damage them, and what must hold of whatever is
// read.
#ifndef TESTS_FLEET_HOSTILE_DUMP_H_
#define TESTS_FLEET_HOSTILE_DUMP_H_

#include <string>
#include <string_view>

namespace nccl_pulse {

// Of a rank of four that hang: two groups, collectives, coalesced ones, Send and Recv.
std::string HonestPickle(int rank);
std::string HonestJson(int rank);

// Reads it as a dump of one rank and judges what it says. "", or what no dump may bring about.
std::string ReadAndCheck(std::string_view bytes);

}  // namespace nccl_pulse

#endif  // TESTS_FLEET_HOSTILE_DUMP_H_
