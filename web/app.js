// The page: ties its parts together. They are in the other files.

import { createAnswers, TEXT_TOKENS } from './answers.js';
import { createAttachments } from './files.js';
import { el, toClipboard } from './dom.js';
import { $, choose, createFrame, isPanelOpen, openDrawer, showFile, stick, toggleSide } from './frame.js';
import { drawGauge } from './gauge.js';
import { createKeys } from './keys.js';
import { drawList as drawListIn } from './list.js';
import { createModels, describeServer, whatItWaitsFor } from './models.js';
import { createPanel } from './panel.js';
import { createSettings, settingLabel, settingsValues } from './settings.js';
import { makeLink, takeLink } from './share.js';
import { contextSize, find, isEmpty, makeTitle, mode, modelName, state, titleOf, whyNoImages } from './state.js';
import { apiKey, dropUnsaved, keepUnsaved, load, loadHere, openStore, readUnsaved, save, saveHere, setApiKey } from './store.js';
import { openTabs } from './tabs.js';
import { loadJson, saveJson, saveMarkdown } from './transfer.js';
import { addNode, mergeInto, newConversation, removeNode, showChild, shownPath, stamp } from './tree.js';
import { createView, drawWelcome } from './view.js';

const log = $('log');
const input = $('input');

// ---- Keeping -----------------------------------------------------------------------------------

const KEEP_AFTER = 500; // ms
const saving = new Map(); // conversation id -> timer

// Writes a conversation soon; streams call it for every piece. The other tabs read it then.
function keep(conversation, isNow) {
  const write = async () => {
    saving.delete(conversation.id);
    try {
      await state.store.put(conversation);
      dropUnsaved(conversation.id);
      tabs.changed(conversation.id);
    } catch (error) {
      showBanner(`This conversation cannot be kept: ${error.message}`);
    }
  };
  if (isNow) {
    clearTimeout(saving.get(conversation.id));
    return write();
  }
  if (!saving.has(conversation.id)) saving.set(conversation.id, setTimeout(write, KEEP_AFTER));
  return null;
}

addEventListener('pagehide', () => {
  state.isLeaving = true;
  for (const id of new Set([...saving.keys(), ...state.streams.keys()])) if (find(id)) keepUnsaved(find(id), state.streams.get(id)?.node);
  for (const id of state.streams.keys()) tabs.ended(id);
});
// A page that comes back as it was has lost its streams.
addEventListener('pageshow', (e) => e.persisted && location.reload());

const tabs = openTabs({
  busy: () => [...state.streams].map(([id, { node }]) => [id, node.id]),
  stop: (id) => state.streams.get(id)?.abort.abort(),
  began: (id) => isShown(id) && draw(),
  ended: (id) => (isShown(id) ? draw() : drawList()),
  removed: (id) => find(id) && forget(find(id)),
  changed: async (id) => {
    const kept = await state.store.get(id);
    if (!kept) return;
    if (find(id)) mergeInto(find(id), kept);
    else state.conversations.push(kept);
    if (!isShown(id)) drawList();
    else {
      settings.showSystem(state.current.system);
      if (modelOf(state.current) !== state.server.model.id) connect();
      draw();
      stick();
    }
  },
});

const isShown = (id) => state.current?.id === id;
const isBusy = (c) => state.streams.has(c.id) || tabs.node(c.id) !== null;

// ---- Conversations -----------------------------------------------------------------------------

function drawList() {
  drawListIn($('list'), $('search').value.trim().toLowerCase(), { open: select, remove: removeConversation, isBusy });
}

function select(c) {
  state.current = c;
  save('current', c.id);
  saveHere('current', c.id);
  view.clear();
  draw();
  settings.showSystem(c.system);
  if (state.server.models.length > 1 && c.model !== state.server.model.id) connect();
  toggleSide(false);
  input.focus({ preventScroll: true });
  stick(true);
}

