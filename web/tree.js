// A conversation is a tree of messages: another version of a message is a sibling, and every node knows
// which child is shown.
//
//     {id, title, named, titled, system, systemSet, model, modelSet, created, updated, nodes: {id: node}, removed: {id: {at, parent}}}
//     node: {id, parent, role, content, reasoning, files, tools, tokens, children: [id], shown, turned, at, meta, error}
//     files: [{name, text} or {name, image: data URL, width, height}]
//     tools: the calls of an answer, [{id, name, text: its arguments, result}]
//     tokens: those of an answer with their probabilities (tokens.js), [[text, logprob, [[other text, logprob]]]]
//
// The node "root" has no text. An answer below another one answers the results of its calls. `at`, `turned` (which
// child is shown), `titled`, `systemSet` and `modelSet` are the times of the last change. Two tabs may change one conversation: mergeInto() takes the later state of each part
// and loses no message. `removed` remembers what was deleted, and what it hung on.

export function makeId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

let last = 0;
// The time in ms, never the same twice.
export function stamp() {
  last = Math.max(last + 1, Date.now());
  return last;
}

function makeNode(id, parent, role, content) {
  return { id, parent, role, content, reasoning: '', files: [], tools: [], tokens: [], children: [], shown: null, turned: 0, at: stamp(), meta: null, error: null };
}

export function newConversation(system) {
  const now = Date.now();
  return {
    id: makeId(), title: '', named: false, titled: 0, system: system || '', systemSet: 0, model: '', modelSet: 0, created: now, updated: now,
    nodes: { root: makeNode('root', null, 'root', '') }, removed: {},
  };
}

export function showChild(conversation, parent, id) {
  const above = conversation.nodes[parent];
  above.shown = id;
  above.turned = stamp();
}

// A new node below `parent`, which is shown from now on.
export function addNode(conversation, parent, role, content, files = []) {
  const node = makeNode(makeId(), parent, role, content);
  node.files = files;
  conversation.nodes[node.id] = node;
  conversation.nodes[parent].children.push(node.id);
  showChild(conversation, parent, node.id);
  conversation.updated = Date.now();
  return node;
}

export function shownChild(conversation, node) {
  const id = node.children.includes(node.shown) ? node.shown : node.children.at(-1);
  return id === undefined ? null : conversation.nodes[id];
}

// The messages that are shown, from the first to the last.
export function shownPath(conversation) {
  const path = [];
  for (let node = shownChild(conversation, conversation.nodes.root); node; node = shownChild(conversation, node)) path.push(node);
  return path;
}

// From the first message to this one.
export function pathTo(conversation, node) {
  const path = [];
  for (let n = node; n.role !== 'root'; n = conversation.nodes[n.parent]) path.unshift(n);
  return path;
}

function allBelow(conversation, node) {
  const ids = [node.id];
  for (let i = 0; i < ids.length; i++) ids.push(...conversation.nodes[ids[i]].children);
  return ids;
}

// Takes a message out; what follows it moves up to what it followed, or goes too.
export function removeNode(conversation, node, withRest) {
  const above = conversation.nodes[node.parent];
  const at = stamp();
  const gone = withRest ? allBelow(conversation, node) : [node.id];
  const heirs = withRest ? [] : node.children;
  const shown = withRest ? null : shownChild(conversation, node);
  const place = above.children.indexOf(node.id);
  above.children.splice(place, 1, ...heirs);
  for (const id of heirs) {
    conversation.nodes[id].parent = above.id;
    conversation.nodes[id].at = at;
  }
  if (above.shown === node.id) {
    above.shown = shown?.id ?? above.children[Math.min(place, above.children.length - 1)] ?? null;
    above.turned = at;
  }
  for (const id of gone) {
    conversation.removed[id] = { at, parent: conversation.nodes[id].parent };
    delete conversation.nodes[id];
  }
  conversation.updated = Date.now();
}

// ---- Two states of one conversation --------------------------------------------------------------

const PARTS = ['parent', 'role', 'content', 'reasoning', 'files', 'tools', 'tokens', 'at', 'meta', 'error'];

function mergeNode(mine, other) {
  if (other.at > mine.at) for (const part of PARTS) mine[part] = other[part];
  if (other.turned > mine.turned) {
    mine.turned = other.turned;
    mine.shown = other.shown;
  }
}

// The lists of children, from what the nodes say of their parents; the order is that of `lists`.
function relink(conversation, lists) {
  const { nodes, removed } = conversation;
  const order = new Map();
  for (const list of lists) for (const id of list) if (!order.has(id)) order.set(id, order.size);
  for (const node of Object.values(nodes)) {
    node.children = [];
    // What hung on a message that is gone hangs on what that one hung on.
    for (let i = 0; node.id !== 'root' && !nodes[node.parent]; i++) node.parent = i < 10000 ? removed[node.parent]?.parent ?? 'root' : 'root';
  }
  const ids = Object.keys(nodes).filter((id) => id !== 'root');
  ids.sort((a, b) => (order.get(a) ?? Infinity) - (order.get(b) ?? Infinity) || nodes[a].at - nodes[b].at);
  for (const id of ids) nodes[nodes[id].parent].children.push(id);
  // Two tabs that move messages could close a circle; what does not hang on the root is hung there.
  const reached = new Set(allBelow(conversation, nodes.root));
  for (const id of ids) {
    if (reached.has(id)) continue;
    const above = nodes[nodes[id].parent];
    above.children = above.children.filter((other) => other !== id);
    nodes[id].parent = 'root';
    nodes.root.children.push(id);
    for (const below of allBelow(conversation, nodes[id])) reached.add(below);
  }
}

