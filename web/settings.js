// The settings: a table of fields, the form made of it, and the body of a request made of both.

import { el } from './dom.js';
import { load, save } from './store.js';

// name: as the API calls it. Fields left empty are not sent, so the server's own values hold.
const FIELDS = [
  { name: 'temperature', label: 'Temperature', help: 'Higher is more daring; 0 always takes the likeliest token.', min: 0, max: 2, step: 0.05, hint: 'auto' },
  { name: 'top_p', label: 'Top p', help: 'Keep the likeliest tokens that sum up to this.', min: 0.01, max: 1, step: 0.01, hint: 'auto' },
  { name: 'top_k', label: 'Top k', help: 'Keep this many of the likeliest; 0 keeps all.', min: 0, max: 200, step: 1, hint: 'auto' },
  { name: 'min_p', label: 'Min p', help: 'Keep tokens with this share of the best one’s probability.', min: 0, max: 1, step: 0.01, hint: 'auto' },
  { name: 'repeat_penalty', label: 'Repeat penalty', help: 'Above 1: words that were just used become less likely.', min: 0.5, max: 2, step: 0.01, hint: 'auto' },
  { name: 'max_tokens', label: 'Longest answer', help: 'In tokens.', min: 1, max: 1000000, step: 1, hint: 'no limit', isPlain: true },
  { name: 'seed', label: 'Seed', help: 'The same seed gives the same answer.', min: 0, max: 4294967295, step: 1, hint: 'random', isPlain: true },
];

const EMPTY = { stop: '', format: 'text', schema: '', reasoning: '', mode: 'auto', enter: 'send' };

export function createSettings(form, { onSystem, onChange }) {
  const values = { ...EMPTY, ...load('settings', {}) };
  const keep = () => {
    save('settings', values);
    onChange(values);
  };

  function number(field) {
    const input = el('input', { type: 'number', id: `set-${field.name}`, min: field.min, max: field.max, step: field.step, placeholder: field.hint, inputmode: 'decimal' });
    input.value = values[field.name] ?? '';
    const range = field.isPlain ? null : el('input', { type: 'range', min: field.min, max: field.max, step: field.step, 'aria-label': `${field.label}, slider` });
    const fill = () => {
      if (!range) return;
      range.value = input.value === '' ? (field.min + field.max) / 2 : input.value;
      range.classList.toggle('unset', input.value === '');
    };
    const set = (text) => {
      const x = text === '' ? undefined : Math.min(field.max, Math.max(field.min, Number(text)));
      if (x === undefined || Number.isNaN(x)) delete values[field.name];
      else values[field.name] = x;
      fill();
      keep();
    };
    input.addEventListener('change', () => {
      set(input.value);
      input.value = values[field.name] ?? '';
    });
    if (range) range.addEventListener('input', () => {
      input.value = range.value;
      set(range.value);
    });
    fill();
    return el('div', { class: range ? 'field' : 'field inline' },
      el('label', { for: input.id }, field.label), input, ...(range ? [range] : []), el('small', {}, field.help));
  }

  function choice(name, label, help, pairs) {
    const select = el('select', { id: `set-${name}` }, ...pairs.map(([value, text]) => el('option', { value }, text)));
    select.value = values[name];
    select.addEventListener('change', () => {
      values[name] = select.value;
      keep();
      hide();
    });
    return el('div', { class: 'field inline' }, el('label', { for: select.id }, label), select, el('small', {}, help));
  }

  function lines(name, label, help, placeholder) {
    const area = el('textarea', { id: `set-${name}`, rows: 3, placeholder, spellcheck: 'false' });
    area.value = values[name];
    area.addEventListener('change', () => {
      values[name] = area.value;
      keep();
    });
    return el('div', { class: 'field wide', id: `field-${name}` }, el('label', { for: area.id }, label), area, el('small', {}, help));
  }

  const system = el('textarea', { id: 'set-system', rows: 4, placeholder: 'You are …' });
  system.addEventListener('input', () => onSystem(system.value));
  const schema = lines('schema', 'JSON schema', 'The answer will be valid against it.', '{"type": "object", …}');
  const hide = () => {
    schema.hidden = values.format !== 'json_schema';
  };
  const reset = el('button', { type: 'button', class: 'plain' }, 'Use the server’s own values');

  form.append(
    el('div', { class: 'field wide' }, el('label', { for: 'set-system' }, 'System prompt'), system, el('small', {}, 'For this conversation, and new ones after it.')),
    el('h3', {}, 'Choice of words'), ...FIELDS.map(number),
    el('h3', {}, 'Answer'),
    choice('mode', 'Mode', 'A model without a chat template can only continue a text.', [['auto', 'As the model can'], ['chat', 'Chat'], ['text', 'Continue the text']]),
    choice('reasoning', 'Reasoning', 'For models that think before they answer.', [['', 'As the model does'], ['off', 'Off'], ['low', 'Little'], ['medium', 'Some'], ['high', 'Much']]),
    choice('format', 'Format', '', [['text', 'Text'], ['json_object', 'Any JSON'], ['json_schema', 'JSON by a schema']]),
    schema,
    lines('stop', 'Stop at', 'One text a line; the answer ends before it.', ''),
    el('h3', {}, 'Page'),
    choice('enter', 'Enter', '', [['send', 'sends'], ['newline', 'starts a line; Ctrl Enter sends']]),
    reset);
  form.addEventListener('submit', (e) => e.preventDefault());
  reset.addEventListener('click', () => {
    for (const key of Object.keys(values)) delete values[key];
    Object.assign(values, EMPTY);
    keep();
    const kept = system.value;
    form.replaceChildren();
    const again = createSettings(form, { onSystem, onChange });
    again.showSystem(kept);
    form.querySelector('#set-temperature').focus();
  });
  hide();

  return {
    showSystem(text) {
      system.value = text;
    },
  };
}

// What the settings add to a request.
export function requestFields() {
  const values = settingsValues();
  const body = {};
  for (const { name } of FIELDS) if (values[name] !== undefined && values[name] !== null) body[name] = values[name];
  const stop = values.stop.split('\n').filter((s) => s !== '');
  if (stop.length > 0) body.stop = stop;
  if (values.format === 'json_object') body.response_format = { type: 'json_object' };
  if (values.format === 'json_schema' && values.schema.trim()) {
    body.response_format = { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: JSON.parse(values.schema) } };
  }
  if (values.reasoning === 'off') body.chat_template_kwargs = { enable_thinking: false };
  else if (values.reasoning) body.reasoning_effort = values.reasoning;
  return body;
}

export function settingsValues() {
  return { ...EMPTY, ...load('settings', {}) };
}
