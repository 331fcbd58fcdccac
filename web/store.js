// Conversations, kept in this browser (IndexedDB), and small choices (localStorage).
//
// A conversation is a tree of messages: editing a message or asking for another answer adds a
// sibling, and every node remembers which child is shown.
//
//     {id, title, named, system, created, updated, nodes: {id: node}}
//     node: {id, parent, role, content, reasoning, children: [id], pick, meta, error}
//
// The node "root" has no text. Where storage is forbidden (some private windows), all works until the
// page is closed.

const DATABASE = 'lace';
const TABLE = 'conversations';

export function makeId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

export function newConversation(system) {
  const now = Date.now();
  return {
    id: makeId(), title: '', named: false, system: system || '', created: now, updated: now,
    nodes: { root: { id: 'root', parent: null, role: 'root', content: '', children: [], pick: 0 } },
  };
}

// A new node below `parent`, which is shown from now on.
export function addNode(conversation, parent, role, content) {
  const node = { id: makeId(), parent, role, content, reasoning: '', children: [], pick: 0, meta: null, error: null };
  conversation.nodes[node.id] = node;
  const above = conversation.nodes[parent];
  above.children.push(node.id);
  above.pick = above.children.length - 1;
  conversation.updated = Date.now();
  return node;
}

// The messages that are shown, from the first to the last; to `until` (exclusive) if it is given.
export function shownPath(conversation, until) {
  const path = [];
  let node = conversation.nodes.root;
  while (node.children.length > 0) {
    node = conversation.nodes[node.children[Math.min(node.pick, node.children.length - 1)]];
    if (!node || node.id === until) break;
    path.push(node);
  }
  return path;
}

// ---- The database ------------------------------------------------------------------------------

function request(r) {
  return new Promise((resolve, reject) => {
    r.onsuccess = () => resolve(r.result);
    r.onerror = () => reject(r.error);
  });
}

// {all, put, remove, isKept}; isKept is false if nothing outlives the page.
export async function openStore() {
  try {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE, { keyPath: 'id' });
    const db = await request(opening);
    const table = (mode) => db.transaction(TABLE, mode).objectStore(TABLE);
    return {
      isKept: true,
      all: () => request(table('readonly').getAll()),
      put: (c) => request(table('readwrite').put(c)),
      remove: (id) => request(table('readwrite').delete(id)),
    };
  } catch {
    const map = new Map();
    return {
      isKept: false,
      all: async () => [...map.values()],
      put: async (c) => void map.set(c.id, c),
      remove: async (id) => void map.delete(id),
    };
  }
}

// ---- Choices -----------------------------------------------------------------------------------

export function load(name, fallback) {
  try {
    const text = localStorage.getItem(`lace.${name}`);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

export function save(name, value) {
  try {
    if (value === undefined) localStorage.removeItem(`lace.${name}`);
    else localStorage.setItem(`lace.${name}`, JSON.stringify(value));
  } catch {
    // Forbidden or full: the choice lasts as long as the page.
  }
}

// ---- The key -----------------------------------------------------------------------------------

let key = '';
try {
  key = sessionStorage.getItem('lace.key') || localStorage.getItem('lace.key') || '';
} catch {
  // No storage: the key is asked for again after a reload.
}

export function apiKey() {
  return key;
}

export function setApiKey(value, isKept) {
  key = value;
  try {
    sessionStorage.removeItem('lace.key');
    localStorage.removeItem('lace.key');
    if (value) (isKept ? localStorage : sessionStorage).setItem('lace.key', value);
  } catch {
    // As above.
  }
}
