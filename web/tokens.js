// An answer token by token: how likely each one was, and which others the model might have chosen.
//
// A token is [text, logprob, [[other text, logprob]]]. They are all that the model wrote, with its reasoning and the words
// that only a template knows. How likely a token was is shown by colour and by the line below it, and said in words.

import { el } from './dom.js';

export const ALTERNATIVES = 6; // that are asked for

// From which probability on a token has no mark, a faint one, ...; all below the last have the strongest.
const STEPS = [0.9, 0.5, 0.2, 0.05];
const level = (logprob) => {
  const found = STEPS.findIndex((step) => Math.exp(logprob) >= step);
  return found < 0 ? STEPS.length : found;
};

export function percent(logprob) {
  const p = 100 * Math.exp(logprob);
  if (p >= 99.95) return '100 %';
  if (p < 0.05) return '< 0.1 %';
  return `${p < 9.95 ? p.toFixed(1) : Math.round(p)} %`;
}

// What a screen shows of a token that has nothing to see.
const visible = (text) => (text === '' ? '⋯' : text.replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/^ +| +$/g, (s) => '␣'.repeat(s.length)));

const round = (x) => Math.round(x * 1e4) / 1e4;

// A character that is cut into several tokens is the text of the last of them.
export function createTokenReader() {
  const decoder = new TextDecoder();
  const whole = ({ token, bytes }) => (bytes ? new TextDecoder().decode(new Uint8Array(bytes)) : token);
  const part = ({ token, bytes }) => (bytes ? decoder.decode(new Uint8Array(bytes), { stream: true }) : token);
  const pairs = (list) => list.filter(({ logprob }) => Number.isFinite(logprob)).map((t) => [whole(t), round(t.logprob)]);
  // Both forms: {content: [{token, logprob, bytes, top_logprobs}]} of chat, and the lists of completions.
  return function read(logprobs) {
    const tokens = logprobs.content || (logprobs.tokens || []).map((token, i) => ({
      token, logprob: logprobs.token_logprobs[i], top_logprobs: Object.entries(logprobs.top_logprobs?.[i] || {}).map(([other, logprob]) => ({ token: other, logprob })),
    }));
    return tokens.map((t) => [part(t), round(Number.isFinite(t.logprob) ? t.logprob : -100), pairs(t.top_logprobs || [])]);
  };
}

// What the answer would be up to token `i`, if that were `text`; null if the token is no part of the answer.
export function branchText(node, i, text) {
  const all = node.tokens.map((t) => t[0]);
  const at = all.join('').lastIndexOf(node.content);
  const before = all.slice(0, i).join('').length - at;
  if (node.content === '' || at < 0 || before < 0 || before >= node.content.length) return null;
  return node.content.slice(0, before) + text;
}

