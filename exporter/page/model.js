// Derives rates from two answers of the endpoint.

const SPARK_POINTS = 60;

const processOf = (rank) => object(rank.process);
// The pid as the endpoint sees it; else the process' own pid with its PID namespace.
const pidOf = (rank) => text(processOf(rank).seen_pid) || text(processOf(rank).pid) +
  (number(processOf(rank).pid_namespace) > 0 ? `@${text(processOf(rank).pid_namespace)}` : '');
const keyOfRank = (comm, rank) => `${text(comm.comm)} ${text(rank.rank)} ${pidOf(rank)}`;
// Includes operations of CUDA graph replays, if counted.
const callsOf = (rank) => objects(rank.operations).reduce((sum, each) => sum + number(each.calls), number(object(rank.work).operations));
const isInUse = (comm) => objects(comm.ranks).some((rank) => rank.active === true);
const isUsual = (comm) => object(comm.hang).usual === true;
const trouble = (comm) => (comm.hang && !isUsual(comm) ? 2 : comm.hang || comm.straggler ? 1 : 0);
// True if the activity of all ranks is unknown.
const isBlind = (comm) => objects(comm.ranks).every((rank) => rank.active !== true || rank.state === 'unknown' || rank.state === 'stopped');
// The state in one word, for the badge and the filter.
const troubleWord = (comm) => [isBlind(comm) ? 'unknown' : 'ok', comm.hang ? 'wait' : 'slow', 'hang'][trouble(comm)];

function communicatorName(comm) {
  const name = text(comm.name);
  return text(comm.comm) + (name === '' ? '' : ` "${name}"`);
}

// Keeps the last answers, by the endpoint's clock: the browser's may differ.
class History {
  constructor() {
    this.pages = [];  // the last two: {time, counters}
    this.sparks = new Map();
  }

  add(page) {
    const time = number(page.time);
    const last = this.pages[this.pages.length - 1];
    if (last && time <= last.time) {
      // The same answer (the server caches it briefly), or another server with another clock.
      if (time === last.time) return;
      this.pages = [];
    }
    const counters = new Map();
    for (const comm of objects(page.communicators)) {
      for (const rank of objects(comm.ranks)) {
        counters.set(keyOfRank(comm, rank), {
          calls: callsOf(rank),
          launches: number(object(rank.launches).made),
        });
      }
      for (const operation of objects(comm.operations)) {
        counters.set(this.operationKey(comm, operation),
            {calls: number(operation.calls) + number(operation.replayed), bytes: number(operation.bytes)});
      }
    }
    this.pages.push({time, counters});
    if (this.pages.length > 2) this.pages.shift();
    this.updateSparks(page);
  }

  operationKey(comm, operation) {
    return `${text(comm.comm)}/${text(operation.op)}/${text(operation.size)}`;
  }

  // Returns a rate per second; null if unknown.
  rate(key, counter) {
    const [before, now] = this.pages.slice(-2);
    if (!now) return null;
    const [a, b] = [before.counters.get(key), now.counters.get(key)];
    if (!a || !b || !isNumber(a[counter]) || !isNumber(b[counter]) || b[counter] < a[counter]) return null;
    return (b[counter] - a[counter]) / (now.time - before.time);
  }

  rankRate(comm, rank, counter) { return this.rate(keyOfRank(comm, rank), counter); }
  operationRate(comm, operation, counter) {
    return this.rate(this.operationKey(comm, operation), counter);
  }
  callRate(comm) {
    let sum = null;
    for (const rank of objects(comm.ranks)) {
      const rate = this.rankRate(comm, rank, 'calls');
      if (rate !== null) sum = (sum || 0) + rate;
    }
    return sum;
  }

  updateSparks(page) {
    const sparks = new Map();
    for (const comm of objects(page.communicators)) {
      const rate = this.callRate(comm);
      const points = this.sparks.get(comm.comm) || [];
      if (rate !== null) points.push(rate);
      if (points.length > SPARK_POINTS) points.shift();
      sparks.set(comm.comm, points);
    }
    this.sparks = sparks;
  }
}

// Returns the operation in which the communicator's ranks spent most time, as {op, size, latency},
// or null. Prefers durations to completion times, which include waiting for earlier work.
function mostTime(comm) {
  let most = null;
  let mostWeight = [-1, -1];
  for (const operation of objects(comm.operations)) {
    for (const latency of objects(operation.latencies)) {
      const weight = [latency.measure === 'duration' ? 1 : 0, number(latency.count) * number(latency.mean)];
      if (weight[0] < mostWeight[0] || (weight[0] === mostWeight[0] && weight[1] <= mostWeight[1])) continue;
      most = {op: operation.op, size: operation.size, latency};
      mostWeight = weight;
    }
  }
  return most;
}

function latencyOfRank(rank, shown) {
  if (shown === null) return null;
  return objects(rank.latencies).find((each) => each.op === shown.op && each.size === shown.size &&
      each.measure === shown.latency.measure && each.source === shown.latency.source) || null;
}

// Returns a communicator's oldest work in flight: {ranks, since}.
function inFlight(comm) {
  let ranks = 0;
  let since = Infinity;
  for (const rank of objects(comm.ranks)) {
    if (rank.state !== 'in_flight' || !isNumber(rank.in_flight_since)) continue;
    ranks += 1;
    since = Math.min(since, rank.in_flight_since);
  }
  return {ranks, since};
}
