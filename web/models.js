// The models of a server that has several: which one answers, and which of them are loaded.

import { getJson, postJson } from './api.js';
import { el } from './dom.js';
import { load, save } from './store.js';

const WORDS = { ready: 'loaded', unloaded: '', waiting: 'waits for memory', loading: 'is being loaded', unloading: 'is being unloaded' };

// The one of this conversation, or the one that was chosen last, if the server still has it; or its own default.
export function chosenModel({ data = [], default: usual = '' }, wanted) {
  const byId = (id) => data.find((model) => model.id === id);
  return byId(wanted) || byId(load('model', '')) || byId(usual) || data[0] || { id: '' };
}

// A path that a server of several models answers for one of them.
export function pathOf(path, server) {
  return server.models?.length > 1 ? `${path}?model=${encodeURIComponent(server.model.id)}` : path;
}

// What the server says of itself and of the model `wanted`, as far as it does.
export async function describeServer(wanted) {
  const list = await getJson('/v1/models');
  const server = { model: chosenModel(list, wanted), models: list.data || [], props: {} };
  try {
    server.props = await getJson(pathOf('/props', server));
  } catch {
    // It need not have any.
  }
  return server;
}

// Of a model that is not loaded the server knows little: neither its template nor whether it sees images.
export const isKnown = (server) => server.props.role !== 'router';

// The same, once the model is loaded.
export async function loadedServer(wanted, signal) {
  const server = await describeServer(wanted);
  if (isKnown(server)) return server;
  await postJson('/models/load', { model: server.model.id }, signal);
  return describeServer(wanted);
}

const label = ({ id, state }) => (WORDS[state] ? `${id} (${WORDS[state]})` : id);

// What a request to this model waits for, or ''.
export const whatItWaitsFor = ({ id, state }) => (!state || state === 'ready' ? '' : `${id} ${WORDS[state] || 'is not loaded yet'}`);

// select: shown if there are several. onChange(id): another one was chosen. onReady(): the chosen one has been loaded.
// onStates(models): how they are now.
export function createModels(select, { onChange, onReady, onStates }) {
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

  // Also the choice for new conversations.
  select.addEventListener('change', () => {
    save('model', select.value);
    lastState = '';
    onChange(select.value);
  });

  return {
    show,
    // Which are loaded may have changed.
    async refresh() {
      if (select.hidden || isAsking) return;
      isAsking = true;
      try {
        const models = (await getJson('/v1/models')).data || [];
        onStates(models);
        show(models, select.value);
      } catch {
        // The panel says that the server is gone.
      } finally {
        isAsking = false;
      }
    },
  };
}
