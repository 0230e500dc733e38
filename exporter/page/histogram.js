// Draws latency histograms: logarithmic time, one scale per communicator.

const CHART_WIDTH = 260;
const CHART_HEIGHT = 26;
const BASE = CHART_HEIGHT - 5;  // below it: the marks of p50 and p99
const BUCKETS_PER_OCTAVE = 4;

// Returns the bounds of a bucket [upper bound or null, count], in log2 of seconds. The first bucket
// also holds everything shorter.
function bucketSpan(bucket) {
  const to = isNumber(bucket[0]) && bucket[0] > 0 ? Math.log2(bucket[0]) : 10 + 1 / BUCKETS_PER_OCTAVE;
  return {from: to - 1 / BUCKETS_PER_OCTAVE, to};
}

function bucketWords(bucket) {
  if (!isNumber(bucket[0])) return 'more than 1024 s';
  const {from} = bucketSpan(bucket);
  return bucket[0] < 1e-6 ? `up to ${seconds(bucket[0])}` : `${seconds(2 ** from)} to ${seconds(bucket[0])}`;
}

const bucketsOf = (latency) => list(latency.buckets).filter((each) => Array.isArray(each) && number(each[1]) > 0);

// The scale of all histograms of a communicator. It only widens, so that bars keep their places.
class Scale {
  constructor() { this.from = Infinity; this.to = -Infinity; }

  include(comm) {
    for (const operation of objects(comm.operations)) {
      for (const latency of objects(operation.latencies)) {
        for (const bucket of bucketsOf(latency)) {
          const {from, to} = bucketSpan(bucket);
          this.from = Math.min(this.from, Math.floor(from - 0.25));
          this.to = Math.max(this.to, Math.ceil(to + 0.25));
        }
      }
    }
  }

  x(log2) {
    const share = (log2 - this.from) / (this.to - this.from);
    return Math.max(0, Math.min(1, share)) * CHART_WIDTH;
  }

  // Powers of ten, and steps between them if there are few.
  ticks() {
    if (!(this.to > this.from)) return [];
    const decades = (this.to - this.from) * Math.log10(2);
    const steps = decades < 1.5 ? [1, 2, 5] : decades < 3 ? [1, 3] : [1];
    const every = Math.ceil(decades / 4.5);  // of a decade a label needs 58 pixels
    const found = [];
    for (let decade = -7; decade <= 4; decade += 1) {
      if (steps.length === 1 && decade % every !== 0) continue;
      for (const step of steps) {
        const value = step * 10 ** decade;
        const x = Math.log2(value);
        if (x >= this.from && x <= this.to) found.push(value);
      }
    }
    return found;
  }
}

class Axis {
  constructor() {
    this.node = drawn('svg', {class: 'axis', width: CHART_WIDTH, height: 14, 'aria-hidden': 'true'});
    this.drawnFor = '';
  }

  update(scale) {
    const key = `${scale.from} ${scale.to}`;
    if (key === this.drawnFor) return;
    this.drawnFor = key;
    this.node.replaceChildren();
    for (const value of scale.ticks()) {
      const x = scale.x(Math.log2(value));
      const anchor = x < 20 ? 'start' : x > CHART_WIDTH - 20 ? 'end' : 'middle';
      this.node.append(drawn('text', {x, y: 11, 'text-anchor': anchor}, seconds(value)));
    }
  }
}

// The page's single readout: the values of the bar under the pointer, or of the bar that the arrow
// keys have reached.
const readout = {
  show(content, x, y) {
    const node = byId('readout');
    put(node, content);
    node.hidden = false;
    const width = node.offsetWidth;
    node.style.left = `${Math.max(4, Math.min(x - width / 2, document.documentElement.clientWidth - width - 4))}px`;
    node.style.top = `${Math.max(4, y - node.offsetHeight - 6)}px`;
  },
  hide() { byId('readout').hidden = true; },
};

