// Shows the details of an opened communicator: its ranks, its operations, and the histograms as
// numbers.

const RANK_COLUMNS = [
  {title: 'Rank', kind: 'rank'}, {title: 'Pid'}, {title: 'GPU', isOptional: true},
  {title: 'State', left: true}, {title: 'For', kind: 'time'}, {title: 'Last call', left: true, kind: 'call'},
  {title: 'Calls'}, {title: 'Calls/s'},
  {title: 'In flight', tip: 'Kernel launches that are not known to be complete'}, {title: 'Launches/s'},
  {title: 'Blocks others', isOptional: true, kind: 'two', tip: 'Of a straggler: the share of the last 20 s (longer if steps are slow) that the other ranks wait for it'},
  {title: 'p50', isOptional: true, kind: 'time'}, {title: 'p99', isOptional: true, kind: 'time'}, {title: 'Bus', isOptional: true, kind: 'time'},
];
// More rows are of no use on a page; the JSON has all.
const MOST_ROWS = 300;

const dash = (value, words) => (isNumber(value) ? words(value) : '–');

function makeRow(columns, header) {
  const cells = columns.map((column, i) => (i === header ?
    element('th', {scope: 'row', class: column.left ? 'left' : ''}) :
    element('td', {class: [column.left ? 'left' : '', column.kind || ''].join(' ').trim()})));
  return {node: element('tr', {}, ...cells), cells};
}

class RankTable {
  constructor() {
    const {node, body} = table('Ranks', RANK_COLUMNS);
    Object.assign(this, {node, body, heads: [...node.querySelectorAll('thead th')]});
  }

  update(comm, history, now) {
    const shown = mostTime(comm);
    const hang = object(comm.hang);
    const suspects = new Set(list(hang.suspects));
    const waiting = new Set(list(hang.waiting));
    const straggler = object(comm.straggler);
    const late = new Set([straggler.rank, ...list(straggler.ranks)]);
    reconcile(this.body, objects(comm.ranks).slice(0, MOST_ROWS),
        (rank) => keyOfRank(comm, rank), () => makeRow(RANK_COLUMNS, 0), ({node, cells}, rank) => {
          const suspect = suspects.has(rank.rank);
          const waits = waiting.has(rank.rank);
          const isLate = isNumber(rank.rank) && late.has(rank.rank);
          const last = rank.last_call ? object(rank.last_call) : null;
          const latency = latencyOfRank(rank, shown) || {};
          mark(node, 'class', suspect ? 'suspect' : isLate ? 'late' : waits ? 'waits' : null);
          const contents = [
            text(rank.rank), pidOf(rank), text(object(rank.gpu).index) || '–',
            text(rank.state_word) || '?', isNumber(rank.state_since) ? seconds(now - rank.state_since) : '–',
            last ? `${text(last.op)} ${size(last.size)} #${text(last.calls)}` : '–',
            count(callsOf(rank)), dash(history.rankRate(comm, rank, 'calls'), count),
            dash(object(rank.launches).in_flight, count), dash(history.rankRate(comm, rank, 'launches'), count),
            isLate ? dash(straggler.seconds_per_second, share) : '–',
            dash(latency.p50, seconds), dash(latency.p99, seconds), dash(latency.bus_bytes_per_second, byteRate),
          ];
          // The mark stays visible when the table scrolls. On a phone, only screen readers get its
          // word.
          const word = suspect ? 'suspect ' : isLate ? 'late ' : '';
          if (cells[0].shown !== word + contents[0]) {
            cells[0].shown = word + contents[0];
            cells[0].replaceChildren(...(word ? [suspect ? '▶▶ ' : '▶ ', element('span', {class: 'word'}, word)] : []), contents[0]);
          }
          contents.forEach((content, i) => { if (i > 0) put(cells[i], content); });
          const why = rank.state === 'unknown' ? text(rank.unknown_because) : '';
          mark(cells[3], 'title', why ? `Whether it is idle is not known: ${why}.` : null);
          mark(cells[5], 'title', contents[5].length > 40 ? contents[5] : null);
        });
    this.hideEmpty();
  }

  // Hides optional columns in which no rank has a value, such as "Blocks others" without a straggler.
  hideEmpty() {
    const rows = [...(this.body.parts || new Map()).values()];
    this.heads.forEach((head, i) => {
      const isEmpty = RANK_COLUMNS[i].isOptional === true && rows.every(({cells}) => cells[i].shown === '–');
      head.hidden = isEmpty;
      for (const {cells} of rows) cells[i].hidden = isEmpty;
    });
  }
}

