// Draws one conversation: its messages, their buttons, and the editor inside a message.
//
// A message that is drawn can be drawn again with refresh(), which changes only what changed; a stream
// calls it once a frame.

import { copyText, el, icon } from './dom.js';
import { chip } from './files.js';
import { renderMarkdown } from './markdown.js';
import { count, duration } from './panel.js';
import { createTokenView } from './tokens.js';
import { callsText, drawCalls } from './tools.js';

function button(name, label, onclick) {
  return el('button', { class: 'act', type: 'button', 'aria-label': label, title: label, onclick }, icon(name));
}

function statistics(meta) {
  if (!meta) return 'broken off';
  const parts = [];
  if (meta.tokens) parts.push(`${count(meta.tokens)} token${meta.tokens === 1 ? '' : 's'}`);
  if (meta.rate) parts.push(`${meta.rate < 10 ? meta.rate.toFixed(1) : Math.round(meta.rate)} tokens/s`);
  if (meta.first) parts.push(`first after ${duration(meta.first / 1000)}`);
  if (meta.cached) parts.push(`prompt ${count(meta.prompt)}, ${count(meta.cached)} cached`);
  if (meta.finish === 'length') parts.push('cut at the limit');
  if (meta.finish === 'stopped') parts.push('stopped');
  if (meta.cut === 'repetition') parts.push('ended because it repeated itself');
  if (meta.cut === 'budget') parts.push('thinking cut at its budget');
  return parts.join(' · ');
}

