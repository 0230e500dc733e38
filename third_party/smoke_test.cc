// Proves that every library of third_party/ compiles, links statically and works: each test asks
// one of them for something whose answer is known beforehand.

#include <bcrypt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <yaml-cpp/yaml.h>
#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

ABSL_FLAG(int, answer, 0, "A flag that the test sets.");

namespace {

using ::testing::ElementsAre;

TEST(AbseilTest, SplitsJoinsAndCounts) {
  absl::flat_hash_map<std::string, int> count;
  const std::vector<std::string> words = absl::StrSplit("ring tree ring nvls ring", ' ');
  for (const std::string& word : words) ++count[word];
  EXPECT_EQ(count.size(), 3U);
  EXPECT_EQ(count["ring"], 3);
  EXPECT_EQ(absl::StrCat("n=", absl::StrJoin(words, ",").size()), "n=24");
}

TEST(AbseilTest, ParsesFlags) {
  std::array<char, 8> program = {"pulse"};
  std::array<char, 16> flag = {"--answer=42"};
  std::array<char, 8> rest = {"rest"};
  std::array<char*, 3> argv = {program.data(), flag.data(), rest.data()};
  const std::vector<char*> left = absl::ParseCommandLine(argv.size(), argv.data());
  EXPECT_EQ(absl::GetFlag(FLAGS_answer), 42);
  EXPECT_THAT(left, ElementsAre(program.data(), rest.data()));
}

TEST(PrometheusCppTest, SerializesACounter) {
  prometheus::Registry registry;
  auto& family = prometheus::BuildCounter().Name("calls_total").Help("Calls.").Register(registry);
  family.Add({{"op", "AllReduce"}}).Increment(3);
  EXPECT_EQ(prometheus::TextSerializer().Serialize(registry.Collect()),
            "# HELP calls_total Calls.\n"
            "# TYPE calls_total counter\n"
            "calls_total{op=\"AllReduce\"} 3\n");
}

TEST(ZlibTest, GzipRoundTrip) {
  constexpr int kGzip = MAX_WBITS + 16;
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "series_", i, " ", i * i, "\n");

  z_stream out = {};
  ASSERT_EQ(deflateInit2(&out, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::vector<unsigned char> packed(deflateBound(&out, text.size()));
  out.next_in = reinterpret_cast<unsigned char*>(text.data());
  out.avail_in = static_cast<uInt>(text.size());
  out.next_out = packed.data();
  out.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&out, Z_FINISH), Z_STREAM_END);
  packed.resize(out.total_out);
  EXPECT_EQ(deflateEnd(&out), Z_OK);
  ASSERT_LT(packed.size(), text.size() / 2);
  EXPECT_EQ(packed[0], 0x1f);
  EXPECT_EQ(packed[1], 0x8b);

  z_stream in = {};
  ASSERT_EQ(inflateInit2(&in, kGzip), Z_OK);
  std::string unpacked(text.size() + 1, '\0');
  in.next_in = packed.data();
  in.avail_in = static_cast<uInt>(packed.size());
  in.next_out = reinterpret_cast<unsigned char*>(unpacked.data());
  in.avail_out = static_cast<uInt>(unpacked.size());
  EXPECT_EQ(inflate(&in, Z_FINISH), Z_STREAM_END);
  unpacked.resize(in.total_out);
  EXPECT_EQ(inflateEnd(&in), Z_OK);
  EXPECT_EQ(unpacked, text);
}

// "the quick brown fox jumps over the lazy dog. " eight times, through `xz -9`.
constexpr std::array<uint8_t, 116> kXz = {
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21,
    0x01, 0x1c, 0x00, 0x00, 0x00, 0x10, 0xcf, 0x58, 0xcc, 0xe0, 0x01, 0x67, 0x00, 0x33, 0x5d,
    0x00, 0x3a, 0x1a, 0x08, 0xce, 0x76, 0xc7, 0xe5, 0xe9, 0xd6, 0x07, 0x34, 0xc3, 0xd1, 0x0e,
    0xbf, 0xce, 0x55, 0xe1, 0xaa, 0xbd, 0xe0, 0xe4, 0x8f, 0x98, 0x01, 0xdd, 0x8d, 0xe5, 0x07,
    0x54, 0x9e, 0x65, 0x25, 0x5f, 0x27, 0x3a, 0x6a, 0x7e, 0xb4, 0xd3, 0x49, 0x03, 0x89, 0xce,
    0xd4, 0x7d, 0x3b, 0xf2, 0x90, 0xc0, 0x00, 0x00, 0x00, 0x44, 0x57, 0x3f, 0x94, 0x60, 0xe4,
    0x74, 0x24, 0x00, 0x01, 0x4f, 0xe8, 0x02, 0x00, 0x00, 0x00, 0xf1, 0x28, 0xf6, 0x8f, 0xb1,
    0xc4, 0x67, 0xfb, 0x02, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
};

