// Spells numbers as people read them, in the same words as `pulse status`
// (exporter/cli/status_words.cc).

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const number = (value) => (isNumber(value) ? value : 0);
const list = (value) => (Array.isArray(value) ? value : []);
const object = (value) => (value !== null && typeof value === 'object' ? value : {});
const objects = (value) => list(value).map(object);

// Names come from other processes. Control characters and marks that reverse the text behind them are
// replaced, and long names are cut.
const STEERS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
function text(value, most = 300) {
  if (isNumber(value)) return String(value);
  if (typeof value !== 'string') return '';
  return value.slice(0, most).replace(STEERS, '?');
}

const threeDigits = (value) => String(Number(value.toPrecision(3)));

function seconds(value) {
  const s = Math.max(0, value);
  if (s < 999.5e-6) return `${threeDigits(s * 1e6)} µs`;
  if (s < 0.9995) return `${threeDigits(s * 1e3)} ms`;
  if (s < 99.5) return `${threeDigits(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min ${Math.floor(s) % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

function scaled(value, units) {
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit + 1 < units.length) {
    value /= 1000;
    unit += 1;
  }
  return threeDigits(value) + units[unit];
}

function count(value) {
  if (value < 1e4) return value < 10 && value !== Math.floor(value) ? value.toFixed(1) : value.toFixed(0);
  return scaled(value, ['', 'k', 'M', 'G', 'T', 'P']);
}

const byteRate = (value) => scaled(value, [' B/s', ' kB/s', ' MB/s', ' GB/s', ' TB/s']);
const share = (value) => `${value < 0.0995 ? (value * 100).toFixed(1) : (value * 100).toFixed(0)} %`;
const plural = (many, noun) => `${many} ${noun}${many === 1 ? '' : noun.endsWith('s') ? 'es' : 's'}`;

function size(name) {
  const known = text(name);
  if (known.startsWith('le_')) return `≤${known.slice(3)}`;
  if (known.startsWith('gt_')) return `>${known.slice(3)}`;
  return known;
}

function clock(unixSeconds) {
  const date = new Date(unixSeconds * 1000);
  if (Number.isNaN(date.getTime())) return '';
  const two = (part) => String(part).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
      `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// Each verdict for a reader who does not know its name, and what to do first: a command, where there
// is one, and what it shows (docs/debug-a-hang.md; `pulse diagnose` says the same). PID is the
// process that is named.
const PY_SPY = 'py-spy dump --pid PID';
const VERDICTS = new Map([
  ['rank_not_called', ['a rank has not called', PY_SPY, 'what its program does instead']],
  ['rank_not_launched', ['a call is stuck inside NCCL', 'gdb -p PID -batch -ex \'thread apply all bt\'',
    'is it connecting, or in a group that was not ended?']],
  ['rank_not_begun', ['a GPU has not begun', 'nvidia-smi, dmesg (Xid)', 'what else the GPU runs; an earlier kernel does not end']],
  ['mismatched_operations', ['ranks called different things', PY_SPY, 'which branch of the program the ranks took']],
  ['blocked_elsewhere', ['waits for another communicator', '', 'the hang of the communicator that is named']],
  ['circular_wait', ['ranks seem to wait in a circle', PY_SPY, 'in which order the programs use these communicators']],
  ['process_gone', ['a process has ended', '', 'why it ended: its log, and the kernel’s (dmesg)']],
  ['process_stopped', ['a process does nothing', 'cat /proc/PID/status', 'SIGSTOP, a debugger, a paused container or host, a driver that does not return']],
  ['driver_error', ['a GPU can do no more', 'nvidia-smi -q, dmesg (Xid)', 'what happened to that GPU; then end its process']],
  ['rank_not_seen', ['a rank is not seen here', '', 'whether its process is alive and has loaded the plugin']],
  ['no_progress', ['all called, nothing moves', 'nvidia-smi, dmesg (Xid)', 'GPUs and network; ranks on other nodes, if there are any']],
  ['point_to_point', ['Send and Recv do not end', PY_SPY, 'the waiting ranks: which holds up the others is not known']],
  ['unknown', ['cause not known', '', '']],
]);

// Why it is not known whether a rank is idle (exporter/diagnosis/rank_activity.h).
const UNKNOWN_BECAUSE = new Map([
  ['launch_not_reported', 'NCCL does not report the launch of its last call'],
  ['captured', 'it uses CUDA graphs, whose replays are not seen. NCCL_PULSE_GRAPHS=auto counts those of graphs with ' +
      'more than 20 launches'],
  ['no_completions', 'nothing tells when its work completes'],
  ['poller_not_started', 'the plugin’s background thread could not be started'],
  ['poller_stands', 'the plugin’s background thread is not running'],
  ['poller_ended', 'the process is in exit()'],
  ['driver_error', 'the GPU’s driver answers with an error'],
  ['event_mask_changed', 'somebody else changed NCCL’s profiler event mask'],
]);
