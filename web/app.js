// The page: conversations, streams, and what the keys do. The parts are in the other files.

import { ApiError, stream } from './api.js';
import { el, icon } from './dom.js';
import { createPanel, describeServer } from './panel.js';
import { createSettings, requestFields, settingsValues } from './settings.js';
import { addNode, apiKey, load, newConversation, openStore, save, setApiKey, shownPath } from './store.js';
import { createView, drawWelcome } from './view.js';

const $ = (id) => document.getElementById(id);
const log = $('log');
const scroll = $('scroll');
const input = $('input');

let store;
let conversations = []; // newest first
let current = null; // the one that is shown
let server = { model: { id: '' }, props: {} };
const streams = new Map(); // conversation id -> {node, abort}

// ---- Conversations -----------------------------------------------------------------------------

const saving = new Map(); // conversation id -> timer

// Writes a conversation soon; streams call it for every piece.
function keep(conversation, isNow) {
  const write = () => {
    saving.delete(conversation.id);
    store.put(conversation).catch((error) => showBanner(`This conversation cannot be kept: ${error.message}`));
  };
  if (isNow) {
    clearTimeout(saving.get(conversation.id));
    write();
  } else if (!saving.has(conversation.id)) saving.set(conversation.id, setTimeout(write, 800));
}

const isEmpty = (c) => c.nodes.root.children.length === 0;
const titleOf = (c) => c.title || 'New conversation';

function dayOf(time) {
  const start = new Date().setHours(0, 0, 0, 0);
  if (time >= start) return 'Today';
  if (time >= start - 864e5) return 'Yesterday';
  if (time >= start - 7 * 864e5) return 'This week';
  return new Date(time).toLocaleDateString(undefined, { month: 'long', year: 'numeric' });
}

function matches(c, words) {
  if (titleOf(c).toLowerCase().includes(words)) return true;
  return Object.values(c.nodes).some((n) => n.content.toLowerCase().includes(words));
}

function drawList() {
  const words = $('search').value.trim().toLowerCase();
  const list = $('list');
  const rows = [];
  let day = '';
  conversations.sort((a, b) => b.updated - a.updated);
  for (const c of conversations) {
    if (isEmpty(c) && c !== current) continue;
    if (words && !matches(c, words)) continue;
    if (dayOf(c.updated) !== day) rows.push(el('h2', {}, (day = dayOf(c.updated))));
    const open = el('button', { class: 'open', type: 'button', 'aria-current': c === current ? 'page' : undefined, onclick: () => select(c) },
      el('span', {}, titleOf(c)));
    if (streams.has(c.id)) open.append(el('span', { class: 'busy', 'aria-label': 'is being answered' }));
    const remove = el('button', { class: 'remove', type: 'button', 'aria-label': `Delete “${titleOf(c)}”`, title: 'Delete', onclick: () => removeConversation(c) }, icon('trash'));
    rows.push(el('div', { class: c === current ? 'entry on' : 'entry' }, open, remove));
  }
  if (rows.length === 0) rows.push(el('p', { class: 'none' }, words ? 'Nothing found' : 'No conversations yet'));
  list.replaceChildren(...rows);
}

function select(c) {
  current = c;
  save('current', c.id);
  view.clear();
  draw();
  settings.showSystem(c.system);
  toggleSide(false);
  input.focus({ preventScroll: true });
  stick(true);
}

function startNew() {
  const empty = conversations.find(isEmpty);
  const c = empty || newConversation(load('system', ''));
  if (!empty) conversations.push(c);
  c.updated = Date.now();
  select(c);
}

async function removeConversation(c) {
  if (!isEmpty(c) && !confirm(`Delete “${titleOf(c)}”?`)) return;
  streams.get(c.id)?.abort.abort();
  clearTimeout(saving.get(c.id));
  saving.delete(c.id);
  conversations = conversations.filter((other) => other !== c);
  await store.remove(c.id);
  if (c === current) {
    const next = conversations.find((other) => !isEmpty(other));
    if (next) select(next);
    else startNew();
  } else drawList();
}

