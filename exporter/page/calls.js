// Shows the last calls of a hanging communicator: one column per rank, one row per collective, the
// newest last. Calls are numbered as in the verdict: by operation and size, or, where ranks called
// different operations, over all collectives. They are requested only while shown, and rarely, because the answering process
// belongs to somebody's job.

const CALL_LINES = 10;
const MOST_CALL_RANKS = 16;
const CALLS_EVERY_MS = 15000;

const callBytes = (value) => {
  const unit = value > 0 ? Math.min(4, Math.floor(Math.log2(value) / 10)) : 0;
  return `${Number((value / 1024 ** unit).toPrecision(4))} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
};
const whatCalled = (call) => `${text(call.op)} ${callBytes(number(call.bytes))}${isNumber(call.of_kind) ? ` #${call.of_kind}` : ''}`;

// Returns the rows of the table, and which cells differ from the others.
function callRows(answer) {
  const suspects = list(answer.suspects);
  const isSuspect = (rank) => (suspects.includes(rank.rank) ? 1 : 0);
  // Suspects first: with many ranks or on a narrow page, these must be visible.
  const columns = objects(answer.ranks).sort((a, b) => isSuspect(b) - isSuspect(a)).slice(0, MOST_CALL_RANKS).map((rank) => {
    const calls = new Map();
    for (const call of objects(rank.calls)) if (number(call.collective) > 0) calls.set(call.collective, call);
    return {rank: text(rank.rank), odd: isSuspect(rank) === 1, missing: Array.isArray(rank.calls) ? '' : text(rank.missing) || 'unknown',
      calls, first: calls.size > 0 ? Math.min(...calls.keys()) : Infinity};
  });
  const newest = Math.max(0, ...columns.map(({calls}) => calls.size > 0 ? Math.max(...calls.keys()) : 0));
  const rows = [];
  for (let at = Math.max(1, newest - CALL_LINES + 1); at <= newest; ++at) {
    const votes = new Map();
    for (const {calls} of columns) if (calls.has(at)) votes.set(whatCalled(calls.get(at)), (votes.get(whatCalled(calls.get(at))) || 0) + 1);
    const most = [...votes].sort((a, b) => b[1] - a[1])[0];
    const agreed = most && (votes.size === 1 || most[1] > 1) ? most[0] : '';
    rows.push({at, what: agreed || 'differs', cells: columns.map(({calls, first, missing}) => {
      if (missing) return {words: missing === 'off' ? 'off' : 'not kept'};
      const call = calls.get(at);
      if (!call) return at < first && first !== Infinity ? {words: 'not kept'} : {words: 'not called', odd: true};
      return whatCalled(call) === agreed ? {words: text(call.state_word)} : {words: `${whatCalled(call)}, ${text(call.state_word)}`, odd: true};
    })});
  }
  return {columns, rows};
}

class CallTable {
  constructor() {
    this.note = element('p', {class: 'quiet'});
    this.place = element('div');
    this.node = element('div', {class: 'calls'}, this.place, this.note);
    this.node.hidden = true;
    this.askedAt = -Infinity;
  }

  update(comm) {
    const id = text(comm.comm);
    this.node.hidden = !comm.hang || !/^[0-9a-f]{16}$/.test(id);
    if (this.node.hidden || performance.now() - this.askedAt < CALLS_EVERY_MS) return;
    this.askedAt = performance.now();
    this.ask(id);
  }

  async ask(comm) {
    try {
      const response = await fetch(`${source}/${comm}/calls`, {cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS)});
      if (!response.ok) throw new Error(`The endpoint has no last calls now (status ${response.status}).`);
      this.show(object(await response.json()));
    } catch (error) {
      put(this.note, this.place.firstChild ? '' : text(error.message));
    }
  }

  show(answer) {
    const {columns, rows} = callRows(answer);
    const isNumbered = text(answer.verdict) === 'mismatched_operations';
    const shown = table('Last collectives, rank by rank', [
      ...(isNumbered ? [{title: 'collective', tip: 'its number among the collectives of this communicator'}] : []), {title: 'call', left: true},
      ...columns.map(({rank, odd}) => ({title: `rank ${rank}`, left: true, kind: odd ? 'odd' : '', tip: odd ? 'the others wait for this rank' : ''}))]);
    for (const {at, what, cells} of rows) {
      shown.body.append(element('tr', {}, ...(isNumbered ? [element('th', {scope: 'row'}, `${at}`)] : []), element(isNumbered ? 'td' : 'th', {class: 'left what', title: what, ...(isNumbered ? {} : {scope: 'row'})}, what),
          ...cells.map(({words, odd}) => element('td', {class: odd ? 'left odd' : 'left'}, odd ? `▸ ${words}` : words))));
    }
    this.place.replaceChildren(...(rows.length > 0 ? [shown.node] : []));
    const hidden = objects(answer.ranks).length - columns.length;
    put(this.note, rows.length === 0 ? 'No last collectives are kept.' :
      `The last ${rows.length} collectives as of ${clock(number(answer.time))}. done: it has ended. not done: launched, and not known to have ended. ▸: this rank differs from the others.` +
      (hidden > 0 ? ` ${plural(hidden, 'rank')} not shown.` : ''));
  }
}