function startNew() {
  const empty = state.conversations.find(isEmpty);
  const c = empty || newConversation();
  if (!empty) state.conversations.push(c);
  if (c !== state.current) {
    c.system = load('system', '');
    c.model = '';
  }
  c.updated = Date.now();
  select(c);
}

// Takes a conversation out of the list.
function forget(c) {
  state.streams.get(c.id)?.abort.abort();
  clearTimeout(saving.get(c.id));
  saving.delete(c.id);
  state.conversations = state.conversations.filter((other) => other !== c);
  if (c !== state.current) {
    drawList();
    return;
  }
  const next = state.conversations.find((other) => !isEmpty(other));
  if (next) select(next);
  else startNew();
}

async function removeConversation(c) {
  if (!isEmpty(c) && !(await choose('Delete this conversation?', `“${titleOf(c)}” and all its messages go for good.`, [['Delete', true, 'danger']]))) return;
  forget(c);
  await state.store.remove(c.id);
  dropUnsaved(c.id);
  tabs.removed(c.id);
}

// ---- Answers -----------------------------------------------------------------------------------

const GAUGE_EVERY = 500; // ms, while text comes
let frame = 0;
let gauged = 0;
const answers = createAnswers({
  begin: (conversation) => {
    tabs.tell();
    keep(conversation, true);
    pollFaster();
    if (conversation === state.current) {
      draw();
      stick(true);
    } else drawList();
  },
  piece: (conversation, node) => {
    keep(conversation);
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (conversation !== state.current) return;
      view.refresh(conversation, node);
      if (performance.now() - gauged < GAUGE_EVERY) return;
      gauged = performance.now();
      drawGauge($('gauge'), draft());
    });
  },
  end: async (conversation, node) => {
    if (!find(conversation.id)) return; // deleted meanwhile
    if (conversation === state.current) {
      draw();
      stick();
    } else drawList();
    $('status').textContent = node.error ? 'The answer failed' : node.meta.finish === 'stopped' ? 'Stopped' : 'The answer is complete';
    await keep(conversation, true);
    tabs.ended(conversation.id);
  },
  loaded: (server) => server.model.id === modelOf(state.current) && showServer(server),
  needsKey: (again) => askKey('This server asks for a key.', again),
});

// True if there was something to stop.
function stop() {
  const { current } = state;
  if (!isBusy(current)) return false;
  if (state.streams.has(current.id)) state.streams.get(current.id).abort.abort();
  else tabs.stop(current.id);
  return true;
}

function again() {
  const { current } = state;
  const last = shownPath(current).at(-1);
  if (last && !isBusy(current)) answers.answer(current, last.role === 'assistant' ? current.nodes[last.parent] : last);
}

// ---- Messages ----------------------------------------------------------------------------------

// What a button of a message does, unless an answer is on its way.
const whenIdle = (action) => (...args) => {
  if (!isBusy(state.current)) action(state.current, ...args);
};

async function removeMessage(conversation, node) {
  const hasRest = node.children.length > 0;
  const what = await choose('Delete this message?', hasRest ? 'What follows it can stay or go too.' : 'It goes for good.',
    [...(hasRest ? [['This and all after it', 'rest', 'danger']] : []), [hasRest ? 'Only this one' : 'Delete', 'one', 'danger']]);
  if (!what || isBusy(conversation) || !conversation.nodes[node.id]) return;
  removeNode(conversation, node, what === 'rest');
  keep(conversation, true);
  draw();
}

