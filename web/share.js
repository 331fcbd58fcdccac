// A prompt as a link: all of it stands behind the #, which browsers send to nobody.
//
//     http://127.0.0.1:8080/#prompt=Name+three+rivers.&system=You+are+brief.&temperature=0.2

import { changedSettings, readSettings } from './settings.js';

const MAX_CHARS = 60000; // of a link; some programs cut longer ones

// Throws an Error that says what is wrong.
export function makeLink({ prompt, system, model }) {
  const all = new URLSearchParams({ prompt, ...(system ? { system } : {}), ...(model ? { model } : {}), ...changedSettings() });
  const link = `${location.origin}${location.pathname}#${all}`;
  if (link.length > MAX_CHARS) throw new Error('This is too long for a link. Save the conversation as JSON.');
  return link;
}

// What the address of this page brought: {prompt, system, model, settings}, or null. It is taken off the address, so that
// loading the page again does not ask again.
export function takeLink() {
  const all = new URLSearchParams(location.hash.slice(1));
  if (!all.get('prompt')) return null;
  history.replaceState(null, '', location.pathname + location.search);
  const { prompt, system = '', model = '', ...rest } = Object.fromEntries(all);
  return { prompt: prompt.slice(0, MAX_CHARS), system: system.slice(0, MAX_CHARS), model: model.slice(0, 500), settings: readSettings(rest) };
}