// actions, all of a node: {again, more, retry, remove, edit(node, text), change(node, text), turn(node, step), branch(node, text, tokens),
// result(node, call, text), sendResults, openFile(file), isStreaming, canContinue, canAnswer (its calls), thoughtFor (ms),
// waitsFor (what, in words)}
export function createView(log, actions) {
  let drawn = new Map(); // node id -> what refresh() needs
  let showsTokens = false; // as it was chosen last

  function drawReasoning(parts, node) {
    if (!node.reasoning) {
      parts.reasoning.hidden = true;
      return;
    }
    const isOpen = actions.isStreaming(node) && !node.content && node.tools.length === 0;
    parts.reasoning.hidden = false;
    const ms = actions.thoughtFor(node);
    const title = isOpen ? `Thinking${ms >= 1000 ? ` for ${Math.floor(ms / 1000)} s` : ''}` : ms ? `Thought for ${duration(ms / 1000)}` : 'Thoughts';
    parts.reasoningTitle.textContent = title;
    parts.reasoning.classList.toggle('pulse', isOpen);
    parts.reasoningBody.textContent = node.reasoning;
  }

  function drawError(parts, node) {
    parts.error.hidden = !node.error;
    if (!node.error) return;
    parts.error.replaceChildren(
      el('p', {}, node.error.message),
      el('button', { class: 'plain', type: 'button', onclick: () => actions.retry(node) }, 'Try again'));
  }

  // The tokens stand in the place of the text, if they are asked for.
  function drawTokens(parts, node) {
    if (node.tokens.length === 0) parts.tokens = null;
    else if (parts.showsTokens) parts.tokens ||= createTokenView(node, (...branch) => actions.branch(node, ...branch));
    const isShown = parts.showsTokens && parts.tokens !== null;
    if (isShown) parts.tokens.update();
    if (parts.tokens?.root !== parts.tokenPlace.firstChild) parts.tokenPlace.replaceChildren(...(isShown ? [parts.tokens.root] : []));
    parts.tokenPlace.hidden = !isShown;
    parts.body.hidden = isShown;
    parts.odds.hidden = node.tokens.length === 0;
    parts.odds.setAttribute('aria-pressed', String(isShown));
  }

  function drawBranches(parts, conversation, node) {
    const siblings = conversation.nodes[node.parent].children;
    if (siblings.length < 2) {
      parts.branches.replaceChildren();
      return;
    }
    const at = siblings.indexOf(node.id);
    const left = button('left', 'Previous version', () => actions.turn(node, -1));
    const right = button('right', 'Next version', () => actions.turn(node, 1));
    left.disabled = at === 0;
    right.disabled = at === siblings.length - 1;
    parts.branches.replaceChildren(left, el('span', { title: `Version ${at + 1} of ${siblings.length}` }, `${at + 1}/${siblings.length}`), right);
  }

  function refresh(conversation, node) {
    const parts = drawn.get(node.id);
    if (!parts) return;
    const isLive = actions.isStreaming(node);
    parts.root.classList.toggle('streaming', isLive);
    if (node.role === 'user') {
      if (parts.body.textContent !== node.content) parts.body.textContent = node.content;
      parts.body.hidden = node.content === '';
      parts.files.hidden = node.files.length === 0;
      if (parts.files.childElementCount !== node.files.length) parts.files.replaceChildren(...node.files.map((f) => chip(f, () => actions.openFile(f))));
    } else {
      drawReasoning(parts, node);
      renderMarkdown(parts.body, node.content);
      drawTokens(parts, node);
      drawCalls(parts.calls, node, { canAnswer: actions.canAnswer(node), onResult: (call, text) => actions.result(node, call, text), onSend: () => actions.sendResults(node) });
      parts.waiting.hidden = !(isLive && !node.content && !node.reasoning && node.tools.length === 0);
      const waitsFor = parts.waiting.hidden ? '' : actions.waitsFor(node);
      if (parts.waitText.textContent !== waitsFor) parts.waitText.textContent = waitsFor;
      parts.stats.textContent = isLive ? '' : statistics(node.meta);
      drawError(parts, node);
      parts.more.hidden = isLive || !actions.canContinue(node);
    }
    drawBranches(parts, conversation, node);
    parts.acts.hidden = isLive || parts.root.classList.contains('editing');
  }

  // The editor in the place of a message. A message of the user can be sent anew, as another version; any
  // message can be changed as it stands.
  function startEdit(conversation, node) {
    const parts = drawn.get(node.id);
    if (parts.root.classList.contains('editing')) return;
    const isUser = node.role === 'user';
    const area = el('textarea', { class: 'edit', 'aria-label': 'Edit the message', rows: 1 });
    area.value = node.content;
    const grow = () => {
      area.style.height = 'auto';
      area.style.height = `${Math.min(area.scrollHeight, 400)}px`;
    };
    const close = () => {
      form.replaceWith(parts.body);
      parts.acts.hidden = false;
      parts.root.classList.remove('editing');
      parts.root.querySelector('[aria-label="Edit"]')?.focus();
    };
    const finish = (action) => {
      if (area.value.trim() === '' && node.files.length + node.tools.length === 0) return;
      close();
      action(node, area.value);
    };
    const save = el('button', { type: isUser ? 'button' : 'submit', class: isUser ? 'plain' : 'primary', title: 'Change the message as it stands' }, 'Save');
    const form = el('form', { class: 'edit-form' }, area,
      el('div', { class: 'row' }, el('button', { type: 'button', class: 'plain', onclick: close }, 'Cancel'), save,
        ...(isUser ? [el('button', { type: 'submit', class: 'primary', title: 'Ask again; the old version stays' }, 'Send')] : [])));
    if (isUser) save.addEventListener('click', () => finish(actions.change));
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      finish(isUser ? actions.edit : actions.change);
    });
    area.addEventListener('input', grow);
    area.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') {
        e.stopPropagation();
        close();
      } else if (e.key === 'Enter' && (e.ctrlKey || e.metaKey || (isUser && !e.shiftKey)) && !e.isComposing) {
        e.preventDefault();
        form.requestSubmit();
      }
    });
    parts.root.classList.add('editing');
    parts.body.hidden = false;
    parts.body.replaceWith(form);
    parts.acts.hidden = true;
    grow();
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  function create(conversation, node) {
    const isUser = node.role === 'user';
    const parts = {
      body: el('div', { class: isUser ? 'text' : 'text md' }),
      branches: el('span', { class: 'branches' }),
      acts: el('div', { class: 'acts' }),
    };
    const copy = button('copy', 'Copy', () => copyText([node.content, callsText(node)].filter(Boolean).join('\n\n'), copy));
    const edit = button('edit', 'Edit', () => startEdit(conversation, node));
    const remove = button('trash', 'Delete', () => actions.remove(node));
    const heading = el('h2', { class: 'sr' }, isUser ? 'You' : 'Answer');
    if (isUser) {
      parts.files = el('div', { class: 'chips', hidden: true });
      parts.acts.append(parts.branches, edit, copy, remove);
      parts.root = el('article', { class: 'message user' }, heading, el('div', { class: 'bubble' }, parts.files, parts.body), parts.acts);
    } else {
      parts.reasoningTitle = el('span');
      parts.reasoningBody = el('div', { class: 'thoughts' });
      parts.reasoning = el('details', { class: 'reasoning', hidden: true }, el('summary', {}, parts.reasoningTitle), parts.reasoningBody);
      parts.waitText = el('span', { role: 'status' });
      parts.waiting = el('div', { class: 'waiting', hidden: true },
        el('span', { class: 'dots', role: 'img', 'aria-label': 'Waiting for the first word' }, el('i'), el('i'), el('i')), parts.waitText);
      parts.calls = el('div', { class: 'calls', hidden: true });
      parts.tokens = null;
      parts.tokenPlace = el('div', { hidden: true });
      parts.showsTokens = showsTokens;
      parts.odds = button('odds', 'Probabilities of its tokens', () => {
        showsTokens = !parts.showsTokens;
        parts.showsTokens = showsTokens;
        drawTokens(parts, node);
      });
      parts.stats = el('span', { class: 'stats' });
      parts.error = el('div', { class: 'error', role: 'alert', hidden: true });
      parts.more = el('button', { class: 'more', type: 'button', hidden: true, onclick: () => actions.more(node) }, icon('more'), 'Continue');
      parts.acts.append(parts.branches, parts.more, copy, button('again', 'Another answer', () => actions.again(node)), parts.odds, edit, remove, parts.stats);
      parts.root = el('article', { class: 'message answer' }, heading, parts.reasoning, parts.waiting, parts.body, parts.tokenPlace, parts.calls, parts.error, parts.acts);
    }
    parts.root.dataset.id = node.id;
    drawn.set(node.id, parts);
    return parts.root;
  }

  // Draws the path; messages that are there already stay.
  function show(conversation, path) {
    const keep = new Set(path.map((n) => n.id));
    for (const [id, parts] of drawn) {
      if (keep.has(id)) continue;
      parts.root.remove();
      drawn.delete(id);
    }
    let before = null;
    for (const node of path) {
      const root = drawn.has(node.id) ? drawn.get(node.id).root : create(conversation, node);
      const place = before ? before.nextSibling : log.firstChild;
      if (root !== place) log.insertBefore(root, place);
      refresh(conversation, node);
      before = root;
    }
  }

  function clear() {
    drawn = new Map();
    log.replaceChildren();
  }

  return { show, refresh, clear, startEdit: (conversation, node) => drawn.has(node.id) && startEdit(conversation, node) };
}

// What is shown before the first message.
export function drawWelcome(log, { name, note, starters, onStart }) {
  log.replaceChildren(el('div', { class: 'welcome' },
    el('div', { class: 'mark' }, icon('logo')),
    el('h2', {}, name), el('p', {}, note),
    el('div', { class: 'starters' }, ...starters.map((text) => el('button', { type: 'button', onclick: () => onStart(text) }, text)))));
}
