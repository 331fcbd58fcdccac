// What the parts of the page share: the conversations, the one that is shown, and the server.

import { isKnown } from './models.js';
import { settingsValues } from './settings.js';
import { shownPath } from './tree.js';

export const state = {
  store: null,
  conversations: [],
  current: null,
  server: { model: { id: '' }, models: [], props: {} },
  streams: new Map(), // conversation id -> {node, abort, run}: answers that this tab receives (answers.js)
  isLeaving: false, // the page is being closed: what ends now was not ended by the server
};

export const find = (id) => state.conversations.find((c) => c.id === id);
export const isEmpty = (c) => c.nodes.root.children.length === 0;
export const titleOf = (c) => c.title || 'New conversation';
export const modelName = () => state.server.model.id || 'lace';

// Chat, or plain continuation for a model that knows no chat.
export function mode({ props } = state.server) {
  const wanted = settingsValues().mode;
  if (wanted !== 'auto') return wanted;
  const template = props.chat_template;
  if (props.has_chat_template === false || template === '' || template === null) return 'text';
  return 'chat';
}

// Why the model takes no images, as a sentence; '' if it does, or if that is not known yet.
export function whyNoImages(server = state.server) {
  const name = server.model.id || 'This model';
  if (!isKnown(server)) return '';
  if (server.props.modalities?.vision !== true) return `${name} does not see images.`;
  return mode(server) === 'text' ? 'Images go along in a chat only, and the settings say “Continue the text”.' : '';
}

// Tokens that a request may have, or 0 if the server does not say.
export function contextSize() {
  const { props, model } = state.server;
  const meta = model.meta || {};
  return props.n_ctx || props.n_context || meta.n_ctx || props.default_generation_settings?.n_ctx || meta.n_ctx_train || 0;
}

// A title: the first line of the first message, as it was written but for the marks of a heading or a quote.
export function makeTitle(conversation) {
  const first = shownPath(conversation)[0];
  if (!first) return '';
  const line = first.content.trim().split('\n')[0].replace(/^(?:#{1,6}|>|[-*+])\s+/, '').trim() || first.files[0]?.name || '';
  const letters = Intl.Segmenter ? [...new Intl.Segmenter().segment(line.slice(0, 4000))].map((s) => s.segment) : [...line];
  if (letters.length <= 60) return line;
  const cut = letters.slice(0, 60).join('');
  return `${cut.replace(/\s+\S*$/, '') || cut}…`;
}
