// What stands around a conversation: the list at the side, the drawer, dialogs, colours, and where the text is scrolled to.

import { el } from './dom.js';
import { picture } from './images.js';
import { load, save } from './store.js';

export const $ = (id) => document.getElementById(id);

// ---- The side ----------------------------------------------------------------------------------

const isNarrow = () => matchMedia('(max-width: 820px)').matches;

export function toggleSide(isOpen) {
  if (!isNarrow()) return;
  $('app').classList.toggle('side-over', isOpen);
  $('side-open').setAttribute('aria-expanded', String(isOpen));
}

export function flipSide() {
  if (isNarrow()) {
    toggleSide(!$('app').classList.contains('side-over'));
    if ($('app').classList.contains('side-over')) $('new').focus();
  } else save('side-hidden', $('app').classList.toggle('side-hidden'));
}

export function openSearch() {
  $('app').classList.remove('side-hidden');
  toggleSide(true);
  $('search').focus();
  $('search').select();
}

// ---- The drawer --------------------------------------------------------------------------------

export const isPanelOpen = () => !$('drawer').hidden && !$('pane-live').hidden;

export function closeDrawer() {
  $('drawer').hidden = true;
  $('app').classList.remove('drawer-open');
  $('input').focus({ preventScroll: true });
}

// onLive() is called when the live panel comes into sight.
let onLive = () => {};

export function openDrawer(tab) {
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
  if (tab === 'live') onLive();
}

// Esc closes what lies over the conversation: true if there was something.
export function closeTopmost() {
  if ($('app').classList.contains('side-over')) toggleSide(false);
  else if (!$('drawer').hidden) closeDrawer();
  else return false;
  return true;
}

// ---- Dialogs -----------------------------------------------------------------------------------

// Asks a question with a button for each answer: [[text, value, class]]; the last one has the focus. The value, or null.
// details: elements between the text and the buttons.
export function choose(title, text, answers, ...details) {
  const dialog = $('choice-dialog');
  $('choice-title').textContent = title;
  $('choice-text').textContent = text;
  $('choice-more').replaceChildren(...details);
  return new Promise((resolve) => {
    const buttons = [['Cancel', null, 'plain'], ...answers].map(([label, value, look]) =>
      el('button', { type: 'button', class: look, onclick: () => finish(value) }, label));
    const finish = (value) => {
      dialog.onclose = null;
      dialog.close();
      resolve(value);
    };
    dialog.onclose = () => resolve(null);
    $('choice-buttons').replaceChildren(...buttons);
    dialog.showModal();
    buttons.at(-1).focus();
  });
}

export function showFile(file) {
  $('file-title').textContent = file.name;
  $('file-text').textContent = file.text || '';
  $('file-text').hidden = Boolean(file.image);
  $('file-image').replaceChildren(...(file.image ? [picture(file)] : []));
  $('file-dialog').showModal();
}

// ---- Colours -----------------------------------------------------------------------------------

const isDark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';

function nameTheme() {
  const label = isDark() ? 'Light colours' : 'Dark colours';
  $('theme').title = label;
  $('theme').setAttribute('aria-label', label);
}

function flipTheme() {
  const theme = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem('lace.theme', theme);
  } catch {
    // Lasts as long as the page.
  }
  nameTheme();
}

// ---- Scrolling ---------------------------------------------------------------------------------

let isStuck = true; // the end stays in sight while text comes

export function stick(isForced) {
  if (isForced) isStuck = true;
  if (isStuck) $('scroll').scrollTop = $('scroll').scrollHeight;
  $('jump').hidden = isStuck;
}

// ---- Begin -------------------------------------------------------------------------------------

export function createFrame(hooks) {
  onLive = hooks.onLive;
  if (load('side-hidden', false)) $('app').classList.add('side-hidden');
  nameTheme();
  $('theme').addEventListener('click', flipTheme);
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
  const scroll = $('scroll');
  scroll.addEventListener('scroll', () => {
    isStuck = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 48;
    $('jump').hidden = isStuck;
  });
  $('jump').addEventListener('click', () => stick(true));
  new ResizeObserver(() => stick()).observe($('log'));
}
