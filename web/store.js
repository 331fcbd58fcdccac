// What is kept in this browser: conversations (IndexedDB), small choices and the key (localStorage).
//
// Where storage is forbidden (some private windows), all works until the page is closed.

import { mergeInto, readConversation } from './tree.js';

const DATABASE = 'lace';
const TABLE = 'conversations';

function request(r) {
  return new Promise((resolve, reject) => {
    r.onsuccess = () => resolve(r.result);
    r.onerror = () => reject(r.error);
  });
}

// Takes what another tab has kept meanwhile into `c`, and keeps both, in one transaction.
function mergeAndPut(db, c) {
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(TABLE, 'readwrite');
    const table = transaction.objectStore(TABLE);
    const reading = table.get(c.id);
    reading.onsuccess = () => {
      const stored = readConversation(reading.result);
      if (stored) mergeInto(c, stored);
      table.put(c);
    };
    transaction.oncomplete = () => resolve();
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

// {all, get, put, remove, isKept}; isKept is false if nothing outlives the page. put() merges.
export async function openStore() {
  try {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE, { keyPath: 'id' });
    const db = await request(opening);
    const table = (mode) => db.transaction(TABLE, mode).objectStore(TABLE);
    return {
      isKept: true,
      all: async () => (await request(table('readonly').getAll())).map(readConversation).filter(Boolean),
      get: async (id) => readConversation(await request(table('readonly').get(id))),
      put: (c) => mergeAndPut(db, c),
      remove: (id) => request(table('readwrite').delete(id)),
    };
  } catch {
    return { isKept: false, all: async () => [], get: async () => null, put: async () => {}, remove: async () => {} };
  }
}

// ---- What a page that is left has not kept yet -----------------------------------------------------

// The database answers too late for a page that is closed or loaded anew; localStorage writes at once.
const UNSAVED = 'lace.unsaved.';

// `node` is the one that was still coming: if there is no room for all, it alone is kept, in a tree without texts.
export function keepUnsaved(conversation, node) {
  const bare = (n) => (n === node ? n : { ...n, content: '', reasoning: '', files: [], tools: [], tokens: [], meta: null, at: 0 });
  const skeleton = () => ({ ...conversation, nodes: Object.fromEntries(Object.values(conversation.nodes).map((n) => [n.id, bare(n)])) });
  for (const make of [() => conversation, skeleton]) {
    try {
      localStorage.setItem(UNSAVED + conversation.id, JSON.stringify(make()));
      return;
    } catch {
      // Full, or forbidden: what was kept last holds.
    }
  }
}

// The conversations that pages left so; dropUnsaved() forgets one that is kept.
export function readUnsaved() {
  const found = [];
  try {
    for (const name of Object.keys(localStorage)) {
      if (!name.startsWith(UNSAVED)) continue;
      try {
        found.push(readConversation(JSON.parse(localStorage.getItem(name))));
      } catch {
        localStorage.removeItem(name); // not of this page
      }
    }
  } catch {
    // Forbidden.
  }
  return found.filter(Boolean);
}

export function dropUnsaved(id) {
  try {
    localStorage.removeItem(UNSAVED + id);
  } catch {
    // Forbidden.
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

// ---- Of this tab alone -------------------------------------------------------------------------

export function loadHere(name, fallback) {
  try {
    return JSON.parse(sessionStorage.getItem(`lace.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function saveHere(name, value) {
  try {
    sessionStorage.removeItem(`lace.${name}`); // so that no older value is left where the new one does not fit
    sessionStorage.setItem(`lace.${name}`, JSON.stringify(value));
  } catch {
    // Forbidden or full: it lasts as long as the page.
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
