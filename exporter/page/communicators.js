// Shows the list of communicators: a line each, with details when opened.

// Communicators open at first; with more, nothing can be found.
const OPEN_AT_FIRST = 3;
const SPARK_WIDTH = 64;
const SPARK_HEIGHT = 16;

class Spark {
  constructor() {
    this.line = drawn('polyline');
    this.node = drawn('svg', {class: 'spark', width: SPARK_WIDTH, height: SPARK_HEIGHT, 'aria-hidden': 'true'}, this.line);
  }

  update(points) {
    if (points.length < 5) return;  // a few points look like a stray mark
    const highest = Math.max(1e-9, ...points);
    const step = SPARK_WIDTH / (SPARK_POINTS - 1);
    mark(this.line, 'points', points.map((value, i) => {
      const x = SPARK_WIDTH - (points.length - 1 - i) * step;
      return `${x.toFixed(1)},${(SPARK_HEIGHT - 1 - value / highest * (SPARK_HEIGHT - 2)).toFixed(1)}`;
    }).join(' '));
  }
}

class Section {
  constructor(open) {
    const part = (name, tag = 'span') => element(tag, {class: name});
    this.badge = part('badge');
    this.name = part('name', 'bdi');
    this.id = part('id');
    this.ranks = part('ranks');
    this.flight = part('flight');
    this.rate = part('rate');
    this.latency = part('latency');
    this.spark = new Spark();
    this.body = element('div', {class: 'body'});
    this.node = element('details', {class: 'communicator'},
        element('summary', {},
            this.badge, element('h3', {}, this.name, this.id), this.ranks, this.flight,
            element('span', {class: 'rates'}, this.spark.node, this.rate), this.latency),
        this.body);
    this.wanted = open;
    this.node.open = open;
    this.node.addEventListener('toggle', () => {
      if (this.node.open !== this.wanted) this.decided = true;  // by the reader
      this.wanted = this.node.open;
      this.render();
    });
  }

  // Opens a communicator in trouble unless the reader has closed it. Never closes one.
  update(whole, history, recent, now) {
    const comm = recent ? recent.view(whole) : whole;
    Object.assign(this, {comm, history, now, isRecent: recent !== null});
    if (trouble(comm) === 2 && !this.decided && !this.wanted) {
      this.wanted = true;
      this.node.open = true;
    }
    const level = ['ok', 'slow', 'hang'][trouble(comm)];
    const word = failure !== '' && trouble(comm) === 0 ? 'unknown' : troubleWord(comm);
    mark(this.node, 'data-level', !isInUse(comm) ? 'ended' : word === 'unknown' ? 'unknown' : level);
    put(this.badge, isInUse(comm) ? {ok: 'ok', unknown: 'unknown', wait: '▲ WAIT', slow: '▲ SLOW', hang: '■ HANG'}[word] : 'ended');
    putName(this.name, text(comm.name) || 'unnamed');
    put(this.id, text(comm.comm));
    const ranks = objects(comm.ranks);
    const nranks = Math.max(0, number(comm.nranks));
    const nnodes = Math.max(0, number(comm.nnodes));
    putName(this.ranks, plural(nranks, 'rank') + (nnodes > 1 ? `, ${plural(nnodes, 'node')}` : '') +
        (ranks.length < nranks ? `, ${ranks.length} here` : ''));
    const flying = inFlight(comm);
    const unseen = ranks.filter((rank) => rank.state === 'unknown').length;
    put(this.flight, flying.ranks > 0 ? `${plural(flying.ranks, 'rank')} in flight, ${seconds(now - flying.since)}` :
      unseen > 0 ? `${unseen} unknown` : 'nothing in flight');
    put(this.rate, `${dash(history.callRate(comm), count)} calls/s`);
    this.spark.update(history.sparks.get(comm.comm) || []);
    const shown = mostTime(comm);
    putName(this.latency, shown === null ? 'nothing timed' :
      `${text(shown.op)} ${size(shown.size)}: p50 ${dash(shown.latency.p50, seconds)}, p99 ${dash(shown.latency.p99, seconds)}` +
      (isNumber(shown.latency.bus_bytes_per_second) ? `, ${byteRate(shown.latency.bus_bytes_per_second)}` : ''));
    this.render();
  }