// Takes over from `other` what is later there. Nodes of `mine` stay the same objects.
export function mergeInto(mine, other) {
  const lists = [other, mine].flatMap((c) => Object.values(c.nodes).map((n) => n.children));
  for (const [id, gone] of Object.entries(other.removed)) {
    if (!(mine.removed[id]?.at >= gone.at)) mine.removed[id] = gone;
  }
  for (const node of Object.values(other.nodes)) {
    if (mine.nodes[node.id]) mergeNode(mine.nodes[node.id], node);
    else mine.nodes[node.id] = node;
  }
  for (const [id, gone] of Object.entries(mine.removed)) {
    if (!mine.nodes[id]) continue;
    if (mine.nodes[id].at > gone.at) delete mine.removed[id];
    else delete mine.nodes[id];
  }
  relink(mine, lists);
  if (other.titled > mine.titled) {
    mine.titled = other.titled;
    mine.title = other.title;
    mine.named = other.named;
  }
  if (other.systemSet > mine.systemSet) {
    mine.systemSet = other.systemSet;
    mine.system = other.system;
  }
  if (other.modelSet > mine.modelSet) {
    mine.modelSet = other.modelSet;
    mine.model = other.model;
  }
  mine.updated = Math.max(mine.updated, other.updated);
  mine.created = Math.min(mine.created, other.created);
}

// ---- From outside --------------------------------------------------------------------------------

const isObject = (x) => typeof x === 'object' && x !== null && !Array.isArray(x);
const text = (x) => (typeof x === 'string' ? x : '');
const time = (x) => (Number.isFinite(x) && x > 0 && x < 1e14 ? x : 0);
const isId = (x) => typeof x === 'string' && /^[A-Za-z0-9-]{1,64}$/.test(x);
const ROLES = ['user', 'assistant'];

function readMeta(value) {
  if (!isObject(value)) return null;
  const meta = {};
  for (const name of ['tokens', 'first', 'thought', 'rate', 'prompt', 'cached']) meta[name] = Number.isFinite(value[name]) ? value[name] : 0;
  for (const name of ['model', 'finish', 'cut']) meta[name] = text(value[name]).slice(0, 200);
  return meta;
}

const IMAGE = /^data:image\/(?:png|jpeg|webp);base64,[A-Za-z0-9+/]+={0,2}$/;
const list = (x) => (Array.isArray(x) ? x : []);
const size = (x) => (Number.isInteger(x) && x > 0 && x < 1e6 ? x : 0);

function readFile(f) {
  const name = text(f.name).slice(0, 200) || 'file';
  if (typeof f.image !== 'string') return { name, text: text(f.text) };
  return IMAGE.test(f.image) ? { name, image: f.image, width: size(f.width), height: size(f.height) } : null;
}

const readTool = (t) => ({ id: text(t.id).slice(0, 200), name: text(t.name).slice(0, 200), text: text(t.text), result: text(t.result) });

const isScored = (pair) => Array.isArray(pair) && typeof pair[0] === 'string' && Number.isFinite(pair[1]);
const readToken = (token) => [token[0], token[1], list(token[2]).filter(isScored).slice(0, 20).map(([t, p]) => [t, p])];

function readNode(value) {
  const isRoot = value.id === 'root';
  if (!isObject(value) || !isId(value.id) || (!isRoot && (!ROLES.includes(value.role) || !isId(value.parent)))) return null;
  const node = makeNode(value.id, isRoot ? null : value.parent, isRoot ? 'root' : value.role, text(value.content));
  const children = list(value.children).filter(isId);
  node.reasoning = text(value.reasoning);
  node.files = list(value.files).filter(isObject).map(readFile).filter(Boolean);
  node.tools = list(value.tools).filter(isObject).map(readTool);
  node.tokens = list(value.tokens).filter(isScored).map(readToken);
  node.children = children;
  // Older pages kept the place of the child that is shown.
  node.shown = isId(value.shown) ? value.shown : children[value.pick] ?? null;
  node.turned = time(value.turned);
  node.at = time(value.at);
  node.meta = readMeta(value.meta);
  node.error = isObject(value.error) ? { message: text(value.error.message).slice(0, 2000), status: Number(value.error.status) || 0 } : null;
  return node;
}

// A conversation from a file or an older page, with nothing in it but what this page knows; null if it is none.
export function readConversation(value) {
  if (!isObject(value) || !isId(value.id) || !isObject(value.nodes)) return null;
  const c = newConversation(text(value.system));
  c.id = value.id;
  c.title = text(value.title).slice(0, 500);
  c.named = value.named === true;
  c.model = text(value.model).slice(0, 500);
  for (const name of ['titled', 'systemSet', 'modelSet', 'created', 'updated']) c[name] = time(value[name]);
  const nodes = Object.values(value.nodes).map((n) => (isObject(n) ? readNode(n) : null)).filter(Boolean);
  c.nodes = Object.fromEntries(nodes.map((n) => [n.id, n]));
  c.nodes.root ||= makeNode('root', null, 'root', '');
  for (const [id, gone] of Object.entries(isObject(value.removed) ? value.removed : {})) {
    if (isId(id) && isObject(gone) && isId(gone.parent)) c.removed[id] = { at: time(gone.at), parent: gone.parent };
  }
  relink(c, nodes.map((n) => n.children));
  return c;
}
