// The live panel: what the server is doing, drawn from /metrics once a second while it is in sight.

import { getText, parseMetrics } from './api.js';
import { el } from './dom.js';
import { pathOf } from './models.js';
import { state } from './state.js';

const SAMPLES = 60; // of the lines that are drawn
const WINDOW = 30; // seconds over which latencies are taken

const NAMES = {
  generated: 'lace_generated_tokens_total',
  prompt: 'lace_prompt_tokens_total',
  running: 'lace_requests_running',
  waiting: 'lace_requests_waiting',
  kvUsed: 'lace_kv_tokens_used',
  kvKept: 'lace_kv_tokens_kept',
  kvAll: 'lace_kv_tokens',
  hits: 'lace_prefix_hit_tokens_total',
  queries: 'lace_prefix_query_tokens_total',
  first: 'lace_time_to_first_token_seconds',
  between: 'lace_inter_token_seconds',
  queue: 'lace_queue_seconds',
};

const pick = (metrics, key, suffix = '') => metrics.get(NAMES[key] + suffix) || null;

function sum(metrics, key) {
  const rows = pick(metrics, key);
  return rows ? rows.reduce((s, r) => s + r.value, 0) : null;
}

// Buckets of a histogram, summed over labels: [[bound, count]].
function buckets(metrics, key) {
  const rows = pick(metrics, key, '_bucket');
  if (!rows) return null;
  const by = new Map();
  for (const { labels, value } of rows) {
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    by.set(bound, (by.get(bound) || 0) + value);
  }
  return [...by].sort((a, b) => a[0] - b[0]);
}

// The q-quantile of what was counted between two states of a histogram, or null.
export function quantile(now, before, q) {
  if (!now) return null;
  const old = new Map(before || []);
  const counts = now.map(([bound, n]) => [bound, n - (old.get(bound) || 0)]);
  const total = counts.length ? counts.at(-1)[1] : 0;
  if (total <= 0) return null;
  const rank = q * total;
  let low = 0;
  let below = 0;
  for (const [bound, n] of counts) {
    if (n >= rank) return bound === Infinity ? low : low + (bound - low) * ((rank - below) / Math.max(n - below, 1e-9));
    low = bound;
    below = n;
  }
  return low;
}

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return '–';
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 0.1) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(0)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function count(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return '–';
  if (n < 10000) return String(Math.round(n));
  return n < 1e6 ? `${(n / 1e3).toFixed(n < 1e5 ? 1 : 0)} k` : `${(n / 1e6).toFixed(1)} M`;
}

const rate = (x) => (x === null ? '–' : x > 0 && x < 10 ? x.toFixed(1) : String(Math.round(x)));

// ---- Drawing -----------------------------------------------------------------------------------

const SVG = 'http://www.w3.org/2000/svg';

function sparkline(label) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 300 64');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', label);
  const area = document.createElementNS(SVG, 'path');
  area.setAttribute('class', 'spark-area');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('class', 'spark-line');
  svg.append(area, line);
  return {
    node: svg,
    draw(values) {
      const top = Math.max(...values.map((v) => v || 0), 1e-9);
      const points = [];
      values.forEach((v, i) => {
        if (v !== null) points.push([300 - (values.length - 1 - i) * (300 / (SAMPLES - 1)), 60 - 54 * (v / top)]);
      });
      const path = points.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
      line.setAttribute('d', path);
      area.setAttribute('d', points.length > 1 ? `${path}L${points.at(-1)[0].toFixed(1)} 64L${points[0][0].toFixed(1)} 64Z` : '');
    },
  };
}

function card(title, ...more) {
  const value = el('b', {}, '–');
  const unit = el('span', { class: 'unit' });
  const note = el('span', { class: 'note' });
  const node = el('section', { class: 'card' }, el('h2', {}, title), el('p', { class: 'figure' }, value, unit), ...more, note);
  return {
    node,
    set(v, u = '', n = '') {
      if (value.textContent !== v) value.textContent = v;
      unit.textContent = u;
      note.textContent = n;
    },
  };
}