class Histogram {
  constructor() {
    this.bars = drawn('g');
    this.marks = drawn('g', {class: 'marks'});
    this.cursor = drawn('rect', {class: 'cursor', y: 0, height: BASE, width: 0});
    this.node = drawn('svg', {class: 'histogram', width: CHART_WIDTH, height: CHART_HEIGHT, role: 'img', tabindex: '0'},
        drawn('line', {class: 'base', x1: 0, x2: CHART_WIDTH, y1: BASE + 0.5, y2: BASE + 0.5}),
        this.cursor, this.bars, this.marks);
    this.buckets = [];
    this.total = 0;
    this.chosen = -1;
    this.drawnFor = '';
    this.node.addEventListener('pointermove', (event) => this.choose(this.nearest(event.offsetX)));
    this.node.addEventListener('pointerleave', () => this.choose(-1));
    this.node.addEventListener('focus', () => {
      if (this.node.matches(':focus-visible')) this.choose(this.tallest());
    });
    this.node.addEventListener('blur', () => this.choose(-1));
    this.node.addEventListener('keydown', (event) => this.onKey(event));
  }

  update(latency, scale, label) {
    const buckets = bucketsOf(latency);
    const key = JSON.stringify([buckets, scale.from, scale.to, latency.p50, latency.p99]);
    if (key === this.drawnFor) return;
    this.drawnFor = key;
    this.scale = scale;
    this.buckets = buckets;
    this.total = buckets.reduce((sum, each) => sum + each[1], 0);
    this.node.setAttribute('aria-label', `${label}: ${plural(this.total, 'sample')}, p50 ${seconds(number(latency.p50))}, ` +
        `p99 ${seconds(number(latency.p99))}, at most ${seconds(number(latency.max))}. Arrow keys read the buckets.`);
    const highest = buckets.reduce((most, each) => Math.max(most, each[1]), 1);
    this.bars.replaceChildren(...buckets.map((bucket) => {
      const {from, to} = bucketSpan(bucket);
      const height = Math.max(1.5, bucket[1] / highest * (BASE - 1));  // so that a single outlier is visible
      return drawn('rect', {x: scale.x(from), width: Math.max(1, scale.x(to) - scale.x(from) - 0.6), y: BASE - height, height});
    }));
    const p50 = scale.x(Math.log2(number(latency.p50) || 1e-9));
    const p99 = scale.x(Math.log2(number(latency.p99) || 1e-9));
    if (buckets.length === 0) this.marks.replaceChildren();
    else this.marks.replaceChildren(
        drawn('circle', {cx: p50, cy: BASE + 3, r: 2}),
        drawn('rect', {x: p99 - 0.75, y: BASE + 1, width: 1.5, height: 4}));
    this.showChosen();
  }

  nearest(x) {
    let best = -1;
    let distance = 6;  // bars further away are not read
    this.buckets.forEach((bucket, i) => {
      const {from, to} = bucketSpan(bucket);
      const off = Math.max(this.scale.x(from) - x, x - this.scale.x(to), 0);
      if (off < distance) [best, distance] = [i, off];
    });
    return best;
  }

  tallest() {
    return this.buckets.reduce((best, each, i) => (best < 0 || each[1] > this.buckets[best][1] ? i : best), -1);
  }

  onKey(event) {
    const last = this.buckets.length - 1;
    const moves = {ArrowLeft: this.chosen - 1, ArrowRight: this.chosen + 1, Home: 0, End: last, Escape: -1};
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    this.choose(event.key === 'Escape' ? -1 : Math.max(0, Math.min(last, moves[event.key])));
  }

  choose(index) {
    this.chosen = index;
    this.showChosen();
  }

  showChosen() {
    const bucket = this.buckets[this.chosen];
    if (!bucket) {
      if (this.cursor.getAttribute('width') !== '0') readout.hide();
      this.cursor.setAttribute('width', 0);
      return;
    }
    const {from, to} = bucketSpan(bucket);
    const x = this.scale.x(from);
    this.cursor.setAttribute('x', x - 1);
    this.cursor.setAttribute('width', Math.max(3, this.scale.x(to) - x + 1.4));
    const box = this.node.getBoundingClientRect();
    readout.show(`${bucketWords(bucket)}: ${count(bucket[1])} of ${count(this.total)} (${share(bucket[1] / this.total)})`,
        box.left + (x + this.scale.x(to)) / 2, box.top);
  }
}
