// What the keys do, and the list of them. Keys that a browser has for itself (Ctrl Shift R) stay its own.

import { el } from './dom.js';
import { $, closeTopmost, flipSide, openDrawer, openSearch } from './frame.js';

const SHORTCUTS = [
  ['Enter', 'send'], ['Shift Enter', 'new line'], ['Esc', 'stop the answer; close what is open'], ['↑ in an empty box', 'edit the last message'],
  ['Ctrl Shift Enter', 'another answer'], ['Ctrl Shift O', 'new conversation'], ['Ctrl K', 'search conversations'], ['Ctrl B', 'show or hide the list'],
  ['Ctrl ,', 'settings'], ['Ctrl .', 'what the server is doing'], ['Ctrl /', 'this list'],
];

const COMMANDS = {
  k: openSearch, b: flipSide, ',': () => openDrawer('settings'), '.': () => openDrawer('live'), '/': () => $('help-dialog').showModal(),
};

// actions: {stop() (false if nothing runs), startNew(), again()}
export function createKeys({ stop, startNew, again }) {
  $('help-keys').append(...SHORTCUTS.flatMap(([keys, what]) => [
    el('dt', {}, ...keys.split(' ').map((k) => (/^(in|an|empty|box)$/.test(k) ? ` ${k}` : el('kbd', {}, k)))), el('dd', {}, what)]));

  document.addEventListener('keydown', (e) => {
    const ctrl = e.ctrlKey || e.metaKey;
    const key = e.key.toLowerCase();
    const shifted = { o: startNew, enter: again };
    if (document.querySelector('dialog[open]')) return;
    if (e.key === 'Escape') {
      if (!stop()) closeTopmost();
    } else if (ctrl && e.shiftKey && Object.hasOwn(shifted, key)) {
      e.preventDefault();
      shifted[key]();
    } else if (ctrl && !e.shiftKey && !e.altKey && Object.hasOwn(COMMANDS, key)) {
      e.preventDefault();
      COMMANDS[key]();
    }
  });
}
