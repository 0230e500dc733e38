// Computes latencies of the last minute instead of since the start, from the difference of two
// answers.

const BASE_SECONDS = 30;

const quantileOf = (buckets, total, quantile) => {
  let below = 0;
  for (const bucket of buckets) {
    const {from, to} = bucketSpan(bucket);
    if (below + bucket[1] >= quantile * total) return 2 ** (from + (to - from) * (quantile * total - below) / bucket[1]);
    below += bucket[1];
  }
  return null;
};

// Returns null if the counters were reset in between.
function difference(now, before) {
  const old = new Map(bucketsOf(before));
  const buckets = [];
  for (const [bound, held] of bucketsOf(now)) {
    const more = held - (old.get(bound) || 0);
    old.delete(bound);
    if (more < 0) return null;
    if (more > 0) buckets.push([bound, more]);
  }
  if (old.size > 0) return null;
  const total = buckets.reduce((sum, each) => sum + each[1], 0);
  const secondsOf = (latency) => number(latency.count) * number(latency.mean);
  const busOf = (latency) => number(latency.bus_bytes_per_second) * secondsOf(latency);
  const spent = secondsOf(now) - secondsOf(before);
  const bus = busOf(now) - busOf(before);
  return {
    ...now, buckets, count: total, mean: total > 0 ? spent / total : 0,
    p50: quantileOf(buckets, total, 0.5), p90: quantileOf(buckets, total, 0.9), p99: quantileOf(buckets, total, 0.99),
    max: quantileOf(buckets, total, 1), bus_bytes_per_second: total > 0 && spent > 0 && bus > 0 ? bus / spent : null,
  };
}

// Keeps two earlier answers, the older one 30 to 60 seconds old.
class Recent {
  constructor() { this.bases = []; }

  add(page) {
    const time = number(page.time);
    const last = this.bases[this.bases.length - 1];
    if (last && time < last.time) this.bases = [];
    else if (last && time - last.time < BASE_SECONDS) return;
    const latencies = new Map();
    for (const comm of objects(page.communicators)) {
      for (const operation of objects(comm.operations)) {
        for (const latency of objects(operation.latencies)) latencies.set(this.key(comm, operation, latency), latency);
      }
    }
    this.bases.push({time, latencies});
    if (this.bases.length > 2) this.bases.shift();
  }

  key(comm, operation, latency) {
    return JSON.stringify([comm.comm, operation.op, operation.size, latency.measure, latency.source]);
  }

  // Returns the communicator with the last minute's latencies of its operations.
  view(comm) {
    const base = this.bases[0];
    if (!base) return comm;
    const recent = (operation) => objects(operation.latencies).map((latency) => {
      const before = base.latencies.get(this.key(comm, operation, latency));
      return before ? difference(latency, before) || latency : latency;
    });
    return {...comm, operations: objects(comm.operations).map((each) => ({...each, latencies: recent(each)}))};
  }
}