// The panel in `root`. onSummary({ok, rate, running, waiting}) is called after each look.
export function createPanel(root, onSummary) {
  const speedLine = sparkline('Tokens per second in the last minute');
  const latencyLine = sparkline('Time to first token in the last minute');
  const speed = card('Generated', speedLine.node);
  const first = card('First token', latencyLine.node);
  const busy = card('Requests');
  const queue = card('Queue wait');
  const between = card('Between tokens');
  const prefix = card('Prefix cache');
  const bar = el('span'); // what is in use; what is only kept for later gives way, so it is no part of it
  const kv = card('KV cache', el('div', { class: 'meter' }, bar));
  const about = el('dl', { class: 'about' });
  root.append(speed.node, first.node, kv.node, el('div', { class: 'cards' }, busy.node, queue.node, between.node, prefix.node),
    el('section', { class: 'card' }, el('h2', {}, 'Model'), about));

  const history = []; // {at, generated, prompt, first, between, queue, hits, queries}
  const speeds = [];
  const latencies = [];
  let timer = null;
  let isBusy = false;

  function show(metrics) {
    const at = performance.now() / 1000;
    const now = {
      at, generated: sum(metrics, 'generated'), prompt: sum(metrics, 'prompt'), hits: sum(metrics, 'hits'), queries: sum(metrics, 'queries'),
      first: buckets(metrics, 'first'), between: buckets(metrics, 'between'), queue: buckets(metrics, 'queue'),
    };
    // A counter that fell says that the server was started anew.
    if (history.length && now.generated !== null && now.generated < history.at(-1).generated) history.length = 0;
    const last = history.at(-1);
    history.push(now);
    while (history.length > 2 && history[0].at < at - WINDOW) history.shift();
    const base = history[0];
    const perSecond = last && now.generated !== null ? (now.generated - last.generated) / (at - last.at) : null;
    const promptRate = last && now.prompt !== null ? (now.prompt - last.prompt) / (at - last.at) : null;
    speeds.push(perSecond);
    const firstNow = history.length > 1 ? quantile(now.first, last ? last.first : null, 0.5) : null;
    latencies.push(firstNow === null ? (latencies.at(-1) ?? null) : firstNow);
    if (speeds.length > SAMPLES) speeds.shift();
    if (latencies.length > SAMPLES) latencies.shift();
    speedLine.draw(speeds);
    latencyLine.draw(latencies);

    const recent = (key, q) => quantile(now[key], history.length > 1 ? base[key] : null, q) ?? quantile(now[key], null, q);
    speed.set(rate(perSecond), 'tokens/s', `prompts ${rate(promptRate)} tokens/s · ${count(now.generated)} in all`);
    first.set(duration(recent('first', 0.5)), 'median', `99 % within ${duration(recent('first', 0.99))}`);
    queue.set(duration(recent('queue', 0.5)), '', `99 %: ${duration(recent('queue', 0.99))}`);
    between.set(duration(recent('between', 0.5)), '', `99 %: ${duration(recent('between', 0.99))}`);
    const running = sum(metrics, 'running');
    const waiting = sum(metrics, 'waiting');
    busy.set(running === null ? '–' : String(running), running === 1 ? 'runs' : 'run', `${waiting ?? '–'} waiting`);
    if (now.queries > 0) {
      prefix.set(`${Math.round((100 * now.hits) / now.queries)}`, '%', `${count(now.hits)} tokens reused`);
    } else prefix.set('–');
    const used = sum(metrics, 'kvUsed');
    const all = sum(metrics, 'kvAll');
    const share = all ? used / all : null;
    const kept = sum(metrics, 'kvKept');
    kv.set(share === null ? '–' : (100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0), '%',
      all ? `${count(used)} of ${count(all)} tokens in use, ${count(kept)} kept for later` : '');
    bar.style.width = `${Math.min(100, 100 * (share || 0)).toFixed(1)}%`;
    onSummary({ ok: true, rate: perSecond, running, waiting });
  }

  async function look() {
    if (isBusy || document.hidden) return;
    isBusy = true;
    try {
      show(parseMetrics(await getText(pathOf('/metrics', state.server), AbortSignal.timeout(5000))));
    } catch (error) {
      onSummary({ ok: false, status: error.status || 0 });
    } finally {
      isBusy = false;
    }
  }

  return {
    describe(rows) {
      about.replaceChildren(...rows.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
    },
    // Looks once every `seconds`; 0 stops.
    every(seconds) {
      clearInterval(timer);
      timer = null;
      if (!seconds) return;
      look();
      timer = setInterval(look, seconds * 1000);
    },
    look,
  };
}
