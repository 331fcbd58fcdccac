// The models of a server that has several: which one answers, and which of them are loaded.

import { getJson } from './api.js';
import { el } from './dom.js';
import { load, save } from './store.js';

const WORDS = { ready: 'loaded', unloaded: '', waiting: 'waits for memory', loading: 'is being loaded', unloading: 'is being unloaded' };

// The one that was chosen before, if the server still has it; or its own default.
export function chosenModel({ data = [], default: usual = '' }) {
  const byId = (id) => data.find((model) => model.id === id);
  return byId(load('model', '')) || byId(usual) || data[0] || { id: '' };
}

// A path that a server of several models answers for one of them.
export function pathOf(path, server) {
  return server.models?.length > 1 ? `${path}?model=${encodeURIComponent(server.model.id)}` : path;
}

const label = ({ id, state }) => (WORDS[state] ? `${id} (${WORDS[state]})` : id);

// select: shown if there are several. onChange(): another one was chosen. onReady(): the chosen one has been loaded.
export function createModels(select, { onChange, onReady }) {
  let lastState = '';
  let isAsking = false;

  function show(models, id) {
    select.hidden = models.length < 2;
    const now = [...select.options].map((option) => option.value).join('\n');
    if (now !== models.map((model) => model.id).join('\n')) select.replaceChildren(...models.map((model) => el('option', { value: model.id })));
    models.forEach((model, i) => {
      if (select.options[i].textContent !== label(model)) select.options[i].textContent = label(model);
    });
    select.value = id;
    const state = models.find((model) => model.id === id)?.state || '';
    const isNew = state === 'ready' && lastState !== '' && lastState !== 'ready';
    lastState = state;
    if (isNew) onReady();
  }

  select.addEventListener('change', () => {
    save('model', select.value);
    lastState = '';
    onChange();
  });

  return {
    show,
    // Which are loaded may have changed.
    async refresh() {
      if (select.hidden || isAsking) return;
      isAsking = true;
      try {
        show((await getJson('/v1/models')).data || [], select.value);
      } catch {
        // The panel says that the server is gone.
      } finally {
        isAsking = false;
      }
    },
  };
}
