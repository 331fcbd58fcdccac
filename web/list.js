// The list of conversations at the side.

import { el, icon } from './dom.js';
import { isEmpty, state, titleOf } from './state.js';

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

// Draws those that have `words` in them. actions, of a conversation: {open, remove, isBusy}
export function drawList(root, words, { open, remove, isBusy }) {
  const rows = [];
  let day = '';
  state.conversations.sort((a, b) => b.updated - a.updated);
  for (const c of state.conversations) {
    const isCurrent = c === state.current;
    if (isEmpty(c) && !isCurrent) continue;
    if (words && !matches(c, words)) continue;
    if (dayOf(c.updated) !== day) rows.push(el('h2', {}, (day = dayOf(c.updated))));
    const title = el('button', { class: 'open', type: 'button', 'aria-current': isCurrent ? 'page' : undefined, onclick: () => open(c) }, el('span', {}, titleOf(c)));
    if (isBusy(c)) title.append(el('span', { class: 'busy', role: 'img', 'aria-label': 'is being answered' }));
    const bin = el('button', { class: 'remove', type: 'button', 'aria-label': `Delete “${titleOf(c)}”`, title: 'Delete', onclick: () => remove(c) }, icon('trash'));
    rows.push(el('div', { class: isCurrent ? 'entry on' : 'entry' }, title, bin));
  }
  if (rows.length === 0) rows.push(el('p', { class: 'none' }, words ? 'Nothing found' : 'No conversations yet'));
  root.replaceChildren(...rows);
}
