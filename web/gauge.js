// How much of the context a conversation takes: counted by the server up to the last answer, estimated behind it.

import { count } from './panel.js';
import { contextSize, state } from './state.js';
import { shownPath } from './tree.js';

const CHARS_PER_TOKEN = 3.6; // until the server has counted something
const PER_MESSAGE = 5; // tokens of a template around a message

const PER_IMAGE = 300; // tokens; models differ

const charsOfFiles = (files) => files.reduce((sum, f) => sum + (f.image ? PER_IMAGE * CHARS_PER_TOKEN : f.name.length + f.text.length), 0);
const charsOfCalls = (tools) => tools.reduce((sum, t) => sum + t.name.length + t.text.length + t.result.length, 0);
const charsOf = (nodes) => nodes.reduce((sum, n) => sum + n.content.length + n.reasoning.length + charsOfFiles(n.files) + charsOfCalls(n.tools), 0);

// {tokens, isExact}: what the next request would have with `draft` {content, files, reasoning, tools}.
export function contextUse(conversation, draft) {
  const path = shownPath(conversation);
  // The last answer that was counted and that nothing before it was changed behind.
  let known = path.length - 1;
  while (known >= 0 && !(path[known].meta?.prompt && path.slice(0, known).every((n) => n.at < path[known].at))) known--;
  if (known >= 0 && conversation.systemSet > path[known].at) known = -1;
  const base = known >= 0 ? path[known].meta.prompt + path[known].meta.tokens : 0;
  const counted = charsOf(path.slice(0, known + 1)) + conversation.system.length;
  const ratio = base > 50 ? Math.min(8, Math.max(1, counted / base)) : CHARS_PER_TOKEN;
  const rest = [...path.slice(known + 1), ...(draft.content || draft.files.length ? [draft] : [])];
  const chars = charsOf(rest) + (known < 0 ? conversation.system.length : 0);
  return { tokens: base + Math.round(chars / ratio) + rest.length * PER_MESSAGE, isExact: rest.length === 0 && known >= 0 };
}

export function drawGauge(root, draft) {
  const all = contextSize();
  const { tokens, isExact } = contextUse(state.current, draft);
  root.hidden = !all || tokens === 0;
  if (root.hidden) return;
  const share = tokens / all;
  const text = `${isExact ? '' : 'about '}${count(tokens)} of ${count(all)} tokens`;
  root.classList.toggle('full', share > 1);
  root.classList.toggle('high', share > 0.85 && share <= 1);
  root.querySelector('.gauge-bar span').style.width = `${Math.min(100, 100 * share).toFixed(1)}%`;
  root.querySelector('.gauge-text').textContent = share > 1 ? `${text}: too long` : text;
  root.setAttribute('aria-valuenow', String(Math.min(tokens, all)));
  root.setAttribute('aria-valuemax', String(all));
  root.setAttribute('aria-valuetext', text);
  root.title = `${Math.round(100 * share)} % of the context that a request may have`;
}
