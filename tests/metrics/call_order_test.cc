// The order of a communicator's last collectives: what is in it, and what is left out.
#include "metrics/call_order.h"

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using Calls = std::vector<LastCallSnapshot>;

// As a ring has them: collectives in capital letters, Send and Recv in small ones; "+" before what
// is of the same group as the call before. Call i is carried by launch i.
Calls CallsOf(const std::string& text, uint64_t collectives_before = 0) {
  Calls calls;
  bool is_of_group = false;
  for (const char c : text) {
    if (c == '+') {
      is_of_group = true;
      continue;
    }
    LastCallSnapshot& call = calls.emplace_back();
    call.op = std::string(1, c);
    if (c >= 'A' && c <= 'Z') call.collective_number = ++collectives_before;
    call.is_of_group = is_of_group;
    call.launch = calls.size();
    call.launch_realtime_ns = 1;
    is_of_group = false;
  }
  return calls;
}

// "2:AB+C": from collective 2 on.
std::string Text(const CallOrderSnapshot& order) {
  std::string text = std::to_string(order.first) + ":";
  for (const char bits : order.calls) {
    const auto call = static_cast<uint8_t>(bits);
    if ((call & CallOrderSnapshot::kSameGroup) != 0) text += "+";
    text += order.kinds.at(call & CallOrderSnapshot::kKind).op;
  }
  return text;
}

std::string OrderOf(const std::string& calls, uint64_t before = 0) {
  return Text(CallOrderOf(CallsOf(calls, before), 0));
}

TEST(CallOrder, CollectivesByTheirNumber) {
  EXPECT_EQ(OrderOf(""), "0:");
  EXPECT_EQ(OrderOf("AABA", 16), "17:AABA");
  EXPECT_EQ(OrderOf("sAssB"), "1:AB");
  EXPECT_EQ(OrderOf("ss"), "0:");
}

TEST(CallOrder, GroupsAreWhole) {
  EXPECT_EQ(OrderOf("A+B+CD"), "1:A+B+CD");
  EXPECT_EQ(OrderOf("+A+BC", 7), "10:C") << "what the ring has lost the rest of";
  // A Send between them belongs to one group or to the other.
  EXPECT_EQ(OrderOf("A+s+B"), "1:A+B");
  EXPECT_EQ(OrderOf("As+B"), "1:AB");
}

// More may be called in that group, and be sorted before them.
TEST(CallOrder, NotWhatIsNotLaunched) {
  Calls calls = CallsOf("AB+C");
  for (int i = 1; i <= 2; ++i) calls[i].launch_realtime_ns = 0;
  EXPECT_EQ(Text(CallOrderOf(calls, 0)), "1:A");
  for (int i = 1; i <= 2; ++i) calls[i].captured = true;
  EXPECT_EQ(Text(CallOrderOf(calls, 0)), "1:AB+C") << "a graph's launch is not seen here";
  // One in the middle has a launch that NCCL does not report.
  calls = CallsOf("ABC");
  calls[1].launch_realtime_ns = 0;
  EXPECT_EQ(Text(CallOrderOf(calls, 0)), "1:ABC");
}

TEST(CallOrder, NothingBeforeAGap) {
  Calls calls = CallsOf("ABCD+EF");
  calls.erase(calls.begin() + 1);
  EXPECT_EQ(Text(CallOrderOf(calls, 0)), "3:CD+EF");
  calls.erase(calls.begin() + 2);  // D, which begins the group of E
  EXPECT_EQ(Text(CallOrderOf(calls, 0)), "6:F");
}

TEST(CallOrder, KindsByOperationBytesAndType) {
  Calls calls = CallsOf("AAAA");
  calls[1].bytes = 8;
  calls[2].datatype = "ncclInt8";
  const CallOrderSnapshot order = CallOrderOf(calls, 2);
  EXPECT_EQ(order.kinds.size(), 3u);
  EXPECT_EQ(order.calls[0], order.calls[3]);
}

TEST(CallOrder, TheOldestInFlight) {
  Calls calls = CallsOf("AAAA");
  EXPECT_EQ(CallOrderOf(calls, 2).in_flight, 3u) << "as its launches";
  EXPECT_EQ(CallOrderOf(calls, 0).in_flight, 1u);
  EXPECT_EQ(CallOrderOf(calls, 4).in_flight, 0u);
  EXPECT_EQ(CallOrderOf(calls, std::nullopt).in_flight, 0u) << "nothing tells";
  calls[2].launch = 0;
  EXPECT_EQ(CallOrderOf(calls, 2).in_flight, 4u) << "nothing tells of the one before";
}

TEST(CallOrder, AsManyKindsAsThereIsRoomFor) {
  Calls calls = CallsOf(std::string(200, 'A'));
  for (Calls::size_type i = 0; i < calls.size(); ++i) calls[i].bytes = i;
  const CallOrderSnapshot order = CallOrderOf(calls, 0);
  EXPECT_EQ(order.calls.size(), CallOrderSnapshot::kMostKinds);
  EXPECT_EQ(order.first, 200 - CallOrderSnapshot::kMostKinds + 1);
  // Of a group a part is nothing.
  for (Calls::size_type i = 1; i < calls.size() - 3; ++i) calls[i].is_of_group = true;
  EXPECT_EQ(Text(CallOrderOf(calls, 0)), "198:AAA");
}

}  // namespace
}  // namespace nccl_pulse
