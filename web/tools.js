// The tool calls of an answer: drawn with their arguments and results, and turned into messages again.
//
// The page runs no tools. A user writes what a tool would give, and the model goes on from there.

import { el, icon } from './dom.js';
import { highlight } from './highlight.js';

const NO_RESULT = 'There is no result.'; // a template wants one for every call

// Adds pieces of a stream to the calls of a node.
export function takeCalls(node, pieces) {
  for (const piece of pieces) {
    const call = (node.tools[piece.index || 0] ||= { id: '', name: '', text: '', result: '' });
    call.id ||= piece.id || '';
    call.name += piece.function?.name || '';
    call.text += piece.function?.arguments || '';
  }
}

const idOf = (call, i) => call.id || `call_${i}`;

// What the message of an answer has of its calls, and the messages with their results.
export function callFields(node) {
  if (node.tools.length === 0) return {};
  return { tool_calls: node.tools.map((call, i) => ({ id: idOf(call, i), type: 'function', function: { name: call.name, arguments: call.text } })) };
}

export function resultMessages(node) {
  return node.tools.map((call, i) => ({ role: 'tool', tool_call_id: idOf(call, i), content: call.result || NO_RESULT }));
}

// JSON with a line for each member; anything else as it is.
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Draws the calls of a node into `root`; those that are drawn already are only completed, so that what is being written
// stays. canAnswer: results can still be written. onResult(call, text), onSend().
export function drawCalls(root, node, { canAnswer, onResult, onSend }) {
  root.hidden = node.tools.length === 0;
  if (root.hidden) return;
  root.parts ||= [];
  node.tools.forEach((call, i) => {
    if (root.parts[i]) return;
    const name = el('b');
    const args = el('pre', { class: 'call-text', tabindex: 0, 'aria-label': 'Arguments' });
    const area = el('textarea', { class: 'call-result', rows: 2, spellcheck: 'false', placeholder: 'What the tool gives back' });
    const result = el('pre', { class: 'call-text', tabindex: 0, 'aria-label': 'Result' });
    area.addEventListener('input', () => onResult(node.tools[i], area.value));
    root.parts[i] = { name, args, area, result };
    root.append(el('section', { class: 'call', 'aria-label': `Tool call ${i + 1}` },
      el('h3', { class: 'call-name' }, icon('tool'), el('span', {}, 'Calls'), name), args, el('p', { class: 'call-label' }, 'Result'), area, result));
  });
  node.tools.forEach((call, i) => {
    const { name, args, area, result } = root.parts[i];
    name.textContent = call.name;
    if (args.dataset.text !== call.text) args.replaceChildren(...highlight(pretty(call.text || '{}'), 'json'));
    args.dataset.text = call.text;
    if (area.value !== call.result) area.value = call.result;
    area.setAttribute('aria-label', `Result of ${call.name}`);
    area.hidden = !canAnswer;
    result.hidden = canAnswer;
    result.textContent = call.result ? pretty(call.result) : 'none';
  });
  root.send ||= el('button', { class: 'primary', type: 'button', onclick: onSend }, 'Send the results');
  root.send.hidden = !canAnswer;
  root.append(root.send);
}

// The calls as Markdown.
export function callsText(node) {
  return node.tools.map(({ name, text, result }) =>
    `Calls \`${name}\`\n\n\`\`\`json\n${pretty(text)}\n\`\`\`${result ? `\n\nResult\n\n\`\`\`\n${result}\n\`\`\`` : ''}`).join('\n\n');
}