const view = createView(log, {
  isStreaming: (node) => [...state.streams.values()].some((s) => s.node === node) || tabs.node(state.current.id) === node.id,
  // The last answer, if it has no end of its own.
  canContinue: (node) => node.tools.length === 0 && (node.content !== '' || node.reasoning !== '') && shownPath(state.current).at(-1) === node
    && (mode() === 'text' || node.meta?.finish !== 'stop' || node.error !== null),
  canAnswer: (node) => !isBusy(state.current) && shownPath(state.current).at(-1) === node,
  thoughtFor: (node) => [...state.streams.values()].find((s) => s.node === node)?.run.thought || node.meta?.thought || 0,
  waitsFor: () => {
    const model = state.server.models.find(({ id }) => id === modelOf(state.current));
    return state.server.models.length > 1 && model ? whatItWaitsFor(model) : '';
  },
  openFile: showFile,
  result: (node, call, text) => {
    call.result = text;
    node.at = stamp();
    keep(state.current);
  },
  sendResults: whenIdle((c, node) => answers.answer(c, node)),
  branch: whenIdle((c, node, text, tokens) => {
    const other = addNode(c, node.parent, 'assistant', text);
    Object.assign(other, { reasoning: node.reasoning, tokens });
    answers.more(c, other);
  }),
  again: whenIdle((c, node) => answers.answer(c, c.nodes[node.parent])),
  retry: whenIdle((c, node) => answers.retry(c, node)),
  more: whenIdle((c, node) => answers.more(c, node)),
  remove: whenIdle(removeMessage),
  edit: whenIdle((c, node, text) => answers.answer(c, addNode(c, node.parent, 'user', text, node.files))),
  change: whenIdle((c, node, text) => {
    node.content = text;
    node.tokens = []; // they are those of another text
    node.at = stamp();
    // A changed answer has no end that the model chose: it can be continued.
    if (node.meta) node.meta.finish = 'changed';
    keep(c, true);
    draw();
  }),
  turn: (node, step) => {
    const { current } = state;
    const { children } = current.nodes[node.parent];
    const shown = children[Math.min(children.length - 1, Math.max(0, children.indexOf(node.id) + step))];
    showChild(current, node.parent, shown);
    keep(current);
    draw();
    log.querySelector(`[data-id="${shown}"] .branches button:not(:disabled)`)?.focus();
  },
});

const isHere = ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname);
const STARTERS = {
  chat: ['Explain how a lace pattern is made, in five sentences', 'Write a C function that reverses a UTF-8 string', 'Compare tea and coffee in a small table', 'Plan a weekend in the mountains'],
  text: ['Once upon a time there was a lighthouse', 'The old clockmaker opened the box and', 'In the garden behind the mill', 'The king had three daughters, and the youngest'],
};

