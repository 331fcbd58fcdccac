// What the tabs of this browser tell each other, so that all show the same conversations.
//
// A tab that changed a conversation says so after it is kept, and the others read it. A tab that receives
// an answer says so once a second; the others show that the answer is under way, and can ask for it to be stopped.

const SILENCE = 5000; // ms without a word: the tab with the answer is gone

// hooks: {changed(id), removed(id), stop(id), busy(), began(id), ended(id)}; busy() is [[id, node id], ...].
export function openTabs(hooks) {
  const elsewhere = new Map(); // conversation id -> {node, timer}
  let channel = null;
  try {
    channel = new BroadcastChannel('lace');
  } catch {
    // An old browser: kept states are still merged.
  }
  const post = (message) => channel?.postMessage(message);

  function end(id) {
    if (!elsewhere.has(id)) return;
    clearTimeout(elsewhere.get(id).timer);
    elsewhere.delete(id);
    hooks.ended(id);
  }

  function beat({ id, node }) {
    const isNew = !elsewhere.has(id);
    clearTimeout(elsewhere.get(id)?.timer);
    elsewhere.set(id, { node, timer: setTimeout(end, SILENCE, id) });
    if (isNew) hooks.began(id);
  }

  const tell = () => {
    for (const [id, node] of hooks.busy()) post({ kind: 'beat', id, node });
  };
  const kinds = { beat, end: ({ id }) => end(id), changed: ({ id }) => hooks.changed(id), removed: ({ id }) => hooks.removed(id), stop: ({ id }) => hooks.stop(id), hello: tell };
  channel?.addEventListener('message', ({ data }) => Object.hasOwn(kinds, data?.kind) && kinds[data.kind](data));
  post({ kind: 'hello' });
  setInterval(tell, 1000);

  return {
    tell,
    changed: (id) => post({ kind: 'changed', id }),
    removed: (id) => post({ kind: 'removed', id }),
    ended: (id) => post({ kind: 'end', id }),
    stop: (id) => post({ kind: 'stop', id }),
    // The node that another tab receives for this conversation, or null.
    node: (id) => elsewhere.get(id)?.node ?? null,
  };
}