// ---- Drawing -----------------------------------------------------------------------------------

const view = createView(log, {
  isStreaming: (node) => [...streams.values()].some((s) => s.node === node),
  again: (node) => answer(current, current.nodes[node.parent]),
  retry: (node) => {
    // A failed answer without a word gives its place to the next one.
    const above = current.nodes[node.parent];
    if (!node.content && !node.reasoning) {
      above.children = above.children.filter((id) => id !== node.id);
      delete current.nodes[node.id];
    }
    answer(current, above);
  },
  edit: (node, text) => {
    if (streams.has(current.id)) return;
    const next = addNode(current, node.parent, 'user', text);
    answer(current, next);
  },
  turn: (node, step) => {
    const above = current.nodes[node.parent];
    above.pick = Math.min(above.children.length - 1, Math.max(0, above.children.indexOf(node.id) + step));
    keep(current);
    draw();
    const shown = current.nodes[above.children[above.pick]];
    log.querySelector(`[data-id="${shown.id}"] .branches button:not(:disabled)`)?.focus();
  },
});

const STARTERS = {
  chat: ['Explain how a lace pattern is made, in five sentences', 'Write a C function that reverses a UTF-8 string', 'Compare tea and coffee in a small table', 'Plan a weekend in the mountains'],
  text: ['Once upon a time there was a lighthouse', 'The old clockmaker opened the box and', 'In the garden behind the mill', 'The king had three daughters, and the youngest'],
};

// Chat, or plain continuation for a model that knows no chat.
function mode() {
  const wanted = settingsValues().mode;
  if (wanted !== 'auto') return wanted;
  const { props } = server;
  const template = props.chat_template;
  if (props.has_chat_template === false || template === '' || template === null) return 'text';
  return 'chat';
}

function modelName() {
  return server.model.id || 'lace';
}

function draw() {
  const path = shownPath(current);
  if (path.length === 0) {
    view.clear();
    const isText = mode() === 'text';
    drawWelcome(log, {
      name: modelName(),
      note: isText ? 'This model has no chat template: it continues the text that you begin.' : 'Runs on your own machine. Nothing leaves it.',
      starters: STARTERS[mode()],
      onStart: (text) => {
        input.value = text;
        grow();
        input.focus();
      },
    });
  } else {
    log.querySelector('.welcome')?.remove();
    view.show(current, path);
  }
  $('title').value = current.title;
  $('title').placeholder = 'New conversation';
  document.title = current.title ? `${current.title} – lace` : 'lace';
  input.placeholder = mode() === 'text' ? 'Begin a text' : 'Write a message';
  drawSend();
  drawList();
}

function drawSend() {
  const isBusy = streams.has(current.id);
  $('send-icon').setAttribute('href', isBusy ? '#i-stop' : '#i-send');
  $('send').setAttribute('aria-label', isBusy ? 'Stop' : 'Send');
  $('send').title = isBusy ? 'Stop (Esc)' : 'Send (Enter)';
  $('send').classList.toggle('stop', isBusy);
  $('send').disabled = !isBusy && input.value.trim() === '';
}

let banner = null;
function showBanner(text, kind = '') {
  banner = text ? kind || 'error' : null;
  $('banner').hidden = !text;
  $('banner').textContent = text || '';
}

function grow() {
  input.style.height = 'auto';
  input.style.height = `${Math.min(input.scrollHeight, 220)}px`;
  drawSend();
}

// ---- Scrolling ---------------------------------------------------------------------------------

let isStuck = true; // the end stays in sight while text comes

function stick(isForced) {
  if (isForced) isStuck = true;
  if (isStuck) scroll.scrollTop = scroll.scrollHeight;
  drawJump();
}

const drawJump = () => {
  $('jump').hidden = isStuck;
};

scroll.addEventListener('scroll', () => {
  isStuck = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 48;
  drawJump();
});
$('jump').addEventListener('click', () => stick(true));
new ResizeObserver(() => stick()).observe(log);

