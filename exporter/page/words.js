// Formats numbers for people, in the same words as `pulse status`
// (exporter/cli/status/status_words.cc).

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const number = (value) => (isNumber(value) ? value : 0);
const list = (value) => (Array.isArray(value) ? value : []);
const object = (value) => (value !== null && typeof value === 'object' ? value : {});
const objects = (value) => list(value).map(object);

// Names come from other processes. Replaces control characters and marks that reverse the following
// text, and cuts long names.
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
  return `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())} ` +
      `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())} UTC`;
}

// Returns "13:37:12 UTC (7.34 s)", with the date unless that is the date of `now`.
function since(then, now) {
  const [day, ...time] = clock(then).split(' ');
  return `${clock(now).startsWith(day) ? time.join(' ') : clock(then)} (${seconds(now - then)})`;
}
