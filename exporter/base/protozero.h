// protozero without its assertions. When a submessage whose size was given has ended, protozero
// 1.7.1 leaves it marked as open (basic_pbf_writer::close_submessage), and its assertion fails at
// the next one. What it writes is right: tests read it with parsers, and Prometheus does, too.
//
// A template has one definition in a program: each file that needs protozero includes it by this
// header.
#ifndef EXPORTER_BASE_PROTOZERO_H_
#define EXPORTER_BASE_PROTOZERO_H_

#define protozero_assert(condition)
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

#endif  // EXPORTER_BASE_PROTOZERO_H_