  // Closed ones are not updated.
  render() {
    if (!this.node.open || !this.comm) return;
    if (!this.facts) {
      this.facts = element('p', {class: 'quiet'});
      this.rankTable = new RankTable();
      this.operationTable = new OperationTable();
      this.bucketTable = new BucketTable();
      this.callTable = new CallTable();
      this.body.append(this.facts, this.rankTable.node, this.callTable.node, this.operationTable.node, this.bucketTable.node);
    }
    const {comm, history, now} = this;
    const shown = mostTime(comm);
    const jobs = [...new Set(objects(comm.ranks).map((rank) => text(processOf(rank).job_id)))].filter(Boolean).slice(0, 4).join(', ');
    put(this.facts, [jobs && `Job ${jobs}`, shown && `p50, p99 and bus of each rank: ${text(shown.op)} ${size(shown.size)}, ` +
        `${text(shown.latency.measure)} (${text(shown.latency.source)}), since the start`].filter(Boolean).join(' · '));
    const operations = objects(comm.operations).length > 0;
    this.operationTable.node.hidden = !operations;
    this.bucketTable.node.hidden = !operations;
    this.rankTable.update(comm, history, now);
    this.operationTable.update(comm, history, this.isRecent);
    this.bucketTable.update(comm);
    this.callTable.update(comm);
  }

  reveal() {
    this.node.open = true;
    this.node.scrollIntoView({block: 'start'});
    this.node.firstChild.focus();
  }
}

// The text that the filter searches.
function searchText(comm) {
  const words = [text(comm.comm), text(comm.name), troubleWord(comm), text(object(comm.hang).verdict)];
  for (const rank of objects(comm.ranks)) {
    words.push(text(rank.rank), pidOf(rank), text(processOf(rank).hostname), text(rank.state).replace('_', ' '),
        `gpu ${text(object(rank.gpu).index)}`);
  }
  for (const operation of objects(comm.operations)) words.push(text(operation.op));
  return words.join(' ').toLowerCase();
}

class CommunicatorList {
  constructor(parent, note) {
    Object.assign(this, {parent, note, places: new Map()});
  }

  update(page, history, recent, filter, withEnded) {
    const all = objects(page.communicators);
    // Communicators in trouble come first when first seen. Later no card moves under the reader.
    const {places} = this;
    const isNew = all.filter((comm) => !places.has(text(comm.comm))).sort((a, b) => trouble(b) - trouble(a));
    for (const comm of isNew) places.set(text(comm.comm), places.size);
    const usable = all.filter((comm) => withEnded || isInUse(comm));
    const wanted = filter.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const shown = usable.filter((comm) => {
      if (wanted.length === 0) return true;
      const words = searchText(comm);
      return wanted.every((word) => words.includes(word));
    });
    shown.sort((a, b) => places.get(text(a.comm)) - places.get(text(b.comm)));
    const few = usable.length <= OPEN_AT_FIRST;
    reconcile(this.parent, shown, (comm) => text(comm.comm),
        (comm) => new Section(few || trouble(comm) === 2),
        (section, comm) => section.update(comm, history, recent, number(page.time)));
    const notes = [];
    if (usable.length > shown.length) notes.push(`${plural(usable.length - shown.length, 'communicator')} not shown (filter).`);
    if (all.length > usable.length) notes.push(`${plural(all.length - usable.length, 'ended communicator')} not shown.`);
    put(this.note, notes.join(' '));
  }

  find(comm) { return this.parent.parts && this.parent.parts.get(comm); }
}
