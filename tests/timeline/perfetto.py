"""Reads a Perfetto trace, and holds it to the rules that trace_processor enforces.

Shares no code with the writer. Facts, as numbers of fields: google/perfetto, protos/perfetto/trace/ (trace_packet.proto,
track_event/track_event.proto, track_event/track_descriptor.proto, track_event/counter_descriptor.proto,
track_event/debug_annotation.proto, interned_data/interned_data.proto, clock_snapshot.proto), and the rules in
perfetto.dev's page on synthetic track events, and in src/trace_processor/importers/proto.
"""

import collections
import struct

REALTIME, TRACE_FILE = 1, 11
CLEARED, NEEDS_STATE = 1, 2
BEGIN, END, MARK, COUNTER = 1, 2, 3, 4

Track = collections.namedtuple("Track", "uuid name parent is_counter about")
# end_ns None: it is open to the end of the trace. depth: how many slices of its track it lies in.
Slice = collections.namedtuple("Slice", "track name begin_ns end_ns depth notes flows")
Mark = collections.namedtuple("Mark", "track name time_ns notes flows")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        assert shift < 70, "a varint of more than ten bytes"


def message(data):
    """{field: [values]}: numbers, or bytes of what has a length."""
    fields, at = collections.defaultdict(list), 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        assert tag >> 3, "field 0"
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at:at + 8], at + 8
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "cut off"
        else:
            raise AssertionError("wire type %d" % kind)
        fields[tag >> 3].append(value)
    return fields


def one(fields, number, otherwise=None):
    values = fields.get(number, [])
    assert len(values) <= 1, "field %d stands %d times" % (number, len(values))
    return values[0] if values else otherwise


def text(value):
    return None if value is None else value.decode("utf-8")


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


class Trace:

    def __init__(self, data):
        self.tracks = {}
        self.slices, self.marks = [], []
        self.counters = collections.defaultdict(list)  # {track: [(time, value)]}
        self._interned = {1: {}, 2: {}, 3: {}}
        self._open = collections.defaultdict(list)
        self._last_ns = 0
        self._is_cleared = False
        self._sequences = set()
        top = message(data)
        assert set(top) <= {1}, "a trace holds packets alone"
        for packet in top[1]:
            self._read(message(packet))
        for waiting in self._open.values():
            self.slices.extend(slice_ for _, slice_ in waiting)
        self.slices = [slice_ for _, slice_ in sorted(
            ((slice_.begin_ns, i), slice_) for i, slice_ in enumerate(self.slices))]
        self._check_parents()
        self._check_flows()

    def _read(self, packet):
        sequence = one(packet, 10, 0)
        assert sequence != 0, "a packet without a sequence"
        self._sequences.add(sequence)
        assert len(self._sequences) == 1
        flags = one(packet, 13, 0)
        if flags & CLEARED:
            assert not self._is_cleared, "state is cleared once, first"
            assert one(packet, 87) == 1
            self._is_cleared = True
        assert self._is_cleared, "the first packet must clear the state"
        time_ns = one(packet, 8)
        if time_ns is not None:
            assert one(packet, 58) == REALTIME, "of which clock is this?"
            assert time_ns >= self._last_ns, "timestamps of a sequence step back"
            self._last_ns = time_ns
        if 12 in packet:
            self._intern(message(one(packet, 12)))
        payloads = {6, 11, 60} & set(packet)
        assert len(payloads) == 1, payloads
        if 6 in packet:
            snapshot = message(one(packet, 6))
            # With another primary clock trace_processor wants to know how CLOCK_BOOTTIME goes with it.
            assert one(snapshot, 2) == TRACE_FILE
            clocks = {one(clock, 1): one(clock, 2) for clock in map(message, snapshot[1])}
            assert clocks == {TRACE_FILE: time_ns or 0, REALTIME: time_ns or 0}, "it is not Unix time"
        elif 60 in packet:
            self._add_track(message(one(packet, 60)))
        else:
            assert flags & NEEDS_STATE, "it refers to interned names"
            assert time_ns is not None
            self._add_event(message(one(packet, 11)), time_ns)

    def _intern(self, interned):
        assert set(interned) <= set(self._interned)
        for field, entries in interned.items():
            for entry in map(message, entries):
                iid = one(entry, 1, 0)
                assert iid != 0 and iid not in self._interned[field], "an id is given once"
                self._interned[field][iid] = text(one(entry, 2))

    def _add_track(self, track):
        uuid = one(track, 1, 0)
        assert uuid != 0 and uuid not in self.tracks
        self.tracks[uuid] = Track(uuid, text(one(track, 2)), one(track, 5), 8 in track, text(one(track, 14, b"")))

    def _add_event(self, event, time_ns):
        kind, track = one(event, 9), one(event, 11, 0)
        assert track in self.tracks, "events of a track that is not described"
        assert self.tracks[track].is_counter == (kind == COUNTER), "counter and slices on one track"
        if kind == COUNTER:
            self.counters[track].append((time_ns, struct.unpack("<d", one(event, 44))[0]))
            return
        if kind == END:
            assert self._open[track], "an end without a beginning on %r" % self.tracks[track].name
            index, slice_ = self._open[track].pop()
            self.slices.append(slice_._replace(end_ns=time_ns))
            return
        assert [self._interned[1][iid] for iid in event[3]] == ["nccl"]
        name = self._interned[2][one(event, 10)]
        notes = dict(self._note(message(note)) for note in event[4])
        flows = [struct.unpack("<Q", flow)[0] for flow in event[47]]
        assert 0 not in flows
        if kind == BEGIN:
            depth = len(self._open[track])
            self._open[track].append((len(self.slices), Slice(track, name, time_ns, None, depth, notes, flows)))
        else:
            assert kind == MARK
            self.marks.append(Mark(track, name, time_ns, notes, flows))

    def _note(self, note):
        name = self._interned[3][one(note, 1)]
        if 2 in note:
            return name, bool(one(note, 2))
        if 4 in note:
            return name, signed(one(note, 4))
        if 5 in note:
            return name, struct.unpack("<d", one(note, 5))[0]
        return name, text(one(note, 6))

    def _check_parents(self):
        # The outermost tracks are not shown in their order.
        assert [track.uuid for track in self.tracks.values() if track.parent is None] == [1], "there is one root"
        for track in self.tracks.values():
            if track.parent is not None:
                # Written before its children: no circle.
                assert track.parent in self.tracks and track.parent < track.uuid

    def _check_flows(self):
        ends = collections.Counter(flow for event in self.slices + self.marks for flow in event.flows)
        alone = [flow for flow, count in ends.items() if count < 2]
        assert not alone, "%d flows have one end" % len(alone)

    def path(self, track):
        """The names from the outermost track to this one."""
        names = []
        while track is not None:
            names.append(self.tracks[track].name)
            track = self.tracks[track].parent
        return names[::-1]

    def on(self, name, *above):
        """(slices, marks) of the tracks of that name, below tracks whose names begin like these."""
        def fits(track):
            path = self.path(track)
            return path[-1] == name and all(any(each.startswith(part) for each in path[:-1]) for part in above)
        return ([each for each in self.slices if fits(each.track)], [each for each in self.marks if fits(each.track)])

    def find_tracks(self, part):
        return [track for track in self.tracks.values() if part in track.name]
