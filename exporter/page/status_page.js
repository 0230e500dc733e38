// Polls the endpoint every two seconds while the page is visible, and shows the answer.

const POLL_MS = 2000;
const SLOWEST_POLL_MS = 30000;
const TIMEOUT_MS = 15000;
const MOST_PROBLEMS = 8;
const MOST_WORDS = 3000;  // characters of a sentence

// Relative to this page, wherever a proxy has put it, and without a password from the page's address.
const source = location.origin + location.pathname.replace(/[^/]*$/, '') + 'api/v1/communicators';

// Link back to the page of `pulse watch`, which opens this page with #watch=ADDRESS.
const watcher = new URLSearchParams(location.hash.slice(1)).get('watch') || '';
if (/^https?:\/\/[\w.:[\]-]+\/$/.test(watcher)) {
  byId('watcher').hidden = false;
  mark(byId('watcher'), 'href', watcher);
}

const history = new History();
const recent = new Recent();
const communicators = new CommunicatorList(byId('communicators'), byId('hidden'));
const withoutPlugin = new WithoutPluginTable(byId('without'));
let page = null;
let answeredAt = 0;  // performance.now()
let failure = '';
let timer = 0;
let asking = false;

function problemsOf(comms) {
  const problems = [];
  for (const comm of comms) {
    if (comm.hang && !isUsual(comm)) problems.push({kind: 'hang', comm, finding: object(comm.hang)});
  }
  for (const comm of comms) {
    if (isUsual(comm)) problems.push({kind: 'wait', comm, finding: object(comm.hang)});
  }
  for (const comm of comms) {
    if (comm.straggler) problems.push({kind: 'slow', comm, finding: object(comm.straggler)});
  }
  return problems;
}

// First word of the title, by health.status.
const STATES = {hang: 'HANG ', incomplete: 'INCOMPLETE ', waiting: 'WAIT ', straggler: 'SLOW '};
const BADGES = {hang: '■ HANG', wait: '▲ WAIT', slow: '▲ SLOW'};
const LEADS = {hang: 'Hang suspected', wait: 'Expected wait', slow: 'Straggler'};

function makeProblem({kind, comm}) {
  const lead = element('strong', {class: 'badge'}, BADGES[kind]);
  const what = element('span');
  const button = element('button', {type: 'button'}, 'show');
  button.addEventListener('click', () => {
    byId('filter').value = '';
    show();
    const section = communicators.find(text(comm.comm));
    if (section) section.reveal();
  });
  const sentence = element('p');
  const step = element('span');
  const hint = element('p', {class: 'quiet'}, 'Next: ', step);
  const node = element('li', {'data-level': kind === 'hang' ? 'hang' : 'slow'}, element('p', {class: 'lead'}, lead, button, ' ', what), sentence, hint);
  return {node, lead, what, button, sentence, hint, step};
}

function updateProblem(part, {kind, comm, finding}, now) {
  const name = communicatorName(comm);
  put(part.what, text(finding.text, MOST_WORDS));
  mark(part.button, 'aria-label', `show communicator ${name}`);
  put(part.sentence, kind !== 'slow' ?
    `Communicator ${name} has made no progress since ${since(number(finding.since), now)}.` :
    `Communicator ${name} waits for rank ${text(finding.rank)}.`);
  const verdict = kind === 'slow' ? '' : text(finding.verdict);
  mark(part.lead, 'title', verdict ? `${verdict} in alerts and JSON: ${text(finding.meaning) || 'see docs/debug-a-hang.md'}` : null);
  const step = text(finding.first_step, MOST_WORDS);
  part.hint.hidden = step === '';
  put(part.step, `${step}.`);
}

// Shows lost, stopped and unseen ranks first, then suspects. Unknown ranks are never called
// healthy.
function showVerdict(comms, now, health) {
  const parent = byId('verdict');
  const problems = problemsOf(comms);
  if (!parent.list) {
    parent.list = element('ul');
    parent.notes = element('div', {class: 'notes'});
    parent.more = element('p', {class: 'none'});
    parent.replaceChildren(parent.notes, parent.list, parent.more);
  }
  const notes = list(health.notes).map((note) => text(note, MOST_WORDS));
  reconcile(parent.notes, notes.slice(0, MOST_PROBLEMS), (note) => note, () => ({node: element('p')}),
      (part, note) => put(part.node, note));
  reconcile(parent.list, problems.slice(0, MOST_PROBLEMS), ({kind, comm}) => `${kind} ${text(comm.comm)}`,
      makeProblem, (part, problem) => updateProblem(part, problem, now));
  const isWell = health.status === 'ok' && failure === '';
  const summary = text(health.summary) || 'The endpoint has another version, and does not report how much it sees.';
  const said = isWell ? `✓ ${summary}` : failure === '' ? summary : `The present state is not known. At ${clock(now)}: ${summary}`;
  // Also beside a straggler, if something is not seen.
  const calm = problems.length === 0 || (health.status === 'incomplete' && text(health.summary) !== '') ? said : '';
  mark(parent.more, 'data-level', problems.length === 0 && isWell ? 'ok' : null);
  put(parent.more, [problems.length > MOST_PROBLEMS ? `and ${problems.length - MOST_PROBLEMS} more, below.` : '', calm].filter(Boolean).join(' '));
  // Announced once, not every second.
  put(byId('announcement'), [...notes.slice(0, 3), calm].join(' ') + problems.slice(0, 3).map(({kind, comm, finding}) =>
    ` ${LEADS[kind]} in communicator ${communicatorName(comm)}. ${text(finding.text)}`).join(' '));
}