// ---- Streams -----------------------------------------------------------------------------------

function requestFor(conversation, node) {
  const path = [];
  for (let n = node; n.role !== 'root'; n = conversation.nodes[n.parent]) path.unshift(n);
  const body = { model: server.model.id || 'default', ...requestFields() };
  if (mode() === 'text') {
    delete body.chat_template_kwargs;
    delete body.reasoning_effort;
    // One text: what the model wrote goes on where it ended, what the user adds is a new paragraph.
    let prompt = conversation.system ? `${conversation.system}\n\n` : '';
    for (const n of path) prompt += n.role === 'user' && prompt && !/\s$/.test(prompt) ? `\n\n${n.content}` : n.content;
    return ['/v1/completions', { max_tokens: 400, ...body, prompt }];
  }
  const messages = path.map(({ role, content }) => ({ role, content }));
  if (conversation.system.trim()) messages.unshift({ role: 'system', content: conversation.system });
  return ['/v1/chat/completions', { ...body, messages }];
}

function showTools(node, tools) {
  node.tools ||= [];
  for (const t of tools) {
    const call = (node.tools[t.index || 0] ||= { name: '', text: '' });
    call.name += t.function?.name || '';
    call.text += t.function?.arguments || '';
  }
  node.content = node.tools.map((c) => `Calls \`${c.name}\`\n\n\`\`\`json\n${c.text}\n\`\`\``).join('\n\n');
}

// Asks for an answer below `above`, and shows it as it comes.
async function answer(conversation, above) {
  if (streams.has(conversation.id)) return;
  const node = addNode(conversation, above.id, 'assistant', '');
  const abort = new AbortController();
  streams.set(conversation.id, { node, abort });
  const begin = performance.now();
  let first = 0;
  let last = 0;
  let thought = 0;
  let usage = null;
  let finish = null;
  let pieces = 0;
  let frame = 0;
  const redraw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (conversation === current) view.refresh(conversation, node);
    });
  };
  if (conversation === current) {
    draw();
    stick(true);
  }
  keep(conversation, true);
  pollFaster();
  try {
    const [path, body] = requestFor(conversation, above);
    await stream(path, body, abort.signal, (piece) => {
      if (piece.content || piece.reasoning || piece.tools.length) {
        last = performance.now();
        first ||= last;
        pieces++;
      }
      if (piece.reasoning) node.reasoning += piece.reasoning;
      if (piece.content) {
        if (node.reasoning && !node.content) thought = performance.now() - first;
        node.content += piece.content;
      }
      if (piece.tools.length) showTools(node, piece.tools);
      if (piece.finish) finish = piece.finish;
      if (piece.usage) usage = piece.usage;
      keep(conversation);
      redraw();
    });
  } catch (error) {
    if (error.name === 'AbortError') finish = 'stopped';
    else {
      node.error = { message: explain(error), status: error.status || 0 };
      if (error.status === 401) askKey('This server asks for a key.', () => retryLast(conversation, node));
    }
  }
  cancelAnimationFrame(frame);
  const tokens = usage ? usage.completion_tokens : pieces;
  node.meta = {
    model: server.model.id, tokens, finish, first: first ? first - begin : 0, thought,
    rate: tokens > 1 && last > first ? ((tokens - 1) * 1000) / (last - first) : 0,
    prompt: usage ? usage.prompt_tokens : 0, cached: usage?.prompt_tokens_details?.cached_tokens || 0,
  };
  streams.delete(conversation.id);
  if (!conversation.title && !conversation.named) conversation.title = makeTitle(conversation);
  conversation.updated = Date.now();
  keep(conversation, true);
  if (conversation === current) {
    draw();
    stick();
  } else drawList();
  $('status').textContent = node.error ? 'The answer failed' : finish === 'stopped' ? 'Stopped' : 'The answer is complete';
}