class OperationTable {
  constructor() {
    this.axis = new Axis();
    this.columns = [
      {title: 'Operation', left: true}, {title: 'Size', left: true}, {title: 'Measured', left: true},
      {title: 'Calls'}, {title: 'Calls/s'}, {title: 'Bytes/s', kind: 'time'}, {title: 'p50', kind: 'time'}, {title: 'p90', kind: 'time'}, {title: 'p99', kind: 'time'},
      {title: 'Max ≤', kind: 'time'}, {title: 'Bus', kind: 'time'}, {title: 'Histogram', unseen: true, left: true, node: this.axis.node},
    ];
    const {node, body} = table('Operations, all ranks', this.columns);
    Object.assign(this, {node, body});
    this.scale = new Scale();
  }

  update(comm, history, isRecent) {
    put(this.node.querySelector('caption'), `Operations, all ranks, ${isRecent ? 'last minute' : 'since the start'}`);
    this.scale.include(comm);
    this.axis.update(this.scale);
    const rows = [];
    for (const operation of objects(comm.operations)) {
      const latencies = objects(operation.latencies);
      if (latencies.length === 0) rows.push({operation, latency: null, first: true});
      latencies.forEach((latency, i) => rows.push({operation, latency, first: i === 0}));
    }
    const keyOf = ({operation, latency}) => JSON.stringify(
        [operation.op, operation.size, latency && latency.measure, latency && latency.source]);
    reconcile(this.body, rows.slice(0, MOST_ROWS), keyOf, () => makeRow(this.columns, 0), (row, item) => {
      const {operation, latency, first} = item;
      const at = latency || {};
      const contents = [
        text(operation.op), size(operation.size),
        latency ? `${count(number(latency.count))} ${text(latency.measure)}${number(latency.count) === 1 ? '' : 's'} (${text(latency.source)})` : 'not timed',
        first ? count(number(operation.calls) + number(operation.replayed)) : '',
        first ? dash(history.operationRate(comm, operation, 'calls'), count) : '',
        first ? dash(history.operationRate(comm, operation, 'bytes'), byteRate) : '',
        dash(at.p50, seconds), dash(at.p90, seconds), dash(at.p99, seconds), dash(at.max, seconds),
        dash(at.bus_bytes_per_second, byteRate),
      ];
      contents.forEach((content, i) => (i < 2 ? putName : put)(row.cells[i], content));
      mark(row.node, 'class', first ? null : 'more');
      if (!latency) return;
      if (!row.histogram) {
        row.histogram = new Histogram();
        row.cells[11].append(row.histogram.node);
      }
      row.histogram.update(latency, this.scale, `${contents[0]} ${contents[1]}, ${contents[2]}`);
    });
  }
}

// Processes that use NCCL without the plugin.
class WithoutPluginTable {
  constructor(section) {
    this.columns = [{title: 'Pid'}, {title: 'Rank'}, {title: 'GPU'}, {title: 'NCCL', left: true}, {title: 'Since', left: true},
      {title: 'State', left: true}];
    const {node, body} = table('Without the plugin', this.columns);
    Object.assign(this, {section, body});
    section.prepend(node);
  }

  update(page) {
    const processes = objects(page.without_plugin);
    this.section.hidden = processes.length === 0;
    reconcile(this.body, processes.slice(0, MOST_ROWS), (each) => text(each.pid), () => makeRow(this.columns, 0), ({cells}, each) => {
      [text(each.pid), text(each.global_rank), list(each.gpus).map((gpu) => text(gpu)).join(', '), text(each.nccl),
        isNumber(each.since) ? since(each.since, number(page.time)) : '', text(each.stopped)]
          .forEach((content, i) => putName(cells[i], content || '–'));
    });
  }
}

// The histograms as numbers, for readers who cannot see drawings or use a pointer. Made when
// opened.
class BucketTable {
  constructor() {
    this.columns = [
      {title: 'Operation', left: true}, {title: 'Size', left: true}, {title: 'Measured', left: true},
      {title: 'Duration', left: true}, {title: 'Count'}, {title: 'Share'},
    ];
    const {node, body} = table('Buckets of the histograms', this.columns);
    this.body = body;
    this.node = element('details', {class: 'buckets'}, element('summary', {}, 'Histograms as numbers'), node);
    this.node.addEventListener('toggle', () => this.last && this.update(this.last));
  }

  update(comm) {
    this.last = comm;
    if (!this.node.open) return;
    const rows = [];
    for (const operation of objects(comm.operations)) {
      for (const latency of objects(operation.latencies)) {
        for (const bucket of bucketsOf(latency)) rows.push({operation, latency, bucket});
      }
    }
    const keyOf = ({operation, latency, bucket}) =>
      JSON.stringify([operation.op, operation.size, latency.measure, latency.source, bucket[0]]);
    reconcile(this.body, rows.slice(0, 10 * MOST_ROWS), keyOf, () => makeRow(this.columns, 0), ({cells}, item) => {
      const {operation, latency, bucket} = item;
      [text(operation.op), size(operation.size), `${text(latency.measure)} (${text(latency.source)})`,
        bucketWords(bucket), count(bucket[1]), share(bucket[1] / (number(latency.count) || 1))]
          .forEach((content, i) => put(cells[i], content));
    });
  }
}