function show() {
  if (page === null) return;
  const now = number(page.time);
  const comms = objects(page.communicators);
  const inUse = comms.filter(isInUse);
  const hosts = new Set();
  // A process may have ranks in several communicators.
  const processes = new Set();
  for (const comm of inUse) {
    for (const rank of objects(comm.ranks)) {
      const {hostname} = processOf(rank);
      hosts.add(text(hostname));
      processes.add(`${text(hostname)} ${pidOf(rank)}`);
    }
  }
  const host = hosts.size > 1 ? plural(hosts.size, 'host') : [...hosts].join('') || 'NCCL Pulse';
  putName(byId('host'), host);
  put(byId('counts'), `${clock(now)}  ${plural(inUse.length, 'communicator')}, ${plural(processes.size, 'process')}`);
  const health = object(page.health);
  showVerdict(inUse, now, health);
  const state = failure !== '' ? 'NO ANSWER ' : Object.hasOwn(STATES, health.status) ? STATES[health.status] : '';
  const title = `${state}${host}${host === 'NCCL Pulse' ? '' : ' - NCCL Pulse'}`;
  if (document.title !== title) document.title = title;
  communicators.update(page, history, byId('recent').checked ? recent : null, byId('filter').value, byId('ended').checked);
  withoutPlugin.update(page);
}

// Marks old answers, which must not look like new ones.
function showConnection() {
  const age = Math.round((performance.now() - answeredAt) / 1000);
  const stale = failure !== '';
  document.documentElement.classList.toggle('stale', stale && page !== null);
  mark(byId('connection'), 'class', stale ? 'lost' : document.hidden ? 'paused' : page === null ? 'waiting' : 'live');
  put(byId('connection-text'), stale ? (page === null ? 'no answer' : `no answer for ${age} s`) :
    document.hidden ? 'paused' : page === null ? 'asking' : 'live');
  byId('gone').hidden = !stale;
  put(byId('gone'), stale ? `${failure} ${page === null ? '' : `The data shown is from ${clock(number(page.time))}. `}Retrying.` : '');
}

async function ask() {
  const response = await fetch(source, {cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS)});
  if (!response.ok) throw new Error(`The endpoint answers with status ${response.status}.`);
  const answer = await response.json();
  if (!isNumber(object(answer).time) || !Array.isArray(answer.communicators)) throw new SyntaxError();
  return answer;
}

function reasonOf(error) {
  if (error.name === 'SyntaxError') return 'The answer is not from NCCL Pulse.';
  if (error.name === 'TimeoutError') return `The endpoint did not answer within ${TIMEOUT_MS / 1000} s.`;
  // The browser does not say why a connection failed.
  return error.name === 'TypeError' ? 'The endpoint does not answer.' : text(error.message);
}

async function poll() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  const begin = performance.now();
  let answer = null;
  try {
    answer = await ask();
    failure = '';
    answeredAt = performance.now();
  } catch (error) {
    failure = reasonOf(error);
  }
  asking = false;
  try {
    if (answer !== null) {
      page = answer;
      history.add(page);
      recent.add(page);
    }
    show();
  } catch (error) {
    // Better than an old page that claims to be live.
    failure = `This page cannot show the answer (${text(error.message)}); /api/v1/communicators has it.`;
  }
  showConnection();
  // The answering process belongs to somebody's job: slow answers are requested less often.
  const took = performance.now() - begin;
  if (!document.hidden) {
    timer = setTimeout(poll, failure ? POLL_MS : Math.min(SLOWEST_POLL_MS, Math.max(POLL_MS, 10 * took)));
  }
}

document.addEventListener('visibilitychange', () => {
  showConnection();
  poll();
});
byId('filter').addEventListener('input', show);
for (const id of ['recent', 'ended']) byId(id).addEventListener('change', show);
setInterval(() => { if (failure !== '') showConnection(); }, 1000);
poll();