// The tokens of a node: {root, update()}; update() draws those that were added. onBranch(text, tokens): the answer is to go on from
// `text`, which is made of `tokens`.
export function createTokenView(node, onBranch) {
  const flow = el('div', { class: 'tokens', role: 'group', 'aria-label': 'Tokens; the arrow keys go from one to the next' });
  const card = el('div', { class: 'odds', hidden: true });
  const spoken = el('div', { class: 'sr', role: 'status' });
  const root = el('div', { class: 'token-view' });
  const legend = el('p', { class: 'legend', 'aria-hidden': 'true' }, 'Likely', ...[0, ...STEPS].map((_, i) => el('span', { class: `token p${i}` }, i < STEPS.length ? `${100 * STEPS[i]} %` : 'less')), 'unlikely');
  let drawn = 0;
  let shown = null; // the button whose card is open
  let isHeld = false; // by a click or the keyboard: it stays when the mouse leaves

  function hide() {
    card.hidden = true;
    shown?.classList.remove('on');
    shown = null;
    isHeld = false;
  }

  function row(i, [text, logprob], isChosen) {
    const share = el('span', { class: 'share' }, el('span'));
    share.firstChild.style.width = `${(100 * Math.exp(logprob)).toFixed(1)}%`;
    const parts = [el('span', { class: 'odds-text' }, visible(text)), share, el('span', { class: 'odds-share' }, percent(logprob))];
    const branch = isChosen || text === '' || text.includes('\ufffd') ? null : branchText(node, i, text);
    const begin = () => onBranch(branch, [...node.tokens.slice(0, i), [text, logprob, node.tokens[i][2]]]);
    const inside = branch === null ? el('div', { class: 'odds-row' }, ...parts)
      : el('button', { class: 'odds-row', type: 'button', title: 'Another answer that goes on from here with this token', onclick: begin }, ...parts);
    return el('li', isChosen ? { class: 'chosen', 'aria-current': 'true' } : {}, inside);
  }

  function show(button, held) {
    if (shown !== button) {
      hide();
      shown = button;
      const i = Number(button.dataset.i);
      const [text, logprob, others] = node.tokens[i];
      const rows = others.some(([other]) => other === text) ? others : [...others, [text, logprob]].sort((a, b) => b[1] - a[1]);
      card.replaceChildren(el('ul', {}, ...rows.map((pair) => row(i, pair, pair[0] === text))));
      button.classList.add('on');
      card.hidden = false;
      const left = Math.min(button.offsetLeft, root.clientWidth - card.offsetWidth);
      card.style.left = `${Math.max(0, left)}px`;
      card.style.top = `${button.offsetTop + button.offsetHeight + 4}px`;
      if (held) spoken.textContent = `${visible(text)}: ${percent(logprob)}. Others: ${others.filter(([other]) => other !== text).map(([other, p]) => `${visible(other)} ${percent(p)}`).join(', ') || 'none'}`;
    }
    isHeld ||= held;
    card.classList.toggle('held', isHeld);
  }

  const buttonAt = (e) => e.target.closest('.token');
  flow.addEventListener('mouseover', (e) => buttonAt(e) && !isHeld && show(buttonAt(e), false));
  root.addEventListener('mouseleave', () => !isHeld && hide());
  flow.addEventListener('click', (e) => {
    const button = buttonAt(e);
    if (!button) return;
    if (button === shown && isHeld && e.detail > 0) hide();
    else {
      isHeld = false;
      show(button, true);
      move(button);
    }
  });

  // One token is reached by Tab; arrows move on.
  function move(button) {
    flow.querySelector('[tabindex="0"]')?.setAttribute('tabindex', '-1');
    button.setAttribute('tabindex', '0');
    button.focus();
  }
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  root.addEventListener('keydown', (e) => {
    const button = buttonAt(e);
    if (e.key === 'Escape' && !card.hidden) {
      e.stopPropagation();
      const back = shown;
      hide();
      move(back);
    } else if (button && (e.key === 'Enter' || e.key === ' ')) {
      e.preventDefault();
      button.click();
    } else if (button && (steps[e.key] || e.key === 'Home' || e.key === 'End')) {
      e.preventDefault();
      const all = flow.children;
      const next = e.key === 'Home' ? all[0] : e.key === 'End' ? all[all.length - 1] : all[[...all].indexOf(button) + steps[e.key]];
      if (!next) return;
      move(next);
      isHeld = false;
      show(next, true);
    }
  });
  root.addEventListener('focusout', (e) => isHeld && !root.contains(e.relatedTarget) && hide());

  function update() {
    for (; drawn < node.tokens.length; drawn++) {
      const [text, logprob] = node.tokens[drawn];
      // No <button>: that is a box, and does not break where a text does.
      flow.append(el('span', {
        role: 'button', class: `token p${level(logprob)}`, 'data-i': drawn, tabindex: drawn === 0 ? 0 : -1, 'aria-label': `${visible(text)}, ${percent(logprob)}`,
      }, text.replace(/\n/g, '↵\n') || '⋯'));
    }
  }

  root.append(legend, flow, card, spoken);
  update();
  return { root, update };
}