function retryLast(conversation, node) {
  const above = conversation.nodes[node.parent];
  if (!above || streams.has(conversation.id)) return;
  above.children = above.children.filter((id) => id !== node.id);
  delete conversation.nodes[node.id];
  answer(conversation, above);
}

function explain(error) {
  if (!(error instanceof ApiError)) return error instanceof SyntaxError ? `The JSON schema in the settings is not JSON: ${error.message}` : error.message;
  if (error.status === 429 || error.status === 503) {
    return `${error.message}${error.retryAfter ? ` (again in ${error.retryAfter} s)` : ''}`;
  }
  return error.message;
}

function makeTitle(conversation) {
  const first = shownPath(conversation)[0];
  const line = first ? first.content.trim().split('\n')[0].replace(/[#*_`>]/g, '').trim() : '';
  return line.length > 48 ? `${line.slice(0, 48).replace(/\s+\S*$/, '')}…` : line;
}

function submit() {
  const text = input.value;
  if (text.trim() === '' || streams.has(current.id)) return;
  input.value = '';
  grow();
  const path = shownPath(current);
  // After a failed answer the next message follows the last one that stands.
  const parent = path.length ? path.at(-1).id : 'root';
  const node = addNode(current, parent, 'user', text);
  if (!current.title && !current.named) current.title = makeTitle(current);
  answer(current, node);
}

function stop() {
  streams.get(current.id)?.abort.abort();
}

// ---- The key -----------------------------------------------------------------------------------

let afterKey = null;
function askKey(why, then) {
  afterKey = then || null;
  $('key-why').textContent = why;
  $('key-input').value = '';
  if (!$('key-dialog').open) $('key-dialog').showModal();
  $('key-input').focus();
}

$('key-form').addEventListener('submit', () => {
  setApiKey($('key-input').value.trim(), $('key-keep').checked);
  const then = afterKey;
  afterKey = null;
  connect().then(() => then?.());
});
$('key-cancel').addEventListener('click', () => $('key-dialog').close());
$('key-open').addEventListener('click', () => askKey(apiKey() ? 'A key is in use. An empty one forgets it.' : 'Only needed if the server was started with one.'));

// ---- The server --------------------------------------------------------------------------------

const panel = createPanel($('pane-live'), (state) => {
  $('live-dot').className = state.ok ? (state.running > 0 ? 'dot busy' : 'dot on') : 'dot off';
  $('live-text').textContent = !state.ok ? (state.status === 401 ? 'key needed' : 'offline')
    : state.running > 0 && state.rate > 0 ? `${Math.round(state.rate)} tok/s` : state.waiting > 0 ? `${state.waiting} waiting` : 'ready';
  if (state.ok && banner === 'offline') {
    showBanner('');
    connect();
  } else if (!state.ok && !state.status && !banner) showBanner('The server does not answer. This page tries again.', 'offline');
});

const size = (n) => (n >= 1e9 ? `${(n / 1e9).toFixed(1)} G` : n >= 1e6 ? `${(n / 1e6).toFixed(0)} M` : String(n));

async function connect() {
  try {
    server = await describeServer();
    if (banner) showBanner('');
  } catch (error) {
    if (error.status === 401) askKey(apiKey() ? 'The server does not accept this key.' : 'This server asks for a key.');
    else if (error.status) showBanner(error.message);
    return;
  }
  const { model, props } = server;
  const meta = model.meta || {};
  const context = props.n_ctx || props.n_context || meta.n_ctx || meta.n_ctx_train || props.default_generation_settings?.n_ctx;
  const rows = [['Name', modelName()]];
  if (props.architecture || meta.architecture) rows.push(['Architecture', props.architecture || meta.architecture]);
  if (props.type || meta.type) rows.push(['Weights', props.type || meta.type]);
  if (props.n_parameters || meta.n_params) rows.push(['Parameters', size(props.n_parameters || meta.n_params)]);
  if (context) rows.push(['Context', `${context} tokens a request`]);
  if (props.version || props.build_info) rows.push(['lace', props.version || props.build_info]);
  panel.describe(rows);
  $('model').textContent = modelName();
  draw();
}

let slower = null;
// Once a second while something happens or the panel is open, else rarely.
function pollFaster() {
  panel.every(1);
  clearTimeout(slower);
  slower = setTimeout(function calm() {
    if (streams.size > 0 || isPanelOpen()) slower = setTimeout(calm, 5000);
    else panel.every(10);
  }, 5000);
}

// ---- Side, drawer, theme -----------------------------------------------------------------------

const isNarrow = () => matchMedia('(max-width: 820px)').matches;

function toggleSide(isOpen) {
  if (isNarrow()) {
    $('app').classList.toggle('side-over', isOpen);
    $('side-open').setAttribute('aria-expanded', String(isOpen));
  }
}

function flipSide() {
  if (isNarrow()) {
    toggleSide(!$('app').classList.contains('side-over'));
    if ($('app').classList.contains('side-over')) $('new').focus();
  } else save('side-hidden', $('app').classList.toggle('side-hidden'));
}

const isPanelOpen = () => !$('drawer').hidden && !$('pane-live').hidden;

function openDrawer(tab) {
  const isSame = !$('drawer').hidden && $(`tab-${tab}`).getAttribute('aria-selected') === 'true';
  if (isSame) {
    closeDrawer();
    return;
  }
  $('drawer').hidden = false;
  $('app').classList.add('drawer-open');
  for (const name of ['settings', 'live']) {
    $(`tab-${name}`).setAttribute('aria-selected', String(name === tab));
    $(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
    $(`pane-${name}`).hidden = name !== tab;
  }
  $(`tab-${tab}`).focus();
  if (tab === 'live') pollFaster();
}

function closeDrawer() {
  $('drawer').hidden = true;
  $('app').classList.remove('drawer-open');
  input.focus({ preventScroll: true });
}

const isDark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';

function nameTheme() {
  const label = isDark() ? 'Light colours' : 'Dark colours';
  $('theme').title = label;
  $('theme').setAttribute('aria-label', label);
}

$('theme').addEventListener('click', () => {
  const theme = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem('lace.theme', theme);
  } catch {
    // Lasts as long as the page.
  }
  nameTheme();
});

const settings = createSettings($('pane-settings'), {
  onSystem: (text) => {
    current.system = text;
    save('system', text);
    if (!isEmpty(current)) keep(current);
  },
  onChange: () => current && draw(),
});

// ---- Export ------------------------------------------------------------------------------------

$('export').addEventListener('click', () => {
  const path = shownPath(current);
  if (path.length === 0) return;
  let text = `# ${titleOf(current)}\n`;
  if (current.system) text += `\n> ${current.system.replace(/\n/g, '\n> ')}\n`;
  for (const n of path) text += `\n## ${n.role === 'user' ? 'You' : n.meta?.model || 'Answer'}\n\n${n.content}\n`;
  const url = URL.createObjectURL(new Blob([text], { type: 'text/markdown' }));
  el('a', { href: url, download: `${titleOf(current).replace(/[^\p{L}\p{N} _-]/gu, '').trim() || 'conversation'}.md` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
});

// ---- Keys --------------------------------------------------------------------------------------

const SHORTCUTS = [
  ['Enter', 'send'], ['Shift Enter', 'new line'], ['Esc', 'stop the answer; close what is open'], ['↑ in an empty box', 'edit the last message'],
  ['Ctrl Shift O', 'new conversation'], ['Ctrl K', 'search conversations'], ['Ctrl B', 'show or hide the list'], ['Ctrl ,', 'settings'],
  ['Ctrl .', 'what the server is doing'], ['Ctrl Shift R', 'another answer'], ['Ctrl /', 'this list'],
];

$('help-keys').append(...SHORTCUTS.flatMap(([keys, what]) => [
  el('dt', {}, ...keys.split(' ').map((k) => (/^(in|an|empty|box)$/.test(k) ? ` ${k}` : el('kbd', {}, k)))), el('dd', {}, what)]));

function again() {
  const last = shownPath(current).at(-1);
  if (last && !streams.has(current.id)) answer(current, last.role === 'assistant' ? current.nodes[last.parent] : last);
}

function openSearch() {
  $('app').classList.remove('side-hidden');
  toggleSide(true);
  $('search').focus();
  $('search').select();
}

const COMMANDS = {
  k: openSearch, b: flipSide, ',': () => openDrawer('settings'), '.': () => openDrawer('live'), '/': () => $('help-dialog').showModal(),
};

document.addEventListener('keydown', (e) => {
  const ctrl = e.ctrlKey || e.metaKey;
  if (e.key === 'Escape' && !document.querySelector('dialog[open]')) {
    if (streams.has(current.id)) stop();
    else if ($('app').classList.contains('side-over')) toggleSide(false);
    else if (!$('drawer').hidden) closeDrawer();
  } else if (ctrl && e.shiftKey && e.key.toLowerCase() === 'o') {
    e.preventDefault();
    startNew();
  } else if (ctrl && e.shiftKey && e.key.toLowerCase() === 'r') {
    e.preventDefault();
    again();
  } else if (ctrl && !e.shiftKey && !e.altKey && COMMANDS[e.key.toLowerCase()]) {
    e.preventDefault();
    COMMANDS[e.key.toLowerCase()]();
  }
});

input.addEventListener('keydown', (e) => {
  if (e.isComposing) return;
  const ctrl = e.ctrlKey || e.metaKey;
  const sends = settingsValues().enter === 'newline' ? ctrl : !e.shiftKey;
  if (e.key === 'Enter' && sends) {
    e.preventDefault();
    submit();
  } else if (e.key === 'ArrowUp' && input.value === '') {
    const last = shownPath(current).filter((n) => n.role === 'user').at(-1);
    if (last && !streams.has(current.id)) {
      e.preventDefault();
      view.startEdit(current, last);
    }
  }
});
input.addEventListener('input', grow);

$('composer').addEventListener('submit', (e) => {
  e.preventDefault();
  if (streams.has(current.id)) stop();
  else submit();
});
$('title').addEventListener('change', () => {
  current.title = $('title').value.trim();
  current.named = current.title !== '';
  keep(current, true);
  draw();
});
$('title').addEventListener('keydown', (e) => {
  if (e.key === 'Enter') $('title').blur();
});
$('new').addEventListener('click', startNew);
$('search').addEventListener('input', drawList);
$('side-open').addEventListener('click', flipSide);
$('side-close').addEventListener('click', flipSide);
$('scrim').addEventListener('click', () => {
  toggleSide(false);
  if (isNarrow()) closeDrawer();
});
$('settings-open').addEventListener('click', () => openDrawer('settings'));
$('live-open').addEventListener('click', () => openDrawer('live'));
$('drawer-close').addEventListener('click', closeDrawer);
$('help').addEventListener('click', () => $('help-dialog').showModal());
for (const tab of ['settings', 'live']) {
  $(`tab-${tab}`).addEventListener('click', () => $(`pane-${tab}`).hidden && openDrawer(tab));
  $(`tab-${tab}`).addEventListener('keydown', (e) => {
    if (e.key === 'ArrowLeft' || e.key === 'ArrowRight') openDrawer(tab === 'live' ? 'settings' : 'live');
  });
}
addEventListener('pagehide', () => {
  for (const id of [...saving.keys()]) {
    const c = conversations.find((other) => other.id === id);
    if (c) keep(c, true);
  }
});

// ---- Begin -------------------------------------------------------------------------------------

store = await openStore();
conversations = (await store.all()).filter((c) => c && c.nodes && c.nodes.root);
if (load('side-hidden', false)) $('app').classList.add('side-hidden');
nameTheme();
const wanted = conversations.find((c) => c.id === load('current', ''));
if (wanted && !isEmpty(wanted)) select(wanted);
else startNew();
if (!store.isKept) showBanner('This browser forbids storage: conversations last until the page is closed.');
await connect();
panel.every(10);
