// Pickle writes values for Python's pickle module: protocol 2, which every Python 3 reads. It
// supports None, booleans, integers, floats, texts, lists, pairs, and dictionaries with text keys.
//
//   Pickle pickle;
//   pickle.BeginDict();
//   pickle.Key("version").Text("2.4");
//   pickle.EndDict();
//   file << pickle.Finish();
//
// Thread: one. Cost: a copy of the output. Source: Python's Lib/pickletools.py.
#ifndef EXPORTER_FLIGHT_RECORDER_PICKLE_H_
#define EXPORTER_FLIGHT_RECORDER_PICKLE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse {

class Pickle {
 public:
  Pickle& None() { return Put("N"); }
  Pickle& Bool(bool value) { return Put(value ? "\x88" : "\x89"); }
  Pickle& Integer(int64_t value);
  Pickle& Real(double value);
  Pickle& Text(std::string_view text);  // UTF-8

  Pickle& BeginList() { return Put("]("); }
  Pickle& EndList() { return Put("e"); }
  Pickle& BeginDict() { return Put("}("); }
  Pickle& Key(std::string_view name) { return Text(name); }
  Pickle& EndDict() { return Put("u"); }
  Pickle& Pair(std::string_view first, std::string_view second) {
    return Text(first).Text(second).Put("\x86");
  }

  std::string Finish() { return "\x80\x02" + out_ + "."; }

 private:
  Pickle& Put(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  std::string out_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLIGHT_RECORDER_PICKLE_H_