std::string DecodeXz(const uint8_t* data, size_t size, lzma_ret* result) {
  uint64_t memory_limit = 128 << 20;
  size_t in = 0;
  size_t out = 0;
  std::string text(4096, '\0');
  *result = lzma_stream_buffer_decode(&memory_limit, 0, nullptr, data, &in, size,
                                      reinterpret_cast<uint8_t*>(text.data()), &out, text.size());
  text.resize(out);
  return text;
}

TEST(LiblzmaTest, DecodesXz) {
  std::string expected;
  for (int i = 0; i < 8; ++i) expected += "the quick brown fox jumps over the lazy dog. ";
  lzma_ret result = LZMA_PROG_ERROR;
  EXPECT_EQ(DecodeXz(kXz.data(), kXz.size(), &result), expected);
  EXPECT_EQ(result, LZMA_OK);
}

TEST(LiblzmaTest, RefusesDamagedXz) {
  std::array<uint8_t, kXz.size()> damaged = kXz;
  damaged[60] ^= 1;
  lzma_ret result = LZMA_OK;
  DecodeXz(damaged.data(), damaged.size(), &result);
  EXPECT_EQ(result, LZMA_DATA_ERROR);
}

// The examples of the protocol buffers' encoding guide: field 1 = 150, field 2 = "testing".
TEST(ProtozeroTest, WritesAndReads) {
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_uint64(1, 150);
  writer.add_string(2, "testing");
  EXPECT_EQ(message, "\x08\x96\x01\x12\x07testing");

  protozero::pbf_reader reader(message);
  ASSERT_TRUE(reader.next(1));
  EXPECT_EQ(reader.get_uint64(), 150U);
  ASSERT_TRUE(reader.next(2));
  EXPECT_EQ(reader.get_string(), "testing");
  EXPECT_FALSE(reader.next());
}

TEST(NlohmannJsonTest, ParsesAndWrites) {
  nlohmann::json document = nlohmann::json::parse(R"({"ranks": [0, 1, 2], "name": "dp"})");
  EXPECT_EQ(document["ranks"].size(), 3U);
  document["ranks"].push_back(3);
  EXPECT_EQ(document.dump(), R"({"name":"dp","ranks":[0,1,2,3]})");
  EXPECT_THAT(nlohmann::json::parse("{", nullptr, false).is_discarded(), true);
}

TEST(YamlCppTest, Parses) {
  const YAML::Node document = YAML::Load("ranks: [0, 1]\nname: dp\n");
  EXPECT_EQ(document["ranks"].size(), 2U);
  EXPECT_EQ(document["name"].Scalar(), "dp");
  EXPECT_THROW(YAML::Load("["), YAML::Exception);
}

TEST(BoringSslTest, HashesAndTalks) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const uint8_t*>("abc"), 3, digest.data());
  EXPECT_EQ(digest[0], 0xba);  // FIPS 180-2, appendix B.1
  EXPECT_EQ(digest[31], 0xad);
  const bssl::UniquePtr<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  EXPECT_EQ(SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION), 1);
}

TEST(LibxcryptTest, HashesWithBcrypt) {
  // Of jBCrypt's tests; there with $2a$, which is the same for this password.
  constexpr char kHash[] = "$2b$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i";
  std::array<uint8_t, BCRYPT_OUTPUT_SIZE> output{};
  alignas(16) std::array<char, BCRYPT_SCRATCH_SIZE> scratch;
  crypt_bcrypt_rn("abc", 3, kHash, sizeof(kHash) - 1, output.data(), output.size(), scratch.data(),
                  scratch.size());
  EXPECT_STREQ(reinterpret_cast<const char*>(output.data()), kHash);
}

}  // namespace