function draw() {
  const { current } = state;
  const path = shownPath(current);
  const isText = mode() === 'text';
  if (path.length === 0) {
    view.clear();
    drawWelcome(log, {
      name: modelName(),
      note: isText ? 'This model has no chat template: it continues the text that you begin.' : isHere ? 'Runs on your own machine. Nothing leaves it.' : `Runs on ${location.hostname}. What you write goes there and nowhere else.`,
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
  $('system-line').hidden = !current.system.trim();
  $('system-text').textContent = current.system;
  $('title').value = current.title;
  $('title').placeholder = 'New conversation';
  $('heading').textContent = titleOf(current);
  document.title = current.title ? `${current.title} – lace` : 'lace';
  input.placeholder = isText ? 'Begin a text' : 'Write a message';
  drawSend();
  drawList();
}

// ---- The message box ---------------------------------------------------------------------------

const draft = () => ({ content: input.value, files: attachments.list(), reasoning: '', tools: [] });

function drawSend() {
  const busy = isBusy(state.current);
  const isBlank = input.value.trim() === '' && attachments.list().length === 0;
  $('send-icon').setAttribute('href', busy ? '#i-stop' : '#i-send');
  $('send').setAttribute('aria-label', busy ? 'Stop' : 'Send');
  $('send').title = busy ? 'Stop (Esc)' : 'Send (Enter)';
  $('send').classList.toggle('stop', busy);
  $('send').disabled = !busy && isBlank;
  drawGauge($('gauge'), draft());
}

function grow() {
  input.style.height = 'auto';
  input.style.height = `${Math.min(input.scrollHeight, 220)}px`;
  saveHere('draft', input.value);
  drawSend();
}

const attachments = createAttachments($('chips'), {
  onOpen: showFile,
  onChange: () => {
    saveHere('files', attachments.list());
    grow();
  },
  whyNoImages: () => whyNoImages(),
  onError: (text) => (text ? showBanner(text, 'file') : banner === 'file' && showBanner('')),
});

function submit() {
  const { content, files } = draft();
  const { current } = state;
  if ((content.trim() === '' && files.length === 0) || isBusy(current)) return;
  input.value = '';
  attachments.set([]);
  saveHere('files', []);
  grow();
  const node = addNode(current, shownPath(current).at(-1)?.id ?? 'root', 'user', content, files);
  if (!current.title && !current.named) current.title = makeTitle(current);
  answers.answer(current, node);
}

input.addEventListener('keydown', (e) => {
  if (e.isComposing) return;
  const ctrl = e.ctrlKey || e.metaKey;
  const sends = !e.shiftKey && (settingsValues().enter !== 'newline' || ctrl);
  if (e.key === 'Enter' && sends) {
    e.preventDefault();
    submit();
  } else if (e.key === 'ArrowUp' && input.value === '') {
    const last = shownPath(state.current).filter((n) => n.role === 'user').at(-1);
    if (last && !isBusy(state.current)) {
      e.preventDefault();
      view.startEdit(state.current, last);
    }
  }
});
input.addEventListener('input', grow);
input.addEventListener('paste', (e) => {
  if (e.clipboardData.files.length === 0 || e.clipboardData.types.includes('text/plain')) return;
  e.preventDefault();
  attachments.add([...e.clipboardData.files]);
});
$('composer').addEventListener('submit', (e) => {
  e.preventDefault();
  if (!stop()) submit();
});
$('attach').addEventListener('click', () => $('attach-file').click());
$('attach-file').addEventListener('change', async () => {
  await attachments.add([...$('attach-file').files]);
  $('attach-file').value = '';
  input.focus();
});
const hasFiles = (e) => [...(e.dataTransfer?.types || [])].includes('Files');
document.addEventListener('dragover', (e) => {
  if (!hasFiles(e)) return;
  e.preventDefault();
  $('app').classList.add('dropping');
});
document.addEventListener('dragleave', (e) => !e.relatedTarget && $('app').classList.remove('dropping'));
document.addEventListener('drop', (e) => {
  $('app').classList.remove('dropping');
  if (!hasFiles(e)) return;
  e.preventDefault();
  attachments.add([...e.dataTransfer.files]);
});

// ---- The title, the system prompt, settings ------------------------------------------------------

$('title').addEventListener('change', () => {
  const { current } = state;
  current.title = $('title').value.trim();
  current.named = current.title !== '';
  current.titled = stamp();
  keep(current, true);
  draw();
});
$('title').addEventListener('keydown', (e) => {
  if (e.key === 'Enter') $('title').blur();
});

const settings = createSettings($('pane-settings'), {
  onSystem: (text) => {
    const { current } = state;
    current.system = text;
    current.systemSet = stamp();
    if (!isEmpty(current)) keep(current);
    draw();
  },
  onStandard: (text) => save('system', text),
  onChange: () => state.current && draw(),
});
$('system-line').addEventListener('click', () => {
  if ($('drawer').hidden || isPanelOpen()) openDrawer('settings');
  $('set-system').focus();
});

// ---- Saving and loading ------------------------------------------------------------------------

const filled = () => state.conversations.filter((c) => !isEmpty(c));

function openSave() {
  const count = filled().length;
  $('save-note').textContent = '';
  $('share').disabled = !promptToShare();
  $('share-link').hidden = true;
  for (const id of ['save-markdown', 'save-one']) $(id).disabled = isEmpty(state.current);
  $('save-all').disabled = count === 0;
  $('save-all-count').textContent = count === 1 ? '1 conversation' : `${count} conversations`;
  $('save-dialog').showModal();
}

$('export').addEventListener('click', openSave);
$('save-markdown').addEventListener('click', () => saveMarkdown(state.current));
$('save-one').addEventListener('click', () => saveJson([state.current], titleOf(state.current)));
$('save-all').addEventListener('click', () => saveJson(filled(), `lace conversations ${new Date().toISOString().slice(0, 10)}`));
$('load').addEventListener('click', () => $('load-file').click());
$('load-file').addEventListener('change', async () => {
  const [file] = $('load-file').files;
  $('load-file').value = '';
  if (!file) return;
  try {
    const { added, merged, ids } = await loadJson(file);
    for (const id of ids) await keep(find(id), true);
    $('save-note').textContent = `${added} added${merged ? `, ${merged} already here and completed` : ''}.`;
    $('save-note').className = 'note';
    draw();
  } catch (error) {
    $('save-note').textContent = error.message;
    $('save-note').className = 'note bad';
  }
});

// ---- Links -------------------------------------------------------------------------------------

// What is being written, or else the last message.
const promptToShare = () => input.value.trim() || shownPath(state.current).filter((n) => n.role === 'user').at(-1)?.content.trim() || '';

$('share').addEventListener('click', async () => {
  const note = $('save-note');
  note.className = 'note';
  try {
    const { system, model } = state.current;
    const link = makeLink({ prompt: promptToShare(), system, model });
    $('share-link').value = link;
    $('share-link').hidden = false;
    await toClipboard(link, $('share'));
    note.textContent = 'Copied. It opens where a lace answers at this address, and asks before anything is sent.';
  } catch (error) {
    note.textContent = error.message;
    note.className = 'note bad';
  }
});
$('share-link').addEventListener('focus', () => $('share-link').select());

// A prompt that came with the address fills the page; whether it is sent is the user's choice.
async function openLink() {
  const link = takeLink();
  if (!link) return;
  const earlier = input.value;
  startNew();
  const { current } = state;
  current.system = link.system;
  current.model = link.model;
  settings.showSystem(link.system);
  input.value = link.prompt;
  grow();
  draw();
  if (link.model) connect();
  const rows = [['Prompt', link.prompt], ...(link.system ? [['System prompt', link.system]] : []), ...(link.model ? [['Model', link.model]] : []),
    ...Object.entries(link.settings).map(([name, value]) => [settingLabel(name), String(value)])];
  const hasSettings = Object.keys(link.settings).length > 0;
  const what = await choose('A prompt from a link', `Nothing has been sent.${hasSettings ? ' The settings take the place of yours.' : ''}`,
    [['Send it now', 'send', 'plain'], ['Fill in', 'fill', 'primary']],
    el('dl', { class: 'shared', tabindex: 0, 'aria-label': 'What the link has' }, ...rows.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])));
  if (!what) {
    current.system = load('system', '');
    current.model = '';
    input.value = earlier;
    settings.showSystem(current.system);
    if (link.model) connect();
  } else if (hasSettings) settings.take(link.settings);
  grow();
  draw();
  if (what === 'send') submit();
  else input.focus();
}
addEventListener('hashchange', openLink);

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

let banner = null; // its kind
function showBanner(text, kind = '') {
  banner = text ? kind || 'error' : null;
  $('banner').hidden = !text;
  $('banner').textContent = text || '';
}

// The model that answers in a conversation.
const modelOf = ({ model }) => (state.server.models.some(({ id }) => id === model) ? model : state.server.model.id);

const models = createModels($('model-choice'), {
  onChange: (id) => {
    const { current } = state;
    current.model = id;
    current.modelSet = stamp();
    if (!isEmpty(current)) keep(current, true);
    connect();
  },
  onReady: () => connect(),
  onStates: (all) => {
    state.server.models = all;
    const underway = state.streams.get(state.current.id);
    if (underway) view.refresh(state.current, underway.node);
  },
});

const panel = createPanel($('pane-live'), (now) => {
  models.refresh();
  $('live-dot').className = now.ok ? (now.running > 0 ? 'dot busy' : 'dot on') : 'dot off';
  $('live-text').textContent = !now.ok ? (now.status === 401 ? 'key needed' : 'offline')
    : now.running > 0 && now.rate > 0 ? `${Math.round(now.rate)} tok/s` : now.waiting > 0 ? `${now.waiting} waiting` : 'ready';
  if (now.ok && banner === 'offline') {
    showBanner('');
    connect();
  } else if (!now.ok && !now.status && !banner) showBanner('The server does not answer. This page tries again.', 'offline');
});

const size = (n) => (n >= 1e9 ? `${(n / 1e9).toFixed(1)} G` : n >= 1e6 ? `${(n / 1e6).toFixed(0)} M` : String(n));

let asked = 0; // how often; only the last answer counts
async function connect() {
  const mine = ++asked;
  let server;
  try {
    server = await describeServer(state.current.model);
    if (mine !== asked) return;
    if (banner === 'offline' || banner === 'server') showBanner('');
  } catch (error) {
    if (error.status === 401) askKey(apiKey() ? 'The server does not accept this key.' : 'This server asks for a key.');
    else if (error.status) showBanner(error.message, 'server');
    return;
  }
  showServer(server);
}

function showServer(server) {
  state.server = server;
  const { model, props } = server;
  const meta = model.meta || {};
  const rows = [['Name', modelName()]];
  if (props.architecture || meta.architecture) rows.push(['Architecture', props.architecture || meta.architecture]);
  if (props.type || meta.type) rows.push(['Weights', props.type || meta.type]);
  if (props.n_parameters || meta.n_params) rows.push(['Parameters', size(props.n_parameters || meta.n_params)]);
  if (contextSize()) rows.push(['Context', `${contextSize()} tokens a request`]);
  if (props.version || props.build_info) rows.push(['lace', props.version || props.build_info]);
  panel.describe(rows);
  settings.showDefaults({ ...props.default_generation_settings?.params, ...(mode() === 'text' ? { max_tokens: TEXT_TOKENS } : {}) });
  $('model').textContent = modelName();
  $('model').hidden = state.server.models.length > 1;
  models.show(state.server.models, model.id);
  const attach = whyNoImages() ? 'Attach a text file' : 'Attach an image or a text file';
  $('attach').title = attach;
  $('attach').setAttribute('aria-label', attach);
  draw();
}

let slower = null;
// Once a second while something happens or the panel is open, else rarely.
function pollFaster() {
  panel.every(1);
  clearTimeout(slower);
  slower = setTimeout(function calm() {
    if (state.streams.size > 0 || isPanelOpen()) slower = setTimeout(calm, 5000);
    else panel.every(10);
  }, 5000);
}

// ---- Begin -------------------------------------------------------------------------------------

$('new').addEventListener('click', startNew);
$('search').addEventListener('input', drawList);
createFrame({ onLive: pollFaster });
createKeys({ stop, startNew, again });
state.store = await openStore();
state.conversations = await state.store.all();
// What a page had received when it was left.
for (const left of readUnsaved()) {
  if (find(left.id)) mergeInto(find(left.id), left);
  else state.conversations.push(left);
  await keep(find(left.id), true);
}
const wanted = find(loadHere('current', '')) || find(load('current', ''));
input.value = loadHere('draft', '');
attachments.set(loadHere('files', []));
if (wanted && !isEmpty(wanted)) select(wanted);
else startNew();
grow();
if (!state.store.isKept) showBanner('This browser forbids storage: conversations last until the page is closed.');
await connect();
panel.every(10);
await openLink();
